-- Fixed window. The twin of src/algorithm/fixed_window.rs.
--
-- Arguments of a rule:  horizon  limit  period  anchored     1: a window starts with its first
--                       charge; 0: with the epoch's periods
-- Stored:               an instant in the latest window that holds units (anchored: its start), and
--                       the units, as `begin:units`
-- Mark of a state:      begin  units, and of the state before a wait that it reserved with others:
--                       from  from_units

local fixed_window = { arguments = 4 }

-- The start of the window that holds `at`, or that starts there.
local function begin_of(rule, at)
  if rule.anchored then
    return at
  end
  return at - at % rule.period
end

local function end_of(rule, state)
  return begin_of(rule, state.begin) + rule.period
end

-- The state, if it says anything about `at` or later.
local function alive(rule, state, at)
  if not state then
    return nil
  end
  local ended = end_of(rule, state) <= at
  local emptied = state.units == 0 and state.begin <= at
  if not ended and not emptied then
    return state
  end
end

function fixed_window.rule(horizon, limit, period, anchored)
  return { horizon = horizon, limit = limit, period = period, anchored = anchored == 1 }
end

function fixed_window.read(text)
  local begin, units = string.match(text, '^(%d+):(%d+)$')
  if not begin then
    return nil
  end
  begin, units = integer(begin), integer(units)
  if begin and units then
    return { begin = begin, units = units }
  end
end

function fixed_window.write(state)
  return string.format('%.0f:%.0f', state.begin, state.units)
end

function fixed_window.expires_at(rule, state)
  return end_of(rule, state)
end

function fixed_window.clamp(rule, state, now)
  if rule.anchored then
    if state.begin > now + rule.horizon + rule.period then
      return { begin = now, units = rule.limit }
    end
    return nil
  end
  local reach = math.ceil(rule.horizon / rule.period) + 1
  local ahead = (begin_of(rule, state.begin) - begin_of(rule, now)) / rule.period
  if ahead > reach then
    return { begin = begin_of(rule, now), units = rule.limit }
  end
end

function fixed_window.earliest_fit(rule, state, at, cost)
  if cost > rule.limit then
    return nil
  end
  state = alive(rule, state, at)
  if not state then
    return at
  end
  if state.units + cost <= rule.limit then
    return math.max(at, state.begin)
  end
  return end_of(rule, state)
end

function fixed_window.consume(rule, state, at, cost)
  state = alive(rule, state, at)
  if state then
    return { begin = state.begin, units = state.units + cost }
  end
  return { begin = begin_of(rule, at), units = cost }
end

function fixed_window.consume_with_others(rule, state, at, cost, now)
  local next = fixed_window.consume(rule, state, at, cost)
  if at > now then
    next.from, next.from_units = LONG_AGO, 0
    if state then
      next.from, next.from_units = state.begin, state.units
    end
  end
  return next
end

function fixed_window.max_unchecked_cost(rule)
  return rule.limit
end

function fixed_window.report(rule, state, now)
  state = alive(rule, state, now)
  if not state then
    return rule.limit, 0
  end
  local remaining = state.begin > now and 0 or math.max(0, rule.limit - state.units)
  -- A window that a refund emptied before it begins is nothing once it has begun.
  local reset = state.units == 0 and state.begin or end_of(rule, state)
  return remaining, reset - now
end

function fixed_window.apply_refund(
  rule, state, now, units, cost, mark_begin, mark_units, from, from_units
)
  state = alive(rule, state, now)
  if not state or state.begin ~= mark_begin then
    return nil
  end
  -- The state is exactly what the charge left: nothing else stands in the window.
  if from > 0 and units == cost and state.units == mark_units then
    return { begin = from, units = from_units }, units
  end
  local given = math.min(units, state.units)
  return { begin = state.begin, units = state.units - given }, given
end

function fixed_window.mark(state)
  return state.begin, state.units, state.from, state.from_units
end
