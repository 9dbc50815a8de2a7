-- A check. `instant` is the earliest instant at which the cost fits, or nil if it never fits.
--@ if complete
if keep > 0 then
  -- It fits only where so many units more stay free.
  --@ if stock
  local $before, never = $state, false
  --@ paste stock
  --@ paste fit
  if never then
    instant = nil
  end
  $state = $before
  --@ else
  cost = cost + keep
  --@ paste cost
  --@ paste fit
  cost = cost - keep
  --@ paste cost
  --@ end
else
  --@ paste fit
end
--@ else
--@ paste fit
--@ end
-- The reply reports the state on which the charge is decided.
--@ paste reply
$reply = $values
if instant then
  -- What fits at an instant also fits later.
  if paused and paused > instant then
    instant = paused
  end
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
      --@ if complete
      --@ if stock
      if keep > 0 then
        local never
        --@ paste stock
      end
      --@ end
      --@ end
      --@ paste consume
      kept, wait = true, -1 - wait
      if birth then
        wait = format('RESET %d %d', wait, birth)
      end
    elseif clamped then
      -- A refusal writes nothing but a clamped state, which otherwise would move along
      -- with the clock.
      kept = true
    end
  end
end
