-- Put together from scripts/*.lua, and not to be edited: scripts/README.md.
--
-- Redis gets this file without its comments and blank lines, and nothing else:
--   grep -vE '^ *(--|$)' budget_complete.lua
-- EVALSHA calls that text by its SHA-1, bb96d550a79ab2dcf480726774c9f6e50182f74c.

-- Budget: a token bucket whose charges are held until they are settled. The twin of
-- src/algorithm/budget.rs.
--
-- Stored:  the instant at which the bucket is full again by what is spent, the begin of the latest
--          era, and the units that are held since that era and since the one before, as
--          `full:begin:current:former`, or with a fraction as `full+part/denominator:...`; after a
--          `-` if the debt lasts longer than the horizon
-- Mark:    mark1: the begin of the era since which the units are held

-- KEYS     the keys, each once
-- ARGV     first now in microseconds since the Unix epoch, or empty: then TIME is read once.
--          Then 6 integers, the limiter's rule. Its horizon is the longest wait:
--   horizon, unit_numerator, unit_denominator, burst, max_debt, max_hold
--          The charges follow. Until all keys are named: how many of the next keys are asked
--          alike, how many segments each of them has, and the segments. A segment is
--            how many charges ask alike; `quota` and a rule, if they bring their own; and
--            cost, max_wait               takes the units if they are free within that time;
--                                         a cost of 0 takes nothing, and is called a peek
--            `estimate`, cost, max_wait   answers as if it took the units
--            `penalize`, cost             takes the units whether or not they are free
--            `born`, births               before a refund, a settlement or a penalty: only of
--                                         keys that were last reset then
--            `refund`, cost, marks        gives back what a charge took. Its marks are four
--                                         words of each quota: above they stand as `Mark`
--            `settle`, used, cost, marks  gives back what was not used
--            `reset`                      forgets the key
--            `block`, time                refuses the key for so many microseconds
--            `unblock`                    ends that
--          So `9 1 1 1 0` asks for one unit of each of 9 keys, and `1 1 9 1 0` of one key 9 times.
-- Reply    one string, a list packed by cmsgpack: now, and for each charge 6 elements.
--          The first is how many microseconds to wait, and 0 also if it never fits; -1 less that,
--          if the units were taken; or a text, if this charge failed: why. Of a key that was
--          reset, it is `RESET`, that number if the units were taken, and each quota's birth.
--          Of a refund, it is the units that were given back, and below 0 those that could not be
--          taken. Of a penalty, it is the units that could not be taken.
--          The others are the state that decided, 0 if there was none:
--   (full or -1) + 1, part or 0, begin or 0, current or 0, former or 0

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

-- When a bucket is full again after units are spent at an instant.
local function full_after(full, part, at, units, unit_numerator, unit_denominator)
  if full < at then
    full, part = at, 0
  end
  local rest = units * unit_numerator % unit_denominator
  full, part = full + (units * unit_numerator - rest) / unit_denominator, part + rest
  if part >= unit_denominator then
    full, part = full + 1, part - unit_denominator
  end
  return full, part
end

-- The units that refill from such an instant until a budget is full again that owes for `time`
-- from now on. A product must stay below 2^53.
local function units_until(full, part, now, time, burst, unit_numerator, unit_denominator)
  local spare = burst * unit_numerator % unit_denominator
  local last = now + time + (burst * unit_numerator - spare) / unit_denominator
  local most = INEXACT - 1 - spare
  most = (most - most % unit_denominator) / unit_denominator
  most = math.max(-1, math.min(most, last - full)) * unit_denominator + spare - part
  most = math.max(0, most)
  return (most - most % unit_numerator) / unit_numerator
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
local a = 2 + 6
-- What a segment asks: how many charges, and the cost and the longest wait of each.
local repeats, cost, max_wait
-- Its operation, nil for a check; the units to give back, or the time of a block; the marks, and
-- their births.
local op, back, mark, born
max_wait = 0
-- The rule, and what follows from it.
-- [arguments]
-- One unit takes unit_numerator / unit_denominator microseconds; max_debt: how long a key may owe;
-- max_hold: how long an era is.
local horizon, unit_numerator, unit_denominator, burst, max_debt, max_hold

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
    local full, part, denominator, begin, current, former, owes
    -- Whether the key is to be written, or emptied; why its charges fail; the number that it
    -- holds, if that is all; when its state is worth nothing; when its block ends; its birth,
    -- if it was reset.
    local changed, wiped, why, number, expires_at, blocked, birth
    -- `none` is no state: a key that was made so that a cluster can move its slot.
    local text = texts[k]
    if text and text ~= 'none' then
      do
        -- [read]
        -- A number, perhaps with a fraction, and three more. Any other text leaves `full`
        -- nil.
        local sign, digits1, over, digits2, digits3, digits4 =
          string.match(text, '^(%-?)(%d+)([^:]*):(%d+):(%d+):(%d+)$')
        if sign then
          full, part, denominator, owes = integer(digits1), 0, 1, sign == '-'
          begin, current, former = integer(digits2), integer(digits3), integer(digits4)
          if over ~= '' then
            local digits5, digits6 = string.match(over, '^%+(%d+)/(%d+)$')
            part, denominator = digits5 and integer(digits5), digits6 and integer(digits6)
            if not (part and denominator and 0 < part and part < denominator) then
              full = nil
            end
          end
          if not (begin and current and former) then
            full = nil
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
            -- A number, perhaps with a fraction, and three more. Any other text leaves `full`
            -- nil.
            local sign, digits1, over, digits2, digits3, digits4 =
              string.match(text, '^(%-?)(%d+)([^:]*):(%d+):(%d+):(%d+)$')
            if sign then
              full, part, denominator, owes = integer(digits1), 0, 1, sign == '-'
              begin, current, former = integer(digits2), integer(digits3), integer(digits4)
              if over ~= '' then
                local digits5, digits6 = string.match(over, '^%+(%d+)/(%d+)$')
                part, denominator = digits5 and integer(digits5), digits6 and integer(digits6)
                if not (part and denominator and 0 < part and part < denominator) then
                  full = nil
                end
              end
              if not (begin and current and former) then
                full = nil
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
    if blocked then
      -- A block fails checks alone, and those are answered below.
      why = nil
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
          a = from + 6
        end
        horizon, unit_numerator, unit_denominator, burst, max_debt, max_hold = ARGV[from + 0] + 0, ARGV[from + 1] + 0, ARGV[from + 2] + 0, ARGV[from + 3] + 0, ARGV[from + 4] + 0, ARGV[from + 5] + 0
        -- Of a charge that is settled: the birth of each quota's key at that time, 0 where it was not reset
        -- before.
        born = {}
        if ARGV[a] == 'born' then
          for i = 1, 1 do
            born[i] = ARGV[a + i] + 0
          end
          a = a + 1 + 1
        end
        op = ARGV[a]
        if op == 'refund' or op == 'settle' then
          back = ARGV[a + 1] + 0
          if op == 'settle' then
            -- What was not used is given back: below 0, if more was used than taken.
            a, back = a + 1, ARGV[a + 2] - back
          end
          a = a + 1
          cost, mark = ARGV[a] + 0, {}
          for i = 1, 4 * 1 do
            mark[i] = tonumber(ARGV[a + i]) or ARGV[a + i]
          end
          for i = 1, 1 do
            born[i] = born[i] or 0
          end
          op, a = 'refund', a + 1 + 4 * 1
        elseif op == 'penalize' then
          cost, a = ARGV[a + 1] + 0, a + 2
        elseif op == 'estimate' then
          cost, max_wait, a = ARGV[a + 1] + 0, ARGV[a + 2] + 0, a + 3
        elseif op == 'reset' or op == 'unblock' then
          cost, a = 0, a + 1
        elseif op == 'block' then
          -- How long it lasts.
          cost, back, a = 0, ARGV[a + 1] + 0, a + 2
        else
          -- A check: its first word is the cost.
          op, cost, max_wait, a = nil, op + 0, ARGV[a + 1] + 0, a + 2
        end
        max_wait = math.min(max_wait, horizon)
      end
      -- As it was, if no charge of this segment is kept. What is kept is written at the end.
      local full_before, part_before, denominator_before, begin_before, current_before, former_before, owes_before = full, part, denominator, begin, current, former, owes
      local clamped, kept = false, false
      local unsettled
      if full then
        -- A state of another rule is brought under this one. A state from the future is clamped:
        -- a clock was set back, or a quota was lowered.
        -- [rebase]
        -- A fraction over another denominator is rounded up. Then to the era of now: what
        -- was held for more than an era counts as spent when that time was over.
        if denominator ~= unit_denominator then
          if part > 0 then
            full, part = full + 1, 0
          end
          denominator = unit_denominator
        end
        begin = begin - begin % max_hold
        -- Three turns at most: after two of them, nothing is held.
        while begin + max_hold <= now do
          if current == 0 and former == 0 then
            begin = now - now % max_hold
          else
            begin = begin + max_hold
            if former > 0 then
              full, part = full_after(
                full, part, begin, math.min(former, burst), unit_numerator, unit_denominator
              )
            end
            current, former = 0, current
          end
        end
        -- [clamp]
        -- A step back of the clock by less than an era changes no era: by more, what is
        -- held counts as spent now. No budget is full again later than a burst after the
        -- longest wait, or after the longest debt if it owes.
        if begin > now + max_hold then
          full, part = full_after(
            full, part, now, math.min(current + former, burst), unit_numerator, unit_denominator
          )
          begin, current, former, clamped = now - now % max_hold, 0, 0, true
        end
        local most = burst * unit_numerator
        local most_rest = most % unit_denominator
        local last = now + (owes and max_debt or horizon) + (most - most_rest) / unit_denominator
        if full > last or full == last and part > most_rest then
          full, part, clamped = last, most_rest, true
        end
      end
      for _ = 1, repeats do
        -- One charge. `instant` is when it fits.
        local wait, instant = 0, nil
        -- The reply shows no state, unless a check or a penalty below does.
        reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5], reply[n + 6] = 0, 0, 0, 0, 0
        if why then
          -- Neither blocked nor unblocked.
        elseif op == 'block' or op == 'unblock' and blocked then
          if op == 'block' then
            -- Until the later end of two blocks.
            blocked = math.max(blocked or 0, now + back)
          else
            blocked = nil
            -- An absent text may be a key of another type, which stays.
            wiped = wiped or text and not (full or birth)
          end
          -- The state stays as it was read, and lasts as long as before.
          changed = true
        end
        if op == 'refund' then
          -- Gives back `back` of the cost, if the state shows that the charge of these
          -- marks stands in it, and the key was not reset since.
          local refunded
          if full and back <= cost and (birth or 0) == born[1] then
            local mark1, mark2, mark3, mark4 = unpack(mark)
            -- [refund]
            -- A settlement: what the charge held is free again, and spent but for the units
            -- given back.
            local since = mark1 - mark1 % max_hold
            local held = -1
            if since == begin then
              held = current
            elseif since + max_hold == begin then
              held = former
            end
            -- What is no longer held counts as spent, or was forgotten.
            if held >= cost then
              if since == begin then
                current = current - cost
              else
                former = former - cost
              end
              refunded = back
              if back < cost then
                -- The held units fit, and what was used beyond them may be owed.
                local from, over = full_after(
                  full, part, now, math.min(current + former, burst), unit_numerator, unit_denominator
                )
                local most = units_until(from, over, now, max_debt, burst, unit_numerator, unit_denominator)
                local exact = (INEXACT - 1 - (INEXACT - 1) % unit_numerator) / unit_numerator
                local spent = math.min(cost - back, math.max(most, math.min(cost, exact)))
                full, part = full_after(full, part, now, spent, unit_numerator, unit_denominator)
                if back < 0 then
                  -- What could not be taken.
                  refunded = spent - (cost - back)
                end
              end
            end
          end
          kept = kept or refunded ~= nil
          wait = refunded or math.min(0, back)
        elseif op == 'penalize' and born[1] and birth and born[1] ~= birth then
          -- The rest of a charge of before a reset is not taken. A key without a birth has
          -- expired since, which ends no debt.
          wait = cost
        elseif op == 'penalize' then
          -- Takes the cost whether or not it fits, but not more than `most`: a debt has a
          -- bound. The answer is what could not be taken, and the state after it.
          local amount, most = cost, nil
          cost = 0
          -- [fit]
          -- What is free is the burst without what is held and what is spent. Spent units
          -- come back in time; held ones only if they are settled, which nobody can foresee:
          -- `unsettled`.
          if cost <= burst then
            instant, unsettled = now, false
            if full then
              local room = burst - cost - current - former
              local from, over = now, 0
              if full >= now then
                from, over = full, part
              end
              local time = math.min(math.abs(room), burst) * unit_numerator
              local rest = time % unit_denominator
              time = (time - rest) / unit_denominator
              if room < 0 then
                -- As if all that is held were spent now. Only a settlement makes room.
                unsettled, over = true, over + rest
                instant = from + time
                if over > 0 then
                  instant = instant + (over > unit_denominator and 2 or 1)
                end
              elseif full >= now then
                instant = from - time
                if over > rest then
                  instant = instant + 1
                end
                if instant < now then
                  instant = now
                end
              end
            end
          end
          -- [most]
          -- The debt may last so long, even if all that is held is spent.
          local from, over = now, 0
          if full then
            from, over = full_after(
              full, part, now, math.min(current + former, burst), unit_numerator, unit_denominator
            )
          end
          most = units_until(from, over, now, max_debt, burst, unit_numerator, unit_denominator)
          cost = math.min(amount, most)
          wait = amount - cost
          if cost > 0 then
            -- [spend]
            -- A penalty is spent at once: the bucket is full again later.
            if not full then
              full, part, begin, current, former = 0, 0, now - now % max_hold, 0, 0
            end
            full, part = full_after(full, part, now, cost, unit_numerator, unit_denominator)
            denominator = unit_denominator
            kept, cost, instant = true, 0, nil
            -- [fit]
            -- What is free is the burst without what is held and what is spent. Spent units
            -- come back in time; held ones only if they are settled, which nobody can foresee:
            -- `unsettled`.
            if cost <= burst then
              instant, unsettled = now, false
              if full then
                local room = burst - cost - current - former
                local from, over = now, 0
                if full >= now then
                  from, over = full, part
                end
                local time = math.min(math.abs(room), burst) * unit_numerator
                local rest = time % unit_denominator
                time = (time - rest) / unit_denominator
                if room < 0 then
                  -- As if all that is held were spent now. Only a settlement makes room.
                  unsettled, over = true, over + rest
                  instant = from + time
                  if over > 0 then
                    instant = instant + (over > unit_denominator and 2 or 1)
                  end
                elseif full >= now then
                  instant = from - time
                  if over > rest then
                    instant = instant + 1
                  end
                  if instant < now then
                    instant = now
                  end
                end
              end
            end
          end
          -- [reply]
          reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5], reply[n + 6] = (full or -1) + 1, part or 0, begin or 0, current or 0, former or 0
          cost = amount
        elseif op == 'reset' then
          -- Whatever the key holds, it holds it no more. The charges before it failed.
          if why then
            for i = start + 1, n, 6 do
              reply[i] = why
            end
          end
          full, part, denominator, begin, current, former, owes = nil
          -- Different from each birth of before, also within a microsecond.
          birth = math.max(now, (birth or 0) + 1)
          kept, wiped, why = true, true, nil
        elseif not blocked then
          -- A check. `instant` is the earliest at which the cost fits, or nil if it never does.
          -- [fit]
          -- What is free is the burst without what is held and what is spent. Spent units
          -- come back in time; held ones only if they are settled, which nobody can foresee:
          -- `unsettled`.
          if cost <= burst then
            instant, unsettled = now, false
            if full then
              local room = burst - cost - current - former
              local from, over = now, 0
              if full >= now then
                from, over = full, part
              end
              local time = math.min(math.abs(room), burst) * unit_numerator
              local rest = time % unit_denominator
              time = (time - rest) / unit_denominator
              if room < 0 then
                -- As if all that is held were spent now. Only a settlement makes room.
                unsettled, over = true, over + rest
                instant = from + time
                if over > 0 then
                  instant = instant + (over > unit_denominator and 2 or 1)
                end
              elseif full >= now then
                instant = from - time
                if over > rest then
                  instant = instant + 1
                end
                if instant < now then
                  instant = now
                end
              end
            end
          end
          -- The reply says the state that this was decided on.
          -- [reply]
          reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5], reply[n + 6] = (full or -1) + 1, part or 0, begin or 0, current or 0, former or 0
          if instant then
            wait = instant - now
            if op == 'estimate' then
              -- Nothing is taken.
            elseif cost > 0 then
              if wait <= max_wait and not unsettled then
                -- Takes the units, at that instant.
                -- [consume]
                -- A charge is held, and spends nothing yet.
                if not full then
                  full, part, begin, current, former = 0, 0, now - now % max_hold, 0, 0
                end
                current, denominator = current + cost, unit_denominator
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
        end
        if blocked and op ~= 'refund' then
          wait = format(op == 'penalize' and 'BLOCKED %016d %d' or 'BLOCKED %016d', blocked, wait)
        end
        reply[n + 1] = wait
        n = n + 6
      end
      if kept then
        changed = true
        if full then
          -- [owes]
          -- Later than after the longest wait only a debt is over, even if all that is held is
          -- spent.
          owes = false
          if full >= now + horizon then
            local last, rest = full_after(
              full, part, now, math.min(current + former, burst), unit_numerator, unit_denominator
            )
            local most = burst * unit_numerator
            local most_rest = most % unit_denominator
            local latest = now + horizon + (most - most_rest) / unit_denominator
            owes = last > latest or last == latest and rest > most_rest
          end
          -- From `expires_at` on, the state decides like no state.
          -- [expires]
          -- As if all that is held were spent at the end of its time.
          local last, rest = full, part
          if former > 0 then
            last, rest = full_after(
              last, rest, begin + max_hold, math.min(former, burst), unit_numerator, unit_denominator
            )
          end
          if current > 0 then
            last, rest = full_after(
              last, rest, begin + 2 * max_hold, math.min(current, burst), unit_numerator, unit_denominator
            )
          end
          expires_at = rest > 0 and last + 1 or last
        end
      else
        full, part, denominator, begin, current, former, owes = full_before, part_before, denominator_before, begin_before, current_before, former_before, owes_before
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
    if wiped and not why then
      why = failure('UNLINK', key)
      number = nil
      text = nil
    end
    if why then
      -- Nothing is to be stored.
    elseif changed and (full or blocked or birth) then
      expires_at = math.max(expires_at or 0, blocked or 0)
      if expires_at < now then
        expires_at = now
      end
      -- The text to store, or the number if that is all.
      local value, plain
      if full then
        -- [write]
        -- The fraction is left out if there is none.
        local sign = owes and '-' or ''
        if part == 0 then
          value = format('%s%d:%d:%d:%d', sign, full, begin, current, former)
        else
          local layout = '%s%d+%d/%d:%d:%d:%d'
          value = format(layout, sign, full, part, denominator, begin, current, former)
        end
      end
      if birth then
        value = format('reset:%d:%s', birth, plain and format('%d', plain) or value or '')
        plain = nil
      end
      if blocked then
        value = format('blocked:%d:%s', blocked, plain and format('%d', plain) or value or '')
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
      for i = start + 1, n, 6 do
        reply[i] = why
      end
    end
  end
end
return cmsgpack.pack(reply)
