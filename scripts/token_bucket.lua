-- Token bucket (GCRA). The twin of src/algorithm/token_bucket.rs.
--
-- Arguments of a rule:  horizon  unit_numerator  unit_denominator  burst
--                       one unit takes unit_numerator / unit_denominator microseconds
-- Stored:               the instant at which the bucket is full again, as `full` or
--                       `full+part/denominator`
-- Mark of a state:      full  part, and of the state before a wait that it reserved with others:
--                       from  from_part

local token_bucket = { arguments = 4 }

-- The time of `units`: whole microseconds, and the rest over the denominator.
local function time(rule, units)
  local product = units * rule.unit_numerator
  local rest = product % rule.unit_denominator
  return (product - rest) / rule.unit_denominator, rest
end

-- The later of the stored instant, over this rule's denominator, and `at`.
local function start_of(rule, state, at)
  if not state then
    return at, 0
  end
  local full, part = state.full, state.part
  if part > 0 and state.denominator ~= rule.unit_denominator then
    full, part = full + 1, 0
  end
  if full < at then
    return at, 0
  end
  return full, part
end

function token_bucket.rule(horizon, unit_numerator, unit_denominator, burst)
  local rule = {
    horizon = horizon,
    unit_numerator = unit_numerator,
    unit_denominator = unit_denominator,
    burst = burst,
  }
  rule.span, rule.spare = time(rule, burst)
  return rule
end

function token_bucket.read(text)
  local full = integer(text)
  if full then
    return { full = full, part = 0, denominator = 1 }, full
  end
  local whole, part, denominator = string.match(text, '^(%d+)%+(%d+)/(%d+)$')
  if not whole then
    return nil
  end
  full, part, denominator = integer(whole), integer(part), integer(denominator)
  if full and part and denominator and 0 < part and part < denominator then
    return { full = full, part = part, denominator = denominator }
  end
end

function token_bucket.write(state)
  if state.part == 0 then
    return state.full
  end
  return string.format('%.0f+%.0f/%.0f', state.full, state.part, state.denominator)
end

function token_bucket.expires_at(rule, state)
  return state.part > 0 and state.full + 1 or state.full
end

function token_bucket.clamp(rule, state, now)
  local full, part = start_of(rule, state, 0)
  local latest = now + rule.horizon + rule.span
  if full > latest or (full == latest and part > rule.spare) then
    return { full = latest, part = rule.spare, denominator = rule.unit_denominator }
  end
end

function token_bucket.earliest_fit(rule, state, at, cost)
  if cost > rule.burst then
    return nil
  end
  local full, part = start_of(rule, state, at)
  local credit, rest = time(rule, rule.burst - cost)
  local instant = full - credit
  if part > rest then
    instant = instant + 1
  end
  return math.max(instant, at)
end

function token_bucket.consume(rule, state, at, cost)
  local full, part = start_of(rule, state, at)
  local whole, rest = time(rule, cost)
  full, part = full + whole, part + rest
  if part >= rule.unit_denominator then
    full, part = full + 1, part - rule.unit_denominator
  end
  return { full = full, part = part, denominator = rule.unit_denominator }
end

function token_bucket.consume_with_others(rule, state, at, cost, now)
  local next = token_bucket.consume(rule, state, at, cost)
  if at > now then
    next.from, next.from_part = start_of(rule, state, state and 0 or LONG_AGO)
  end
  return next
end

function token_bucket.max_unchecked_cost(rule)
  return (INEXACT - 1 - (INEXACT - 1) % rule.unit_numerator) / rule.unit_numerator
end

function token_bucket.report(rule, state, now)
  local full, part = start_of(rule, state, now)
  local ahead = full - now
  local remaining = 0
  if ahead <= rule.span then
    local units = rule.burst * rule.unit_numerator - ahead * rule.unit_denominator - part
    remaining = math.max(0, (units - units % rule.unit_numerator) / rule.unit_numerator)
  end
  return remaining, part > 0 and ahead + 1 or ahead
end

function token_bucket.apply_refund(
  rule, state, now, units, cost, mark_full, mark_part, from, from_part
)
  local full, part = start_of(rule, state, 0)
  if full ~= mark_full or part ~= mark_part then
    return nil
  end
  if from > 0 and units == cost then
    return { full = from, part = from_part, denominator = rule.unit_denominator }, units
  end
  if units ~= cost then
    -- While its slot is ahead nothing is given back, or a later charge could come before it.
    local ahead, spare = rule.span, rule.spare
    if from > 0 then
      ahead, spare = time(rule, cost)
    end
    if full - ahead + (part > spare and 1 or 0) > now then
      return nil
    end
  end
  local whole, rest = time(rule, units)
  full, part = full - whole, part - rest
  if part < 0 then
    full, part = full - 1, part + rule.unit_denominator
  end
  return { full = full, part = part, denominator = rule.unit_denominator }, units
end

function token_bucket.mark(state)
  return state.full, state.part, state.from, state.from_part
end
