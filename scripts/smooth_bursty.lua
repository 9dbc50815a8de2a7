-- Smooth bursty: Guava's pacing with a store of unused permits. The twin of
-- src/algorithm/smooth_bursty.rs.
--
-- Stored:  the credit in microseconds over the denominator, the instant from which on nobody waits,
--          the rate, and the last now, as `credit:next:unit_denominator/unit_numerator:last`
-- Mark:    mark1: next_free after the charge. mark2: credit + unit_denominator before it. mark3,
--          mark4: what was added to next_free, for its debt and for a later start; mark3 is below
--          0 if the store filled for that time before

-- A permit takes unit_numerator / unit_denominator microseconds; burst: how long permits are
-- stored; own_cost: 1 if a charge waits for its own cost; full: 1 if a new key has all that can be
-- stored; max_debt: how long a key may owe.
--@ arguments horizon, unit_denominator, unit_numerator, burst, own_cost, full, max_debt

-- The most that can be stored, in microseconds over the denominator.
--@ rule cap
cap = burst * unit_denominator

--@ state next_free, credit, of_denominator, of_numerator, last_now

--@ helpers
local function quotient(dividend, divisor)
  return (dividend - dividend % divisor) / divisor
end

-- Returns the credit and `next_free` under a rule's rate, with the credit of the time until `now`.
local function credit_until(
  now, next_free, credit, of_denominator, of_numerator,
  unit_denominator, unit_numerator, burst, cap
)
  if of_denominator ~= unit_denominator or of_numerator ~= unit_numerator then
    local rest = credit % of_denominator
    credit = math.min(quotient(credit, of_denominator), burst) * unit_denominator
    if of_denominator * unit_denominator < INEXACT then
      credit = credit + quotient(rest * unit_denominator, of_denominator)
    end
  end
  if now > next_free then
    if now - next_free > burst then
      credit = cap
    else
      credit = credit + (now - next_free) * unit_denominator
    end
    next_free = now
  end
  return math.min(credit, cap), next_free
end

-- Reads a sign and five numbers. Any other text leaves `next_free` nil.
--@ read
local sign, digits1, digits2, digits3, digits4, digits5 =
  string.match(text, '^(%-?)(%d+):(%d+):(%d+)/(%d+):(%d+)$')
if sign then
  credit, next_free, last_now = integer(digits1), integer(digits2), integer(digits5)
  of_denominator, of_numerator = integer(digits3), integer(digits4)
  local is_rate = of_denominator and of_numerator and of_denominator > 0 and of_numerator > 0
  if not (credit and last_now and is_rate) then
    next_free = nil
  elseif sign == '-' then
    if credit == 0 or credit > of_denominator then
      next_free = nil
    end
    credit = -credit
  end
end

-- The clock was set back: keeps the distance from now to `next_free`.
--@ clamp
if now < last_now then
  next_free, last_now, clamped = math.max(0, next_free - (last_now - now)), now, true
end

-- A credit may be a little below 0, so the reply adds a denominator.
--@ reply next_free, credit_sent, of_denominator, of_numerator, last_now
local credit_sent = next_free and credit + of_denominator

-- At `next_free`, from which on nobody waits; with `own_cost`, later by the price of
-- this charge.
--@ fit
if cost * unit_numerator < INEXACT then
  local has, free = full == 1 and cap or 0, now
  if next_free then
    has, free = credit_until(
      now, next_free, credit, of_denominator, of_numerator,
      unit_denominator, unit_numerator, burst, cap
    )
  end
  if own_cost == 1 then
    local debt = quotient(math.max(0, cost * unit_numerator - has), unit_denominator)
    free = math.min(free + debt, INEXACT - 1)
  end
  instant = math.max(free, now)
  if own_cost == 1 then
    -- A charge that may not wait for what a full store lacks never fits.
    if quotient(math.max(0, cost * unit_numerator - cap), unit_denominator) > max_wait then
      instant = nil
    end
  end
end

-- Lets the store fill until it has the cost and the units that stay free. `never`: it
-- never has as many. A key without a state is full: a refusal writes none, so that an
-- empty one would stay empty.
--@ stock
local has, free = cap, now
if next_free then
  has, free = credit_until(
    now, next_free, credit, of_denominator, of_numerator,
    unit_denominator, unit_numerator, burst, cap
  )
