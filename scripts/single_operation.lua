-- The reply shows no state, unless a check or a penalty below does.
$reply = $zeros
if why then
  -- Neither blocked nor unblocked.
elseif op == 'block' or op == 'unblock' and blocked then
  if op == 'block' then
    -- Until the later end of two blocks.
    blocked = math.max(blocked or 0, now + back)
  else
    blocked = nil
    --@ if text
    -- An absent text may be a key of another type, which stays.
    wiped = wiped or text and not ($exists or birth)
    --@ else
    wiped = wiped or not ($exists or birth)
    --@ end
  end
  -- The state stays as it was read, and lasts as long as before.
  changed = true
end
if op == 'refund' then
  -- Gives back `back` of the cost, if the state shows that the charge of these
  -- marks stands in it, and the key was not reset since.
  local refunded
  --@ if holds
  if $exists and back <= cost and (birth or 0) == born[1] then
  --@ else
  if $exists and back >= 1 and back <= cost and (birth or 0) == born[1] then
  --@ end
    local mark1, mark2, mark3, mark4 = unpack(mark)
    --@ paste refund
  end
  kept = kept or refunded ~= nil
  wait = refunded or math.min(0, back)
elseif op == 'penalize' and born[1] and birth and born[1] ~= birth then
  -- The rest of a charge of before a reset is not taken. A key without a birth has
  -- expired since, which ends no debt.
  wait = cost
elseif op == 'penalize' then
  -- Takes the cost whether or not it fits, but not more than `most`: a debt has a
  -- bound. The answer is what could not be taken, and the state after it.
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
elseif op == 'reset' then
  -- Whatever the key holds, it holds it no more. The charges before it failed.
  --@ paste flaw
  if why then
    for i = start + 1, n, WIDTH do
      reply[i] = why
    end
  end
  $state = nil
  -- Different from each birth of before, also within a microsecond.
  birth = math.max(now, (birth or 0) + 1)
  kept, wiped, why = true, true, nil
elseif not blocked then
  --@ include single_check
end
if blocked and op ~= 'refund' then
  wait = format(op == 'penalize' and 'BLOCKED %016d %d' or 'BLOCKED %016d', blocked, wait)
end
