-- Token bucket (GCRA). The twin of src/algorithm/token_bucket.rs.
--
-- Stored:  the instant at which the bucket is full again, as `full` or `full+part/denominator`,
--          after a `-` if the debt lasts longer than the horizon
-- Mark:    mark1, mark2: full and part after the charge. mark3, mark4: full + 1 and part before it,
--          if it reserved a wait together with other quotas; else 0

-- One unit takes unit_numerator / unit_denominator microseconds; max_debt: how long a key may owe.
--@ arguments horizon, unit_numerator, unit_denominator, burst, max_debt

-- The time of a burst: whole microseconds, and a rest over the denominator.
--@ rule span, spare
spare = burst * unit_numerator % unit_denominator
span = (burst * unit_numerator - spare) / unit_denominator

-- The time of the cost, in the same way.
--@ cost time, rest
rest = cost * unit_numerator % unit_denominator
time = (cost * unit_numerator - rest) / unit_denominator

-- owes: true if the last write left a debt that lasts longer than the horizon.
--@ state full, part, denominator, owes

-- Reads a number with or without a fraction and a sign. Any other text leaves
-- `full` nil.
--@ read
full = integer(text)
if full then
  part, denominator, number = 0, 1, full
else
  local sign, whole, rest = string.match(text, '^(%-?)(%d+)(.*)$')
  if whole then
    full, part, denominator, owes = integer(whole), 0, 1, sign == '-'
    if rest ~= '' then
      local over, under = string.match(rest, '^%+(%d+)/(%d+)$')
      part, denominator = over and integer(over), under and integer(under)
      if not (part and denominator and 0 < part and part < denominator) then
        full = nil
      end
    end
  end
end

-- Rounds a fraction over another denominator up.
--@ rebase
if denominator ~= unit_denominator then
  if part > 0 then
    full, part = full + 1, 0
  end
  denominator = unit_denominator
end

-- A bucket is full again at most a burst after the longest wait, or after the
-- longest debt if it owes.
--@ clamp
local last = now + (owes and max_debt or horizon) + span
if full >= last and (full > last or part > spare) then
  full, part, clamped = last, spare, true
end

--@ reply full, part

-- The cost fits when `full` plus its time is at most the time of a burst ahead.
--@ fit
if cost <= burst then
  instant = now
  if full and full >= now then
    instant = full + time - span
    if part + rest > spare then
      instant = instant + (part + rest > spare + unit_denominator and 2 or 1)
    end
    if instant < now then
      instant = now
    end
  end
end

-- A cost of whole microseconds. Charges fit up to a state, and no state is later than `latest`.
--@ short_cost fits_until, latest
is_short = rest == 0 and cost <= burst
fits_until, latest = now + span - time + max_wait, now + horizon + span

-- A state of whole microseconds, and no debt. The answer is the state, 0 if there is none.
--@ short
number = text and integer(text)
if not text or number and number <= latest then
  full, part, is_done = number, 0, true
  for _ = 1, repeats do
    n = n + 1
    if full and full > fits_until then
      reply[n] = full
    else
      reply[n] = -1 - (full or 0)
      full, changed = (full and full > now and full or now) + time, true
    end
  end
  expires_at = full
end

-- The bucket becomes full later, by the time of the cost.
--@ consume
if not full or full < instant then
  full, part = instant, 0
end
full, part, denominator = full + time, part + rest, unit_denominator
if part >= unit_denominator then
  full, part = full + 1, part - unit_denominator
end

-- Only a debt lasts longer than the longest wait and a burst.
--@ owes
owes = full >= now + horizon + span and (full > now + horizon + span or part > spare)

-- A full bucket is equivalent to a new one.
--@ expires
expires_at = part > 0 and full + 1 or full

-- Writes the shortest text, mostly a plain number.
--@ write
local sign = owes and '-' or ''
if part > 0 then
  value = format('%s%d+%d/%d', sign, full, part, denominator)
elseif owes then
  value = format('-%d', full)
else
  plain = full
end

-- The units that refill between the instant at which the bucket is full and the
-- latest possible one. A product must stay below 2^53.
--@ most
local from, over = now, 0
if full and full >= now then
  from, over = full, part
end
most = INEXACT - 1 - spare
most = (most - most % unit_denominator) / unit_denominator
most = math.max(-1, math.min(most, now + max_debt + span - from))
most = math.max(0, most * unit_denominator + spare - over)
most = (most - most % unit_numerator) / unit_numerator

-- The bucket becomes full earlier, by the time of the units.
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

-- Only if nothing was taken since: the state is still that of the mark.
--@ refund
if full == mark1 and part == mark2 then
  if mark3 > 0 and back == cost then
    full, part, refunded = mark3 - 1, mark4, back
  else
    -- Gives no part back while the slot is ahead: a later charge could come before it.
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
