-- Budget: a token bucket whose charges are held until they are settled. The twin of
-- src/algorithm/budget.rs.
--
-- Stored:  the instant at which the bucket is full again after what is spent, the start of the
--          latest era, and the units that are held since that era and since the one before, as
--          `full:begin:current:former`, or with a fraction as `full+part/denominator:...`; after a
--          `-` if the debt lasts longer than the horizon
-- Mark:    mark1: the start of the era since which the units are held

-- One unit takes unit_numerator / unit_denominator microseconds; max_debt: how long a key may owe;
-- max_hold: how long an era is.
--@ arguments horizon, unit_numerator, unit_denominator, burst, max_debt, max_hold

-- owes: true if the last write left a debt that lasts longer than the horizon.
--@ state full, part, denominator, begin, current, former, owes

--@ helpers
-- Returns when a bucket is full again after units are spent at an instant.
local function full_after(full, part, at, units, unit_numerator, unit_denominator)
  if full < at then
    full, part = at, 0
  end
  local rest = units * unit_numerator % unit_denominator
  full, part = full + (units * unit_numerator - rest) / unit_denominator, part + rest
  if part >= unit_denominator then
    full, part = full + 1, part - unit_denominator
  end
  return full, part
end

-- Returns the units that refill between such an instant and the one of a budget that owes for
-- `time` from now on. A product must stay below 2^53.
local function units_until(full, part, now, time, burst, unit_numerator, unit_denominator)
  local spare = burst * unit_numerator % unit_denominator
  local last = now + time + (burst * unit_numerator - spare) / unit_denominator
  local most = INEXACT - 1 - spare
  most = (most - most % unit_denominator) / unit_denominator
  most = math.max(-1, math.min(most, last - full)) * unit_denominator + spare - part
  most = math.max(0, most)
  return (most - most % unit_numerator) / unit_numerator
end

-- Reads a number with or without a fraction, and three more. Any other text leaves
-- `full` nil, and a long one is not searched: its time grows with the square of its length.
--@ read
local sign, digits1, over, digits2, digits3, digits4 =
  string.match(string.sub(text, 1, 128), '^(%-?)(%d+)([^:]*):(%d+):(%d+):(%d+)$')
if sign and #text <= 128 then
  full, part, denominator, owes = integer(digits1), 0, 1, sign == '-'
  begin, current, former = integer(digits2), integer(digits3), integer(digits4)
  if over ~= '' then
    local digits5, digits6 = string.match(over, '^%+(%d+)/(%d+)$')
    part, denominator = digits5 and integer(digits5), digits6 and integer(digits6)
    if not (part and denominator and 0 < part and part < denominator) then
      full = nil
    end
  end
  if not (begin and current and former) then
    full = nil
  end
end

-- Rounds a fraction over another denominator up. Then moves to the era of now: units
-- that were held for more than an era count as spent when that time was over.
--@ rebase
if denominator ~= unit_denominator then
  if part > 0 then
    full, part = full + 1, 0
  end
  denominator = unit_denominator
end
begin = begin - begin % max_hold
-- Three turns at most: after two of them, nothing is held.
while begin + max_hold <= now do
  if current == 0 and former == 0 then
    begin = now - now % max_hold
  else
    begin = begin + max_hold
    if former > 0 then
      full, part = full_after(
        full, part, begin, math.min(former, burst), unit_numerator, unit_denominator
      )
    end
    current, former = 0, current
  end
end

-- If the clock steps back by more than an era, held units count as spent now. A
-- budget is full again at most a burst after the longest wait, or after the longest
-- debt if it owes and that is longer.
--@ clamp
if begin > now + max_hold then
  full, part = full_after(
    full, part, now, math.min(current + former, burst), unit_numerator, unit_denominator
  )
  begin, current, former, clamped = now - now % max_hold, 0, 0, true
end
local most = burst * unit_numerator
local most_rest = most % unit_denominator
local longest = math.max(horizon, owes and max_debt or 0)
local last = now + longest + (most - most_rest) / unit_denominator
if full > last or full == last and part > most_rest then
  full, part, clamped = last, most_rest, true
end

--@ reply full, part, begin, current, former

