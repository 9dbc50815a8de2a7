-- Reads the state of a key.
--@ if text
-- `none` stands for no state: the client writes it while a cluster moves the slot.
if text and text ~= 'none' then
  do
    --@ paste read
  end
  if not $exists then
    --@ include unread
  end
end
--@ else
--@ paste load
--@ end
--@ if complete
if blocked then
  -- A block refuses only checks, which are answered below.
  why = nil
end
--@ end
