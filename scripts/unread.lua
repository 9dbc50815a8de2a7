-- A text that is no state: a block with the state beneath it, as
-- `blocked:instant:state`, or a foreign value. A block that is over counts as if it
-- were not there.
blocked, text = string.match(text, '^blocked:(%d+):(.*)$')
why, blocked = CORRUPT, blocked and integer(blocked)
if blocked and text ~= '' then
  --@ paste read
  -- It is no plain number that could be changed in place.
  number = nil
end
if blocked and (text == '' or $exists) then
  why = blocked > now and format('BLOCKED %016d', blocked) or nil
end
blocked = why ~= CORRUPT and why and blocked
