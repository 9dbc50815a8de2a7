-- Put together from scripts/*.lua, and not to be edited: scripts/README.md.
--
-- Redis gets this file without its comments and blank lines, and nothing else:
--   grep -vE '^ *(--|$)' token_bucket_check.lua
-- EVALSHA calls that text by its SHA-1, d1700bffdb53383ac7a99aa1de37194473567f67.

-- Token bucket (GCRA). The twin of src/algorithm/token_bucket.rs.
--
-- Stored:  the instant at which the bucket is full again, as `full` or `full+part/denominator`,
--          after a `-` if the debt lasts longer than the horizon
-- Mark:    mark1, mark2: full and part after the charge. mark3, mark4: full + 1 and part before it,
--          if it reserved a wait together with other quotas; else 0

-- KEYS     the keys, each once
-- ARGV     first now in microseconds since the Unix epoch, or empty: then TIME is read once.
--          Then 5 integers, the limiter's rule. Its horizon is the longest wait:
--   horizon, unit_numerator, unit_denominator, burst, max_debt
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
--   (full or -1) + 1, part or 0

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
local a = 2 + 5
-- What a segment asks: how many charges, and the cost and the longest wait of each.
local repeats, cost, max_wait
-- The rule, and what follows from it.
-- [arguments]
-- One unit takes unit_numerator / unit_denominator microseconds; max_debt: how long a key may owe.
local horizon, unit_numerator, unit_denominator, burst, max_debt
local span, spare
-- What follows from the rule and the cost.
local time, rest

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
    -- READ the state of a key. `full` is nil if there is none.
    local key = KEYS[k]
    local full, part, denominator, owes
    -- Whether the key is to be written, or emptied; why its charges fail; the number that it
    -- holds, if that is all; when its state is worth nothing; when its block ends; its birth,
    -- if it was reset.
    local changed, wiped, why, number, expires_at, blocked, birth
    -- `none` is no state: a key that was made so that a cluster can move its slot.
    local text = texts[k]
    if text and text ~= 'none' then
      do
        -- [read]
        -- A plain number, or one with a fraction, perhaps after a sign. Any other text
        -- leaves `full` nil.
        full = integer(text)
        if full then
          part, denominator, number = 0, 1, full
        else
          local sign, whole, rest = string.match(text, '^(%-?)(%d+)(.*)$')
          if whole then
            full, part, denominator, owes = integer(whole), 0, 1, sign == '-'
            if rest ~= '' then
              local over, under = string.match(rest, '^%+(%d+)/(%d+)$')
              part, denominator = over and integer(over), under and integer(under)
              if not (part and denominator and 0 < part and part < denominator) then
                full = nil
              end
            end
          end
        end
      end
      if not full then
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
            -- A plain number, or one with a fraction, perhaps after a sign. Any other text
            -- leaves `full` nil.
            full = integer(text)
            if full then
              part, denominator, number = 0, 1, full
            else
              local sign, whole, rest = string.match(text, '^(%-?)(%d+)(.*)$')
              if whole then
                full, part, denominator, owes = integer(whole), 0, 1, sign == '-'
                if rest ~= '' then
                  local over, under = string.match(rest, '^%+(%d+)/(%d+)$')
                  part, denominator = over and integer(over), under and integer(under)
                  if not (part and denominator and 0 < part and part < denominator) then
                    full = nil
                  end
                end
              end
            end
            -- It is no plain number that could be changed in place.
            number = nil
          end
          if text == '' or full then
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
          a = from + 5
        end
        horizon, unit_numerator, unit_denominator, burst, max_debt = ARGV[from + 0] + 0, ARGV[from + 1] + 0, ARGV[from + 2] + 0, ARGV[from + 3] + 0, ARGV[from + 4] + 0
        -- [rule]
        -- The time of a burst: whole microseconds, and the rest over the denominator.
        spare = burst * unit_numerator % unit_denominator
        span = (burst * unit_numerator - spare) / unit_denominator
        cost, max_wait, a = ARGV[a] + 0, math.min(ARGV[a + 1] + 0, horizon), a + 2
        -- [cost]
        -- The time of the cost, in the same way.
        rest = cost * unit_numerator % unit_denominator
        time = (cost * unit_numerator - rest) / unit_denominator
      end
      -- As it was, if no charge of this segment is kept. What is kept is written at the end.
      local full_before, part_before, denominator_before, owes_before = full, part, denominator, owes
      local clamped, kept = false, false
      if full then
        -- A state of another rule is brought under this one. A state from the future is clamped:
        -- a clock was set back, or a quota was lowered.
        -- [rebase]
        -- A fraction over another denominator is rounded up.
        if denominator ~= unit_denominator then
          if part > 0 then
            full, part = full + 1, 0
          end
          denominator = unit_denominator
        end
        -- [clamp]
        -- No bucket is full again later than a burst after the longest wait, or after the
        -- longest debt if it owes.
        local last = now + (owes and max_debt or horizon) + span
        if full >= last and (full > last or part > spare) then
          full, part, clamped = last, spare, true
        end
      end
      for _ = 1, repeats do
        -- One charge. `instant` is when it fits.
        local wait, instant = 0, nil
        -- A check. `instant` is the earliest at which the cost fits, or nil if it never does.
        -- [fit]
        -- It fits as soon as `full` and the time of the cost are no further ahead than the
        -- time of a burst.
        if cost <= burst then
          instant = now
          if full and full >= now then
            instant = full + time - span
            if part + rest > spare then
              instant = instant + (part + rest > spare + unit_denominator and 2 or 1)
            end
            if instant < now then
              instant = now
            end
          end
        end
        -- The reply says the state that this was decided on.
        -- [reply]
        reply[n + 2], reply[n + 3] = (full or -1) + 1, part or 0
        if instant then
          wait = instant - now
          if cost > 0 then
            if wait <= max_wait then
              -- Takes the units, at that instant.
              -- [consume]
              -- The bucket is full again later, by the time of the cost.
              if not full or full < instant then
                full, part = instant, 0
              end
              full, part, denominator = full + time, part + rest, unit_denominator
              if part >= unit_denominator then
                full, part = full + 1, part - unit_denominator
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
        if full then
          -- [owes]
          -- Later than after the longest wait only a debt is over.
          owes = full >= now + horizon + span and (full > now + horizon + span or part > spare)
          -- From `expires_at` on, the state decides like no state.
          -- [expires]
          -- A full bucket is as good as a new one.
          expires_at = part > 0 and full + 1 or full
        end
      else
        full, part, denominator, owes = full_before, part_before, denominator_before, owes_before
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
    elseif changed and full then
      if expires_at < now then
        expires_at = now
      end
      -- The text to store, or the number if that is all.
      local value, plain
      -- [write]
      -- The shortest text: mostly a plain number.
      local sign = owes and '-' or ''
      if part > 0 then
        value = format('%s%d+%d/%d', sign, full, part, denominator)
      elseif owes then
        value = format('-%d', full)
      else
        plain = full
      end
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
