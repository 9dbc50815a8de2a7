-- Put together from scripts/*.lua, and not to be edited: scripts/README.md.
--
-- Redis gets this file without its comments and blank lines, and nothing else:
--   grep -vE '^ *(--|$)' sliding_log_complete.lua
-- EVALSHA calls that text by its SHA-1, 303db4eff922e83538273356d728ff6c88475aff.

-- Sliding log. The twin of src/algorithm/sliding_log.rs.
--
-- Stored:  a sorted set with one member for each charge. The score is the instant of admission, the
--          member `total:units`: the units so far, these included, in twenty digits, and those of
--          this charge. The units between two members are a difference of totals, so no decision
--          walks the log. After these, of the infinite score, are `blocked:instant` while it is
--          blocked, and `reset:birth` if it was reset.
-- Mark:    mark1: the score of the charge's member. mark2, mark3: its total, by LAP and the rest

-- KEYS     the keys, each once
-- ARGV     first now in microseconds since the Unix epoch, or empty: then TIME is read once.
--          Then 3 integers, the limiter's rule. Its horizon is the longest wait:
--   horizon, limit, period
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
--   (at or -1) + 1, lap or 0, total or 0, counted or 0, leaver_at or 0

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

-- A total is kept in two exact numbers: how often it passed this many units, and the rest.
local LAP = 1000000000000000

-- The most expired members that one call removes.
local PRUNED = 256

-- A state is what one decision left:
--   last     the newest member, or nil if there is none
--   before   if this call added that member: the state that it was added to, or nil if there was
--            none
--   added    whether this call added that member
--   period   the longest period of the charges that it added
--   stored   what is stored, read piece by piece as it is asked for; nil if nothing stored counts
--   dropped  how many stored members were given back, from the newest on
--   wiped    whether whatever is stored is to go
-- and what has been found out about it.

-- The member in a reply, or nil if there is none.
local function member(log, reply)
  if not reply[1] then
    return nil
  end
  local digits, units = string.match(reply[1], '^(%d+):(%d+)$')
  local at = integer(reply[2])
  units = units and integer(units)
  if not at or not units or units == 0 or #digits ~= 20 then
    log.flaw = CORRUPT
    return { at = 0, lap = 0, total = 0, units = 0 }
  end
  local lap, total = tonumber(string.sub(digits, 1, 5)), tonumber(string.sub(digits, 6))
  return { at = at, lap = lap, total = total, units = units }
end

-- The number of a member of this form and of the infinite score, nil if the reply is another one.
local function over(form, reply)
  local digits = reply[2] == 'inf' and string.match(reply[1], form)
  return digits and integer(digits) or nil
end

-- The member at a rank, from the oldest on, or from the newest if it is negative.
local function ranked(log, rank)
  return member(log, redis.call('ZRANGE', log.key, rank, rank, 'WITHSCORES'))
end

local function oldest(log)
  log.oldest = log.oldest or ranked(log, 0)
  return log.oldest
end

-- The newest member that is out of a window that begins after `cutoff`, or nil if all are in it.
local function newest_out(log, cutoff)
  if log.cutoff ~= cutoff then
    log.cutoff = cutoff
    local newest =
      redis.call('ZRANGE', log.key, cutoff, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
    log.out = member(log, newest)
  end
  return log.out
end

-- The units after `member`, up to `last`.
local function after(member, last)
  local units = last.total - member.total
  return units < 0 and units + LAP or units
end

-- The units admitted after `cutoff`.
local function count(state, cutoff)
  local last, first = state.last, nil
  while state and state.last do
    if state.last.at <= cutoff then
      return after(state.last, last)
    end
    first = state.last
    if not state.added then
      local out = newest_out(state.stored, cutoff)
      if out then
        return after(out, last)
      end
      first = oldest(state.stored)
      break
    end
    state = state.before
  end
  return after(first, last) + first.units
end

-- The same, counted once for a state: most charges of a busy key are refused, and
-- leave it as it is.
local function used(state, cutoff)
  if state.cutoff ~= cutoff then
    state.cutoff, state.used = cutoff, count(state, cutoff)
  end
  return state.used
end

-- The oldest member with no more than `room` units after it: as many fit as soon as it is
-- out of the window.
local function find_leaver(state, room)
  local last, found = state.last, state.last
  while state.added do
    found, state = state.last, state.before
    if not state or not state.last or after(state.last, last) > room then
      return found
    end
  end

  local log = state.stored
  local low, high = oldest(log), state.last
  if after(low, last) <= room then
    return low
  end
  -- Interpolates, which is fast for equal costs; every third try halves the range.
  local bottom, top = 0, redis.call('ZCARD', log.key) - 1 - state.dropped
  local tries = 0
  while top - bottom > 1 do
    tries = tries + 1
    local rank = math.floor((bottom + top) / 2)
    if tries % 3 > 0 then
      local above, below = after(low, last), after(high, last)
      rank = bottom + math.ceil((top - bottom) * (above - room) / (above - below))
      rank = math.max(bottom + 1, math.min(top - 1, rank))
    end
    local middle = ranked(log, rank)
    if log.flaw then
      return high
    end
    if after(middle, last) <= room then
      top, high = rank, middle
    else
      bottom, low = rank, middle
    end
  end
  return high
end

-- The same, found once for a state.
local function leaver(state, room)
  state.leavers = state.leavers or {}
  state.leavers[room] = state.leavers[room] or find_leaver(state, room)
  return state.leavers[room]
end

-- The log after a charge.
local function added_to(state, instant, cost, now, period)
  local last = state and state.last
  local added = { at = instant, lap = 0, total = cost, units = cost }
  if last and last.at <= now - period then
    -- Every member has expired: the log starts again.
    return { last = added, added = true, wiped = true }
  end
  if last then
    added.lap, added.total = last.lap, last.total + cost
    if added.total >= LAP then
      added.lap, added.total = (added.lap + 1) % 100000, added.total - LAP
    end
  end
  local log = { last = added, before = state, added = true, stored = state and state.stored }
  log.period = math.max(period, state and state.period or 0)
  if state and state.used then
    -- It is in the same window, so a batch counts its charges once.
    log.cutoff, log.used = state.cutoff, state.used + cost
  end
  return log
end

-- The log without so many units of its newest member.
local function taken_back(state, back, period)
  local last, before, stored = state.last, state.before, state.stored
  period = math.max(period, state.period or 0)
  if not state.added then
    local dropped = state.dropped + 1
    before = { last = ranked(stored, -1 - dropped), stored = stored, dropped = dropped }
  end
  if back == last.units then
    return before or { wiped = state.wiped }
  end
  -- The same member, with fewer units. The totals borrow from the laps, as they carry into them.
  local total, units = last.total - back, last.units - back
  local kept = { at = last.at, lap = last.lap, total = total, units = units }
  if kept.total < 0 then
    kept.lap, kept.total = (kept.lap - 1) % 100000, kept.total + LAP
  end
  local log = { last = kept, before = before, added = true, stored = stored, wiped = state.wiped }
  log.period = period
  return log
end

-- Writes what has changed. Returns why it could not.
local function store_log(key, state, now)
  local members, root, period = {}, nil, state.period
  while state and state.added do
    local last = state.last
    table.insert(members, format('%05d%015d:%d', last.lap, last.total, last.units))
    table.insert(members, last.at)
    root, state = state, state.before
  end
  root = state or root
  local why
  if root.wiped or (root.dropped or 0) > 0 then
    -- This adds nothing, and fails if the server is full. What removes members does not fail, and
    -- after it nothing fails in this call.
    why = failure('ZADD', key, 'XX', 0, 'none')
  end
  if why then
    return why
  elseif root.wiped then
    why = failure('UNLINK', key)
  elseif (root.dropped or 0) > 0 then
    why = failure('ZREMRANGEBYRANK', key, -root.dropped, -1)
  end
  if why or not members[1] then
    return why
  end
  local pairs = {}
  for i = 1, #members do
    pairs[i] = members[#members + 1 - i]
  end
  why = failure('ZADD', key, unpack(pairs))
  if why then
    return why
  end
  -- After what may fail for want of memory, since nothing does once a script has written.
  local old = period and redis.call('ZCOUNT', key, '-inf', now - period) or 0
  if old > 0 then
    -- Twice as many as were added, if these are many.
    redis.call('ZREMRANGEBYRANK', key, 0, math.min(old, math.max(PRUNED, #members)) - 1)
  end
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
local a = 2 + 3
-- What a segment asks: how many charges, and the cost and the longest wait of each.
local repeats, cost, max_wait
-- Its operation, nil for a check; the units to give back, or the time of a block; the marks, and
-- their births.
local op, back, mark, born
max_wait = 0
-- The rule, and what follows from it.
-- [arguments]
local horizon, limit, period

-- The loop. Each key is read, its charges are decided, and it is written once if they changed it.

-- The last of the keys that are done.
local last = 0

while last < #KEYS do
  -- The next keys that are asked alike, from `first` to `last`, and how many segments each has.
  local first, segments = last + 1, ARGV[a + 1] + 0
  last = last + ARGV[a]
  a = a + 2
  local segment_at = a
  for k = first, last do
    -- READ the state of a key. `log` is nil if there is none.
    local key = KEYS[k]
    local log
    -- Whether the key is to be written, or emptied; why its charges fail; the number that it
    -- holds, if that is all; when its state is worth nothing; when its block ends; its birth,
    -- if it was reset.
    local changed, wiped, why, number, expires_at, blocked, birth
    -- [load]
    -- Of the sorted set only the newest member is read now, and the others as they are
    -- asked for.
    local newest = redis.pcall('ZRANGE', key, -1, -1, 'WITHSCORES')
    if newest.err then
      why = newest.err
    else
      -- A birth and a block count as members that were given back: the next write removes them.
      local stored, dropped = { key = key }, 0
      birth = over('^reset:(%d+)$', newest)
      if birth then
        dropped, newest = 1, redis.call('ZRANGE', key, -2, -2, 'WITHSCORES')
      end
      local lasts_until = over('^blocked:(%d+)$', newest)
      if lasts_until then
        dropped, newest = dropped + 1, redis.call('ZRANGE', key, -2 - dropped, -2 - dropped, 'WITHSCORES')
      end
      local newest_member = member(stored, newest)
      if stored.flaw then
        why = stored.flaw
      elseif newest_member and newest_member.at + newest_member.lap + newest_member.total > 0 then
        log = { last = newest_member, stored = stored, dropped = dropped }
      elseif newest_member or dropped > 0 then
        -- A total that no charge leaves stands for no state, and so do a block and a birth alone.
        log = { wiped = true }
      end
      if lasts_until and lasts_until > now and not why then
        blocked, why = lasts_until, format('BLOCKED %016d', lasts_until)
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
          a = from + 3
        end
        horizon, limit, period = ARGV[from + 0] + 0, ARGV[from + 1] + 0, ARGV[from + 2] + 0
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
      local log_before = log
      local clamped, kept = false, false
      if log then
        -- A state of another rule is brought under this one. A state from the future is clamped:
        -- a clock was set back, or a quota was lowered.
        -- [clamp]
        -- A newest member that is later than any reserved wait can be: a full charge of now
        -- instead.
        if log.last and log.last.at > now + horizon then
          local full = { at = now, lap = 0, total = limit, units = limit }
          log, clamped = { last = full, added = true, wiped = true }, true
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
            wiped = wiped or not (log or birth)
          end
          -- The state stays as it was read, and lasts as long as before.
          changed = true
        end
        if op == 'refund' then
          -- Gives back `back` of the cost, if the state shows that the charge of these
          -- marks stands in it, and the key was not reset since.
          local refunded
          if log and back >= 1 and back <= cost and (birth or 0) == born[1] then
            local mark1, mark2, mark3, mark4 = unpack(mark)
            -- [refund]
            -- Only the newest member's: the totals after an older one would be wrong.
            local last = log.last
            local is_marked = last and last.at == mark1 and last.lap == mark2 and last.total == mark3
            if is_marked and last.units == cost and last.at + period > now then
              log, refunded = taken_back(log, back, period), back
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
          -- Now, or at the newest member's instant; or when enough members have left the window.
          if cost <= limit then
            instant = now
            if log and log.last then
              local from, room = math.max(now, log.last.at), limit - cost
              instant = from
              if used(log, from - period) > room then
                instant = math.max(from, leaver(log, room).at + period)
              end
            end
          end
          -- [most]
          -- The limit at a time, and nothing if more than that counts already.
          most = instant > math.max(now, log and log.last and log.last.at or 0) and 0 or limit
          cost = math.min(amount, most)
          wait = amount - cost
          if cost > 0 then
            -- [consume]
            -- One more member.
            log = added_to(log, instant, cost, now, period)
            kept, cost, instant = true, 0, nil
            -- [fit]
            -- Now, or at the newest member's instant; or when enough members have left the window.
            if cost <= limit then
              instant = now
              if log and log.last then
                local from, room = math.max(now, log.last.at), limit - cost
                instant = from
                if used(log, from - period) > room then
                  instant = math.max(from, leaver(log, room).at + period)
                end
              end
            end
          end
          -- [reply]
          -- What a decision needs of the log: its newest member, the units that count now or
          -- when that is admitted, and the instant of the member that the charge waits for.
          -- If the units leave room for the charge, it waits for none, and that number says
          -- nothing.
          local at, lap, total, counted, leaver_at
          local newest = log and log.last
          if newest then
            local from = math.max(now, newest.at)
            at, lap, total, counted = newest.at, newest.lap, newest.total, used(log, from - period)
            leaver_at = instant and instant > from and instant - period
          end
          reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5], reply[n + 6] = (at or -1) + 1, lap or 0, total or 0, counted or 0, leaver_at or 0
          cost = amount
        elseif op == 'reset' then
          -- Whatever the key holds, it holds it no more. The charges before it failed.
          -- [flaw]
          -- A member that a decision read was corrupt.
          why = why or log and log.stored and log.stored.flaw
          if why then
            for i = start + 1, n, 6 do
              reply[i] = why
            end
          end
          log = nil
          -- Different from each birth of before, also within a microsecond.
          birth = math.max(now, (birth or 0) + 1)
          kept, wiped, why = true, true, nil
        elseif not blocked then
          -- A check. `instant` is the earliest at which the cost fits, or nil if it never does.
          -- [fit]
          -- Now, or at the newest member's instant; or when enough members have left the window.
          if cost <= limit then
            instant = now
            if log and log.last then
              local from, room = math.max(now, log.last.at), limit - cost
              instant = from
              if used(log, from - period) > room then
                instant = math.max(from, leaver(log, room).at + period)
              end
            end
          end
          -- The reply says the state that this was decided on.
          -- [reply]
          -- What a decision needs of the log: its newest member, the units that count now or
          -- when that is admitted, and the instant of the member that the charge waits for.
          -- If the units leave room for the charge, it waits for none, and that number says
          -- nothing.
          local at, lap, total, counted, leaver_at
          local newest = log and log.last
          if newest then
            local from = math.max(now, newest.at)
            at, lap, total, counted = newest.at, newest.lap, newest.total, used(log, from - period)
            leaver_at = instant and instant > from and instant - period
          end
          reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5], reply[n + 6] = (at or -1) + 1, lap or 0, total or 0, counted or 0, leaver_at or 0
          if instant then
            wait = instant - now
            if op == 'estimate' then
              -- Nothing is taken.
            elseif cost > 0 then
              if wait <= max_wait then
                -- Takes the units, at that instant.
                -- [consume]
                -- One more member.
                log = added_to(log, instant, cost, now, period)
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
        if log then
          -- From `expires_at` on, the state decides like no state.
          -- [expires]
          -- When the newest member leaves the window.
          expires_at = log.last and log.last.at + period or 0
        end
      else
        log = log_before
      end
    end
    -- [flaw]
    -- A member that a decision read was corrupt.
    why = why or log and log.stored and log.stored.flaw

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
    end
    if why then
      -- Nothing is to be stored.
    elseif changed and (log or blocked or birth) then
      expires_at = math.max(expires_at or 0, blocked or 0)
      if expires_at < now then
        expires_at = now
      end
      -- [store]
      -- Removes what was given back, adds what was taken, and removes some of what has
      -- expired.
      why = log and store_log(key, log, now) or nil
      if blocked and not why then
        why = failure('ZADD', key, 'inf', format('blocked:%d', blocked))
      end
      if birth and not why then
        why = failure('ZADD', key, 'inf', format('reset:%d', birth))
      end
      -- Expiry only collects garbage: it never comes before the state is old.
      if why then
        -- It could not be written.
      elseif own_clock then
        -- An hour more, in milliseconds, since the clocks differ.
        redis.call('PEXPIRE', key, ceil((expires_at - now) / 1000) + 3600000)
      else
        redis.call('PEXPIREAT', key, ceil((expires_at + SPARE) / 1000))
      end
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
