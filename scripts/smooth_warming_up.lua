-- Smooth warming up: Guava's pacing, slow after a rest. The twin of
-- src/algorithm/smooth_warming_up.rs. The one algorithm with fractions: like its model, in the same
-- order of operations.
--
-- Stored:  the stored permits, the instant from which on nobody waits, the rate, and the last now,
--          as `stored:next:unit_denominator/unit_numerator:last`
-- Mark:    mark1: next_free after the charge. mark2, mark3: stored before it, as two halves of a
--          double. mark4: what was added to next_free; if the store filled before, a list of that
--          time and of the time for which it filled

-- A permit takes unit_numerator / unit_denominator microseconds; factor: in thousandths; own_cost:
-- 1 if a charge waits for its own cost; max_debt: how long a key may owe.
--@ arguments horizon, unit_denominator, unit_numerator, warm_up, factor, own_cost, max_debt

-- The most that can be stored.
--@ rule most_stored
most_stored = pace_of(unit_denominator, unit_numerator, warm_up, factor)

--@ state next_free, stored, of_denominator, of_numerator, last_now

--@ helpers
-- Returns the permits that are stored when cold, and the stable interval in microseconds.
local function pace_of(unit_denominator, unit_numerator, warm_up, factor)
  local stable = 1000000 / (unit_denominator * 1000000 / unit_numerator)
  local threshold = 0.5 * warm_up / stable
  return threshold + 2 * warm_up / (stable + stable * (factor / 1000)), stable
end

-- Returns the stored permits and `next_free` under a rule's rate, with the permits of the time
-- until `now`.
local function permits_until(
  now, next_free, stored, of_denominator, of_numerator,
  unit_denominator, unit_numerator, warm_up, factor, most_stored
)
  local most, has_rate = most_stored, true
  if of_denominator ~= unit_denominator or of_numerator ~= unit_numerator then
    has_rate = false
    most = pace_of(of_denominator, of_numerator, warm_up, factor)
  end
  stored = math.min(stored, most)
  if now > next_free then
    stored = math.min(most, stored + (now - next_free) / (warm_up / most))
    next_free = now
  end
  if not has_rate then
    -- May round to a bit above the most. Guava keeps that bit too.
    stored = stored * most_stored / most
  end
  return stored, next_free
end

-- Returns the time that a cost takes, in whole microseconds: permits that are stored above the
-- threshold cost more than others.
local function price_of(stored, cost, unit_denominator, unit_numerator, warm_up, factor)
  local most_stored, stable = pace_of(unit_denominator, unit_numerator, warm_up, factor)
  local take = math.min(cost, stored)
  local fresh = cost - take
  local threshold = 0.5 * warm_up / stable
  local above = stored - threshold
  local time = 0
  if above > 0 then
    local slope = (stable * (factor / 1000) - stable) / (most_stored - threshold)
    local part = math.min(above, take)
    local length = (stable + above * slope) + (stable + (above - part) * slope)
    time = math.floor(part * length / 2)
    take = take - part
  end
  return time + math.floor(stable * take) + math.floor(fresh * stable)
end

-- Reads a fraction and four numbers. Any other text leaves `next_free` nil.
--@ read
local digits, digits2, digits3, digits4, digits5 =
  string.match(text, '^([%d.e+-]+):(%d+):(%d+)/(%d+):(%d+)$')
if digits and #digits <= 24 then
  stored, next_free, last_now = tonumber(digits), integer(digits2), integer(digits5)
  of_denominator, of_numerator = integer(digits3), integer(digits4)
  local is_rate = of_denominator and of_numerator and of_denominator > 0 and of_numerator > 0
  if not (stored and last_now and is_rate) then
    next_free = nil
  elseif not (stored >= 0 and stored < INEXACT and format('%.17g', stored) == digits) then
    next_free = nil
  end
end

-- The clock was set back: keeps the distance from now to `next_free`.
--@ clamp
if now < last_now then
  next_free, last_now, clamped = math.max(0, next_free - (last_now - now)), now, true
end

-- The permits as the eight bytes of a double.
--@ reply next_free, of_denominator, of_numerator, last_now, stored_bytes
local stored_bytes = next_free and struct.pack('>d', stored)

-- At `next_free`, from which on nobody waits; with `own_cost`, later by the price of
-- this charge.
--@ fit
if cost * unit_numerator < INEXACT then
  local has, free = most_stored, now
  if next_free then
    has, free = permits_until(
      now, next_free, stored, of_denominator, of_numerator,
      unit_denominator, unit_numerator, warm_up, factor, most_stored
    )
  end
  if own_cost == 1 then
    local price = price_of(has, cost, unit_denominator, unit_numerator, warm_up, factor)
    free = math.min(free + price, INEXACT - 1)
  end
  instant = math.max(free, now)
  -- A permit costs at least its stable interval, and a price is rounded down to whole
  -- microseconds three times. A charge that may not wait so long never fits.
  local _, stable = pace_of(unit_denominator, unit_numerator, warm_up, factor)
  if own_cost == 1 and math.floor(stable * cost) - 3 > max_wait then
    instant = nil
  end
