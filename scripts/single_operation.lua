-- The reply reports a state only for a check, a renewal or a penalty, below.
$reply = $zeros
if why then
  -- A broken key is neither blocked, paused nor unblocked.
elseif op == 'block' or op == 'pause' or op == 'unblock' and (blocked or paused) then
  if op == 'block' then
    -- The later end of two blocks counts.
    blocked = math.max(blocked or 0, now + back)
  elseif op == 'pause' then
    paused = math.max(paused or 0, now + back)
  else
    blocked, paused = nil, nil
    --@ if text
    -- An absent text may mean a key of another type, which stays.
    wiped = wiped or text and not ($exists or birth)
    --@ else
    wiped = wiped or not ($exists or birth)
    --@ end
  end
  -- The state stays as it was read, and lasts as long as before.
  changed = true
end
if op == 'refund' then
  -- Gives back `back` units of the cost, if the state still contains the charge of
  -- these marks, and the key was not reset since.
  local refunded
  --@ if holds
  if renews then
    --@ paste reply
    $reply = $values
  end
  if $exists and back <= cost and (birth or 0) == born[1] then
  --@ else
  if $exists and back >= 1 and back <= cost and (birth or 0) == born[1] then
  --@ end
    local mark1, mark2, mark3, mark4 = unpack(mark)
    --@ paste refund
    --@ if holds
    if renews and refunded then
      --@ paste consume
    end
    --@ end
  end
  kept = kept or refunded ~= nil
  wait = refunded or math.min(0, back)
elseif op == 'penalize' and born[1] and birth and born[1] ~= birth then
  -- A charge from before a reset takes nothing more. A key without a birth has expired
  -- since, which ends no debt.
  wait = cost
elseif op == 'penalize' then
  -- Takes the cost even if it does not fit, but not more than `most`: a debt has a
  -- bound. The reply has the units that could not be taken, and the state after it.
  local amount, most = cost, nil
  cost = 0
  --@ paste cost
  --@ paste fit
  --@ paste most
  cost = math.min(amount, most)
  wait = amount - cost
  if cost > 0 then
    --@ paste cost
    --@ if holds
    --@ paste spend
    --@ else
    --@ paste consume
    --@ end
    kept, cost, instant = true, 0, nil
    --@ paste cost
    --@ paste fit
  end
  --@ paste reply
  $reply = $values
  cost = amount
elseif op == 'grant' then
  -- Gives units back without a reservation. The reply has the state after it.
  local amount = cost
  cost = 0
  --@ paste cost
  if $exists and amount > 0 then
    --@ paste grant
    kept = true
  end
  --@ paste fit
  --@ paste reply
  $reply = $values
  cost = amount
elseif op == 'reset' then
  -- Empties the key, whatever it holds. If it is broken, the charges before this fail.
  --@ paste flaw
  if why then
    for i = start + FIRST, n, STRIDE do
      reply[i] = why
    end
  end
  $state = nil
  -- Differs from every earlier birth, even within a microsecond.
  birth = math.max(now, (birth or 0) + 1)
  kept, wiped, why = true, true, nil
elseif not blocked then
  --@ include single_check
end
if blocked and op ~= 'refund' then
  wait = format(op == 'penalize' and 'BLOCKED %d %d' or 'BLOCKED %d', blocked, wait)
end
