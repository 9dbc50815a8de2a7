-- Sliding log. The twin of src/algorithm/sliding_log.rs.
--
-- Stored:  a sorted set with one member for each charge. The score is the instant of admission, the
--          member `total:units`: the units of all charges up to this one, in twenty digits, and its
--          own. The units between two members are a difference of totals, so no decision walks the
--          log. With the score `inf` follow `blocked:instant` and `paused:instant` while the key is
--          blocked or paused, and `reset:birth` if it was reset.
-- Mark:    mark1: the score of the charge's member. mark2, mark3: its total, by LAP and the rest

--@ arguments horizon, limit, period

-- log: the state after a decision; described below.
--@ state log

--@ helpers
-- A total is two exact numbers: the laps of this many units, and the rest.
local LAP = 1000000000000000

-- The most expired members that one call removes.
local PRUNED = 256

-- The fields of a state:
--   last     the newest member, or nil if there is none
--   added    true if this call added that member
--   before   then the state before it, or nil if there was none
--   period   the longest period of the charges that this call added
--   stored   the stored log, read piece by piece when needed; nil if nothing stored counts
--   dropped  the number of stored members that were given back, from the newest on
--   wiped    true if the stored log must be deleted
-- and results that are kept: oldest, cutoff, out, used, leavers.

-- Returns the member in a reply, or nil if there is none.
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

-- Returns the number in a member of this form with the score `inf`, or nil for any other member.
local function over(form, reply)
  local digits = reply[2] == 'inf' and string.match(reply[1], form)
  return digits and integer(digits) or nil
end

-- Returns the member at a rank, from the oldest on, or from the newest if the rank is negative.
local function ranked(log, rank)
  return member(log, redis.call('ZRANGE', log.key, rank, rank, 'WITHSCORES'))
end

local function oldest(log)
  log.oldest = log.oldest or ranked(log, 0)
  return log.oldest
end

