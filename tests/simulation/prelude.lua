-- What Redis gives to a script, in front of every script. The host passes functions: `raising`
-- makes a function raise the error that it returns, `located` makes an error of what was raised and
-- finds its line, and the others work on strings.
local raising, located, format_error, sha1hex, pack_message, pack_struct, unpack_struct = ...
local error, format, rawset, select = error, string.format, rawset, select
local tostring, type, xpcall, globals = tostring, type, xpcall, _G

-- Sends a command to the server: set for each run.
local command

-- Numbers go as text, in the digits that Redis writes.
local function send(...)
  local words, count = { ... }, select('#', ...)
  if count == 0 then
    return { err = 'ERR Please specify at least one argument for this redis lib call' }
  end
  for i = 1, count do
    if type(words[i]) == 'number' then
      words[i] = format('%.17g', words[i])
    elseif type(words[i]) ~= 'string' then
      return { err = 'ERR Lua redis lib command arguments must be strings or integers' }
    end
  end
  return command(words)
end

redis = { call = raising(send), pcall = send, sha1hex = sha1hex }

function redis.error_reply(text)
  return { err = format_error(text) }
end

function redis.status_reply(text)
  return { ok = text }
end

cmsgpack = { pack = pack_message }
struct = { pack = pack_struct, unpack = unpack_struct }

for _, name in ipairs({ 'dofile', 'loadfile', 'module', 'newproxy', 'print', 'require' }) do
  globals[name] = nil
end

setmetatable(globals, {
  __index = function(_, name)
    error(format("Script attempted to access nonexistent global variable '%s'", tostring(name)), 2)
  end,
  __newindex = function()
    error('Attempt to modify a readonly table', 2)
  end,
})

-- Runs a script. Returns whether it succeeded, and its value or its error.
return function(script, keys, arguments, own_command)
  command = own_command
  rawset(globals, 'KEYS', keys)
  rawset(globals, 'ARGV', arguments)
  return xpcall(script, located)
end
