-- Redisson's RRateLimiter on Redisson's own keys: its permits. The twin of
-- src/redisson/permit_log.rs. After head.lua and before redisson_settings.lua it is a
-- script of its own.
--
-- KEYS    the limiter's name; the value and the permits of everybody; the value and the permits of
--         one client
-- ARGV    now in µs since the Unix epoch, or empty: the server's TIME; an operation; its arguments
-- Reply   a list of integers: an outcome, now in µs, and what the operation tells. Waits are in ms.
--         Where Redis refused a command, its error.
-- Stored  name     a hash, the configuration: rate, interval (ms), type (0 everybody, 1 each
--                  client), keepAliveTime (ms)
--         value    the free permits; below 0 where a lower rate found more in use
--         permits  a sorted set with a member for each grant, its score the time in ms. A member
--                  ends with its permits, four bytes in the order of this machine; before them
--                  stand random bytes, and how many those are.

local DONE, REFUSED, EXCEEDS, NO_CONFIGURATION, BAD_CONFIGURATION = 0, 1, 2, 3, 4

-- The members that one command reads or removes, and that one call does: the server serves
-- nobody else meanwhile.
local CHUNK, MOST = 256, 4096

-- So few members are added up, to see whether the value is right.
local FEW = 256

-- The longest interval and wait in ms, with which sums of instants stay exact.
local LONGEST = 4503599627370496

-- Why a write failed: if the first one succeeds, all do.
local why

local function write(...)
  why = why or failure(...)
end

local function permits_of(member)
  return #member < 4 and 0 or (struct.unpack('I', member, #member - 3))
end

