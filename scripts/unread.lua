-- A text that is no state: a block, as `blocked:instant:text`; what was reset, as
-- `reset:birth:text`; both, in this order; or a foreign value. Beneath lies the text of
-- the state, or nothing. A block that is over counts as if it were not there.
local until_digits, after_block = string.match(text, '^blocked:(%d+):(.*)$')
local birth_digits, beneath = string.match(after_block or text, '^reset:(%d+):(.*)$')
blocked, birth = integer(until_digits or ''), integer(birth_digits or '')
why, text = CORRUPT, beneath or after_block
if (blocked or not until_digits) and (birth or not birth_digits) and text then
  if text ~= '' then
    --@ paste read
    -- It is no plain number that could be changed in place.
    number = nil
  end
  if text == '' or $exists then
    why = blocked and blocked > now and format('BLOCKED %016d', blocked) or nil
  end
end
blocked = why ~= CORRUPT and why and blocked
