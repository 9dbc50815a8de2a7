-- Sliding window by cells. The twin of src/algorithm/sliding_window.rs.
--
-- Stored:  the width, the newest cell, and the units of the cells up to it, as
--          `width:newest,units,..,units`
-- Mark:    mark1, mark2: newest and width after the charge. mark3, mark4: newest + 1 before it, and
--          the units of the cells that it pushed out and that still count, if it reserved a wait
--          together with other quotas; else 0

-- The period has `cells` cells of `width` microseconds.
--@ arguments horizon, limit, width, cells

-- counts: the units of the cells up to the newest; list: the same as `,units,..,units`, or nil.
-- Only `consume` changes a table of counts in place.
--@ state newest, cell_width, counts, list

--@ helpers
-- Returns the counts of a text, or nil for a text that no script writes.
local function counts_of(list)
  local counts = {}
  for digits in string.gmatch(list, ',(%d*)') do
    local number = digits ~= '' and integer(digits)
    if not number then
      return nil
    end
    counts[#counts + 1] = number
  end
  return #counts >= 2 and #counts <= 61 and counts or nil
end

local function listed(counts, first, last)
  return format(string.rep(',%d', last - first + 1), unpack(counts, first, last))
end

-- Returns the counts in other cells: units move to the cell of the last instant at which they can
-- have been admitted. In a cell that has not begun, that is its begin.
local function moved(newest, cell_width, counts, width, cells, now)
  local function cell_of(cell)
    local begin = cell * cell_width
    return math.floor(math.min(begin + cell_width - 1, math.max(begin, now)) / width)
  end
  local last = cell_of(newest)
  local units = {}
  for i = 1, cells + 1 do
    units[i] = 0
  end
  for i = 1, #counts do
    local place = cells + 1 - (last - cell_of(newest - #counts + i))
    if place >= 1 then
      units[place] = units[place] + counts[i]
    end
  end
  return last, units
end

-- Returns the counts from before a charge that moved the newest cell on from `from`. `pushed` lists
-- the counts of cells that it pushed out.
local function restored(newest, counts, cells, from, pushed)
  local old, last = {}, math.min(newest - cells - 1, from)
  for digits in string.gmatch(pushed, '%d+') do
    old[#old + 1] = tonumber(digits)
  end
  local units = {}
  for i = 1, cells + 1 do
    local cell = from - cells - 1 + i
    units[i] = counts[cell - newest + cells + 1] or old[cell - last + #old] or 0
  end
  return units
end

-- Reads two numbers and a list of 2 to 61 units. Any other text leaves `newest` nil.
--@ read
local width_digits, newest_digits, rest = string.match(text, '^(%d+):(%d+)(,[%d,]+)$')
if width_digits and #rest <= 1037 then
  cell_width, newest = integer(width_digits), integer(newest_digits)
  counts, list = counts_of(rest), rest
  local is_exact = cell_width and newest and cell_width > 0 and newest * cell_width < INEXACT
  if not (is_exact and counts) then
    newest = nil
  end
end

-- A newest cell that is later than any reserved wait becomes one full cell of now. It
-- is compared as stored: in other cells it would begin at another time.
--@ clamp
-- Compare before converting: the conversion changes where the cell starts.
if newest * cell_width > now + horizon then
  newest, counts, list, clamped = math.floor(now / width), {}, nil, true
  for i = 1, cells do
    counts[i] = 0
  end
  counts[cells + 1], cell_width = limit, width
elseif cell_width ~= width or #counts ~= cells + 1 then
  -- Moves the units into this rule's cells: another rule has others.
  newest, counts = moved(newest, cell_width, counts, width, cells, now)
  cell_width, list = width, nil
end

-- Lists the counts anew if they were changed.
--@ reply newest, list
if newest and not list then
  list = listed(counts, 1, cells + 1)
end

-- The first cell, not before the newest one or now, whose period has room. The loop
-- takes one turn for each cell at most: 60.
--@ fit
if cost <= limit then
  instant = now
  if newest then
    local cell = math.max(math.floor(now / width), newest)
    local total = cost
    for i = cell - newest + 1, cells + 1 do
      total = total + counts[i]
    end
    while total > limit and cell <= newest + cells do
      total = total - counts[cell - newest + 1]
      cell = cell + 1
    end
    instant = math.max(now, cell * width)
  end
end

-- Adds to the cell of that instant, which becomes the newest: the cells move by as
-- many places.
--@ consume
local cell = math.floor(instant / width)
local passed = newest and cell - newest or cells + 1
local units = {}
for i = 1, cells + 1 do
  units[i] = counts and counts[i + passed] or 0
end
units[cells + 1] = units[cells + 1] + cost
newest, cell_width, counts, list = cell, width, units, nil

-- When the newest cell with units leaves the period.
--@ expires
expires_at = newest * width
for i = cells + 1, 1, -1 do
  if counts[i] > 0 then
    expires_at = (newest + i) * width
    break
  end
end

--@ write
list = list or listed(counts, 1, #counts)
value = format('%d:%d', cell_width, newest) .. list

-- The limit at a time, and nothing if more than the limit counts already.
--@ most
most = instant > math.max(now, newest and newest * width or 0) and 0 or limit

-- Gives back the newest units first.
--@ grant
local left, units = amount, {}
for i = cells + 1, 1, -1 do
  local given = math.min(left, counts[i])
  left, units[i] = left - given, counts[i] - given
end
counts, list = units, nil

-- Only while the cell of the mark counts. Undoes a reserved wait completely if no
-- other charge is in the cells that it reached.
--@ refund
local passed = newest - mark1
if width == mark2 and passed >= 0 and passed <= cells and (mark1 + cells + 1) * width > now then
  local alone = mark3 > 0 and back == cost and passed == 0
  if alone then
    -- The cells are exactly what the charge left if those that it reached by waiting
    -- have no other units.
    local total = 0
    for i = math.max(1, mark3 - newest + cells + 1), cells + 1 do
      total = total + counts[i]
    end
    alone = total == cost
  end
  if alone then
    counts = restored(newest, counts, cells, mark3 - 1, mark4)
    newest, refunded = mark3 - 1, back
  else
    local units, place = {}, cells + 1 - passed
    for i = 1, cells + 1 do
      units[i] = counts[i]
    end
    refunded = math.min(back, units[place])
    units[place] = units[place] - refunded
    counts = units
  end
  list = nil
end