-- Returns the newest member that is not after `cutoff`, or nil if all are.
local function newest_out(log, cutoff)
  if log.cutoff ~= cutoff then
    log.cutoff = cutoff
    local newest =
      redis.call('ZRANGE', log.key, cutoff, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
    log.out = member(log, newest)
  end
  return log.out
end

-- Returns the units after `member`, up to `last`.
local function after(member, last)
  local units = last.total - member.total
  return units < 0 and units + LAP or units
end

-- Returns the units admitted after `cutoff`.
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

-- The same, counted once for a state: most charges of a busy key are refused, and do
-- not change it.
local function used(state, cutoff)
  if state.cutoff ~= cutoff then
    state.cutoff, state.used = cutoff, count(state, cutoff)
  end
  return state.used
end

-- Returns the oldest member with at most `room` units after it: a charge fits when that
-- member leaves the window. Then its rank, if it is stored.
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
    return low, 0
  end
  -- Interpolates: fast for equal costs. Every third try halves the range.
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
      return high, top
    end
    if after(middle, last) <= room then
      top, high = rank, middle
    else
      bottom, low = rank, middle
    end
  end
  return high, top
end

-- The same, found once for a state.
local function leaver(state, room)
  state.leavers = state.leavers or {}
  state.leavers[room] = state.leavers[room] or find_leaver(state, room)
  return state.leavers[room]
end

-- Returns the log after a charge.
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
    -- The window is the same, so a batch counts its charges once.
    log.cutoff, log.used = state.cutoff, state.used + cost
  end
  return log
end

-- Returns the log without `back` units of its newest member.
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

-- Writes the changes. Returns an error, or nil.
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
    -- Adds nothing, but fails if the server is full. Commands that remove members do not fail, and
    -- after one of them nothing in this call fails.
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
  -- Last, because only the first write of a script can fail for want of memory.
  local old = period and redis.call('ZCOUNT', key, '-inf', now - period) or 0
  if old > 0 then
    -- At least twice as many as were added: `members` has two elements for each.
    redis.call('ZREMRANGEBYRANK', key, 0, math.min(old, math.max(PRUNED, #members)) - 1)
  end
end

-- Reads only the newest member of the sorted set. Others are read when needed.
--@ load
local newest = redis.pcall('ZRANGE', key, -1, -1, 'WITHSCORES')
if newest.err then
  why = newest.err
else
  -- A birth, a pause and a block count as dropped members: the next write removes them.
  local stored, dropped, found = { key = key }, 0, {}
  for i, form in ipairs({ '^reset:(%d+)$', '^paused:(%d+)$', '^blocked:(%d+)$' }) do
    found[i] = over(form, newest)
    if found[i] then
      dropped = dropped + 1
      newest = redis.call('ZRANGE', key, -1 - dropped, -1 - dropped, 'WITHSCORES')
    end
  end
  local lasts_until = found[3]
  birth, paused = found[1], found[2]
  local newest_member = member(stored, newest)
  if stored.flaw then
    why = stored.flaw
  elseif newest_member and newest_member.at + newest_member.lap + newest_member.total > 0 then
    log = { last = newest_member, stored = stored, dropped = dropped }
  elseif newest_member or dropped > 0 then
    -- A member that no charge makes stands for no state, and so do the others alone.
    log = { wiped = true }
  end
  if why or paused and paused <= now then
    paused = nil
  end
  if lasts_until and lasts_until > now and not why then
    blocked, why = lasts_until, format('BLOCKED %d', lasts_until)
  end
end

-- A newest member that is later than any reserved wait becomes a full charge of now.
--@ clamp
if log.last and log.last.at > now + horizon then
  local full = { at = now, lap = 0, total = limit, units = limit }
  log, clamped = { last = full, added = true, wiped = true }, true
end

-- Not before now and the newest member, and when enough members have left the window.
--@ fit
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

-- The newest member; the units that count now, or at that member's instant if it is
-- later; and the instant of the member for which the charge waits. If the charge has
-- room, it waits for none, and the last number means nothing.
--@ reply at, lap, total, counted, leaver_at
local at, lap, total, counted, leaver_at
local newest = log and log.last
if newest then
  local from = math.max(now, newest.at)
  at, lap, total, counted = newest.at, newest.lap, newest.total, used(log, from - period)
  leaver_at = instant and instant > from and instant - period
end

-- Adds a member.
--@ consume
log = added_to(log, instant, cost, now, period)

-- Fails if a member that was read is corrupt.
--@ flaw
why = why or log and log.stored and log.stored.flaw

-- When the newest member leaves the window.
--@ expires
expires_at = log.last and log.last.at + period or 0

-- Removes dropped members, adds new ones, and removes some that have expired.
--@ store
why = log and store_log(key, log, now) or nil
if blocked and not why then
  why = failure('ZADD', key, 'inf', format('blocked:%d', blocked))
end
if paused and not why then
  why = failure('ZADD', key, 'inf', format('paused:%d', paused))
end
if birth and not why then
  why = failure('ZADD', key, 'inf', format('reset:%d', birth))
end

-- The limit at a time, and nothing if more than the limit counts already.
--@ most
most = instant > math.max(now, log and log.last and log.last.at or 0) and 0 or limit

-- Gives back the newest units first: the totals after older ones would become wrong.
--@ grant
if log.last then
  local stored = log.stored
  if amount < used(log, now - period) then
    local kept, rank = find_leaver(log, amount)
    local rest = amount - after(kept, log.last)
    if rank then
      local dropped = redis.call('ZCARD', stored.key) - 1 - rank
      log = { last = kept, stored = stored, dropped = dropped }
    else
      while log.last ~= kept do
        log = log.before
      end
    end
    log = rest > 0 and taken_back(log, rest, period) or log
  else
    log = { wiped = true, stored = stored }
  end
end

-- Only of the newest member: the totals after an older one would become wrong.
--@ refund
local last = log.last
local is_marked = last and last.at == mark1 and last.lap == mark2 and last.total == mark3
if is_marked and last.units == cost and last.at + period > now then
  log, refunded = taken_back(log, back, period), back
end
