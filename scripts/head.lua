-- What every script starts with: strict numbers, the clock, and what failed.

local INEXACT = 9007199254740992
local ONE_HOUR = 3600000
local CORRUPT = 'CORRUPT the stored value is not one that this limiter writes'

-- The number that `text` is, if it is one that a script writes: digits, exact,
-- without leading zeros.
local function integer(text)
  if #text > 16 or not string.find(text, '^%d+$') then
    return nil
  end
  local number = tonumber(text)
  local starts_with_0 = string.byte(text) == 48
  if number >= INEXACT or (number > 0) == starts_with_0 or (number == 0 and #text > 1) then
    return nil
  end
  return number
end

-- Now, in microseconds: the caller's if one is given, else the server's, read once.
local function clock(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- Why a command failed, if it did.
local function failure(...)
  local reply = redis.pcall(...)
  return type(reply) == 'table' and reply.err or nil
end
