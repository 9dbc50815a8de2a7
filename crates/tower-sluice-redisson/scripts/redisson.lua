-- Redisson's RRateLimiter on Redisson's own keys: its permits. The script goes on in
-- redisson_settings.lua.
--
-- KEYS    the limiter's name; the value and the permits of everybody; the value and the permits of
--         one client
-- ARGV    now in µs since the Unix epoch, or empty: the server's TIME; an operation; its arguments
-- Reply   a list of integers: an outcome, now in µs, and the operation's results; waits in ms. For
--         a grant that was sent again, the instant of the grant. Where Redis refused a command, its
--         error.
-- Stored  name     a hash, the configuration: rate, interval (ms), type (0 everybody, 1 each
--                  client), keepAliveTime (ms)
--         value    the free permits; below 0 where a lower rate, or a penalty, found more in use
--         permits  a sorted set with a member for each grant, its score the time in ms. A member
--                  ends with its permits, four bytes in the order of this machine; before them
--                  stand random bytes, and how many those are.

local INEXACT = 9007199254740992

-- Writes numbers with `%d`: faster than the conversion by the server.
local format = string.format

-- Parses a number as the scripts write it: exact digits without leading zeros.
-- Returns nil for any other text.
local function integer(text)
  local number = tonumber(text)
  if number and number >= 0 and number < INEXACT and format('%d', number) == text then
    return number
  end
end

