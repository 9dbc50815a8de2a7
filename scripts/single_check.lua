-- A check. `instant` is the earliest at which the cost fits, or nil if it never does.
--@ paste fit
-- The reply says the state that this was decided on.
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
      -- Takes the units, at that instant.
      --@ paste consume
      kept, wait = true, -1 - wait
      if birth then
        wait = format('RESET %d %d', wait, birth)
      end
    elseif clamped then
      -- The only write of a refusal: or the clamped state would move along with the
      -- clock.
      kept = true
    end
  end
end
