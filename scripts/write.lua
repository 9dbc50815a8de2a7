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
  -- Nothing is to be stored.
  --@ if complete
elseif changed and ($exists or blocked) then
  expires_at = math.max(expires_at or 0, blocked or 0)
  --@ else
elseif changed and $exists then
  --@ end
  if expires_at < now then
    expires_at = now
  end
  --@ if text
  -- The text to store, or the number if that is all.
  local value, plain
  --@ if complete
  if $exists then
    --@ paste write
  end
  if blocked then
    if plain then
      value = format('%d', plain)
    end
    value, plain = format('blocked:%d:%s', blocked, value or ''), nil
  end
  --@ else
  --@ paste write
  --@ end
  if number and plain and not own_clock and plain - plain % SPARE == number - number % SPARE then
    -- A number in the same stretch: its expiry still comes late enough.
    local answer = pcall('INCRBY', key, format('%d', plain - number))
    why = type(answer) == 'table' and answer.err or nil
  else
    -- Expiry only collects garbage: it never comes before the state is old.
    local unit, expiry = 'PXAT', ceil((expires_at + SPARE) / 1000)
    if own_clock then
      -- An hour more, in milliseconds, since the clocks differ.
      unit, expiry = 'PX', ceil((expires_at - now) / 1000) + 3600000
    end
    expiry = format('%d', expiry)
    if plain then
      value = format('%d', plain)
    end
    -- A key of another type reads as absent: NX does not overwrite it.
    local answer
    if text then
      answer = pcall('SET', key, value, unit, expiry)
    else
      answer = pcall('SET', key, value, unit, expiry, 'NX')
    end
    if answer then
      why = answer.err
    else
      why = 'WRONGTYPE the key holds a value of another type'
    end
  end
  --@ else
  --@ paste store
  -- Expiry only collects garbage: it never comes before the state is old.
  if why then
    -- It could not be written.
  elseif own_clock then
    -- An hour more, in milliseconds, since the clocks differ.
    redis.call('PEXPIRE', key, ceil((expires_at - now) / 1000) + 3600000)
  else
    redis.call('PEXPIREAT', key, ceil((expires_at + SPARE) / 1000))
  end
  --@ end
--@ if text
elseif not text and not wiped then
  -- Nothing is written, so GET says whether an absent key is one of another type.
  why = failure('GET', key)
--@ end
end
