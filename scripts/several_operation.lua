-- Element 0 tells if a key is blocked, and the error of a broken key.
blocked_at[0], why_at[0] = nil, nil
--@ each
why_at[0] = why_at[0] or why_at[slot_N]
--@ end
--@ each
-- The reply reports a state of quota N only for a check, a renewal or a penalty, below.
$reply = $zeros
if why_at[0] then
  -- A broken key is neither blocked, paused nor unblocked.
elseif op == 'block' or op == 'pause' or op == 'unblock' and (blocked_at[slot_N] or paused_at[slot_N]) then
  if op == 'block' then
    -- The later end of two blocks counts.
    blocked_at[slot_N] = math.max(blocked_at[slot_N] or 0, now + back)
  elseif op == 'pause' then
    paused_at[slot_N] = math.max(paused_at[slot_N] or 0, now + back)
  else
    blocked_at[slot_N], paused_at[slot_N] = nil, nil
    --@ if text
    -- An absent text may mean a key of another type, which stays.
    wiped_at[slot_N] = wiped_at[slot_N] or texts[slot_N] and not ($exists or birth_at[slot_N])
    --@ else
    wiped_at[slot_N] = wiped_at[slot_N] or not ($exists or birth_at[slot_N])
    --@ end
  end
  -- The state stays as it was read, and lasts as long as before.
  changed_at[slot_N] = true
end
blocked_at[0] = blocked_at[0] or blocked_at[slot_N]
--@ end
if op == 'refund' then
  -- Gives back `back` units of the cost to each quota whose state still contains the
  -- charge, and whose key was not reset since.
  local any
  --@ if any_holds
  -- True if units are no longer held that a renewal is about.
  local lost = false
  --@ end
  --@ each
  local refunded_N
  do
    local is_same = (birth_at[slot_N] or 0) == born[N]
    --@ if holds
    if renews then
      --@ paste reply
      $reply = $values
    end
    if is_same and $exists and back <= cost then
    --@ else
    --@ if any_holds
    is_same = is_same and not renews
    --@ end
    if is_same and $exists and back >= 1 and back <= cost then
    --@ end
      local mark1, mark2, mark3, mark4 = unpack(mark, 4 * N - 3, 4 * N)
      --@ if own_costs
      local back = cost_N
      --@ end
      --@ paste refund
      --@ if holds
      if renews and refunded_N then
        --@ paste consume
      end
      --@ end
    end
    --@ if any_holds
    --@ if holds
    lost = lost or not refunded_N
    --@ else
    if (is_same or not birth_at[slot_N]) and back < 0 then
      -- More was used than taken: takes the rest now, as a penalty, even from a key that
      -- has expired since.
      local amount, taken, most, instant_N = -back, cost, nil, nil
      cost = 0
      --@ paste cost
      --@ paste fit
      --@ paste most
      cost = math.min(amount, most)
      if cost > 0 then
        refunded_N = cost - amount
        --@ paste cost
        --@ paste consume
      end
      cost = taken
      --@ paste cost
    end
    --@ end
    --@ end
  end
  any = any or refunded_N ~= nil
  if back < 0 then
    wait = math.min(wait, refunded_N or back)
  else
    wait = math.max(wait, refunded_N or 0)
  end
  --@ end
  --@ if any_holds
  if renews then
    wait = lost and 0 or cost
  end
  --@ end
  --@ each
  kept_N = kept_N or refunded_N ~= nil or any and clamped_N
  --@ end
elseif op == 'penalize' then
  -- Each quota takes the cost even if it does not fit, but not more than `most`: a debt
  -- has a bound. The reply has the most units that one could not take, and the states
  -- after it.
  local amount_of_all = cost
  --@ each
  do
    --@ if own_costs
    local amount, most, instant_N = cost_N, nil, nil
    local cost_N = 0
    --@ else
    local amount, most, instant_N = amount_of_all, nil, nil
    --@ end
    cost = 0
    --@ paste cost
    --@ paste fit
    --@ paste most
    if born[N] and birth_at[slot_N] and born[N] ~= birth_at[slot_N] then
      -- A charge from before a reset takes nothing more. A key without a birth has
      -- expired since, which ends no debt.
      most = 0
    end
    --@ if own_costs
    cost_N = math.min(amount, most)
    --@ end
    cost = math.min(amount, most)
    wait = math.max(wait, amount - cost)
    if cost > 0 then
      --@ paste cost
      --@ if holds
      --@ paste spend
      --@ else
      --@ paste consume
      --@ end
      kept_N, cost, instant_N = true, 0, nil
      --@ if own_costs
      cost_N = 0
      --@ end
      --@ paste cost
      --@ paste fit
    end
    --@ paste reply
    $reply = $values
  end
  --@ end
  cost = amount_of_all
elseif op == 'grant' then
  -- Gives units back to each quota without a reservation. The reply has the states after it.
  local amount_of_all = cost
  --@ each
  do
    --@ if own_costs
    local amount, instant_N = cost_N, nil
    local cost_N = 0
    --@ else
    local amount, instant_N = amount_of_all, nil
    --@ end
    cost = 0
    --@ paste cost
    if $exists and amount > 0 then
      --@ paste grant
      kept_N = true
    end
    --@ paste fit
    --@ paste reply
    $reply = $values
  end
  --@ end
  cost = amount_of_all
elseif op == 'reset' then
  -- Empties the keys, whatever they hold. Of a broken key, the charges before this fail.
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
  -- Differs from every earlier birth, even within a microsecond.
  birth_at[slot_N] = math.max(now, (birth_at[slot_N] or 0) + 1)
  kept_N, wiped_at[slot_N], why_at[slot_N] = true, true, nil
  --@ end
else
  --@ include several_check
end
