-- Sliding counter: two weighted windows. The twin of src/algorithm/sliding_counter.rs.
--
-- Stored:  the start of the latest window that holds units, its units, those of the one before, and
--          the latest instant of admission, as `begin:current:previous:latest`
-- Mark:    mark1: latest after the charge. mark2 to mark4: latest + 1, current and previous before
--          it, if it was taken together with other quotas; else 0

--@ arguments horizon, limit, period

-- Weights are products of units and times, which must stay below 2^53.
--@ rule most_units
most_units = (INEXACT - INEXACT % period) / period

--@ state begin, current, previous, latest

-- Reads four numbers. Any other text leaves `begin` nil.
--@ read
local digits1, digits2, digits3, digits4 = string.match(text, '^(%d+):(%d+):(%d+):(%d+)$')
if digits1 then
  begin, current = integer(digits1), integer(digits2)
  previous, latest = integer(digits3), integer(digits4)
  if not (begin and current and previous and latest and begin <= latest) then
    begin = nil
  end
end

-- Moves the units into this rule's windows: those of another period begin elsewhere.
--@ rebase
local window = latest - latest % period
if begin ~= window then
  local before = math.max(begin - 1, 0)
  before = before - before % period
  if before == window then
    current, previous = current + previous, 0
  elseif before ~= window - period then
    previous = 0
  end
  begin = window
end
if current > most_units then
  current = most_units
end
if previous > most_units then
  previous = most_units
end

-- A latest admission that is later than any reserved wait becomes a full window of
-- now.
--@ clamp
if latest > now + horizon then
  begin, current, previous, latest, clamped = now - now % period, limit, 0, now, true
end

--@ reply begin, current, previous, latest

-- The first instant, not before the latest admission, with room for the cost: its window
-- counts fully, the window before by the share that the sliding window still covers.
--@ fit
if cost <= limit then
  instant = now
  if begin then
    local from = latest > now and latest or now
    local window = from - from % period
    instant = nil
    -- Three turns at most: two windows after the latest one, nothing counts.
    while not instant do
      -- The units of this window, and of the one before it.
      local here, before = 0, 0
      if window == begin then
        here, before = current, previous
      elseif window == begin + period then
        before = current
      end
      local room = limit - cost - here
      if room >= 0 then
        -- The longest rest of the window for which the one before it weighs no more
        -- than the room.
        local left = period
        if before > room then
          left = (room * period - room * period % before) / before
        end
        if left > 0 then
          instant = math.max(from, window + period - left)
        end
      end
      window = window + period
    end
  end
end

-- The windows of now and before it: a text has its units, those before, and the latest
-- instant. The units of both fit into one number.
--@ short_cost window, pattern, pattern_before
is_short = cost <= limit and limit < 2 ^ 26
window = now - now % period
pattern = format('^%d:([1-9]%%d*):(%%d+):([1-9]%%d*)$', window)
pattern_before = format('^%d:([1-9]%%d*):(%%d+):([1-9]%%d*)$', window - period)

-- A state of these windows, and no wait. The answer is the units of the window before,
-- times the limit and one, and those of this window.
--@ short
local here, earlier, is_usual = 0, 0, not text
if text then
  local digits1, digits2, digits3 = string.match(text, pattern)
  if digits1 then
    here, earlier = digits1 + 0, integer(digits2)
    is_usual = earlier and window <= digits3 + 0 and digits3 + 0 <= now
  else
    digits1, digits2, digits3 = string.match(text, pattern_before)
    if digits1 then
      earlier = digits1 + 0
      is_usual = integer(digits2) and window - period <= digits3 + 0 and digits3 + 0 < window
    end
  end
end
if is_usual and here <= limit and earlier <= limit then
  local weight = earlier * (window + period - now)
  local fits_until = limit - cost - (weight + (period - weight % period) % period) / period
  if max_wait == 0 or here + (repeats - 1) * cost <= fits_until then
    is_done = true
    for _ = 1, repeats do
      n = n + 1
      if here > fits_until then
        reply[n] = earlier * (limit + 1) + here
      else
        reply[n] = -1 - earlier * (limit + 1) - here
        here, changed = here + cost, true
      end
    end
    begin, expires_at = window, window + 2 * period
    value = changed and format('%d:%d:%d:%d', window, here, earlier, now)
  end
end

-- Adds to the window of that instant.
--@ consume
local window = instant - instant % period
if not begin or window > begin + period then
  current, previous = 0, 0
elseif window == begin + period then
  current, previous = 0, current
end
begin, current, latest = window, math.min(current + cost, most_units), instant

-- When no unit has a weight.
--@ expires
if current > 0 then
  expires_at = begin + 2 * period
elseif previous > 0 then
  expires_at = begin + period
else
  expires_at = latest
end

--@ write
value = format('%d:%d:%d:%d', begin, current, previous, latest)

-- The limit at a time, and nothing if more than the limit counts already.
--@ most
most = instant > math.max(now, latest or 0) and 0 or limit

-- Gives back the units of the latest window first.
--@ grant
local given = math.min(amount, current)
current, previous = current - given, math.max(0, previous - (amount - given))

-- Only while the window of the mark, or the next one, is the latest. Undoes a
-- reserved wait completely if the state is still what it left.
--@ refund
local marked = mark1 - mark1 % period
if marked + 2 * period > now then
  local is_restored = false
  if mark2 > 0 and back == cost then
    local from, here, earlier = mark2 - 1, 0, 0
    local before = from - from % period
    if marked == before then
      here, earlier = mark3, mark4
    elseif marked == before + period then
      earlier = mark3
    end
    if latest == mark1 and current == here + cost and previous == earlier then
      begin, current, previous, latest, refunded = before, mark3, mark4, from, back
      is_restored = true
    end
  end
  if not is_restored and (begin == marked or begin - period == marked) then
    local is_current = begin == marked
    local most_back = math.min(back, is_current and current or previous)
    local moved = latest
    if mark2 > 0 and most_back > 0 and latest > now then
      -- A charge that is reserved into this room at the same latest instant must
      -- not be taken for the one that was there.
      moved = latest + 1
    end
    if moved == latest or moved <= now + horizon and moved - moved % period == begin then
      refunded, latest = most_back, moved
      if is_current then
        current = current - most_back
      else
        previous = previous - most_back
      end
    end
  end
end
