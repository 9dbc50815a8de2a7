-- Smooth bursty: Guava's pacing with a store of unused permits. The twin of
-- src/algorithm/smooth_bursty.rs.
--
-- Arguments of a rule:  horizon  unit_denominator  unit_numerator  burst  own_cost  full     a
--                       permit takes unit_numerator / unit_denominator microseconds; burst: how
--                       long permits are stored
-- Stored:               the credit in microseconds over the denominator, the instant from which on
--                       no charge waits, the rate, and the last now, as
--                       `credit:next:unit_denominator/unit_numerator:last`
-- Mark of a state:      next  credit before, made positive  what was added to next, for its debt
--                       and for a later start

local smooth_bursty = { arguments = 6 }

-- Whether the state was kept under this rule's rate.
local function same_rate(rule, state)
  return state.unit_denominator == rule.unit_denominator
    and state.unit_numerator == rule.unit_numerator
end

local function quotient(dividend, divisor)
  return (dividend - dividend % divisor) / divisor
end

-- The state with another credit and other instants, under the same rate.
local function changed(state, credit, next, last)
  return {
    credit = credit,
    next = next,
    unit_denominator = state.unit_denominator,
    unit_numerator = state.unit_numerator,
    last = last,
  }
end

-- The state under this rule's rate, with what the time since has stored.
local function resynced(rule, state, now)
  if not state then
    return rule.full and rule.cap or 0, now
  end
  local credit, next = state.credit, state.next
  if not same_rate(rule, state) then
    local whole, rest = quotient(credit, state.unit_denominator), credit % state.unit_denominator
    credit = math.min(whole, rule.burst) * rule.unit_denominator
    if state.unit_denominator * rule.unit_denominator < INEXACT then
      credit = credit + quotient(rest * rule.unit_denominator, state.unit_denominator)
    end
  end
  if now > next then
    if now - next > rule.burst then
      credit = rule.cap
    else
      credit = credit + (now - next) * rule.unit_denominator
    end
    next = now
  end
  return math.min(credit, rule.cap), next
end

-- The time that a cost takes beyond the credit, in whole microseconds.
local function debt(rule, credit, cost)
  return quotient(math.max(0, cost * rule.unit_numerator - credit), rule.unit_denominator)
end

function smooth_bursty.rule(horizon, unit_denominator, unit_numerator, burst, own_cost, full)
  return {
    horizon = horizon,
    unit_denominator = unit_denominator,
    unit_numerator = unit_numerator,
    burst = burst,
    cap = burst * unit_denominator,
    own_cost = own_cost == 1,
    full = full == 1,
  }
end

function smooth_bursty.read(text)
  local sign, credit, next, denominator, numerator, last =
    string.match(text, '^(%-?)(%d+):(%d+):(%d+)/(%d+):(%d+)$')
  if not sign then
    return nil
  end
  credit, next, last = integer(credit), integer(next), integer(last)
  denominator, numerator = integer(denominator), integer(numerator)
  if not credit or not next or not last or not denominator or not numerator then
    return nil
  end
  if denominator == 0 or numerator == 0 then
    return nil
  end
  if sign == '-' then
    if credit == 0 or credit > denominator then
      return nil
    end
    credit = -credit
  end
  return {
    credit = credit,
    next = next,
    unit_denominator = denominator,
    unit_numerator = numerator,
    last = last,
  }
end

function smooth_bursty.write(state)
  local format = '%.0f:%.0f:%.0f/%.0f:%.0f'
  local denominator, numerator = state.unit_denominator, state.unit_numerator
  return string.format(format, state.credit, state.next, denominator, numerator, state.last)
end

function smooth_bursty.expires_at(rule, state)
  local credit, next = resynced(rule, state, state.next)
  return next + math.ceil((rule.cap - credit) / rule.unit_denominator)
end

function smooth_bursty.clamp(rule, state, now)
  if now < state.last then
    local next = math.max(0, state.next - (state.last - now))
    return changed(state, state.credit, next, now)
  end
end

function smooth_bursty.earliest_fit(rule, state, at, cost)
  if cost * rule.unit_numerator >= INEXACT then
    return nil
  end
  local credit, next = resynced(rule, state, at)
  if rule.own_cost then
    next = math.min(next + debt(rule, credit, cost), INEXACT - 1)
  end
  return math.max(next, at)
end

function smooth_bursty.consume(rule, state, at, cost, now)
  local credit, next = resynced(rule, state, now)
  local debt = debt(rule, credit, cost)
  -- A charge that also waits for another quota starts later, and nothing is stored meanwhile.
  local due = next + (rule.own_cost and debt or 0)
  local shift = math.max(0, at - due)
  local added = math.min(debt, INEXACT - 1 - next - shift)
  return {
    credit = credit + debt * rule.unit_denominator - cost * rule.unit_numerator,
    next = next + shift + added,
    unit_denominator = rule.unit_denominator,
    unit_numerator = rule.unit_numerator,
    last = now,
    before = credit,
    added = added,
    shift = shift,
  }
end

function smooth_bursty.max_unchecked_cost(rule)
  return (INEXACT - 1 - (INEXACT - 1) % rule.unit_numerator) / rule.unit_numerator
end

function smooth_bursty.report(rule, state, now)
  local credit, next = resynced(rule, state, now)
  local ahead = math.max(0, next - now)
  local remaining = 0
  if ahead == 0 and rule.own_cost then
    remaining = math.max(0, quotient(credit + rule.unit_denominator - 1, rule.unit_numerator))
  elseif ahead == 0 then
    remaining = math.max(1, quotient(credit, rule.unit_numerator))
  end
  if not rule.full then
    return remaining, ahead
  end
  return remaining, ahead + math.ceil((rule.cap - credit) / rule.unit_denominator)
end

function smooth_bursty.apply_refund(
  rule, state, now, units, cost, mark_next, mark_before, mark_added, mark_shift
)
  local before = mark_before - rule.unit_denominator
  local after = before + mark_added * rule.unit_denominator - cost * rule.unit_numerator
  if not same_rate(rule, state) or state.next ~= mark_next or state.credit ~= after then
    return nil
  end
  if units == cost then
    return changed(state, before, state.next - mark_added - mark_shift, state.last), units
  end
  -- The slot is kept, so a charge that waited for its own cost gives no time back.
  local kept = cost - units
  local debt = debt(rule, before, kept)
  local credit = before + debt * rule.unit_denominator - kept * rule.unit_numerator
  local next = rule.own_cost and state.next or state.next - mark_added + debt
  return changed(state, credit, next, state.last), units
end

function smooth_bursty.mark(state)
  return state.next, (state.before or 0) + state.unit_denominator, state.added, state.shift
end