-- The burst minus held and spent units is free. Spent units come back in time; held
-- ones only if they are settled, which cannot be foreseen: `unsettled`.
--@ fit
if cost <= burst then
  instant, unsettled = now, false
  if full then
    local room = burst - cost - current - former
    local from, over = now, 0
    if full >= now then
      from, over = full, part
    end
    local time = math.min(math.abs(room), burst) * unit_numerator
    local rest = time % unit_denominator
    time = (time - rest) / unit_denominator
    if room < 0 then
      -- As if all held units were spent now. Only a settlement makes room.
      unsettled, over = true, over + rest
      instant = from + time
      if over > 0 then
        instant = instant + (over > unit_denominator and 2 or 1)
      end
    elseif full >= now then
      instant = from - time
      if over > rest then
        instant = instant + 1
      end
      if instant < now then
        instant = now
      end
    end
  end
end

-- Holds the cost, and spends nothing yet.
--@ consume
if not full then
  full, part, begin, current, former = 0, 0, now - now % max_hold, 0, 0
end
current, denominator = current + cost, unit_denominator

-- Spends a penalty at once: the bucket becomes full later.
--@ spend
if not full then
  full, part, begin, current, former = 0, 0, now - now % max_hold, 0, 0
end
full, part = full_after(full, part, now, cost, unit_numerator, unit_denominator)
denominator = unit_denominator

-- Only a debt lasts longer than the longest wait and a burst, even if all held units
-- are spent.
--@ owes
owes = false
if full >= now + horizon then
  local last, rest = full_after(
    full, part, now, math.min(current + former, burst), unit_numerator, unit_denominator
  )
  local most = burst * unit_numerator
  local most_rest = most % unit_denominator
  local latest = now + horizon + (most - most_rest) / unit_denominator
  owes = last > latest or last == latest and rest > most_rest
end

-- As if all held units were spent at the end of their time.
--@ expires
local last, rest = full, part
if former > 0 then
  last, rest = full_after(
    last, rest, begin + max_hold, math.min(former, burst), unit_numerator, unit_denominator
  )
end
if current > 0 then
  last, rest = full_after(
    last, rest, begin + 2 * max_hold, math.min(current, burst), unit_numerator, unit_denominator
  )
end
expires_at = rest > 0 and last + 1 or last

-- Omits the fraction if there is none.
--@ write
local sign = owes and '-' or ''
if part == 0 then
  value = format('%s%d:%d:%d:%d', sign, full, begin, current, former)
else
  local layout = '%s%d+%d/%d:%d:%d:%d'
  value = format(layout, sign, full, part, denominator, begin, current, former)
end

-- The debt may last for `max_debt`, even if all held units are spent.
--@ most
local from, over = now, 0
if full then
  from, over = full_after(
    full, part, now, math.min(current + former, burst), unit_numerator, unit_denominator
  )
end
most = units_until(from, over, now, max_debt, burst, unit_numerator, unit_denominator)

-- Gives back spent units. What is held is somebody's still.
--@ grant
local units = math.min(amount, (INEXACT - 1 - (INEXACT - 1) % unit_numerator) / unit_numerator)
local back_rest = units * unit_numerator % unit_denominator
full, part = full - (units * unit_numerator - back_rest) / unit_denominator, part - back_rest
if part < 0 then
  full, part = full - 1, part + unit_denominator
end
if full < now then
  full, part = now, 0
end

-- Settles: frees the held units of the charge, and spends all but those given back. They are in
-- the era of the mark, or in the later one: a renewal whose answer got lost has moved them there.
--@ refund
local since = mark1 - mark1 % max_hold
local earlier = since + max_hold == begin and math.min(former, cost) or 0
-- Units that are no longer held count as spent, or were forgotten.
if since <= begin and since + max_hold >= begin and earlier + current >= cost then
  former, current = former - earlier, current - cost + earlier
  refunded = back
  if back < cost then
    -- The held units fit. Units used beyond them may become a debt.
    local from, over = full_after(
      full, part, now, math.min(current + former, burst), unit_numerator, unit_denominator
    )
    local most = units_until(from, over, now, max_debt, burst, unit_numerator, unit_denominator)
    local exact = (INEXACT - 1 - (INEXACT - 1) % unit_numerator) / unit_numerator
    local spent = math.min(cost - back, math.max(most, math.min(cost, exact)))
    full, part = full_after(full, part, now, spent, unit_numerator, unit_denominator)
    if back < 0 then
      -- The units that could not be taken, below 0.
      refunded = spent - (cost - back)
    end
  end
end
