-- The text is not a state. It is a block, `blocked:instant:text`; a pause, `paused:instant:text`; a
-- reset, `reset:birth:text`; several of them, in this order; or a foreign value. The inner text is a
-- state, or empty. A block or a pause that is over is ignored.
local until_digits, after_block = string.match(text, '^blocked:(%d+):(.*)$')
local pause_digits, after_pause = string.match(after_block or text, '^paused:(%d+):(.*)$')
local birth_digits, beneath = string.match(after_pause or after_block or text, '^reset:(%d+):(.*)$')
blocked, paused = integer(until_digits or ''), integer(pause_digits or '')
birth = integer(birth_digits or '')
why, text = CORRUPT, beneath or after_pause or after_block
local is_exact = (blocked or not until_digits) and (paused or not pause_digits)
if is_exact and (birth or not birth_digits) and text then
  if text ~= '' then
    --@ paste read
    -- The key does not hold a plain number, so INCRBY cannot change it.
    number = nil
  end
  if text == '' or $exists then
    why = blocked and blocked > now and format('BLOCKED %d', blocked) or nil
  end
end
blocked = why ~= CORRUPT and why and blocked
paused = why ~= CORRUPT and paused and paused > now and paused or nil
