-- Fixed window. The twin of src/algorithm/fixed_window.rs.
--
-- Stored:  an instant in the latest window that holds units (anchored: its start), and the units,
--          as `begin:units`
-- Mark:    mark1, mark2: begin and units after the charge. mark3, mark4: begin + 1 and units before
--          it, if it reserved a wait together with other quotas; else 0

-- anchored: 1 if a window starts with its first charge, 0 if with the epoch's periods.
--@ arguments horizon, limit, period, anchored

--@ state begin, units

-- Reads two numbers. Any other text leaves `begin` nil.
--@ read
local first_digits, second_digits = string.match(text, '^(%d+):(%d+)$')
if first_digits then
  begin, units = integer(first_digits), integer(second_digits)
  if not units then
    begin = nil
  end
end

-- A window that begins later than any reserved wait becomes a full window of now.
--@ clamp
if begin > now then
  if anchored == 1 then
    if begin > now + horizon + period then
      begin, units, clamped = now, limit, true
    end
  else
    local window = now - now % period
    if (begin - begin % period - window) / period > ceil(horizon / period) + 1 then
      begin, units, clamped = window, limit, true
    end
  end
end

--@ reply begin, units

-- The cost fits in the latest window, or at its end if it has no room. An empty
-- window that has begun counts as none.
--@ fit
if cost <= limit then
  instant = now
  if begin then
    local ends = begin + period
    if anchored == 0 then
      ends = ends - begin % period
    end
    if ends > now and (units > 0 or begin > now) then
      if units + cost > limit then
        instant = ends
      elseif begin > now then
        instant = begin
      end
    end
  end
end

-- Windows of the clock. A text in the present one has `prefix` and its units.
--@ short_cost window, prefix, pattern, waits
is_short = anchored == 0 and cost <= limit
window = now - now % period
prefix, pattern = format('%d:', window), format('^%d:([1-9]%%d*)$', window)
waits = window + period - now <= max_wait

-- A state in the present window, or in an earlier one, and no wait. The answer is the
-- units of the present window.
--@ short
local digits1, taken = text and string.match(text, pattern), nil
if digits1 then
  taken = digits1 + 0
elseif text then
  local begin_digits, digits2 = string.match(text, '^(%d+):(%d+)$')
  local earlier = begin_digits and integer(begin_digits)
  taken = earlier and earlier < window and integer(digits2) and 0
else
  taken = 0
end
if taken and taken < INEXACT and (taken + repeats * cost <= limit or not waits) then
  for _ = 1, repeats do
    n = n + 1
    if taken + cost > limit then
      reply[n] = taken
    else
      reply[n] = -1 - taken
      taken, changed = taken + cost, true
    end
  end
  begin, units, expires_at, is_done = window, taken, window + period, true
  value = changed and format('%s%d', prefix, taken)
end

-- Adds to the latest window, or to a new one if that is over at this instant.
--@ consume
local ends = begin and (anchored == 1 and begin or begin - begin % period) + period
if ends and ends > instant and (units > 0 or begin > instant) then
  units = units + cost
else
  begin, units = anchored == 1 and instant or instant - instant % period, cost
end

-- At the end of the window.
--@ expires
expires_at = (anchored == 1 and begin or begin - begin % period) + period

--@ write
value = format('%d:%d', begin, units)

-- The limit at a time, and nothing if more than the limit counts already.
--@ most
most = instant > math.max(now, begin or 0) and 0 or limit

--@ grant
units = math.max(0, units - amount)

-- Only while the window of the mark lasts.
--@ refund
local ends = (anchored == 1 and begin or begin - begin % period) + period
local is_over = ends <= now or (units == 0 and begin <= now)
if begin == mark1 and not is_over then
  if mark3 > 0 and back == cost and units == mark2 then
    -- The state is exactly what the charge left: no other charge is in the window.
    begin, units, refunded = mark3 - 1, mark4, back
  else
    refunded = math.min(back, units)
    units = units - refunded
  end
end