end

-- Lets the store fill until it has the cost and the units that stay free. `never`: it
-- never has as many. A thousandth of a microsecond is the room for rounding.
--@ stock
local has, free = most_stored, now
if next_free then
  has, free = permits_until(
    now, next_free, stored, of_denominator, of_numerator,
    unit_denominator, unit_numerator, warm_up, factor, most_stored
  )
end
-- A change of the rate may leave a bit above the most.
has = math.min(has, most_stored)
never = cost + keep > math.floor(most_stored + 0.000001)
if not never then
  local time = (math.min(cost + keep, most_stored) - has) * (warm_up / most_stored)
  time = math.max(0, ceil(time - 0.001))
  next_free = free + time
  stored = math.min(most_stored, has + time / (warm_up / most_stored))
  of_denominator, of_numerator, last_now = unit_denominator, unit_numerator, now
end

-- Takes what is stored, and moves `next_free` by the price of the rest: the next
-- caller waits for it.
--@ consume
local has, free = most_stored, now
if next_free then
  has, free = permits_until(
    now, next_free, stored, of_denominator, of_numerator,
    unit_denominator, unit_numerator, warm_up, factor, most_stored
  )
end
local price = price_of(has, cost, unit_denominator, unit_numerator, warm_up, factor)
-- A charge that also waits for another quota starts later. Nothing is stored
-- meanwhile.
local due = free + (own_cost == 1 and price or 0)
next_free = free + math.min(math.max(0, instant - due) + price, INEXACT - 1 - free)
stored = has - math.min(cost, has)
of_denominator, of_numerator, last_now = unit_denominator, unit_numerator, now

-- When the store is full.
--@ expires
local has, free = permits_until(
  next_free, next_free, stored, of_denominator, of_numerator,
  unit_denominator, unit_numerator, warm_up, factor, most_stored
)
expires_at = free + ceil((most_stored - has) * (warm_up / most_stored)) + 1

--@ write
local layout = '%.17g:%d:%d/%d:%d'
value = format(layout, stored, next_free, of_denominator, of_numerator, last_now)

-- The debt may last for `max_debt`, and a product must stay below 2^53. Searches by
-- halves, because the price of a unit depends on the permits that are stored.
--@ most
local has, free = most_stored, now
if next_free then
  has, free = permits_until(
    now, next_free, stored, of_denominator, of_numerator,
    unit_denominator, unit_numerator, warm_up, factor, most_stored
  )
end
local room = now + max_debt - free
local low = 0
most = (INEXACT - 1 - (INEXACT - 1) % unit_numerator) / unit_numerator
most = math.min(amount, most)
if price_of(has, most, unit_denominator, unit_numerator, warm_up, factor) > room then
  while most - low > 1 do
    local middle = low + math.floor((most - low) / 2)
    if price_of(has, middle, unit_denominator, unit_numerator, warm_up, factor) <= room then
      low = middle
    else
      most = middle
    end
  end
  most = low
end

-- Stores permits as if the time of the units at the stable pace had passed. Under a
-- quota of 0 no time brings a permit.
--@ grant
if unit_numerator < INEXACT then
  local has, free = permits_until(
    now, next_free, stored, of_denominator, of_numerator,
    unit_denominator, unit_numerator, warm_up, factor, most_stored
  )
  local _, stable = pace_of(unit_denominator, unit_numerator, warm_up, factor)
  local time = math.floor(math.min(amount * stable, INEXACT - 1))
  local filled = math.max(0, time - (free - now))
  stored = math.min(most_stored, has + filled / (warm_up / most_stored))
  next_free = math.max(now, free - time)
  of_denominator, of_numerator, last_now = unit_denominator, unit_numerator, now
end

-- Only if nothing was taken since: the state is still that of the mark.
--@ refund
local before = struct.unpack('>d', struct.pack('>I4I4', mark2, mark3))
local added, filled, has = mark4, 0, before
if type(mark4) == 'string' then
  -- The store filled for this time before a charge that keeps units free.
  local digits1, digits2 = string.match(mark4, '^,(%d+),(%d+)$')
  added, filled = tonumber(digits1), tonumber(digits2)
  has = math.min(most_stored, before + filled / (warm_up / most_stored))
end
local is_same_rate = of_denominator == unit_denominator and of_numerator == unit_numerator
if is_same_rate and next_free == mark1 and stored == has - math.min(cost, has) then
  if back == cost then
    stored, next_free, refunded = before, next_free - added - filled, back
  else
    local kept_cost = cost - back
    local whole = price_of(has, cost, unit_denominator, unit_numerator, warm_up, factor)
    if whole <= added then
      local kept_price = price_of(has, kept_cost, unit_denominator, unit_numerator, warm_up, factor)
      local less = math.max(0, whole - kept_price)
      stored, refunded = has - math.min(kept_cost, has), back
      -- The slot stays, so a charge that waited for its own cost gives no time back.
      if own_cost == 0 then
        next_free = next_free - less
      end
    end
  end
end
