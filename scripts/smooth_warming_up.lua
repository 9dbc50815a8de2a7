-- Smooth warming up: Guava's pacing, slow after a rest. The twin of
-- src/algorithm/smooth_warming_up.rs. It alone computes with floating-point numbers, in the same
-- order as Guava.
--
-- Arguments of a rule:  horizon  unit_denominator  unit_numerator  warm_up  factor  own_cost     a
--                       permit takes unit_numerator / unit_denominator microseconds; factor: in
--                       thousandths
-- Stored:               the stored permits, the instant from which on no charge waits, the rate,
--                       and the last now, as `stored:next:unit_denominator/unit_numerator:last`
-- Mark of a state:      next  the stored permits before, as two halves of a double  what was added
--                       to next

local smooth_warming_up = { arguments = 6 }

-- Whether the state was kept under this rule's rate.
local function same_rate(rule, state)
  return state.unit_denominator == rule.unit_denominator
    and state.unit_numerator == rule.unit_numerator
end

-- The stable interval in microseconds, and the permits that are stored when cold.
local function pace(rule, unit_denominator, unit_numerator)
  local stable = 1000000 / (unit_denominator * 1000000 / unit_numerator)
  local threshold = 0.5 * rule.warm_up / stable
  local most = threshold + 2 * rule.warm_up / (stable + stable * rule.factor)
  return stable, threshold, most
end

-- The state with other permits and other instants, under the same rate.
local function changed(state, stored, next, last)
  return {
    stored = stored,
    next = next,
    unit_denominator = state.unit_denominator,
    unit_numerator = state.unit_numerator,
    last = last,
  }
end

-- The state under this rule's rate, with what the time since has stored.
local function resynced(rule, state, now)
  if not state then
    return rule.most, now
  end
  local stored, next = state.stored, state.next
  local most = rule.most
  if not same_rate(rule, state) then
    local _, _, before = pace(rule, state.unit_denominator, state.unit_numerator)
    most = before
  end
  stored = math.min(stored, most)
  if now > next then
    stored = math.min(most, stored + (now - next) / (rule.warm_up / most))
    next = now
  end
  if most ~= rule.most then
    stored = math.min(stored * rule.most / most, rule.most)
  end
  return stored, next
end

-- The time that a cost takes, in whole microseconds. Permits stored above the threshold take longer
-- than all others.
local function price(rule, stored, cost)
  local take = math.min(cost, stored)
  local fresh = cost - take
  local above = stored - rule.threshold
  local time = 0
  if above > 0 then
    local part = math.min(above, take)
    local length = (rule.stable + above * rule.slope) + (rule.stable + (above - part) * rule.slope)
    time = math.floor(part * length / 2)
    take = take - part
  end
  return time + math.floor(rule.stable * take) + math.floor(fresh * rule.stable)
end

function smooth_warming_up.rule(
  horizon, unit_denominator, unit_numerator, warm_up, factor, own_cost
)
  local rule = {
    horizon = horizon,
    unit_denominator = unit_denominator,
    unit_numerator = unit_numerator,
    warm_up = warm_up,
    factor = factor / 1000,
    own_cost = own_cost == 1,
  }
  rule.stable, rule.threshold, rule.most = pace(rule, unit_denominator, unit_numerator)
  rule.slope = (rule.stable * rule.factor - rule.stable) / (rule.most - rule.threshold)
  return rule
end

function smooth_warming_up.read(text)
  local digits, next, denominator, numerator, last =
    string.match(text, '^([%d.e+-]+):(%d+):(%d+)/(%d+):(%d+)$')
  if not digits or #digits > 24 then
    return nil
  end
  local stored = tonumber(digits)
  next, last = integer(next), integer(last)
  denominator, numerator = integer(denominator), integer(numerator)
  if not stored or not next or not last or not denominator or not numerator then
    return nil
  end
  if denominator == 0 or numerator == 0 then
    return nil
  end
  if stored >= 0 and stored < INEXACT and string.format('%.17g', stored) == digits then
    return {
      stored = stored,
      next = next,
      unit_denominator = denominator,
      unit_numerator = numerator,
      last = last,
    }
  end
end

function smooth_warming_up.write(state)
  local format = '%.17g:%.0f:%.0f/%.0f:%.0f'
  local denominator, numerator = state.unit_denominator, state.unit_numerator
  return string.format(format, state.stored, state.next, denominator, numerator, state.last)
end

function smooth_warming_up.expires_at(rule, state)
  local stored, next = resynced(rule, state, state.next)
  return next + math.ceil((rule.most - stored) * (rule.warm_up / rule.most)) + 1
end

function smooth_warming_up.clamp(rule, state, now)
  if now < state.last then
    local next = math.max(0, state.next - (state.last - now))
    return changed(state, state.stored, next, now)
  end
end

function smooth_warming_up.earliest_fit(rule, state, at, cost)
  if cost * rule.unit_numerator >= INEXACT then
    return nil
  end
  local stored, next = resynced(rule, state, at)
  if rule.own_cost then
    next = math.min(next + price(rule, stored, cost), INEXACT - 1)
  end
  return math.max(next, at)
end

function smooth_warming_up.consume(rule, state, at, cost, now)
  local stored, next = resynced(rule, state, now)
  local price = price(rule, stored, cost)
  -- A charge that also waits for another quota starts later, and nothing is stored meanwhile.
  local due = next + (rule.own_cost and price or 0)
  local added = math.min(math.max(0, at - due) + price, INEXACT - 1 - next)
  return {
    stored = stored - math.min(cost, stored),
    next = next + added,
    unit_denominator = rule.unit_denominator,
    unit_numerator = rule.unit_numerator,
    last = now,
    before = stored,
    added = added,
  }
end

function smooth_warming_up.max_unchecked_cost(rule)
  return (INEXACT - 1 - (INEXACT - 1) % rule.unit_numerator) / rule.unit_numerator
end

function smooth_warming_up.report(rule, state, now)
  local stored, next = resynced(rule, state, now)
  local ahead = math.max(0, next - now)
  local remaining = 0
  if ahead == 0 and not rule.own_cost then
    remaining = math.max(1, math.floor(stored))
  end
  return remaining, ahead + math.ceil((rule.most - stored) * (rule.warm_up / rule.most))
end

function smooth_warming_up.apply_refund(
  rule, state, now, units, cost, mark_next, mark_high, mark_low, mark_added
)
  local before = struct.unpack('>d', struct.pack('>I4I4', mark_high, mark_low))
  local after = before - math.min(cost, before)
  if not same_rate(rule, state) or state.next ~= mark_next or state.stored ~= after then
    return nil
  end
  if units == cost then
    return changed(state, before, state.next - mark_added, state.last), units
  end
  -- The slot is kept, so a charge that waited for its own cost gives no time back.
  local kept = cost - units
  local whole = price(rule, before, cost)
  if whole > mark_added then
    return nil
  end
  local less = math.max(0, whole - price(rule, before, kept))
  local next = state.next - (rule.own_cost and 0 or less)
  return changed(state, before - math.min(kept, before), next, state.last), units
end

function smooth_warming_up.mark(state)
  local high, low = struct.unpack('>I4I4', struct.pack('>d', state.before or 0))
  return state.next, high, low, state.added
end
