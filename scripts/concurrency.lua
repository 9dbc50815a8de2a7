-- Concurrency: units are held until they are released, or their time is over. The twin of
-- src/algorithm/concurrency.rs.
--
-- Stored:  the start of the latest era, and the units that are held since it and since each of
--          the four eras before, as `era:units0:units1:units2:units3:units4`
-- Mark:    mark1: the start of the era since which the units are held

-- An era is a quarter of the time for which units are held at least. At the start of the fifth era
-- after that of a charge, its time is over.
--@ arguments horizon, limit, era_width

--@ state era, units0, units1, units2, units3, units4

-- Reads six numbers. Any other text leaves `era` nil.
--@ read
local digits, digits0, digits1, digits2, digits3, digits4 =
  string.match(text, '^(%d+):(%d+):(%d+):(%d+):(%d+):(%d+)$')
if digits then
  units0, units1, units2 = integer(digits0), integer(digits1), integer(digits2)
  units3, units4 = integer(digits3), integer(digits4)
  if units0 and units1 and units2 and units3 and units4 then
    era = integer(digits)
  end
end

-- Moves to the era of now.
--@ rebase
era = era - era % era_width
-- Six turns at most: after five of them, nothing is held.
while era + era_width <= now do
  if units0 + units1 + units2 + units3 + units4 == 0 then
    era = now - now % era_width
  else
    era = era + era_width
    units0, units1, units2, units3, units4 = 0, units0, units1, units2, units3
  end
end

-- If the clock steps back by more than an era, all units count as held since now.
--@ clamp
if era > now + era_width then
  units0 = units0 + units1 + units2 + units3 + units4
  era, units1, units2, units3, units4, clamped = now - now % era_width, 0, 0, 0, 0, true
end

--@ reply era, units0, units1, units2, units3, units4

-- Held units come back only if they are released, which cannot be foreseen: `unsettled`. A guess
-- says when to ask again: after 1 to 3 s, which the microseconds of the clock spread.
--@ fit
if cost <= limit then
  instant, unsettled = now, false
  if era and units0 + units1 + units2 + units3 + units4 + cost > limit then
    instant, unsettled = now + 1000000 + now % 2000001, true
  end
end

--@ consume
if not era then
  era, units0, units1, units2, units3, units4 = now - now % era_width, 0, 0, 0, 0, 0
end
units0 = units0 + cost

-- A penalty takes free units, which nobody releases.
--@ spend
if not era then
  era, units0, units1, units2, units3, units4 = now - now % era_width, 0, 0, 0, 0, 0
end
units0 = units0 + cost

-- At the end of the time of the last units.
--@ expires
local ends = units0 > 0 and 5 or units1 > 0 and 4 or units2 > 0 and 3 or units3 > 0 and 2
expires_at = era + era_width * (ends or units4 > 0 and 1 or 0)

--@ write
local layout = '%d:%d:%d:%d:%d:%d'
value = format(layout, era, units0, units1, units2, units3, units4)

--@ most
most = limit
if era then
  most = math.max(0, limit - units0 - units1 - units2 - units3 - units4)
end

-- Releases all units of the charge, whatever was used: there is nothing to spend. They are in the
-- era of the mark, or in later ones: a renewal whose answer got lost has moved them there.
--@ refund
local age = (era - mark1 + mark1 % era_width) / era_width
if age >= 0 and age <= 4 then
  local held, missing = { units4, units3, units2, units1, units0 }, cost
  for place = 5 - age, 5 do
    local freed = math.min(missing, held[place])
    held[place], missing = held[place] - freed, missing - freed
  end
  if missing == 0 then
    units4, units3, units2, units1, units0 = unpack(held)
    refunded = math.max(0, back)
  end
end