end
local needs, up = (cost + keep) * unit_numerator, own_cost == 1 and 0 or unit_denominator - 1
never = quotient(math.max(0, needs - cap) + up, unit_denominator) > 0
if not never then
  local time = quotient(math.max(0, needs - has) + up, unit_denominator)
  next_free, credit = free + time, math.min(cap, has + time * unit_denominator)
  of_denominator, of_numerator, last_now = unit_denominator, unit_numerator, now
end

-- Takes what is stored, and moves `next_free` by the price of the rest: the next
-- caller waits for it.
--@ consume
local has, free = full == 1 and cap or 0, now
if next_free then
  has, free = credit_until(
    now, next_free, credit, of_denominator, of_numerator,
    unit_denominator, unit_numerator, burst, cap
  )
end
local debt = quotient(math.max(0, cost * unit_numerator - has), unit_denominator)
-- A charge that also waits for another quota starts later. Nothing is stored
-- meanwhile.
local shift = math.max(0, instant - free - (own_cost == 1 and debt or 0))
next_free = free + shift + math.min(debt, INEXACT - 1 - free - shift)
credit = has + debt * unit_denominator - cost * unit_numerator
of_denominator, of_numerator, last_now = unit_denominator, unit_numerator, now

-- When the store is full.
--@ expires
local has, free = credit_until(
  next_free, next_free, credit, of_denominator, of_numerator,
  unit_denominator, unit_numerator, burst, cap
)
expires_at = free + ceil((cap - has) / unit_denominator)

--@ write
local layout = '%d:%d:%d/%d:%d'
value = format(layout, credit, next_free, of_denominator, of_numerator, last_now)

-- The debt may last for `max_debt`. A product must stay below 2^53.
--@ most
local has, free = full == 1 and cap or 0, now
if next_free then
  has, free = credit_until(
    now, next_free, credit, of_denominator, of_numerator,
    unit_denominator, unit_numerator, burst, cap
  )
end
local room = now + max_debt - free
local time = math.min(room, quotient(INEXACT - 1, unit_denominator)) * unit_denominator
local exact = INEXACT - 1 + math.min(0, has)
most = quotient(math.min(time + (has + unit_denominator - 1), exact), unit_numerator)
if room < 0 then
  most = 0
end

-- Stores permits as if the time of the units had passed. Under a quota of 0 no time
-- brings a permit.
--@ grant
if unit_numerator < INEXACT then
  local has, free = credit_until(
    now, next_free, credit, of_denominator, of_numerator,
    unit_denominator, unit_numerator, burst, cap
  )
  local units = math.min(amount, (INEXACT - 1 - (INEXACT - 1) % unit_numerator) / unit_numerator)
  local rest = units * unit_numerator % unit_denominator
  local time = (units * unit_numerator - rest) / unit_denominator
  local filled = math.min(burst, math.max(0, time - (free - now)))
  credit = math.min(cap, has + filled * unit_denominator + rest)
  next_free = math.max(now, free - time)
  of_denominator, of_numerator, last_now = unit_denominator, unit_numerator, now
end

-- Only if nothing was taken since: the state is still that of the mark.
--@ refund
local before = mark2 - unit_denominator
-- The store filled for this time before a charge that keeps units free.
local filled, added = math.max(0, -mark3), math.max(0, mark3)
local stored = math.min(cap, before + filled * unit_denominator)
local is_same_rate = of_denominator == unit_denominator and of_numerator == unit_numerator
-- The added time may be less than that of the debt, to stay exact.
local whole = quotient(math.max(0, cost * unit_numerator - stored), unit_denominator)
local after = stored + whole * unit_denominator - cost * unit_numerator
if is_same_rate and next_free == mark1 and credit == after then
  refunded = back
  if back == cost then
    credit, next_free = before, next_free - added - mark4 - filled
  else
    local kept_cost = (cost - back) * unit_numerator
    local debt = quotient(math.max(0, kept_cost - stored), unit_denominator)
    credit = stored + debt * unit_denominator - kept_cost
    -- The slot stays, so a charge that waited for its own cost gives no time back.
    if own_cost == 0 then
      next_free = next_free - added + math.min(debt, added)
    end
  end
end
