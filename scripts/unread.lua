-- The text is not a state. It is a block, `blocked:instant:text`; a reset,
-- `reset:birth:text`; both, in this order; or a foreign value. The inner text is a state,
-- or empty. A block that is over is ignored.
local until_digits, after_block = string.match(text, '^blocked:(%d+):(.*)$')
local birth_digits, beneath = string.match(after_block or text, '^reset:(%d+):(.*)$')
blocked, birth = integer(until_digits or ''), integer(birth_digits or '')
why, text = CORRUPT, beneath or after_block
if (blocked or not until_digits) and (birth or not birth_digits) and text then
  if text ~= '' then
    --@ paste read
    -- The key does not hold a plain number, so INCRBY cannot change it.
    number = nil
  end
  if text == '' or $exists then
    why = blocked and blocked > now and format('BLOCKED %016d', blocked) or nil
  end
end
blocked = why ~= CORRUPT and why and blocked
