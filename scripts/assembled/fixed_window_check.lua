-- Put together from scripts/*.lua, and not to be edited: scripts/README.md.
--
-- Redis gets this file without its comments and blank lines, and nothing else:
--   grep -vE '^ *(--|$)' fixed_window_check.lua
-- EVALSHA calls that text by its SHA-1, 9721e3782c261afe4588b4acee15ef1ef99040eb.

-- Fixed window. The twin of src/algorithm/fixed_window.rs.
--
-- Stored:  an instant in the latest window that holds units (anchored: its start), and the units,
--          as `begin:units`
-- Mark:    mark1, mark2: begin and units after the charge. mark3, mark4: begin + 1 and units before
--          it, if it reserved a wait together with other quotas; else 0

-- KEYS     the keys, each once
-- ARGV     first now in microseconds since the Unix epoch, or empty: then TIME is read once.
--          Then 4 integers, the limiter's rule. Its horizon is the longest wait:
--   horizon, limit, period, anchored
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
--   (begin or -1) + 1, units or 0

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
-- anchored: 1 if a window starts with its first charge, 0 if with the epoch's periods.
local horizon, limit, period, anchored

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
    -- READ the state of a key. `begin` is nil if there is none.
    local key = KEYS[k]
    local begin, units
    -- Whether the key is to be written, or emptied; why its charges fail; the number that it
    -- holds, if that is all; when its state is worth nothing; when its block ends; its birth,
    -- if it was reset.
    local changed, wiped, why, number, expires_at, blocked, birth
    -- `none` is no state: a key that was made so that a cluster can move its slot.
    local text = texts[k]
    if text and text ~= 'none' then
      do
        -- [read]
        -- Two numbers. Any other text leaves `begin` nil.
        local first_digits, second_digits = string.match(text, '^(%d+):(%d+)$')
        if first_digits then
          begin, units = integer(first_digits), integer(second_digits)
          if not units then
            begin = nil
          end
        end
      end
      if not begin then
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
            -- Two numbers. Any other text leaves `begin` nil.
            local first_digits, second_digits = string.match(text, '^(%d+):(%d+)$')
            if first_digits then
              begin, units = integer(first_digits), integer(second_digits)
              if not units then
                begin = nil
              end
            end
            -- It is no plain number that could be changed in place.
            number = nil
          end
          if text == '' or begin then
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
        horizon, limit, period, anchored = ARGV[from + 0] + 0, ARGV[from + 1] + 0, ARGV[from + 2] + 0, ARGV[from + 3] + 0
        cost, max_wait, a = ARGV[a] + 0, math.min(ARGV[a + 1] + 0, horizon), a + 2
      end
      -- As it was, if no charge of this segment is kept. What is kept is written at the end.
      local begin_before, units_before = begin, units
      local clamped, kept = false, false
      if begin then
        -- A state of another rule is brought under this one. A state from the future is clamped:
        -- a clock was set back, or a quota was lowered.
        -- [clamp]
        -- A window that begins later than any reserved wait can: a full one of now instead.
        if begin > now then
          if anchored == 1 then
            if begin > now + horizon + period then
              begin, units, clamped = now, limit, true
            end
          else
            local window = now - now % period
            if (begin - begin % period - window) / period > ceil(horizon / period) + 1 then
              begin, units, clamped = window, limit, true
            end
          end
        end
      end
      for _ = 1, repeats do
        -- One charge. `instant` is when it fits.
        local wait, instant = 0, nil
        -- A check. `instant` is the earliest at which the cost fits, or nil if it never does.
        -- [fit]
        -- In the latest window, or at its end if it has no room. An empty one that is over
        -- counts as none.
        if cost <= limit then
          instant = now
          if begin then
            local ends = begin + period
            if anchored == 0 then
              ends = ends - begin % period
            end
            if ends > now and (units > 0 or begin > now) then
              if units + cost > limit then
                instant = ends
              elseif begin > now then
                instant = begin
              end
            end
          end
        end
        -- The reply says the state that this was decided on.
        -- [reply]
        reply[n + 2], reply[n + 3] = (begin or -1) + 1, units or 0
        if instant then
          wait = instant - now
          if cost > 0 then
            if wait <= max_wait then
              -- Takes the units, at that instant.
              -- [consume]
              -- Into the latest window, or into a new one if that is over at this instant.
              local ends = begin and (anchored == 1 and begin or begin - begin % period) + period
              if ends and ends > instant and (units > 0 or begin > instant) then
                units = units + cost
              else
                begin, units = anchored == 1 and instant or instant - instant % period, cost
              end
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
        if begin then
          -- From `expires_at` on, the state decides like no state.
          -- [expires]
          -- The window's end.
          expires_at = (anchored == 1 and begin or begin - begin % period) + period
        end
      else
        begin, units = begin_before, units_before
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
    elseif changed and begin then
      if expires_at < now then
        expires_at = now
      end
      -- The text to store, or the number if that is all.
      local value, plain
      -- [write]
      value = format('%d:%d', begin, units)
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
