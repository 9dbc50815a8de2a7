-- At 0 stands the longest block of this charge, and whether one of its keys is broken.
blocked_at[0], why_at[0] = 0, nil
--@ each
why_at[0] = why_at[0] or why_at[slot_N]
--@ end
--@ each
-- The reply shows no state of quota N, unless a check or a penalty below does.
$reply = $zeros
if why_at[0] then
  -- Neither blocked nor unblocked.
elseif op == 'block' or op == 'unblock' and blocked_at[slot_N] then
  if op == 'block' then
    -- Until the later end of two blocks.
    blocked_at[slot_N] = math.max(blocked_at[slot_N] or 0, now + back)
  else
    blocked_at[slot_N] = nil
    --@ if text
    -- An absent text may be a key of another type, which stays.
    wiped_at[slot_N] = wiped_at[slot_N] or texts[slot_N] and not ($exists or birth_at[slot_N])
    --@ else
    wiped_at[slot_N] = wiped_at[slot_N] or not ($exists or birth_at[slot_N])
    --@ end
  end
  -- The state stays as it was read, and lasts as long as before.
  changed_at[slot_N] = true
end
blocked_at[0] = math.max(blocked_at[0], blocked_at[slot_N] or 0)
--@ end
if op == 'refund' then
  -- Gives back `back` of the cost to each quota whose state shows that the charge
  -- stands in it, and whose key was not reset since.
  local any
  --@ each
  local refunded_N
  do
    local is_same = (birth_at[slot_N] or 0) == born[N]
    --@ if holds
    if is_same and $exists and back <= cost then
    --@ else
    if is_same and $exists and back >= 1 and back <= cost then
    --@ end
      local mark1, mark2, mark3, mark4 = unpack(mark, 4 * N - 3, 4 * N)
      --@ if own_costs
      local back = cost_N
      --@ end
      --@ paste refund
      --@ if holds
      --@ paste clamp
      --@ end
    end
    --@ if any_holds
    --@ if holds
    --@ else
    if is_same and back < 0 then
      -- More was used than taken: what is missing is taken now, as a penalty.
      local most, instant_N
      local taken = cost
      cost = 0
      --@ paste cost
      --@ paste fit
      if instant_N - now <= horizon_N then
        --@ paste unchecked
        cost = math.min(-back, most)
        --@ paste cost
        --@ paste consume
        --@ paste clamp
        refunded_N = 0
      end
      cost = taken
      --@ paste cost
    end
    --@ end
    --@ end
  end
  if refunded_N then
    any, wait = true, math.max(wait, refunded_N)
  end
  --@ end
  --@ each
  kept_N = kept_N or refunded_N ~= nil or any and clamped_N
  --@ end
elseif op == 'penalize' then
  -- Takes the cost whether or not it fits, unless a peek would wait longer than the
  -- horizon: so the debt has a bound.
  local amount, fits_at = cost, now
  cost = 0
  --@ each
  do
    local instant_N
    --@ if own_costs
    local cost_N = 0
    --@ end
    --@ paste cost
    --@ paste fit
    --@ paste reply
    $reply = $values
    fits_at = math.max(fits_at, instant_N)
  end
  --@ end
  wait = fits_at - now
  if amount > 0 and wait <= math.min($horizons) then
    wait = 0
    --@ each
    do
      -- `most` is the largest cost that the sums can hold.
      local most, instant_N = nil, fits_at
      --@ paste unchecked
      cost = math.min(amount, most)
      --@ if own_costs
      local cost_N = math.min(cost_N, most)
      --@ end
      -- The rest of a charge of before a reset is not taken.
      if (born[N] or birth_at[slot_N] or 0) == (birth_at[slot_N] or 0) then
        --@ paste cost
        --@ if holds
        --@ paste spend
        --@ else
        --@ paste consume
        --@ end
        --@ paste clamp
        kept_N = true
      end
      -- The answer is that of a peek after it.
      cost, instant_N = 0, nil
      --@ if own_costs
      cost_N = 0
      --@ end
      --@ paste cost
      --@ paste fit
      --@ paste reply
      $reply = $values
      wait = math.max(wait, instant_N - now)
    end
    --@ end
  end
  cost = amount
elseif op == 'reset' then
  -- Whatever the keys hold, they hold it no more. The charges before it failed.
  --@ each
  do
    local why
    --@ paste flaw
    why_at[slot_N] = why_at[slot_N] or why
    for j = 1, why_at[slot_N] and k or 0 do
      if known[KEYS[(j - 1) * QUOTAS + N]] == slot_N then
        for i = starts[j] + 1, starts[j + 1] or n, WIDTH do
          reply[i] = why_at[slot_N]
        end
      end
    end
  end
  $state = nil
  -- Different from each birth of before, also within a microsecond.
  birth_at[slot_N] = math.max(now, (birth_at[slot_N] or 0) + 1)
  kept_N, wiped_at[slot_N], why_at[slot_N] = true, true, nil
  --@ end
elseif blocked_at[0] == 0 then
  --@ include several_check
end
if blocked_at[0] > 0 and op ~= 'refund' then
  wait = format('BLOCKED %016d', blocked_at[0])
end
