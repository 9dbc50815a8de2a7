-- Reads a segment: the number of its charges, their rule, and their operation.
repeats = ARGV[a] + 0
a = a + 1
-- The rule begins at ARGV[2], unless the charges bring their own.
local from = 2
if ARGV[a] == 'quota' then
  from = a + 1
  a = from + ARGUMENTS
end
--@ each
$arguments = $numbers
--@ paste rule
--@ end
--@ if complete
--@ if several
keeps = nil
--@ else
keep = 0
--@ end
if ARGV[a] == 'keep' then
  --@ if several
  keeps = {}
  for i = 1, QUOTAS do
    keeps[i] = ARGV[a + i] + 0
  end
  --@ else
  keep = ARGV[a + 1] + 0
  --@ end
  a = a + 1 + QUOTAS
end
-- For settlements: the birth of each quota's key when it was charged, 0 if it was not reset before.
born = {}
if ARGV[a] == 'born' then
  for i = 1, QUOTAS do
    born[i] = ARGV[a + i] + 0
  end
  a = a + 1 + QUOTAS
end
op = ARGV[a]
--@ if any_holds
renews = op == 'renew'
if renews or op == 'refund' or op == 'settle' then
--@ else
if op == 'refund' or op == 'settle' then
--@ end
  back = ARGV[a + 1] + 0
  if op == 'settle' then
    -- The units to give back are the unused ones: below 0 if more was used than taken.
    a, back = a + 1, ARGV[a + 2] - back
  end
  a = a + 1
  cost, mark = ARGV[a] + 0, {}
  for i = 1, 4 * QUOTAS do
    mark[i] = tonumber(ARGV[a + i]) or ARGV[a + i]
  end
  for i = 1, QUOTAS do
    born[i] = born[i] or 0
  end
  op, a = 'refund', a + 1 + 4 * QUOTAS
elseif op == 'penalize' or op == 'grant' then
  cost, a = ARGV[a + 1] + 0, a + 2
elseif op == 'estimate' then
  cost, max_wait, a = ARGV[a + 1] + 0, ARGV[a + 2] + 0, a + 3
elseif op == 'reset' or op == 'unblock' then
  cost, a = 0, a + 1
elseif op == 'block' or op == 'pause' then
  -- The time of the block or the pause.
  cost, back, a = 0, ARGV[a + 1] + 0, a + 2
else
  -- A check: its first word is the cost.
  op, cost, max_wait, a = nil, op + 0, ARGV[a + 1] + 0, a + 2
end
max_wait = math.min(max_wait, $horizons)
--@ else
cost, max_wait, a = ARGV[a] + 0, math.min(ARGV[a + 1] + 0, $horizons), a + 2
--@ end
--@ each
--@ if own_costs
if cost == 0 then
  cost_N = 0
end
--@ end
--@ paste cost
--@ end
--@ if short
-- Nearly all segments are alone with their keys, and take units.
is_short = segments == 1 and cost > 0
if is_short then
  --@ paste short_cost
end
--@ end
