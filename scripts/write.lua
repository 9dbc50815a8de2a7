if changed and not why and (birth or not expires_at) then
  -- A key that was blocked, paused or reset keeps its time to live: a year if it had none. 2^51 keeps the
  -- sum exact. A key that was reset lives for at least ten minutes, so that requests from before
  -- settle nothing.
  local YEAR, MOST, MEMORY = 31536000000000, 2251799813685248, 600000000
  local lasts = pcall('PTTL', key)
  if type(lasts) == 'table' then
    why = lasts.err
  else
    lasts = math.min(lasts == -1 and YEAR or lasts * 1000, MOST)
    lasts = lasts - (own_clock and 3600000000 or SPARE)
    expires_at = math.max(expires_at or 0, now + lasts, birth and now + MEMORY or 0)
  end
end
--@ if complete
if wiped and not why then
  why = failure('UNLINK', key)
  number = nil
  --@ if text
  text = nil
  --@ end
end
--@ end
if why then
  -- An error: stores nothing.
  --@ if complete
elseif changed and ($exists or blocked or paused or birth) then
  expires_at = math.max(expires_at or 0, blocked or 0, paused or 0)
  --@ else
elseif changed and $exists then
  if paused and paused > expires_at then
    expires_at = paused
  end
  --@ end
  if expires_at < now then
    expires_at = now
  end
  --@ if text
  -- The text to store, or the number if it is a plain one.
  local plain
  --@ if complete
  if $exists then
    --@ paste write
  end
  --@ else
  --@ if short
  if not value then
    --@ paste write
  end
  --@ else
  --@ paste write
  --@ end
  --@ end
  if birth then
    value = format('reset:%d:%s', birth, plain and format('%d', plain) or value or '')
    plain = nil
  end
  if paused then
    value = format('paused:%d:%s', paused, plain and format('%d', plain) or value or '')
    plain = nil
  end
  --@ if complete
  if blocked then
    value = format('blocked:%d:%s', blocked, plain and format('%d', plain) or value or '')
    plain = nil
  end
  --@ end
  if number and plain and not own_clock and plain - plain % SPARE == number - number % SPARE then
    -- A number in the same stretch: its expiry is late enough.
    local more = plain - number
    if more ~= written then
      written, digits = more, format('%d', more)
    end
    local answer = pcall('INCRBY', key, digits)
    why = type(answer) == 'table' and answer.err or nil
  else
    -- Expiry only collects garbage: it comes after the state is equivalent to no state.
    local unit, expiry = 'PXAT', ceil((expires_at + SPARE) / 1000)
    if own_clock then
      -- An hour more, in milliseconds, since the clocks differ.
      unit, expiry = 'PX', ceil((expires_at - now) / 1000) + 3600000
    end
    if expiry ~= written then
      written, digits = expiry, format('%d', expiry)
    end
    if plain then
      value = format('%d', plain)
    end
    -- A key of another type reads as absent: NX does not overwrite it.
    local answer
    if text then
      answer = pcall('SET', key, value, unit, digits)
    else
      answer = pcall('SET', key, value, unit, digits, 'NX')
    end
    if answer then
      why = answer.err
    else
      why = 'WRONGTYPE the key holds a value of another type'
    end
  end
  --@ else
  --@ paste store
  -- Expiry only collects garbage: it comes after the state is equivalent to no state.
  if why then
    -- The write failed.
  elseif own_clock then
    -- An hour more, in milliseconds, since the clocks differ.
    redis.call('PEXPIRE', key, ceil((expires_at - now) / 1000) + 3600000)
  else
    redis.call('PEXPIREAT', key, ceil((expires_at + SPARE) / 1000))
  end
  --@ end
--@ if text
elseif not text and not wiped then
  -- Nothing is written, so GET finds out if the absent key has another type.
  why = failure('GET', key)
--@ end
end
