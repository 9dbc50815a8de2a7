-- The yardstick: a lean GCRA, as a competitor would send it for each decision.
-- KEYS: the key. ARGV: microseconds of a unit, burst, cost. Reply: admitted, wait, remaining.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local unit, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now) + unit * cost
local wait = full - burst * unit - now
if wait > 0 then
  return { 0, wait, 0 }
end
redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000))
return { 1, 0, math.floor(-wait / unit) }
