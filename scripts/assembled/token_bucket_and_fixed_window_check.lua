-- Put together from scripts/*.lua, and not to be edited: scripts/README.md.
--
-- Redis gets this file without its comments and blank lines, and nothing else:
--   grep -vE '^ *(--|$)' token_bucket_and_fixed_window_check.lua
-- EVALSHA calls that text by its SHA-1, 6f666ef6ec0d45ef4d67fe1496fb2867d094d94e.

-- Token bucket (GCRA). The twin of src/algorithm/token_bucket.rs.
--
-- Stored:  the instant at which the bucket is full again, as `full` or `full+part/denominator`,
--          after a `-` if the debt lasts longer than the horizon
-- Mark:    mark1, mark2: full and part after the charge. mark3, mark4: full + 1 and part before it,
--          if it reserved a wait together with other quotas; else 0

-- Fixed window. The twin of src/algorithm/fixed_window.rs.
--
-- Stored:  an instant in the latest window that holds units (anchored: its start), and the units,
--          as `begin:units`
-- Mark:    mark1, mark2: begin and units after the charge. mark3, mark4: begin + 1 and units before
--          it, if it reserved a wait together with other quotas; else 0

-- KEYS     for each charge its 2 keys, one of each quota. A charge is taken from all or none.
--          A name that ends with a number belongs to that quota: comments leave the number out
-- ARGV     first now in microseconds since the Unix epoch, or empty: then TIME is read once.
--          Then 9 integers, the limiter's rule. Its horizon is the longest wait:
--   horizon_1, unit_numerator_1, unit_denominator_1, burst_1, max_debt_1
--   horizon_2, limit_2, period_2, anchored_2
--          The charges follow. Until all keys are named: how many of the next keys are asked
--          alike, how many segments each of them has, and the segments. A segment is
--            how many charges ask alike; `quota` and a rule, if they bring their own; and
--            cost, max_wait               takes the units if they are free within that time;
--                                         a cost of 0 takes nothing, and is called a peek
--          So `9 1 1 1 0` asks for one unit of each of the next 9 * 2 keys.
-- Reply    one string, a list packed by cmsgpack: now, and for each charge 5 elements.
--          The first is how many microseconds to wait, and 0 also if it never fits; -1 less that,
--          if the units were taken; or a text, if this charge failed: why. Of a key that was
--          reset, it is `RESET`, that number if the units were taken, and each quota's birth.
--          The others are the state that decided, 0 if there was none:
--   (full_1 or -1) + 1, part_1 or 0
--   (begin_2 or -1) + 1, units_2 or 0

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

-- Lua has room for 200 local variables in a function, so the helpers above are outside of it.
local function decide()
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
local a = 2 + 9
-- What a segment asks: how many charges, and the cost and the longest wait of each.
local repeats, cost, max_wait
-- The rule, and what follows from it.
-- [arguments]
-- One unit takes unit_numerator / unit_denominator microseconds; max_debt: how long a key may owe.
local horizon_1, unit_numerator_1, unit_denominator_1, burst_1, max_debt_1
local span_1, spare_1
-- What follows from the rule and the cost.
local time_1, rest_1
-- The rule, and what follows from it.
-- [arguments]
-- anchored: 1 if a window starts with its first charge, 0 if with the epoch's periods.
local horizon_2, limit_2, period_2, anchored_2

-- The loop. Every charge has a key of each quota, and is taken from all of them or from none. A key
-- may come again beside other keys, so all charges are decided before anything is written.

-- What each key holds: false if it is absent, or of another type.
local texts = redis.call('MGET', unpack(KEYS))
-- A group is the keys of one charge, 2 of them. `last` is the last group that is done.
local last, groups = 0, #KEYS / 2
-- By a key's name, the place of its first mention in KEYS: its slot. By the slot, what is known of
-- the key; of its state, 8 elements from 8 * slot on.
local known, saved = {}, {}
-- Whether it is to be written, or emptied; why its charges fail; the number that it holds, if that
-- is all; when its state is worth nothing.
local changed_at, wiped_at, why_at, number_at, expires = {}, {}, {}, {}, {}
-- Its birth, if it was reset.
local birth_at = {}
-- Where the answers of a group begin in the reply.
local starts = {}

while last < groups do
  -- The next groups that are asked alike, from `first` to `last`, and how many segments each has.
  local first, segments = last + 1, ARGV[a + 1] + 0
  last = last + ARGV[a]
  a = a + 2
  local segment_at = a
  for k = first, last do
    -- READ the state of quota 1, unless its key was read before. `full_1` is nil if there is none.
    local full_1, part_1, denominator_1, owes_1
    local slot_1 = (k - 1) * 2 + 1
    if known[KEYS[slot_1]] then
      slot_1 = known[KEYS[slot_1]]
      full_1, part_1, denominator_1, owes_1 = saved[8 * slot_1 + 0], saved[8 * slot_1 + 1], saved[8 * slot_1 + 2], saved[8 * slot_1 + 3]
    else
      local key, why, number, blocked, birth = KEYS[slot_1], nil, nil, nil, nil
      known[key] = slot_1
      -- `none` is no state: a key that was made so that a cluster can move its slot.
      local text = texts[slot_1]
      if text and text ~= 'none' then
        do
          -- [read]
          -- A plain number, or one with a fraction, perhaps after a sign. Any other text
          -- leaves `full` nil.
          full_1 = integer(text)
          if full_1 then
            part_1, denominator_1, number = 0, 1, full_1
          else
            local sign, whole, rest_1 = string.match(text, '^(%-?)(%d+)(.*)$')
            if whole then
              full_1, part_1, denominator_1, owes_1 = integer(whole), 0, 1, sign == '-'
              if rest_1 ~= '' then
                local over, under = string.match(rest_1, '^%+(%d+)/(%d+)$')
                part_1, denominator_1 = over and integer(over), under and integer(under)
                if not (part_1 and denominator_1 and 0 < part_1 and part_1 < denominator_1) then
                  full_1 = nil
                end
              end
            end
          end
        end
        if not full_1 then
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
              full_1 = integer(text)
              if full_1 then
                part_1, denominator_1, number = 0, 1, full_1
              else
                local sign, whole, rest_1 = string.match(text, '^(%-?)(%d+)(.*)$')
                if whole then
                  full_1, part_1, denominator_1, owes_1 = integer(whole), 0, 1, sign == '-'
                  if rest_1 ~= '' then
                    local over, under = string.match(rest_1, '^%+(%d+)/(%d+)$')
                    part_1, denominator_1 = over and integer(over), under and integer(under)
                    if not (part_1 and denominator_1 and 0 < part_1 and part_1 < denominator_1) then
                      full_1 = nil
                    end
                  end
                end
              end
              -- It is no plain number that could be changed in place.
              number = nil
            end
            if text == '' or full_1 then
              why = blocked and blocked > now and format('BLOCKED %016d', blocked) or nil
            end
          end
          blocked = why ~= CORRUPT and why and blocked
        end
      end
      number_at[slot_1], why_at[slot_1], birth_at[slot_1] = number, why, birth
      saved[8 * slot_1 + 0], saved[8 * slot_1 + 1], saved[8 * slot_1 + 2], saved[8 * slot_1 + 3] = full_1, part_1, denominator_1, owes_1
    end
    -- READ the state of quota 2, unless its key was read before. `begin_2` is nil if there is none.
    local begin_2, units_2
    local slot_2 = (k - 1) * 2 + 2
    if known[KEYS[slot_2]] then
      slot_2 = known[KEYS[slot_2]]
      begin_2, units_2 = saved[8 * slot_2 + 0], saved[8 * slot_2 + 1]
    else
      local key, why, number, blocked, birth = KEYS[slot_2], nil, nil, nil, nil
      known[key] = slot_2
      -- `none` is no state: a key that was made so that a cluster can move its slot.
      local text = texts[slot_2]
      if text and text ~= 'none' then
        do
          -- [read]
          -- Two numbers. Any other text leaves `begin` nil.
          local first_digits, second_digits = string.match(text, '^(%d+):(%d+)$')
          if first_digits then
            begin_2, units_2 = integer(first_digits), integer(second_digits)
            if not units_2 then
              begin_2 = nil
            end
          end
        end
        if not begin_2 then
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
                begin_2, units_2 = integer(first_digits), integer(second_digits)
                if not units_2 then
                  begin_2 = nil
                end
              end
              -- It is no plain number that could be changed in place.
              number = nil
            end
            if text == '' or begin_2 then
              why = blocked and blocked > now and format('BLOCKED %016d', blocked) or nil
            end
          end
          blocked = why ~= CORRUPT and why and blocked
        end
      end
      number_at[slot_2], why_at[slot_2], birth_at[slot_2] = number, why, birth
      saved[8 * slot_2 + 0], saved[8 * slot_2 + 1] = begin_2, units_2
    end

    -- DECIDE the charges of the group. Groups that are asked alike read the same segments.
    starts[k] = n
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
          a = from + 9
        end
        horizon_1, unit_numerator_1, unit_denominator_1, burst_1, max_debt_1 = ARGV[from + 0] + 0, ARGV[from + 1] + 0, ARGV[from + 2] + 0, ARGV[from + 3] + 0, ARGV[from + 4] + 0
        -- [rule]
        -- The time of a burst: whole microseconds, and the rest over the denominator.
        spare_1 = burst_1 * unit_numerator_1 % unit_denominator_1
        span_1 = (burst_1 * unit_numerator_1 - spare_1) / unit_denominator_1
        horizon_2, limit_2, period_2, anchored_2 = ARGV[from + 5] + 0, ARGV[from + 6] + 0, ARGV[from + 7] + 0, ARGV[from + 8] + 0
        cost, max_wait, a = ARGV[a] + 0, math.min(ARGV[a + 1] + 0, horizon_1, horizon_2), a + 2
        -- [cost]
        -- The time of the cost, in the same way.
        rest_1 = cost * unit_numerator_1 % unit_denominator_1
        time_1 = (cost * unit_numerator_1 - rest_1) / unit_denominator_1
      end
      -- A state of another rule is brought under this one. A state from the future is clamped: a
      -- clock was set back, or a quota was lowered.
      local clamped_1, kept_1 = false, false
      if full_1 then
        -- [rebase]
        -- A fraction over another denominator is rounded up.
        if denominator_1 ~= unit_denominator_1 then
          if part_1 > 0 then
            full_1, part_1 = full_1 + 1, 0
          end
          denominator_1 = unit_denominator_1
        end
        -- [clamp]
        -- No bucket is full again later than a burst after the longest wait, or after the
        -- longest debt if it owes.
        local last = now + (owes_1 and max_debt_1 or horizon_1) + span_1
        if full_1 >= last and (full_1 > last or part_1 > spare_1) then
          full_1, part_1, clamped_1 = last, spare_1, true
        end
      end
      local clamped_2, kept_2 = false, false
      if begin_2 then
        -- [clamp]
        -- A window that begins later than any reserved wait can: a full one of now instead.
        if begin_2 > now then
          if anchored_2 == 1 then
            if begin_2 > now + horizon_2 + period_2 then
              begin_2, units_2, clamped_2 = now, limit_2, true
            end
          else
            local window = now - now % period_2
            if (begin_2 - begin_2 % period_2 - window) / period_2 > ceil(horizon_2 / period_2) + 1 then
              begin_2, units_2, clamped_2 = window, limit_2, true
            end
          end
        end
      end
      for _ = 1, repeats do
        -- One charge. `instant_1` and on are when it fits each quota.
        local wait = 0
        -- A check. It fits at `fits_at`, when it fits all quotas: what fits at an instant
        -- fits later too.
        local fits_at, fits = now, true
        local instant_1
        do
          -- The earliest instant at which the cost fits quota 1, nil if it never does.
          -- [fit]
          -- It fits as soon as `full` and the time of the cost are no further ahead than the
          -- time of a burst.
          if cost <= burst_1 then
            instant_1 = now
            if full_1 and full_1 >= now then
              instant_1 = full_1 + time_1 - span_1
              if part_1 + rest_1 > spare_1 then
                instant_1 = instant_1 + (part_1 + rest_1 > spare_1 + unit_denominator_1 and 2 or 1)
              end
              if instant_1 < now then
                instant_1 = now
              end
            end
          end
          -- [reply]
          reply[n + 2], reply[n + 3] = (full_1 or -1) + 1, part_1 or 0
        end
        if not instant_1 then
          fits = false
        elseif instant_1 > fits_at then
          fits_at = instant_1
        end
        local instant_2
        do
          -- The earliest instant at which the cost fits quota 2, nil if it never does.
          -- [fit]
          -- In the latest window, or at its end if it has no room. An empty one that is over
          -- counts as none.
          if cost <= limit_2 then
            instant_2 = now
            if begin_2 then
              local ends = begin_2 + period_2
              if anchored_2 == 0 then
                ends = ends - begin_2 % period_2
              end
              if ends > now and (units_2 > 0 or begin_2 > now) then
                if units_2 + cost > limit_2 then
                  instant_2 = ends
                elseif begin_2 > now then
                  instant_2 = begin_2
                end
              end
            end
          end
          -- [reply]
          reply[n + 4], reply[n + 5] = (begin_2 or -1) + 1, units_2 or 0
        end
        if not instant_2 then
          fits = false
        elseif instant_2 > fits_at then
          fits_at = instant_2
        end
        if fits then
          wait = fits_at - now
          if cost > 0 then
            if
              wait <= max_wait
            then
              -- Takes the units of every quota, at that instant.
              do
                instant_1, kept_1 = fits_at, true
                -- [consume]
                -- The bucket is full again later, by the time of the cost.
                if not full_1 or full_1 < instant_1 then
                  full_1, part_1 = instant_1, 0
                end
                full_1, part_1, denominator_1 = full_1 + time_1, part_1 + rest_1, unit_denominator_1
                if part_1 >= unit_denominator_1 then
                  full_1, part_1 = full_1 + 1, part_1 - unit_denominator_1
                end
              end
              do
                instant_2, kept_2 = fits_at, true
                -- [consume]
                -- Into the latest window, or into a new one if that is over at this instant.
                local ends = begin_2 and (anchored_2 == 1 and begin_2 or begin_2 - begin_2 % period_2) + period_2
                if ends and ends > instant_2 and (units_2 > 0 or begin_2 > instant_2) then
                  units_2 = units_2 + cost
                else
                  begin_2, units_2 = anchored_2 == 1 and instant_2 or instant_2 - instant_2 % period_2, cost
                end
              end
              wait = -1 - wait
              if next(birth_at) then
                wait = format('RESET %d', wait)
                wait = format('%s %d', wait, birth_at[slot_1] or 0)
                wait = format('%s %d', wait, birth_at[slot_2] or 0)
              end
            else
              -- The only write of a refusal: or a clamped state would move along with the
              -- clock.
              kept_1 = kept_1 or clamped_1
              kept_2 = kept_2 or clamped_2
            end
          end
        end
        reply[n + 1] = wait
        n = n + 5
      end

      -- KEEP the states that the segment left. If one key failed, it changed no other.
      local broken
      do
        local why
        why_at[slot_1] = why_at[slot_1] or why
        broken = broken or why_at[slot_1]
      end
      do
        local why
        why_at[slot_2] = why_at[slot_2] or why
        broken = broken or why_at[slot_2]
      end
      if kept_1 and not broken then
        changed_at[slot_1] = true
        if full_1 then
          -- [owes]
          -- Later than after the longest wait only a debt is over.
          owes_1 = full_1 >= now + horizon_1 + span_1 and (full_1 > now + horizon_1 + span_1 or part_1 > spare_1)
          -- From `expires_at` on, the state decides like no state.
          local expires_at
          -- [expires]
          -- A full bucket is as good as a new one.
          expires_at = part_1 > 0 and full_1 + 1 or full_1
          expires[slot_1] = expires_at
        end
        saved[8 * slot_1 + 0], saved[8 * slot_1 + 1], saved[8 * slot_1 + 2], saved[8 * slot_1 + 3] = full_1, part_1, denominator_1, owes_1
      else
        full_1, part_1, denominator_1, owes_1 = saved[8 * slot_1 + 0], saved[8 * slot_1 + 1], saved[8 * slot_1 + 2], saved[8 * slot_1 + 3]
      end
      if kept_2 and not broken then
        changed_at[slot_2] = true
        if begin_2 then
          -- From `expires_at` on, the state decides like no state.
          local expires_at
          -- [expires]
          -- The window's end.
          expires_at = (anchored_2 == 1 and begin_2 or begin_2 - begin_2 % period_2) + period_2
          expires[slot_2] = expires_at
        end
        saved[8 * slot_2 + 0], saved[8 * slot_2 + 1] = begin_2, units_2
      else
        begin_2, units_2 = saved[8 * slot_2 + 0], saved[8 * slot_2 + 1]
      end
    end
  end
end
starts[groups + 1] = n

-- WRITE each key once, at its slot.
for k = 1, groups do
  do
    local slot_1 = (k - 1) * 2 + 1
    local key = KEYS[slot_1]
    if known[key] == slot_1 then
      local full_1, part_1, denominator_1, owes_1 = saved[8 * slot_1 + 0], saved[8 * slot_1 + 1], saved[8 * slot_1 + 2], saved[8 * slot_1 + 3]
      local changed, wiped, why = changed_at[slot_1], wiped_at[slot_1], why_at[slot_1]
      local number, expires_at, blocked = number_at[slot_1], expires[slot_1], nil
      local birth = birth_at[slot_1]
      local text = texts[slot_1]
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
      elseif changed and full_1 then
        if expires_at < now then
          expires_at = now
        end
        -- The text to store, or the number if that is all.
        local value, plain
        -- [write]
        -- The shortest text: mostly a plain number.
        local sign = owes_1 and '-' or ''
        if part_1 > 0 then
          value = format('%s%d+%d/%d', sign, full_1, part_1, denominator_1)
        elseif owes_1 then
          value = format('-%d', full_1)
        else
          plain = full_1
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
      why_at[slot_1] = why
    end
  end
  do
    local slot_2 = (k - 1) * 2 + 2
    local key = KEYS[slot_2]
    if known[key] == slot_2 then
      local begin_2, units_2 = saved[8 * slot_2 + 0], saved[8 * slot_2 + 1]
      local changed, wiped, why = changed_at[slot_2], wiped_at[slot_2], why_at[slot_2]
      local number, expires_at, blocked = number_at[slot_2], expires[slot_2], nil
      local birth = birth_at[slot_2]
      local text = texts[slot_2]
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
      elseif changed and begin_2 then
        if expires_at < now then
          expires_at = now
        end
        -- The text to store, or the number if that is all.
        local value, plain
        -- [write]
        value = format('%d:%d', begin_2, units_2)
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
      why_at[slot_2] = why
    end
  end
end

-- REPORT a key that failed to all its charges, whatever was decided.
if next(why_at) then
  for k = 1, groups do
    -- The longest of several blocks, unless a key failed otherwise: texts compare so.
    local why
    do
      local own = why_at[known[KEYS[(k - 1) * 2 + 1]]]
      if own and (not why or own > why) then
        why = own
      end
    end
    do
      local own = why_at[known[KEYS[(k - 1) * 2 + 2]]]
      if own and (not why or own > why) then
        why = own
      end
    end
    if why then
      for i = starts[k] + 1, starts[k + 1], 5 do
        reply[i] = why
      end
    end
  end
end
return cmsgpack.pack(reply)
end
return decide()
