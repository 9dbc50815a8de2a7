-- Put together from scripts/*.lua, and not to be edited: scripts/README.md.
--
-- Redis gets this file without its comments and blank lines, and nothing else:
--   grep -vE '^ *(--|$)' sliding_window_check.lua
-- EVALSHA calls that text by its SHA-1, 1d103d4aeda988287f13250f8369615d740a3e68.

-- Sliding window by cells. The twin of src/algorithm/sliding_window.rs.
--
-- Stored:  the width, the newest cell, and the units of the cells up to it, as
--          `width:newest,units,..,units`
-- Mark:    mark1, mark2: newest and width after the charge. mark3, mark4: newest + 1 before it, and
--          the units of the cells that it pushed out and that still count, if it reserved a wait
--          together with other quotas; else 0

-- KEYS     the keys, each once
-- ARGV     first now in microseconds since the Unix epoch, or empty: then TIME is read once.
--          Then 4 integers, the limiter's rule. Its horizon is the longest wait:
--   horizon, limit, width, cells
--          The charges follow. Until all keys are named: how many of the next keys are asked
--          alike, how many segments each of them has, and the segments. A segment is
--            how many charges ask alike; `quota` and a rule, if they bring their own; and
--            cost, max_wait               takes the units if they are free within that time;
--                                         a cost of 0 takes nothing, and is called a peek
--          So `9 1 1 1 0` asks for one unit of each of 9 keys, and `1 1 9 1 0` of one key 9 times.
-- Reply    one string, a list packed by cmsgpack: now, and for each charge 3 elements.
--          The first is how many microseconds to wait, and 0 also if it never fits; -1 less that,
--          if the units were taken; or a text, if this charge failed: why. Of a key that was
--          reset, it is `RESET`, that number if the units were taken, and each quota's birth.
--          The others are the state that decided, 0 if there was none:
--   (newest or -1) + 1, list or 0

-- What every script starts with: strict numbers, the clock, and what failed.

local INEXACT = 9007199254740992
local CORRUPT = 'CORRUPT the stored value is not one that this limiter writes'

-- Numbers are written with `%d`, which is faster than what the server does with a number.
local format = string.format

-- The number that `text` is, if it is one that a script writes: digits, exact,
-- without leading zeros.
local function integer(text)
  local number = tonumber(text)
  if number and number >= 0 and number < INEXACT and format('%d', number) == text then
    return number
  end
end

-- Now, in microseconds: the caller's if one is given, else the server's, read once.
local function clock(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- Why a command failed, if it did.
local function failure(...)
  local reply = redis.pcall(...)
  return type(reply) == 'table' and reply.err or nil
end

-- The counts of a text, or nil if it is not one that is written.
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

-- The counts in other cells: units move to the cell of the last instant at which they can have been
-- admitted. In a cell that has not begun, that is its begin.
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

-- The counts before the charge that made its newest cell the newest where `from` was it. `pushed`
-- lists those of cells that it pushed out.
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

-- The clock, and the variables of a call.

-- How much longer than its state a key lives, in microseconds: as long as the state stays within
-- one such stretch, the expiry that was set first suffices. Part of the format: every writer of a
-- key keeps to one number.
local SPARE = 10000000

local KEYS, ARGV, pcall, ceil = KEYS, ARGV, redis.pcall, math.ceil
-- True if the caller gives the time.
local own_clock = ARGV[1] ~= ''
local now = clock(ARGV[1])
-- The reply, and how many elements of it are written.
local reply, n = { now }, 1
-- The element of ARGV that is read next. Those before it are now and the limiter's rule.
local a = 2 + 4
-- What a segment asks: how many charges, and the cost and the longest wait of each.
local repeats, cost, max_wait
-- The rule, and what follows from it.
-- [arguments]
-- The period is cut into so many cells of `width` microseconds.
local horizon, limit, width, cells

-- The loop. Each key is read, its charges are decided, and it is written once if they changed it.

-- What each key holds: false if it is absent, or of another type.
local texts = redis.call('MGET', unpack(KEYS))
-- The last of the keys that are done.
local last = 0

while last < #KEYS do
  -- The next keys that are asked alike, from `first` to `last`, and how many segments each has.
  local first, segments = last + 1, ARGV[a + 1] + 0
  last = last + ARGV[a]
  a = a + 2
  local segment_at = a
  for k = first, last do
    -- READ the state of a key. `newest` is nil if there is none.
    local key = KEYS[k]
    local newest, cell_width, counts, list
    -- Whether the key is to be written, or emptied; why its charges fail; the number that it
    -- holds, if that is all; when its state is worth nothing; when its block ends; its birth,
    -- if it was reset.
    local changed, wiped, why, number, expires_at, blocked, birth
    -- `none` is no state: a key that was made so that a cluster can move its slot.
    local text = texts[k]
    if text and text ~= 'none' then
      do
        -- [read]
        -- Two numbers and a list of 2 to 61 units. Any other text leaves `newest` nil.
        local width_digits, newest_digits, rest = string.match(text, '^(%d+):(%d+)(,[%d,]+)$')
        if width_digits and #rest <= 1037 then
          cell_width, newest = integer(width_digits), integer(newest_digits)
          counts, list = counts_of(rest), rest
          local is_exact = cell_width and newest and cell_width > 0 and newest * cell_width < INEXACT
          if not (is_exact and counts) then
            newest = nil
          end
        end
      end
      if not newest then
        -- A text that is no state: a block, as `blocked:instant:text`; what was reset, as
        -- `reset:birth:text`; both, in this order; or a foreign value. Beneath lies the text of
        -- the state, or nothing. A block that is over counts as if it were not there.
        local until_digits, after_block = string.match(text, '^blocked:(%d+):(.*)$')
        local birth_digits, beneath = string.match(after_block or text, '^reset:(%d+):(.*)$')
        blocked, birth = integer(until_digits or ''), integer(birth_digits or '')
        why, text = CORRUPT, beneath or after_block
        if (blocked or not until_digits) and (birth or not birth_digits) and text then
          if text ~= '' then
            -- [read]
            -- Two numbers and a list of 2 to 61 units. Any other text leaves `newest` nil.
            local width_digits, newest_digits, rest = string.match(text, '^(%d+):(%d+)(,[%d,]+)$')
            if width_digits and #rest <= 1037 then
              cell_width, newest = integer(width_digits), integer(newest_digits)
              counts, list = counts_of(rest), rest
              local is_exact = cell_width and newest and cell_width > 0 and newest * cell_width < INEXACT
              if not (is_exact and counts) then
                newest = nil
              end
            end
            -- It is no plain number that could be changed in place.
            number = nil
          end
          if text == '' or newest then
            why = blocked and blocked > now and format('BLOCKED %016d', blocked) or nil
          end
        end
        blocked = why ~= CORRUPT and why and blocked
      end
    end

    -- DECIDE the charges of the key. Keys that are asked alike read the same segments.
    local start = n
    if segments > 1 then
      a = segment_at
    end
    for _ = 1, segments do
      if segments > 1 or k == first then
        -- Reads a segment: how many charges, under which rule, and what they ask.
        repeats = ARGV[a] + 0
        a = a + 1
        -- Where the rule stands: at ARGV[2], unless the charges bring one.
        local from = 2
        if ARGV[a] == 'quota' then
          from = a + 1
          a = from + 4
        end
        horizon, limit, width, cells = ARGV[from + 0] + 0, ARGV[from + 1] + 0, ARGV[from + 2] + 0, ARGV[from + 3] + 0
        cost, max_wait, a = ARGV[a] + 0, math.min(ARGV[a + 1] + 0, horizon), a + 2
      end
      -- As it was, if no charge of this segment is kept. What is kept is written at the end.
      local newest_before, cell_width_before, counts_before, list_before = newest, cell_width, counts, list
      local clamped, kept = false, false
      if newest then
        -- A state of another rule is brought under this one. A state from the future is clamped:
        -- a clock was set back, or a quota was lowered.
        -- [clamp]
        -- A newest cell that is later than any reserved wait can be: one full cell of now
        -- instead. It is compared as it was stored: in other cells it begins at another time.
        if newest * cell_width > now + horizon then
          newest, counts, list, clamped = math.floor(now / width), {}, nil, true
          for i = 1, cells do
            counts[i] = 0
          end
          counts[cells + 1], cell_width = limit, width
        elseif cell_width ~= width or #counts ~= cells + 1 then
          -- Into this rule's cells, as another rule cut the time otherwise.
          newest, counts = moved(newest, cell_width, counts, width, cells, now)
          cell_width, list = width, nil
        end
      end
      for _ = 1, repeats do
        -- One charge. `instant` is when it fits.
        local wait, instant = 0, nil
        -- A check. `instant` is the earliest at which the cost fits, or nil if it never does.
        -- [fit]
        -- The first cell, not before the newest one or now, whose period has room.
        -- One turn for each cell at most, and there are 60.
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
        -- The reply says the state that this was decided on.
        -- [reply]
        -- The list is as it is stored, unless it was changed.
        if newest and not list then
          list = listed(counts, 1, cells + 1)
        end
        reply[n + 2], reply[n + 3] = (newest or -1) + 1, list or 0
        if instant then
          wait = instant - now
          if cost > 0 then
            if wait <= max_wait then
              -- Takes the units, at that instant.
              -- [consume]
              -- Into the cell of that instant, which becomes the newest. The cells move by as
              -- many places.
              local cell = math.floor(instant / width)
              local passed = newest and cell - newest or cells + 1
              local units = {}
              for i = 1, cells + 1 do
                units[i] = counts and counts[i + passed] or 0
              end
              units[cells + 1] = units[cells + 1] + cost
              newest, cell_width, counts, list = cell, width, units, nil
              kept, wait = true, -1 - wait
              if birth then
                wait = format('RESET %d %d', wait, birth)
              end
            elseif clamped then
              -- The only write of a refusal: or the clamped state would move along with the
              -- clock.
              kept = true
            end
          end
        end
        reply[n + 1] = wait
        n = n + 3
      end
      if kept then
        changed = true
        if newest then
          -- From `expires_at` on, the state decides like no state.
          -- [expires]
          -- When the last cell with units leaves the period.
          expires_at = newest * width
          for i = cells + 1, 1, -1 do
            if counts[i] > 0 then
              expires_at = (newest + i) * width
              break
            end
          end
        end
      else
        newest, cell_width, counts, list = newest_before, cell_width_before, counts_before, list_before
      end
    end

    -- WRITE the key.
    if changed and not why and (birth or not expires_at) then
      -- What was blocked or reset lasts as long as it did: a year if it had no end. 2^51 keeps the sum
      -- exact. What was reset also lasts for ten minutes, so that requests that were under way settle
      -- nothing.
      local YEAR, MOST, MEMORY = 31536000000000, 2251799813685248, 600000000
      local lasts = pcall('PTTL', key)
      if type(lasts) == 'table' then
        why = lasts.err
      else
        lasts = math.min(lasts == -1 and YEAR or lasts * 1000, MOST)
        lasts = lasts - (own_clock and 3600000000 or SPARE)
        expires_at = math.max(expires_at or 0, now + lasts, birth and now + MEMORY or 0)
      end
    end
    if why then
      -- Nothing is to be stored.
    elseif changed and newest then
      if expires_at < now then
        expires_at = now
      end
      -- The text to store, or the number if that is all.
      local value, plain
      -- [write]
      list = list or listed(counts, 1, #counts)
      value = format('%d:%d', cell_width, newest) .. list
      if birth then
        value = format('reset:%d:%s', birth, plain and format('%d', plain) or value or '')
        plain = nil
      end
      if number and plain and not own_clock and plain - plain % SPARE == number - number % SPARE then
        -- A number in the same stretch: its expiry still comes late enough.
        local answer = pcall('INCRBY', key, format('%d', plain - number))
        why = type(answer) == 'table' and answer.err or nil
      else
        -- Expiry only collects garbage: it never comes before the state is old.
        local unit, expiry = 'PXAT', ceil((expires_at + SPARE) / 1000)
        if own_clock then
          -- An hour more, in milliseconds, since the clocks differ.
          unit, expiry = 'PX', ceil((expires_at - now) / 1000) + 3600000
        end
        expiry = format('%d', expiry)
        if plain then
          value = format('%d', plain)
        end
        -- A key of another type reads as absent: NX does not overwrite it.
        local answer
        if text then
          answer = pcall('SET', key, value, unit, expiry)
        else
          answer = pcall('SET', key, value, unit, expiry, 'NX')
        end
        if answer then
          why = answer.err
        else
          why = 'WRONGTYPE the key holds a value of another type'
        end
      end
    elseif not text and not wiped then
      -- Nothing is written, so GET says whether an absent key is one of another type.
      why = failure('GET', key)
    end
    if why then
      -- All charges of this key failed, whatever was decided.
      for i = start + 1, n, 3 do
        reply[i] = why
      end
    end
  end
end
return cmsgpack.pack(reply)
