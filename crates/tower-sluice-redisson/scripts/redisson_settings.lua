-- Redisson's RRateLimiter on Redisson's own keys: its configuration and its expiry. Comes after
-- redisson.lua, which describes keys, arguments and replies, and runs both.

-- The operations that do not read the permits: they work whatever is stored there. Each returns
-- an outcome and numbers, or an error reply.
local settings = {}

function settings.config()
  local found, fault = configuration()
  if not found then
    return fault
  end
  return DONE, found[1], found[2], tonumber(found[3]), found[4]
end

-- The time in ms until the configuration expires, -1 if it has no expiry, -2 if there is none.
function settings.time_to_live()
  return DONE, redis.call('PTTL', KEYS[1])
end

-- Deletes the permits, and keeps the configuration.
function settings.reset()
  local found, fault = configuration()
  if not found then
    return fault
  end
  local first = found[3] == '1' and 4 or 2
  write('UNLINK', KEYS[first], KEYS[first + 1])
  return DONE, 0, found[1], 0, found[1], found[2]
end

-- Writes a configuration, and returns the limiter as it was. Or nil and the error if it cannot be
-- read.
local function configure(rate, interval, kind, keep_alive)
  local limiter, fault =
    read_limiter(tonumber(rate), tonumber(interval), kind, tonumber(keep_alive))
  if not limiter then
    return nil, fault
  end
  write(
    'HSET', KEYS[1], 'rate', rate, 'interval', interval, 'type', kind, 'keepAliveTime', keep_alive
  )
  if keep_alive ~= '0' then
    write('PEXPIRE', KEYS[1], keep_alive)
  end
  return limiter
end

-- Configures a limiter without a complete configuration, or only a limiter without any key under
-- its name. Returns 1 if it did.
function settings.try_set(_, only_if_absent, rate, interval, kind, keep_alive)
  local fields = redis.pcall('HMGET', KEYS[1], 'rate', 'interval', 'type')
  if fields.err then
    return fields
  elseif fields[1] and fields[2] and fields[3] then
    return DONE, 0
  elseif only_if_absent == '1' and redis.call('EXISTS', KEYS[1]) == 1 then
    return NO_CONFIGURATION
  end
  local limiter, fault = configure(rate, interval, kind, keep_alive)
  if not limiter then
    return fault
  end
  if limiter.count > 0 then
    limiter.value = limiter.rate - total_permits(limiter)
    store_value(limiter)
    set_expiry(limiter)
  else
    write('DEL', limiter.value_key)
  end
  return DONE, 1
end

-- Configures a limiter again, or only one that exists, and deletes or keeps its permits. Returns
-- 1 if it did.
function settings.set(now, only_if_exists, keep, rate, interval, kind, keep_alive)
  local before = redis.pcall('HMGET', KEYS[1], 'type', 'keepAliveTime')
  if before.err then
    return before
  elseif only_if_exists == '1' and redis.call('EXISTS', KEYS[1]) == 0 then
    return DONE, 0
  end
  local limiter, fault = configure(rate, interval, kind, keep_alive)
  if not limiter then
    return fault
  end
  if (before[2] or '0') ~= '0' and keep_alive == '0' then
    for _, key in ipairs({ KEYS[1], limiter.value_key, limiter.permits_key }) do
      write('PERSIST', key)
    end
  end
  if before[1] and before[1] ~= kind then
    write('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
    limiter.value, limiter.stored, limiter.count = nil, nil, 0
  elseif keep == '0' then
    write('UNLINK', limiter.value_key, limiter.permits_key)
  end
  if keep == '1' then
    remove_expired(limiter, now)
    limiter.value = limiter.rate - total_permits(limiter)
    store_value(limiter)
    set_expiry(limiter)
  end
  return DONE, 1
end

-- Runs `command` on each key. Returns 1 if it changed one.
function settings.each(_, command, ...)
  local changed = 0
  for _, key in ipairs(KEYS) do
    local reply = redis.pcall(command, key, ...)
    if type(reply) == 'table' then
      return reply
    end
    changed = math.max(changed, reply)
  end
  return DONE, changed
end

local function run()
  local now = clock(ARGV[1])
  local millis, result = (now - now % 1000) / 1000, nil
  if settings[ARGV[2]] then
    result = { settings[ARGV[2]](millis, unpack(ARGV, 3)) }
  else
    local found, fault = configuration()
    local limiter = nil
    if found then
      limiter, fault = read_limiter(unpack(found))
    end
    result = limiter and { operations[ARGV[2]](limiter, millis, unpack(ARGV, 3)) } or { fault }
    now = limiter and limiter.granted and limiter.granted * 1000 or now
  end
  if write_error then
    return redis.error_reply(write_error)
  elseif type(result[1]) == 'table' then
    return result[1]
  end
  table.insert(result, 2, now)
  return result
end

return run()
