-- What Redisson's own calls leave behind and answer, as its documentation and a run of it
-- tell: for steps of Java at given times, which a real one stamps by itself.
-- `interop/redisson` runs the real one.
--
-- KEYS  name, value, permits      ARGV  now in ms, a call, permits, 16 random bytes

local name, value, permits = KEYS[1], KEYS[2], KEYS[3]
local now, call, n, random = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]
local rate = tonumber(redis.call('HGET', name, 'rate'))
local interval = tonumber(redis.call('HGET', name, 'interval'))

local function sum(from, to)
  local total = 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', permits, from, to)) do
    total = total + struct.unpack('I', member, #member - 3)
  end
  return total
end

local function pruned(free, is_capped)
  local expired = sum(0, now - interval)
  if expired > 0 then
    redis.call('ZREMRANGEBYSCORE', permits, 0, now - interval)
    free = free + expired
    if is_capped and free > rate then
      free = rate - sum('-inf', '+inf')
    end
    redis.call('SET', value, free)
  end
  return free
end

if call == 'release' then
  redis.call('SET', value, math.min(rate, tonumber(redis.call('GET', value) or rate) + n))
  return 'nil'
end

local free = redis.call('GET', value)
if call == 'available' then
  if not free then
    redis.call('SET', value, rate)
    return tostring(rate)
  end
  return string.format('%.0f', pruned(tonumber(free), false))
end

if not free then
  free = rate
  redis.call('SET', value, rate)
else
  free = pruned(tonumber(free), true)
end
if free < n then
  local oldest = redis.call('ZRANGE', permits, 0, 0, 'WITHSCORES')
  return string.format('%.0f', 3 + interval - (now - tonumber(oldest[2])))
end
redis.call('ZADD', permits, now, string.char(16) .. random .. struct.pack('I', n))
redis.call('DECRBY', value, n)
return 'nil'
