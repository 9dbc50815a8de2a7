-- Sliding counter: two weighted windows. The twin of src/algorithm/sliding_counter.rs.
--
-- Arguments of a rule:  horizon  limit  period
-- Stored:               the start of the latest window that holds units, its units, those of the
--                       one before, and the latest instant of admission, as
--                       `begin:current:previous:latest`
-- Mark of a state:      latest, and of the state before if it was taken with others: from (its
--                       latest)
--                       from_current  from_previous

local sliding_counter = { arguments = 3 }

-- The start of the window that holds `at`.
local function begin_of(rule, at)
  return at - at % rule.period
end

-- The state in this rule's windows.
local function rebase(rule, state)
  if not state then
    return nil
  end
  local begin = begin_of(rule, state.latest)
  local before = begin_of(rule, math.max(state.begin - 1, 0))
  local current, previous = state.current, 0
  if before == begin then
    current = current + state.previous
  elseif before == begin - rule.period then
    previous = state.previous
  end
  return {
    begin = begin,
    current = math.min(current, rule.most),
    previous = math.min(previous, rule.most),
    latest = state.latest,
  }
end

-- The units of the window that begins at `begin`, and of the one before it.
local function units_of(rule, state, begin)
  if begin == state.begin then
    return state.current, state.previous
  elseif begin == state.begin + rule.period then
    return 0, state.current
  end
  return 0, 0
end

-- The units that count at `at`: those of the window before weigh what is left of it, rounded up.
local function used(rule, state, at)
  local begin = begin_of(rule, at)
  local current, previous = units_of(rule, state, begin)
  local weighted = previous * (rule.period - (at - begin))
  local rest = weighted % rule.period
  return current + (weighted - rest) / rule.period + (rest > 0 and 1 or 0)
end

-- The instant from which on nothing of the state counts any more.
local function end_of(rule, state)
  if state.current > 0 then
    return state.begin + 2 * rule.period
  elseif state.previous > 0 then
    return state.begin + rule.period
  end
  return state.latest
end

function sliding_counter.rule(horizon, limit, period)
  local rest = INEXACT % period
  return { horizon = horizon, limit = limit, period = period, most = (INEXACT - rest) / period }
end

function sliding_counter.read(text)
  local begin, current, previous, latest = string.match(text, '^(%d+):(%d+):(%d+):(%d+)$')
  if not begin then
    return nil
  end
  begin, current = integer(begin), integer(current)
  previous, latest = integer(previous), integer(latest)
  if begin and current and previous and latest and begin <= latest then
    return { begin = begin, current = current, previous = previous, latest = latest }
  end
end

function sliding_counter.write(state)
  local format = '%.0f:%.0f:%.0f:%.0f'
  return string.format(format, state.begin, state.current, state.previous, state.latest)
end

function sliding_counter.expires_at(rule, state)
  return end_of(rule, rebase(rule, state))
end

function sliding_counter.clamp(rule, state, now)
  if state.latest > now + rule.horizon then
    return { begin = begin_of(rule, now), current = rule.limit, previous = 0, latest = now }
  end
end

function sliding_counter.earliest_fit(rule, state, at, cost)
  if cost > rule.limit then
    return nil
  end
  state = rebase(rule, state)
  if not state then
    return at
  end
  local from = math.max(at, state.latest)
  local begin = begin_of(rule, from)
  while true do
    local current, previous = units_of(rule, state, begin)
    local room = rule.limit - cost - current
    if room >= 0 then
      -- The longest that may be left of the window for the one before it to weigh no
      -- more than the room.
      local rest = rule.period
      if previous > room then
        local share = room * rule.period
        rest = (share - share % previous) / previous
      end
      if rest > 0 then
        return math.max(from, begin + rule.period - rest)
      end
    end
    begin = begin + rule.period
  end
end

function sliding_counter.consume(rule, state, at, cost)
  state = rebase(rule, state)
  local begin = begin_of(rule, at)
  local current, previous = 0, 0
  if state then
    current, previous = units_of(rule, state, begin)
  end
  return { begin = begin, current = current + cost, previous = previous, latest = at }
end

function sliding_counter.consume_with_others(rule, state, at, cost)
  local next = sliding_counter.consume(rule, state, at, cost)
  next.from, next.from_current, next.from_previous = LONG_AGO, 0, 0
  state = rebase(rule, state)
  if state then
    next.from, next.from_current, next.from_previous = state.latest, state.current, state.previous
  end
  return next
end

function sliding_counter.max_unchecked_cost(rule)
  return rule.limit
end

function sliding_counter.report(rule, state, now)
  state = rebase(rule, state)
  if not state then
    return rule.limit, 0
  end
  local remaining = 0
  if state.latest <= now then
    remaining = math.max(0, rule.limit - used(rule, state, now))
  end
  return remaining, math.max(0, end_of(rule, state) - now)
end

function sliding_counter.apply_refund(
  rule, state, now, units, cost, mark_latest, from, from_current, from_previous
)
  state = rebase(rule, state)
  local mark_begin = begin_of(rule, mark_latest)
  if mark_begin + 2 * rule.period <= now then
    return nil
  end
  if from > 0 and units == cost then
    local before = {
      begin = begin_of(rule, from),
      current = from_current,
      previous = from_previous,
      latest = from,
    }
    local current, previous = units_of(rule, before, mark_begin)
    if state.latest == mark_latest and state.current == current + cost
      and state.previous == previous then
      return before, units
    end
  end
  local current, previous = state.current, state.previous
  local given
  if state.begin == mark_begin then
    given = math.min(units, current)
    current = current - given
  elseif state.begin - rule.period == mark_begin then
    given = math.min(units, previous)
    previous = previous - given
  else
    return nil
  end
  local latest = state.latest
  if from > 0 and given > 0 and latest > now then
    -- What is reserved into the room that this leaves, at the same latest instant, must not pass
    -- for what was there.
    latest = latest + 1
    if latest > now + rule.horizon or begin_of(rule, latest) ~= state.begin then
      return nil
    end
  end
  return { begin = state.begin, current = current, previous = previous, latest = latest }, given
end

function sliding_counter.mark(state)
  return state.latest, state.from, state.from_current, state.from_previous
end
