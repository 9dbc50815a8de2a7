-- What every call begins with: the clock, and what is kept of the arguments.

-- How much longer than its state a key lives, in microseconds: as long as the state stays within
-- one such stretch, the expiry that was set first suffices. Part of the format: every writer of a
-- key keeps to one number.
local SPARE = 10000000

local KEYS, ARGV, pcall, ceil = KEYS, ARGV, redis.pcall, math.ceil
local own_clock = ARGV[1] ~= ''
local now = clock(ARGV[1])
local reply, n = { now }, 1
-- Where ARGV is read.
local a = 2 + ARGUMENTS
local repeats, cost, max_wait
--@ if complete
local op, back, mark
max_wait = 0
--@ end
--@ each
local $arguments
--@ if rule
local $rule
--@ end
--@ if cost
local $cost
--@ end
--@ end
