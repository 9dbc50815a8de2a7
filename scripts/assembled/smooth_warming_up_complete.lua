-- Put together from scripts/*.lua, and not to be edited: scripts/README.md.
--
-- Redis gets this file without its comments and blank lines, and nothing else:
--   grep -vE '^ *(--|$)' smooth_warming_up_complete.lua
-- EVALSHA calls that text by its SHA-1, 9d0b0d4c26b4adf613250b32e94276c132006067.

-- Smooth warming up: Guava's pacing, slow after a rest. The twin of
-- src/algorithm/smooth_warming_up.rs. The one algorithm that computes with fractions, as its model
-- does, in the order in which that does.
--
-- Stored:  the stored permits, the instant from which on nobody waits, the rate, and the last now,
--          as `stored:next:unit_denominator/unit_numerator:last`
-- Mark:    mark1: next_free after the charge. mark2, mark3: stored before it, as two halves of a
--          double. mark4: what was added to next_free

-- KEYS     the keys, each once
-- ARGV     first now in microseconds since the Unix epoch, or empty: then TIME is read once.
--          Then 7 integers, the limiter's rule. Its horizon is the longest wait:
--   horizon, unit_denominator, unit_numerator, warm_up, factor, own_cost, max_debt
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
--   (next_free or -1) + 1, of_denominator or 0, of_numerator or 0, last_now or 0, stored_bytes or 0

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

-- The permits that are stored when cold, and the stable interval in microseconds.
local function pace_of(unit_denominator, unit_numerator, warm_up, factor)
  local stable = 1000000 / (unit_denominator * 1000000 / unit_numerator)
  local threshold = 0.5 * warm_up / stable
  return threshold + 2 * warm_up / (stable + stable * (factor / 1000)), stable
end

-- The stored permits and the instant under a rule's rate, with what the time until `now` has
-- stored.
local function permits_until(
  now, next_free, stored, of_denominator, of_numerator,
  unit_denominator, unit_numerator, warm_up, factor, most_stored
)
  local most, has_rate = most_stored, true
  if of_denominator ~= unit_denominator or of_numerator ~= unit_numerator then
    has_rate = false
    most = pace_of(of_denominator, of_numerator, warm_up, factor)
  end
  stored = math.min(stored, most)
  if now > next_free then
    stored = math.min(most, stored + (now - next_free) / (warm_up / most))
    next_free = now
  end
  if not has_rate then
    -- It may round to a bit above the most. Guava keeps that bit too.
    stored = stored * most_stored / most
  end
  return stored, next_free
end

-- The time that a cost takes, in whole microseconds: what is stored above the threshold is dear,
-- all else is not.
local function price_of(stored, cost, unit_denominator, unit_numerator, warm_up, factor)
  local most_stored, stable = pace_of(unit_denominator, unit_numerator, warm_up, factor)
  local take = math.min(cost, stored)
  local fresh = cost - take
  local threshold = 0.5 * warm_up / stable
  local above = stored - threshold
  local time = 0
  if above > 0 then
    local slope = (stable * (factor / 1000) - stable) / (most_stored - threshold)
    local part = math.min(above, take)
    local length = (stable + above * slope) + (stable + (above - part) * slope)
    time = math.floor(part * length / 2)
    take = take - part
  end
  return time + math.floor(stable * take) + math.floor(fresh * stable)
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
local a = 2 + 7
-- What a segment asks: how many charges, and the cost and the longest wait of each.
local repeats, cost, max_wait
-- Its operation, nil for a check; the units to give back, or the time of a block; the marks, and
-- their births.
local op, back, mark, born
max_wait = 0
-- The rule, and what follows from it.
-- [arguments]
-- A permit takes unit_numerator / unit_denominator microseconds; factor: in thousandths; own_cost:
-- 1 if a charge waits for its own cost; max_debt: how long a key may owe.
local horizon, unit_denominator, unit_numerator, warm_up, factor, own_cost, max_debt
local most_stored

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
    -- READ the state of a key. `next_free` is nil if there is none.
    local key = KEYS[k]
    local next_free, stored, of_denominator, of_numerator, last_now
    -- Whether the key is to be written, or emptied; why its charges fail; the number that it
    -- holds, if that is all; when its state is worth nothing; when its block ends; its birth,
    -- if it was reset.
    local changed, wiped, why, number, expires_at, blocked, birth
    -- `none` is no state: a key that was made so that a cluster can move its slot.
    local text = texts[k]
    if text and text ~= 'none' then
      do
        -- [read]
        -- A fraction and four numbers. Any other text leaves `next_free` nil.
        local digits, digits2, digits3, digits4, digits5 =
          string.match(text, '^([%d.e+-]+):(%d+):(%d+)/(%d+):(%d+)$')
        if digits and #digits <= 24 then
          stored, next_free, last_now = tonumber(digits), integer(digits2), integer(digits5)
          of_denominator, of_numerator = integer(digits3), integer(digits4)
          local is_rate = of_denominator and of_numerator and of_denominator > 0 and of_numerator > 0
          if not (stored and last_now and is_rate) then
            next_free = nil
          elseif not (stored >= 0 and stored < INEXACT and format('%.17g', stored) == digits) then
            next_free = nil
          end
        end
      end
      if not next_free then
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
            -- A fraction and four numbers. Any other text leaves `next_free` nil.
            local digits, digits2, digits3, digits4, digits5 =
              string.match(text, '^([%d.e+-]+):(%d+):(%d+)/(%d+):(%d+)$')
            if digits and #digits <= 24 then
              stored, next_free, last_now = tonumber(digits), integer(digits2), integer(digits5)
              of_denominator, of_numerator = integer(digits3), integer(digits4)
              local is_rate = of_denominator and of_numerator and of_denominator > 0 and of_numerator > 0
              if not (stored and last_now and is_rate) then
                next_free = nil
              elseif not (stored >= 0 and stored < INEXACT and format('%.17g', stored) == digits) then
                next_free = nil
              end
            end
            -- It is no plain number that could be changed in place.
            number = nil
          end
          if text == '' or next_free then
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
          a = from + 7
        end
        horizon, unit_denominator, unit_numerator, warm_up, factor, own_cost, max_debt = ARGV[from + 0] + 0, ARGV[from + 1] + 0, ARGV[from + 2] + 0, ARGV[from + 3] + 0, ARGV[from + 4] + 0, ARGV[from + 5] + 0, ARGV[from + 6] + 0
        -- [rule]
        -- The most that can be stored.
        most_stored = pace_of(unit_denominator, unit_numerator, warm_up, factor)
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
      local next_free_before, stored_before, of_denominator_before, of_numerator_before, last_now_before = next_free, stored, of_denominator, of_numerator, last_now
      local clamped, kept = false, false
      if next_free then
        -- A state of another rule is brought under this one. A state from the future is clamped:
        -- a clock was set back, or a quota was lowered.
        -- [clamp]
        -- The clock was set back: what was to come is as far ahead as it was.
        if now < last_now then
          next_free, last_now, clamped = math.max(0, next_free - (last_now - now)), now, true
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
            wiped = wiped or text and not (next_free or birth)
          end
          -- The state stays as it was read, and lasts as long as before.
          changed = true
        end
        if op == 'refund' then
          -- Gives back `back` of the cost, if the state shows that the charge of these
          -- marks stands in it, and the key was not reset since.
          local refunded
          if next_free and back >= 1 and back <= cost and (birth or 0) == born[1] then
            local mark1, mark2, mark3, mark4 = unpack(mark)
            -- [refund]
            -- Only if nothing was taken since: the state is still the one that the mark says.
            local before = struct.unpack('>d', struct.pack('>I4I4', mark2, mark3))
            local is_same_rate = of_denominator == unit_denominator and of_numerator == unit_numerator
            if is_same_rate and next_free == mark1 and stored == before - math.min(cost, before) then
              if back == cost then
                stored, next_free, refunded = before, next_free - mark4, back
              else
                local kept_cost = cost - back
                local whole = price_of(before, cost, unit_denominator, unit_numerator, warm_up, factor)
                if whole <= mark4 then
                  local kept_price = price_of(before, kept_cost, unit_denominator, unit_numerator, warm_up, factor)
                  local less = math.max(0, whole - kept_price)
                  stored, refunded = before - math.min(kept_cost, before), back
                  -- The slot is kept, so a charge that waited for its own cost gives no time
                  -- back.
                  if own_cost == 0 then
                    next_free = next_free - less
                  end
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
          -- At the instant from which on nobody waits; with `own_cost`, later by the price of
          -- this charge.
          if cost * unit_numerator < INEXACT then
            local has, free = most_stored, now
            if next_free then
              has, free = permits_until(
                now, next_free, stored, of_denominator, of_numerator,
                unit_denominator, unit_numerator, warm_up, factor, most_stored
              )
            end
            if own_cost == 1 then
              local price = price_of(has, cost, unit_denominator, unit_numerator, warm_up, factor)
              free = math.min(free + price, INEXACT - 1)
            end
            instant = math.max(free, now)
            -- No permit costs less than at the stable pace, and a price is cut to whole
            -- microseconds three times. One that may not wait so long never fits.
            local _, stable = pace_of(unit_denominator, unit_numerator, warm_up, factor)
            if own_cost == 1 and math.floor(stable * cost) - 3 > max_wait then
              instant = nil
            end
          end
          -- [most]
          -- The debt may last so long, and a product must stay below 2^53. Searches by
          -- halves, since the price of a unit depends on the permits that are stored.
          local has, free = most_stored, now
          if next_free then
            has, free = permits_until(
              now, next_free, stored, of_denominator, of_numerator,
              unit_denominator, unit_numerator, warm_up, factor, most_stored
            )
          end
          local room = now + max_debt - free
          local low = 0
          most = (INEXACT - 1 - (INEXACT - 1) % unit_numerator) / unit_numerator
          most = math.min(amount, most)
          if price_of(has, most, unit_denominator, unit_numerator, warm_up, factor) > room then
            while most - low > 1 do
              local middle = low + math.floor((most - low) / 2)
              if price_of(has, middle, unit_denominator, unit_numerator, warm_up, factor) <= room then
                low = middle
              else
                most = middle
              end
            end
            most = low
          end
          cost = math.min(amount, most)
          wait = amount - cost
          if cost > 0 then
            -- [consume]
            -- Takes what is stored, and moves `next_free` by the price of the rest: the next
            -- one waits for it.
            local has, free = most_stored, now
            if next_free then
              has, free = permits_until(
                now, next_free, stored, of_denominator, of_numerator,
                unit_denominator, unit_numerator, warm_up, factor, most_stored
              )
            end
            local price = price_of(has, cost, unit_denominator, unit_numerator, warm_up, factor)
            -- A charge that also waits for another quota starts later, and nothing is stored
            -- meanwhile.
            local due = free + (own_cost == 1 and price or 0)
            next_free = free + math.min(math.max(0, instant - due) + price, INEXACT - 1 - free)
            stored = has - math.min(cost, has)
            of_denominator, of_numerator, last_now = unit_denominator, unit_numerator, now
            kept, cost, instant = true, 0, nil
            -- [fit]
            -- At the instant from which on nobody waits; with `own_cost`, later by the price of
            -- this charge.
            if cost * unit_numerator < INEXACT then
              local has, free = most_stored, now
              if next_free then
                has, free = permits_until(
                  now, next_free, stored, of_denominator, of_numerator,
                  unit_denominator, unit_numerator, warm_up, factor, most_stored
                )
              end
              if own_cost == 1 then
                local price = price_of(has, cost, unit_denominator, unit_numerator, warm_up, factor)
                free = math.min(free + price, INEXACT - 1)
              end
              instant = math.max(free, now)
              -- No permit costs less than at the stable pace, and a price is cut to whole
              -- microseconds three times. One that may not wait so long never fits.
              local _, stable = pace_of(unit_denominator, unit_numerator, warm_up, factor)
              if own_cost == 1 and math.floor(stable * cost) - 3 > max_wait then
                instant = nil
              end
            end
          end
          -- [reply]
          -- The permits as the eight bytes of a double.
          local stored_bytes = next_free and struct.pack('>d', stored)
          reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5], reply[n + 6] = (next_free or -1) + 1, of_denominator or 0, of_numerator or 0, last_now or 0, stored_bytes or 0
          cost = amount
        elseif op == 'reset' then
          -- Whatever the key holds, it holds it no more. The charges before it failed.
          if why then
            for i = start + 1, n, 6 do
              reply[i] = why
            end
          end
          next_free, stored, of_denominator, of_numerator, last_now = nil
          -- Different from each birth of before, also within a microsecond.
          birth = math.max(now, (birth or 0) + 1)
          kept, wiped, why = true, true, nil
        elseif not blocked then
          -- A check. `instant` is the earliest at which the cost fits, or nil if it never does.
          -- [fit]
          -- At the instant from which on nobody waits; with `own_cost`, later by the price of
          -- this charge.
          if cost * unit_numerator < INEXACT then
            local has, free = most_stored, now
            if next_free then
              has, free = permits_until(
                now, next_free, stored, of_denominator, of_numerator,
                unit_denominator, unit_numerator, warm_up, factor, most_stored
              )
            end
            if own_cost == 1 then
              local price = price_of(has, cost, unit_denominator, unit_numerator, warm_up, factor)
              free = math.min(free + price, INEXACT - 1)
            end
            instant = math.max(free, now)
            -- No permit costs less than at the stable pace, and a price is cut to whole
            -- microseconds three times. One that may not wait so long never fits.
            local _, stable = pace_of(unit_denominator, unit_numerator, warm_up, factor)
            if own_cost == 1 and math.floor(stable * cost) - 3 > max_wait then
              instant = nil
            end
          end
          -- The reply says the state that this was decided on.
          -- [reply]
          -- The permits as the eight bytes of a double.
          local stored_bytes = next_free and struct.pack('>d', stored)
          reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5], reply[n + 6] = (next_free or -1) + 1, of_denominator or 0, of_numerator or 0, last_now or 0, stored_bytes or 0
          if instant then
            wait = instant - now
            if op == 'estimate' then
              -- Nothing is taken.
            elseif cost > 0 then
              if wait <= max_wait then
                -- Takes the units, at that instant.
                -- [consume]
                -- Takes what is stored, and moves `next_free` by the price of the rest: the next
                -- one waits for it.
                local has, free = most_stored, now
                if next_free then
                  has, free = permits_until(
                    now, next_free, stored, of_denominator, of_numerator,
                    unit_denominator, unit_numerator, warm_up, factor, most_stored
                  )
                end
                local price = price_of(has, cost, unit_denominator, unit_numerator, warm_up, factor)
                -- A charge that also waits for another quota starts later, and nothing is stored
                -- meanwhile.
                local due = free + (own_cost == 1 and price or 0)
                next_free = free + math.min(math.max(0, instant - due) + price, INEXACT - 1 - free)
                stored = has - math.min(cost, has)
                of_denominator, of_numerator, last_now = unit_denominator, unit_numerator, now
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
        if next_free then
          -- From `expires_at` on, the state decides like no state.
          -- [expires]
          -- When as much is stored as can be.
          local has, free = permits_until(
            next_free, next_free, stored, of_denominator, of_numerator,
            unit_denominator, unit_numerator, warm_up, factor, most_stored
          )
          expires_at = free + ceil((most_stored - has) * (warm_up / most_stored)) + 1
        end
      else
        next_free, stored, of_denominator, of_numerator, last_now = next_free_before, stored_before, of_denominator_before, of_numerator_before, last_now_before
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
    elseif changed and (next_free or blocked or birth) then
      expires_at = math.max(expires_at or 0, blocked or 0)
      if expires_at < now then
        expires_at = now
      end
      -- The text to store, or the number if that is all.
      local value, plain
      if next_free then
        -- [write]
        local layout = '%.17g:%d:%d/%d:%d'
        value = format(layout, stored, next_free, of_denominator, of_numerator, last_now)
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
