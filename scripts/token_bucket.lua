-- Token bucket (GCRA). The twin of src/algorithm/token_bucket.rs.
--
-- Stored:  the instant at which the bucket is full again, as `full` or `full+part/denominator`
-- Mark:    mark1, mark2: full and part after the charge. mark3, mark4: full + 1 and part before it,
--          if it reserved a wait together with other quotas; else 0

-- One unit takes unit_numerator / unit_denominator microseconds.
--@ arguments horizon, unit_numerator, unit_denominator, burst

-- The time of a burst: whole microseconds, and the rest over the denominator.
--@ rule span, spare
spare = burst * unit_numerator % unit_denominator
span = (burst * unit_numerator - spare) / unit_denominator

-- The time of the cost, and that of what the burst leaves of it.
--@ cost time, rest, credit, credit_rest
rest = cost * unit_numerator % unit_denominator
time = (cost * unit_numerator - rest) / unit_denominator
credit_rest = (burst - cost) * unit_numerator % unit_denominator
credit = ((burst - cost) * unit_numerator - credit_rest) / unit_denominator

--@ state full, part, denominator

-- A plain number, or one with a fraction. Any other text leaves `full` nil.
--@ read
full = integer(text)
if full then
  part, denominator, number = 0, 1, full
else
  local whole, over, under = string.match(text, '^(%d+)%+(%d+)/(%d+)$')
  if whole then
    whole, part, denominator = integer(whole), integer(over), integer(under)
    full = whole and part and denominator and 0 < part and part < denominator and whole or nil
  end
end

-- A fraction over another denominator is rounded up.
--@ rebase
if denominator ~= unit_denominator then
  if part > 0 then
    full, part = full + 1, 0
  end
  denominator = unit_denominator
end

-- No bucket is full again later than a burst after the longest wait.
--@ clamp
if full >= now + horizon + span and (full > now + horizon + span or part > spare) then
  full, part, clamped = now + horizon + span, spare, true
end

--@ reply full, part

-- It fits as soon as `full` is no further ahead than the time of what the burst
-- leaves.
--@ fit
if cost <= burst then
  instant = now
  if full and full >= now then
    instant = full - credit
    if part > credit_rest then
      instant = instant + 1
    end
    if instant < now then
      instant = now
    end
  end
end

-- The bucket is full again later, by the time of the cost.
--@ consume
if not full or full < instant then
  full, part = instant, 0
end
full, part, denominator = full + time, part + rest, unit_denominator
if part >= unit_denominator then
  full, part = full + 1, part - unit_denominator
end

-- A full bucket is as good as a new one.
--@ expires
expires_at = part > 0 and full + 1 or full

-- The shortest text: mostly a plain number.
--@ write
if part == 0 then
  plain = full
else
  value = format('%d+%d/%d', full, part, denominator)
end

-- A product must stay below 2^53.
--@ unchecked
most = (INEXACT - 1 - (INEXACT - 1) % unit_numerator) / unit_numerator

-- Only if nothing was taken since: the state is still the one that the mark says.
--@ refund
if full == mark1 and part == mark2 then
  if mark3 > 0 and back == cost then
    full, part, refunded = mark3 - 1, mark4, back
  else
    -- While its slot is ahead no part is given back, or a later charge could come
    -- before it.
    local ahead, ahead_rest = span, spare
    if mark3 > 0 then
      ahead, ahead_rest = time, rest
    end
    if back == cost or full - ahead + (part > ahead_rest and 1 or 0) <= now then
      local back_rest = back * unit_numerator % unit_denominator
      full, part = full - (back * unit_numerator - back_rest) / unit_denominator, part - back_rest
      if part < 0 then
        full, part = full - 1, part + unit_denominator
      end
      refunded = back
    end
  end
end