-- Returns now in microseconds: the caller's time if given, else the server's.
local function clock(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- Runs a command. Returns its error, or nil.
local function failure(...)
  local reply = redis.pcall(...)
  return type(reply) == 'table' and reply.err or nil
end

local DONE, REFUSED, EXCEEDS, NO_CONFIGURATION, BAD_CONFIGURATION = 0, 1, 2, 3, 4

-- The most members that one command, and one call, reads or removes: the server serves no other
-- caller meanwhile.
local CHUNK, MAX_MEMBERS = 256, 4096

-- Up to this number of members are added up, to check the value.
local SUM_LIMIT = 256

-- The longest interval and wait in ms: sums of instants stay exact.
local MAX_MILLIS = 4503599627370496

-- The error of the first write that failed. If the first write succeeds, all do.
local write_error

local function write(...)
  write_error = write_error or failure(...)
end

local function permits_of(member)
  return #member < 4 and 0 or (struct.unpack('I', member, #member - 3))
end

-- The member of a grant, in the format of Redisson 3.21 and later. Older formats are read too.
local function member_of(random, permits)
  return string.char(#random) .. random .. struct.pack('I', permits)
end

local function sum_permits(members)
  local permits = 0
  for _, member in ipairs(members) do
    permits = permits + permits_of(member)
  end
  return permits
end

-- The number that Java wrote, or nil.
local function signed(text)
  if string.byte(text) ~= 45 then
    return integer(text)
  end
  local number = integer(string.sub(text, 2))
  return number and number > 0 and -number or nil
end

-- Reads a limiter: its value, which is nil if it is missing or no number, and its count of
-- members. Returns nil and the error if it cannot be read.
local function read_limiter(rate, interval, kind, keep_alive)
  local limiter = { rate = rate, interval = interval, keep_alive = keep_alive }
  limiter.per_client = kind == '1'
  limiter.value_key, limiter.permits_key = KEYS[2], KEYS[3]
  if limiter.per_client then
    limiter.value_key, limiter.permits_key = KEYS[4], KEYS[5]
  end
  local text = redis.pcall('GET', limiter.value_key)
  local count = redis.pcall('ZCARD', limiter.permits_key)
  if type(text) == 'table' or type(count) == 'table' then
    return nil, type(text) == 'table' and text or count
  end
  limiter.exists = text and true or false
  limiter.stored = text and signed(text) or nil
  limiter.value, limiter.count, limiter.first = limiter.stored, count, 0
  return limiter
end

-- The configuration of the limiter: rate, interval, type, keepAliveTime. Or nil and the outcome
-- or error.
local function configuration()
  local fields = redis.pcall('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime')
  if fields.err then
    return nil, fields
  end
  local kind = fields[3]
  if not fields[1] or not fields[2] or not kind then
    return nil, NO_CONFIGURATION
  end
  local rate, interval = integer(fields[1]), integer(fields[2])
  local keep_alive = integer(fields[4] or '0')
  if not rate or rate < 1 or not interval or interval < 1 or interval > MAX_MILLIS
    or not keep_alive then
    return nil, BAD_CONFIGURATION
  end
  if kind ~= '0' and kind ~= '1' then
    return nil, BAD_CONFIGURATION
  end
  return { rate, interval, kind, keep_alive }
end

-- The permits of all counted members, expired or not.
local function total_permits(limiter)
  if not limiter.total then
    limiter.total = 0
    for first = limiter.first, limiter.first + limiter.count - 1, CHUNK do
      local chunk = redis.call('ZRANGE', limiter.permits_key, first, first + CHUNK - 1)
      limiter.total = limiter.total + sum_permits(chunk)
    end
  end
  return limiter.total
end

-- Removes expired members, or only ignores them, and updates the value.
local function remove_expired(limiter, now, read_only)
  local removed, expired_count = 0, 0
  repeat
    local from, cutoff = read_only and expired_count or 0, now - limiter.interval
    local expired =
      redis.call('ZRANGEBYSCORE', limiter.permits_key, '-inf', cutoff, 'LIMIT', from, CHUNK)
    if expired[1] and not read_only then
      write('ZREMRANGEBYRANK', limiter.permits_key, 0, #expired - 1)
    end
    removed, expired_count = removed + sum_permits(expired), expired_count + #expired
  until #expired < CHUNK or expired_count >= MAX_MEMBERS
  limiter.count, limiter.first = limiter.count - expired_count, read_only and expired_count or 0

  if not limiter.value then
    if read_only and limiter.count > SUM_LIMIT then
      -- A figure in a report is not worth adding up many members.
      limiter.value = 0
      return
    end
    limiter.value = limiter.rate - total_permits(limiter)
    return
  end
  if expired_count > 0 then
    local value = limiter.value + removed
    -- Each member holds at least one permit. So the count of members caps the value where adding
    -- them up would take long. Only permits that were credited twice exceed the rate: then the
    -- members are added up.
    local held = limiter.count > SUM_LIMIT and value <= limiter.rate and limiter.count
      or total_permits(limiter)
    limiter.value = math.min(value, limiter.rate - held)
  end
  limiter.value = math.min(limiter.value, limiter.rate)
end

-- Raises the value to what the members say: permits were subtracted twice, or members are
-- missing.
local function repair(limiter)
  if limiter.count <= SUM_LIMIT then
    limiter.value = math.max(limiter.value, limiter.rate - total_permits(limiter))
  end
end

-- The wait in ms until this number of further permits is free. It is a lower bound if they are
-- held by more members than one call reads.
local function wait_for(limiter, now, permits)
  local freed, last, first = 0, nil, 0
  -- Most members hold a permit, so few members are read for few permits. Only one score is read,
  -- because scores are slow to format.
  local count = math.max(16, math.min(permits, CHUNK))
  while freed < permits and first < math.min(limiter.count, MAX_MEMBERS) do
    local to = math.min(first + count, MAX_MEMBERS) - 1
    local chunk = redis.call('ZRANGE', limiter.permits_key, first, to)
    for i = 1, #chunk do
      if freed < permits then
        freed, last = freed + permits_of(chunk[i]), chunk[i]
      end
    end
    first = first + count
  end
  local score = last and tonumber(redis.call('ZSCORE', limiter.permits_key, last)) or now
  return math.max(1, math.min(math.ceil(score + limiter.interval - now), MAX_MILLIS))
end

local function store_value(limiter)
  if not limiter.stored then
    -- A value that is no number keeps its expiry. A missing value has none.
    write('SET', limiter.value_key, limiter.value, 'KEEPTTL')
  elseif limiter.value ~= limiter.stored then
    write('INCRBY', limiter.value_key, limiter.value - limiter.stored)
  end
end

-- Sets when the keys expire: after keepAliveTime, else with the configuration. Shared keys must
-- not expire before the configuration. A client's own keys, which no other client reads, expire
-- alone, but not before the permits do.
local function set_expiry(limiter)
  local rest = limiter.keep_alive
  if rest > 0 then
    write('PEXPIRE', KEYS[1], rest)
  else
    rest = redis.call('PTTL', KEYS[1])
    if rest < 0 and not limiter.per_client then
      write('PERSIST', limiter.value_key)
      write('PERSIST', limiter.permits_key)
      return
    end
    rest = math.max(rest, limiter.per_client and limiter.interval + 1000 or 1)
  end
  write('PEXPIRE', limiter.value_key, rest)
  write('PEXPIRE', limiter.permits_key, rest)
end

-- The numbers of a decision: the outcome; the wait, which for a grant of the last permit is the
-- wait for the next; the free permits; the time until all are free; the rate and the interval.
local function report(limiter, now, outcome, wait)
  local newest = redis.call('ZRANGE', limiter.permits_key, -1, -1, 'WITHSCORES')
  local reset = newest[2] and math.ceil(tonumber(newest[2]) + limiter.interval - now) or 0
  local left = math.max(0, math.min(limiter.value, limiter.rate))
  reset = math.max(0, math.min(reset, MAX_MILLIS))
  return outcome, wait, left, reset, limiter.rate, limiter.interval
end

-- Removes permits from a member, or all of it. Returns how many were removed.
local function remove_permits(limiter, member, permits)
  local rest = permits_of(member) - permits
  if rest > 0 then
    local smaller = string.sub(member, 1, -5) .. struct.pack('I', rest)
    if redis.call('ZSCORE', limiter.permits_key, smaller) then
      -- This is another grant: the four bytes of an old format cannot distinguish the two.
      return 0
    end
    write('ZADD', limiter.permits_key, redis.call('ZSCORE', limiter.permits_key, member), smaller)
  end
  write('ZREM', limiter.permits_key, member)
  return permits
end

-- Adds freed permits to the value. A missing value stays missing, because the members say what it
-- is.
local function credit(limiter, permits)
  if limiter.value then
    limiter.value = math.min(limiter.value + permits, limiter.rate)
    store_value(limiter)
  end
  set_expiry(limiter)
end

-- The operations on a configured limiter. Each returns an outcome and numbers.
local operations = {}

function operations.available(limiter, now)
  remove_expired(limiter, now)
  if limiter.exists then
    store_value(limiter)
    if not limiter.stored then
      set_expiry(limiter)
    end
  end
  repair(limiter)
  if limiter.value < 0 then
    return report(limiter, now, REFUSED, wait_for(limiter, now, -limiter.value))
  end
  return report(limiter, now, DONE, 0)
end

function operations.acquire(limiter, now, permits, random)
  permits = tonumber(permits)
  local member = member_of(random, permits)
  local granted = redis.call('ZSCORE', limiter.permits_key, member)
  if granted then
    -- The request was sent again. It was decided when it first arrived.
    remove_expired(limiter, now, true)
    set_expiry(limiter)
    limiter.granted = tonumber(granted)
    return report(limiter, limiter.granted, DONE, 0)
  end
  if permits > limiter.rate then
    remove_expired(limiter, now, true)
    return report(limiter, now, EXCEEDS, 0)
  end
  remove_expired(limiter, now)
  if limiter.value < permits then
    repair(limiter)
  end
  local outcome, wait = DONE, 0
  if limiter.value < permits then
    outcome, wait = REFUSED, wait_for(limiter, now, permits - limiter.value)
  else
    write('ZADD', limiter.permits_key, now, member)
    limiter.value, limiter.count = limiter.value - permits, limiter.count + 1
    -- So the next caller knows when to ask.
    wait = limiter.value == 0 and wait_for(limiter, now, 1) or 0
  end
  store_value(limiter)
  set_expiry(limiter)
  return report(limiter, now, outcome, wait)
end

-- Releases permits of the oldest members that have not expired. Returns how many, and whether
-- there may be more.
-- Takes permits whether or not they fit. The value may fall below 0.
function operations.penalize(limiter, now, permits, random)
  permits = tonumber(permits)
  remove_expired(limiter, now)
  repair(limiter)
  write('ZADD', limiter.permits_key, now, member_of(random, permits))
  limiter.value, limiter.count = limiter.value - permits, limiter.count + 1
  store_value(limiter)
  set_expiry(limiter)
  return report(limiter, now, DONE, 0)
end

function operations.release(limiter, now, permits)
  permits = tonumber(permits)
  local freed, seen, chunk = 0, 0, nil
  local live = format('(%d', now - limiter.interval)
  repeat
    chunk = redis.call('ZRANGEBYSCORE', limiter.permits_key, live, '+inf', 'LIMIT', 0, CHUNK)
    local whole = {}
    for i, member in ipairs(chunk) do
      local held = permits_of(member)
      if freed + held > permits then
        if freed < permits then
          freed = freed + remove_permits(limiter, member, permits - freed)
        end
        break
      end
      whole[i], freed = member, freed + held
    end
    if whole[1] then
      write('ZREM', limiter.permits_key, unpack(whole))
    end
    seen = seen + #whole
  until freed == permits or #whole < CHUNK or seen >= MAX_MEMBERS
  credit(limiter, freed)
  return DONE, freed, freed < permits and seen >= MAX_MEMBERS and 1 or 0
end

-- Refunds permits of one member, if it is still stored. Returns how many.
function operations.refund(limiter, _, permits, random, held)
  local member, freed = member_of(random, tonumber(held)), 0
  if redis.call('ZSCORE', limiter.permits_key, member) then
    freed = remove_permits(limiter, member, math.min(tonumber(permits), tonumber(held)))
    credit(limiter, freed)
  end
  return DONE, freed
end