-- The member of a grant in the format of Redisson 3.21 and later. All that came before it are read.
local function member_of(random, permits)
  return string.char(#random) .. random .. struct.pack('I', permits)
end

local function sum(members)
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

-- What is stored for a configuration: the value, which is nil if it is missing or no number, and
-- the count of members. Or nil and why it cannot be read.
local function books_of(rate, interval, kind, keep_alive)
  local books = { rate = rate, interval = interval, per_client = kind == '1', keep_alive = keep_alive }
  books.value_key, books.permits = KEYS[2], KEYS[3]
  if books.per_client then
    books.value_key, books.permits = KEYS[4], KEYS[5]
  end
  local text, count = redis.pcall('GET', books.value_key), redis.pcall('ZCARD', books.permits)
  if type(text) == 'table' or type(count) == 'table' then
    return nil, type(text) == 'table' and text or count
  end
  books.exists = text and true or false
  books.stored = text and signed(text) or nil
  books.value, books.count, books.first = books.stored, count, 0
  return books
end

-- The configuration of the limiter: rate, interval, type, keepAliveTime. Or nil and
-- why there is none.
local function configuration()
  local fields = redis.pcall('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime')
  if fields.err then
    return nil, fields
  end
  local kind = fields[3]
  if not fields[1] or not fields[2] or not kind then
    return nil, NO_CONFIGURATION
  end
  local rate, interval, keep_alive = integer(fields[1]), integer(fields[2]), integer(fields[4] or '0')
  if not rate or rate < 1 or not interval or interval < 1 or interval > LONGEST or not keep_alive then
    return nil, BAD_CONFIGURATION
  end
  if kind ~= '0' and kind ~= '1' then
    return nil, BAD_CONFIGURATION
  end
  return { rate, interval, kind, keep_alive }
end

-- The permits of every member that is counted, expired or not.
local function total(books)
  if not books.total then
    books.total = 0
    for first = books.first, books.first + books.count - 1, CHUNK do
      books.total = books.total + sum(redis.call('ZRANGE', books.permits, first, first + CHUNK - 1))
    end
  end
  return books.total
end

-- Removes members that have expired, or only leaves them out, and makes the value what it then is.
local function settle(books, now, only_look)
  local removed, gone = 0, 0
  repeat
    local from, cutoff = only_look and gone or 0, now - books.interval
    local old = redis.call('ZRANGEBYSCORE', books.permits, '-inf', cutoff, 'LIMIT', from, CHUNK)
    if old[1] and not only_look then
      write('ZREMRANGEBYRANK', books.permits, 0, #old - 1)
    end
    removed, gone = removed + sum(old), gone + #old
  until #old < CHUNK or gone >= MOST
  books.count, books.first = books.count - gone, only_look and gone or 0

  if not books.value then
    if only_look and books.count > FEW then
      -- Not worth adding up for a figure.
      books.value = 0
      return
    end
    books.value = books.rate - total(books)
    return
  end
  if gone > 0 then
    local value = books.value + removed
    -- Each member holds a permit at least, so their count caps the value where adding them up
    -- would take long. More than the rate is only where permits were credited twice: then
    -- they are added up.
    local held = books.count > FEW and value <= books.rate and books.count or total(books)
    books.value = math.min(value, books.rate - held)
  end
  books.value = math.min(books.value, books.rate)
end

-- Gives back to the value what was subtracted from it twice, or for members that are gone.
local function heal(books)
  if books.count <= FEW then
    books.value = math.max(books.value, books.rate - total(books))
  end
end

-- The wait until so many more permits are free, in ms; a lower bound if more members than one call
-- reads stand before.
local function wait_for(books, now, permits)
  local freed, last, first = 0, nil, 0
  -- Most members hold a permit at least, so that for few permits few are read. One score is: they
  -- are dear to format.
  local count = math.max(16, math.min(permits, CHUNK))
  while freed < permits and first < math.min(books.count, MOST) do
    local chunk = redis.call('ZRANGE', books.permits, first, math.min(first + count, MOST) - 1)
    for i = 1, #chunk do
      if freed < permits then
        freed, last = freed + permits_of(chunk[i]), chunk[i]
      end
    end
    first = first + count
  end
  local score = last and tonumber(redis.call('ZSCORE', books.permits, last)) or now
  return math.max(1, math.min(math.ceil(score + books.interval - now), LONGEST))
end

local function store(books)
  if not books.stored then
    -- What is no number keeps its expiry; what was missing has none.
    write('SET', books.value_key, books.value, 'KEEPTTL')
  elseif books.value ~= books.stored then
    write('INCRBY', books.value_key, books.value - books.stored)
  end
end

-- Sets when keys expire: as keepAliveTime has it, else as the configuration does. Those of
-- everybody must not go before the configuration; a client's own, which nobody else reads, go by
-- themselves, and not before the permits expire.
local function extend(books)
  local rest = books.keep_alive
  if rest > 0 then
    write('PEXPIRE', KEYS[1], rest)
  else
    rest = redis.call('PTTL', KEYS[1])
    if rest < 0 and not books.per_client then
      write('PERSIST', books.value_key)
      write('PERSIST', books.permits)
      return
    end
    rest = math.max(rest, books.per_client and books.interval + 1000 or 1)
  end
  write('PEXPIRE', books.value_key, rest)
  write('PEXPIRE', books.permits, rest)
end

-- What a decision tells besides its outcome: the wait, of a grant that until the next permit if
-- none is left; the permits left; when all are free again; and the rate.
local function report(books, now, outcome, wait)
  local newest = redis.call('ZRANGE', books.permits, -1, -1, 'WITHSCORES')
  local reset = newest[2] and math.ceil(tonumber(newest[2]) + books.interval - now) or 0
  local left = math.max(0, math.min(books.value, books.rate))
  return outcome, wait, left, math.max(0, math.min(reset, LONGEST)), books.rate, books.interval
end

-- Removes a member, or that part of its permits. Tells how many that were.
local function take_from(books, member, permits)
  local rest = permits_of(member) - permits
  if rest > 0 then
    local smaller = string.sub(member, 1, -5) .. struct.pack('I', rest)
    if redis.call('ZSCORE', books.permits, smaller) then
      -- Another grant, which the four bytes of an old format do not tell from this one.
      return 0
    end
    write('ZADD', books.permits, redis.call('ZSCORE', books.permits, member), smaller)
  end
  write('ZREM', books.permits, member)
  return permits
end

-- Adds to the value what members that are gone held. A missing value stays missing: the members
-- tell what it is.
local function credit(books, permits)
  if books.value then
    books.value = math.min(books.value + permits, books.rate)
    store(books)
  end
  extend(books)
end

-- What is done to a limiter that is configured. Each returns an outcome, and what else it tells.
local operations = {}

function operations.available(books, now)
  settle(books, now)
  if books.exists then
    store(books)
    if not books.stored then
      extend(books)
    end
  end
  heal(books)
  if books.value < 0 then
    return report(books, now, REFUSED, wait_for(books, now, -books.value))
  end
  return report(books, now, DONE, 0)
end

function operations.acquire(books, now, permits, random)
  permits = tonumber(permits)
  local member = member_of(random, permits)
  if redis.call('ZSCORE', books.permits, member) then
    -- Sent again.
    settle(books, now, true)
    extend(books)
    return report(books, now, DONE, 0)
  end
  if permits > books.rate then
    settle(books, now, true)
    return report(books, now, EXCEEDS, 0)
  end
  settle(books, now)
  if books.value < permits then
    heal(books)
  end
  local outcome, wait = DONE, 0
  if books.value < permits then
    outcome, wait = REFUSED, wait_for(books, now, permits - books.value)
  else
    write('ZADD', books.permits, now, member)
    books.value, books.count = books.value - permits, books.count + 1
    -- The next one need not ask in vain to hear when.
    wait = books.value == 0 and wait_for(books, now, 1) or 0
  end
  store(books)
  extend(books)
  return report(books, now, outcome, wait)
end

-- Gives back permits of the oldest members that have not expired. Tells how many, and whether
-- there may be more.
function operations.release(books, now, permits)
  permits = tonumber(permits)
  local freed, seen, chunk = 0, 0, nil
  local live = string.format('(%.0f', now - books.interval)
  repeat
    chunk = redis.call('ZRANGEBYSCORE', books.permits, live, '+inf', 'LIMIT', 0, CHUNK)
    local whole = {}
    for i, member in ipairs(chunk) do
      local held = permits_of(member)
      if freed + held > permits then
        if freed < permits then
          freed = freed + take_from(books, member, permits - freed)
        end
        break
      end
      whole[i], freed = member, freed + held
    end
    if whole[1] then
      write('ZREM', books.permits, unpack(whole))
    end
    seen = seen + #whole
  until freed == permits or #whole < CHUNK or seen >= MOST
  credit(books, freed)
  return DONE, freed, freed < permits and seen >= MOST and 1 or 0
end

-- Gives back permits of one member, if it is still stored.
operations['return'] = function(books, _, permits, random, held)
  local member, freed = member_of(random, tonumber(held)), 0
  if redis.call('ZSCORE', books.permits, member) then
    freed = take_from(books, member, math.min(tonumber(permits), tonumber(held)))
    credit(books, freed)
  end
  return DONE, freed
end
