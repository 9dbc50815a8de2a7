-- Every script starts with these: strict numbers, the clock, and errors.

local INEXACT = 9007199254740992
local CORRUPT = 'CORRUPT the stored value is not one that this limiter writes'

-- Writes numbers with `%d`: faster than the conversion by the server.
local format = string.format

-- Parses a number as the scripts write it: exact digits without leading zeros.
-- Returns nil for any other text. A pattern is faster here than a comparison with `format`.
local find = string.find
local function integer(text)
  if find(text, '^[1-9]%d*$') or text == '0' then
    local number = text + 0
    return number < INEXACT and number or nil
  end
end

-- The number of the latest write, and its digits: often those of the next key, too.
local written, digits

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
