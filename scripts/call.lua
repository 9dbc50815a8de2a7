-- The clock, and the variables of a call.

-- A key expires this many microseconds after its state. While the state stays within one such
-- stretch, the first expiry suffices. Part of the format: all writers of a key use one number.
local SPARE = 10000000

local KEYS, ARGV, pcall, ceil = KEYS, ARGV, redis.pcall, math.ceil
-- True if the caller gives the time.
local own_clock = ARGV[1] ~= ''
local now = clock(ARGV[1])
-- The reply, and the number of its elements.
local reply, n = { now }, 1
-- The next element of ARGV to read. Those before it are now and the limiter's rule.
local a = 2 + ARGUMENTS
-- The segment that was read: the number of its charges, their cost, and their longest wait.
local repeats, cost, max_wait
--@ if complete
-- Its operation, nil for a check; the units to give back, or the time of a block or a pause; the
-- marks; the births.
local op, back, mark, born
--@ if any_holds
-- True if the units of a refund are held anew.
local renews
--@ end
-- The units that stay free after a check; with several quotas, a list, or nil for none.
--@ if several
local keeps
--@ else
local keep
--@ end
max_wait = 0
--@ end
--@ each
-- The rule, and what follows from it.
--@ paste arguments
local $arguments
--@ if rule
local $rule
--@ end
--@ if cost
-- What follows from the rule and the cost.
local $cost
--@ end
--@ end
--@ if short
-- True if the short way may decide the segment, and what it needs.
local is_short
--@ each
local $short_cost
--@ end
--@ end
