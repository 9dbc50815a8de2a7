-- Sliding window by cells. The twin of src/algorithm/sliding_window.rs.
--
-- Arguments of a rule:  horizon  limit  width  cells     the period is cut into cells of `width`
--                       microseconds
-- Stored:               the width, the newest cell, and the units of the cells up to it, as
--                       `width:newest,units,..,units`
-- Mark of a state:      newest  width, and of the state before a wait that it reserved with others:
--                       from (its newest)
--                       pushed (units of cells that still count, but not in the newest's period)

local sliding_window = { arguments = 4 }

-- The state in this rule's cells: units that lie in others move to the cell of their last instant.
local function rebase(rule, state)
  if not state or (state.width == rule.width and #state.units == rule.cells + 1) then
    return state
  end
  local function cell_of(cell)
    return math.floor(((cell + 1) * state.width - 1) / rule.width)
  end
  local newest = cell_of(state.newest)
  local units = {}
  for i = 1, rule.cells + 1 do
    units[i] = 0
  end
  for i = 1, #state.units do
    local place = rule.cells + 1 - (newest - cell_of(state.newest - #state.units + i))
    if place >= 1 then
      units[place] = units[place] + state.units[i]
    end
  end
  return { width = rule.width, newest = newest, units = units }
end

-- The units in the cells that count in cell `at`, which is no earlier than the newest.
local function sum(rule, state, at)
  local total, units = 0, state.units
  for i = at - state.newest + 1, rule.cells + 1 do
    total = total + units[i]
  end
  return total
end

-- The units of the state in the cells from `first` to `last`, as `,units,..,units`; 0
-- if there are none.
local function listed(rule, state, first, last)
  local units, total = {}, 0
  for cell = first, last do
    local one = state.units[cell - state.newest + rule.cells + 1]
    units[#units + 1], total = one, total + one
  end
  return total > 0 and string.format(string.rep(',%.0f', #units), unpack(units)) or 0
end

-- The last cell that a charge pushed out which made `newest` the newest cell where `from` was it.
local function last_pushed(rule, newest, from)
  return math.min(newest - rule.cells - 1, from)
end

-- The state before the charge that made its newest cell the newest where `from` was it.
local function restored(rule, state, from, pushed)
  local old, last = {}, last_pushed(rule, state.newest, from)
  for number in string.gmatch(pushed, '%d+') do
    old[#old + 1] = tonumber(number)
  end
  local units = {}
  for i = 1, rule.cells + 1 do
    local cell = from - rule.cells - 1 + i
    units[i] = state.units[cell - state.newest + rule.cells + 1] or old[cell - last + #old] or 0
  end
  return { width = state.width, newest = from, units = units }
end

-- The units in the cells after `cell`.
local function after(rule, state, cell)
  local total = 0
  for i = math.max(1, cell - state.newest + rule.cells + 2), rule.cells + 1 do
    total = total + state.units[i]
  end
  return total
end

-- The instant from which on nothing of the state counts any more.
local function end_of(rule, state)
  for i = rule.cells + 1, 1, -1 do
    if state.units[i] > 0 then
      return (state.newest + i) * rule.width
    end
  end
  return state.newest * rule.width
end

function sliding_window.rule(horizon, limit, width, cells)
  return { horizon = horizon, limit = limit, width = width, cells = cells }
end

function sliding_window.read(text)
  local digits = string.match(text, '^%d+:%d+(,[%d,]+)$')
  if not digits or #digits > 1037 then
    return nil
  end
  local numbers = {}
  for number in string.gmatch(text, '%d+') do
    numbers[#numbers + 1] = tonumber(number)
    if numbers[#numbers] >= INEXACT then
      return nil
    end
  end
  local state = { width = numbers[1], newest = numbers[2], units = { unpack(numbers, 3) } }
  local count = #state.units
  if count < 2 or count > 61 or state.width == 0 or state.newest * state.width >= INEXACT then
    return nil
  end
  -- Only the form that is written is read.
  return sliding_window.write(state) == text and state or nil
end

function sliding_window.write(state)
  local list = string.format(string.rep(',%.0f', #state.units), unpack(state.units))
  return string.format('%.0f:%.0f%s', state.width, state.newest, list)
end

function sliding_window.expires_at(rule, state)
  return end_of(rule, rebase(rule, state))
end

function sliding_window.clamp(rule, state, now)
  state = rebase(rule, state)
  if state.newest * rule.width > now + rule.horizon then
    return sliding_window.consume(rule, nil, now, rule.limit)
  end
end

function sliding_window.earliest_fit(rule, state, at, cost)
  if cost > rule.limit then
    return nil
  end
  state = rebase(rule, state)
  if not state then
    return at
  end
  local cell = math.max(math.floor(at / rule.width), state.newest)
  local total = sum(rule, state, cell)
  while total + cost > rule.limit and cell <= state.newest + rule.cells do
    total = total - state.units[cell - state.newest + 1]
    cell = cell + 1
  end
  return math.max(at, cell * rule.width)
end

function sliding_window.consume(rule, state, at, cost)
  state = rebase(rule, state)
  local newest = math.floor(at / rule.width)
  local units = {}
  local passed = state and newest - state.newest or rule.cells + 1
  for i = 1, rule.cells + 1 do
    units[i] = state and state.units[i + passed] or 0
  end
  units[rule.cells + 1] = units[rule.cells + 1] + cost
  return { width = rule.width, newest = newest, units = units }
end

function sliding_window.consume_with_others(rule, state, at, cost, now)
  local next = sliding_window.consume(rule, state, at, cost)
  if at > now then
    next.from, next.pushed = LONG_AGO, 0
    state = rebase(rule, state)
    if state then
      local first = math.max(math.floor(now / rule.width), state.newest) - rule.cells
      next.from = state.newest
      next.pushed = listed(rule, state, first, last_pushed(rule, next.newest, state.newest))
    end
  end
  return next
end

function sliding_window.max_unchecked_cost(rule)
  return rule.limit
end

function sliding_window.report(rule, state, now)
  state = rebase(rule, state)
  if not state then
    return rule.limit, 0
  end
  local cell = math.floor(now / rule.width)
  local remaining = 0
  if state.newest <= cell then
    remaining = math.max(0, rule.limit - sum(rule, state, cell))
  end
  return remaining, math.max(0, end_of(rule, state) - now)
end

function sliding_window.apply_refund(
  rule, state, now, units, cost, mark_newest, mark_width, from, pushed
)
  state = rebase(rule, state)
  local back = state.newest - mark_newest
  if state.width ~= mark_width or back < 0 or back > rule.cells then
    return nil
  end
  if (mark_newest + rule.cells + 1) * rule.width <= now then
    return nil
  end
  -- The cells are exactly what the charge left: nothing else stands in those that it
  -- reached by waiting.
  if from > 0 and units == cost and back == 0 and after(rule, state, from) == cost then
    return restored(rule, state, from, pushed), units
  end
  local kept = {}
  for i = 1, rule.cells + 1 do
    kept[i] = state.units[i]
  end
  local place = rule.cells + 1 - back
  local given = math.min(units, kept[place])
  kept[place] = kept[place] - given
  return { width = state.width, newest = state.newest, units = kept }, given
end

function sliding_window.mark(state)
  return state.newest, state.width, state.from, state.pushed
end
