-- Fixed window by a calendar. The twin of src/algorithm/fixed_window.rs with the windows of
-- src/algorithm/calendar.rs.
--
-- Stored:  as scripts/fixed_window.lua: an instant in the latest window that holds units, and the
--          units, as `begin:units`
-- Mark:    mark1, mark2: begin and units after the charge. mark3, mark4: begin + 1 and units before
--          it, if it reserved a wait together with other quotas; else 0

-- The edges of five windows. The second of these holds the present of the caller's clock.
--@ arguments horizon, limit, edge1, edge2, edge3, edge4, edge5, edge6

-- The window of now, from `opens` to `closes`. The next one ends at `second`, the one after it at
-- `third`. If now is in none of the first three windows, `flaw` refuses what follows from these.
--@ rule opens, closes, second, third
if now >= edge3 then
  opens, closes, second, third = edge3, edge4, edge5, edge6
elseif now >= edge2 then
  opens, closes, second, third = edge2, edge3, edge4, edge5
else
  opens, closes, second, third = edge1, edge2, edge3, edge4
end

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
if begin >= third then
  begin, units, clamped = opens, limit, true
end

--@ reply begin, units

-- The cost fits in the latest window, or at its end if it has no room. An empty
-- window that has begun counts as none.
--@ fit
if cost <= limit then
  instant = now
  if begin and begin >= opens and (units > 0 or begin > now) then
    if units + cost > limit then
      instant = begin < closes and closes or begin < second and second or third
    elseif begin > now then
      instant = begin
    end
  end
end

-- Adds to the latest window, or to a new one if that is over at this instant. No wait is longer
-- than a window, so the instant is in the window of now or in the next one.
--@ consume
local from = instant < closes and opens or closes
if begin and begin >= from and (units > 0 or begin > instant) then
  units = units + cost
else
  begin, units = from, cost
end

-- At the end of the window.
--@ expires
expires_at = begin < closes and closes or begin < second and second or third

--@ write
value = format('%d:%d', begin, units)

-- The limit at a time, and nothing if more than the limit counts already.
--@ most
most = instant > math.max(now, begin or 0) and 0 or limit

--@ grant
units = math.max(0, units - amount)

-- Only while the window of the mark lasts.
--@ refund
if begin == mark1 and begin >= opens and (units > 0 or begin > now) then
  if mark3 > 0 and back == cost and units == mark2 then
    -- The state is exactly what the charge left: no other charge is in the window.
    begin, units, refunded = mark3 - 1, mark4, back
  else
    refunded = math.min(back, units)
    units = units - refunded
  end
end

-- The edges are for another present than the server's.
--@ flaw
if now < opens or now >= closes then
  why = 'CALENDAR'
end
