-- A check. At `fits_at` it fits all quotas: what fits at an instant also fits later.
local fits_at, fits = now, true
--@ if any_holds
-- No wait is reserved while other charges have to be settled first.
local most_wait = max_wait
--@ end
--@ if own_costs
-- The `own_max_wait` of the quota that needs the longest wait.
local longest_wait = 0
--@ end
--@ each
local instant_N
do
  -- The earliest instant at which the cost fits quota N, nil if it never fits.
  --@ if complete
  local keep = keeps and keeps[N] or 0
  if keep > 0 then
    -- It fits only where so many units more stay free.
    --@ if stock
    local $before, never = $state, false
    --@ paste stock
    --@ paste fit
    if never then
      instant_N = nil
    end
    $state = $before
    --@ else
    --@ if own_costs
    cost_N = cost_N + keep
    --@ else
    cost = cost + keep
    --@ end
    --@ paste cost
    --@ paste fit
    --@ if own_costs
    cost_N = cost_N - keep
    --@ else
    cost = cost - keep
    --@ end
    --@ paste cost
    --@ end
  else
    --@ paste fit
  end
  --@ else
  --@ paste fit
  --@ end
  --@ paste reply
  $reply = $values
  -- What fits at an instant also fits later.
  instant_N = instant_N and math.max(instant_N, paused_at[slot_N] or 0)
end
--@ if holds
if unsettled then
  most_wait = -1
end
--@ end
if not instant_N then
  fits = false
  --@ if own_costs
elseif instant_N > fits_at then
  fits_at, longest_wait = instant_N, own_max_wait_N
elseif instant_N == fits_at then
  longest_wait = math.max(longest_wait, own_max_wait_N)
  --@ else
elseif instant_N > fits_at then
  fits_at = instant_N
  --@ end
end
--@ end
if fits then
  wait = fits_at - now
  --@ if complete
  if cost > 0 and op ~= 'estimate' and not blocked_at[0] then
  --@ else
  if cost > 0 and not blocked_at[0] then
  --@ end
    if
      --@ if own_costs
      wait <= longest_wait and
      --@ end
      --@ if any_holds
      wait <= most_wait
      --@ else
      wait <= max_wait
      --@ end
    then
      -- Takes the units of every quota, at that instant.
      --@ each
      do
        instant_N, kept_N = fits_at, true
        --@ if complete
        --@ if stock
        local keep, never = keeps and keeps[N] or 0, nil
        if keep > 0 then
          --@ paste stock
        end
        --@ end
        --@ end
        --@ paste consume
      end
      --@ end
      wait = -1 - wait
      if next(birth_at) then
        wait = format('RESET %d', wait)
        --@ each
        wait = format('%s %d', wait, birth_at[slot_N] or 0)
        --@ end
      end
    else
      -- A refusal writes nothing but a clamped state, which otherwise would move along
      -- with the clock.
      --@ each
      kept_N = kept_N or clamped_N
      --@ end
    end
  end
end
