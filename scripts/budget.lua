-- Budget: a token bucket whose charges are held until they are settled. The twin of
-- src/algorithm/budget.rs.
--
-- Stored:  the instant at which the bucket is full again by what is spent, the begin of the latest
--          era, and the units that are held since that era and since the one before, as
--          `full:begin:current:former`, or with a fraction as `full+part/denominator:...`
-- Mark:    mark1: the begin of the era since which the units are held

-- One unit takes unit_numerator / unit_denominator microseconds; max_hold: how long an era is.
--@ arguments horizon, unit_numerator, unit_denominator, burst, max_hold

--@ state full, part, denominator, begin, current, former

--@ helpers
-- When a bucket is full again after units are spent at an instant.
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

-- A number, perhaps with a fraction, and three more. Any other text leaves `full`
-- nil.
--@ read
local digits1, over, digits2, digits3, digits4 =
  string.match(text, '^(%d+)([^:]*):(%d+):(%d+):(%d+)$')
if digits1 then
  full, part, denominator = integer(digits1), 0, 1
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

-- A fraction over another denominator is rounded up. Then to the era of now: what
-- was held for more than an era counts as spent when that time was over.
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

-- A step back of the clock by less than an era changes no era: by more, what is
-- held counts as spent now. And no more is owed than a charge can leave that waits
-- as long as it may, whatever is held: a request may cost more than it held.
--@ clamp
if begin > now + max_hold then
  full, part = full_after(
    full, part, now, math.min(current + former, burst), unit_numerator, unit_denominator
  )
  begin, current, former, clamped = now - now % max_hold, 0, 0, true
end
local most = burst * unit_numerator
local most_rest = most % unit_denominator
local last = now + horizon + (most - most_rest) / unit_denominator
if full > last or full == last and part > most_rest then
  full, part, clamped = last, most_rest, true
end

--@ reply full, part, begin, current, former

-- What is free is the burst without what is held and what is spent. Spent units
-- come back in time; held ones only if they are settled, which nobody can foresee:
-- `unsettled`.
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
      -- As if all that is held were spent now. Only a settlement makes room.
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

-- A charge is held, and spends nothing yet.
--@ consume
if not full then
  full, part, begin, current, former = 0, 0, now - now % max_hold, 0, 0
end
current, denominator = current + cost, unit_denominator

-- A penalty is spent at once: the bucket is full again later.
--@ spend
if not full then
  full, part, begin, current, former = 0, 0, now - now % max_hold, 0, 0
end
full, part = full_after(full, part, now, cost, unit_numerator, unit_denominator)
denominator = unit_denominator

-- As if all that is held were spent at the end of its time.
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

-- The fraction is left out if there is none.
--@ write
if part == 0 then
  value = format('%d:%d:%d:%d', full, begin, current, former)
else
  value = format('%d+%d/%d:%d:%d:%d', full, part, denominator, begin, current, former)
end

-- A product must stay below 2^53.
--@ unchecked
most = (INEXACT - 1 - (INEXACT - 1) % unit_numerator) / unit_numerator

-- A settlement: what the charge held is free again, and spent but for the units
-- given back.
--@ refund
local since = mark1 - mark1 % max_hold
local held = -1
if since == begin then
  held = current
elseif since + max_hold == begin then
  held = former
end
-- What is no longer held counts as spent, or was forgotten.
if held >= cost then
  if since == begin then
    current = current - cost
  else
    former = former - cost
  end
  refunded = math.max(0, back)
  if back < cost then
    local most = (INEXACT - 1 - (INEXACT - 1) % unit_numerator) / unit_numerator
    full, part = full_after(
      full, part, now, math.min(cost - back, most), unit_numerator, unit_denominator
    )
  end
end
