-- The clock, and the variables of a call.

-- How much longer than its state a key lives, in microseconds: as long as the state stays within
-- one such stretch, the expiry that was set first suffices. Part of the format: every writer of a
-- key keeps to one number.
local SPARE = 10000000

local KEYS, ARGV, pcall, ceil = KEYS, ARGV, redis.pcall, math.ceil
-- True if the caller gives the time.
local own_clock = ARGV[1] ~= ''
local now = clock(ARGV[1])
-- The reply, and how many elements of it are written.
local reply, n = { now }, 1
-- The element of ARGV that is read next. Those before it are now and the limiter's rule.
local a = 2 + ARGUMENTS
-- What a segment asks: how many charges, and the cost and the longest wait of each.
local repeats, cost, max_wait
--@ if complete
-- Its operation, nil for a check; the units to give back, or the time of a block; the marks, and
-- their births.
local op, back, mark, born
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
