-- A charge fits, or would fit at a later instant.
--@ paste fit
--@ paste reply
$reply = $values
if instant then
  wait = instant - now
  --@ if complete
  if op == 'estimate' then
    -- Nothing is taken.
  elseif cost > 0 then
  --@ else
  if cost > 0 then
  --@ end
    --@ if holds
    if wait <= max_wait and not unsettled then
    --@ else
    if wait <= max_wait then
    --@ end
      --@ paste consume
      -- The units are taken.
      kept, wait = true, -1 - wait
    elseif clamped then
      -- The only write of a refusal: or the clamped state would move along with the clock.
      kept = true
    end
  end
end
