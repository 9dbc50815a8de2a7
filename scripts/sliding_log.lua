-- Sliding log. The twin of src/algorithm/sliding_log.rs.
--
-- Arguments of a rule:  horizon  limit  period
-- Stored:               a sorted set with one member for each charge. The score is the instant of
--                       admission, the member `total:units`: the units so far, these included, in
--                       twenty digits, and those of this charge. The units between two members are
--                       a difference of totals, so no decision walks the log.
-- Mark of a state:      at  lap  total

local sliding_log = { arguments = 3 }

-- A total is kept in two exact numbers: how often it passed this many units, and the rest.
local LAP = 1000000000000000

-- The most expired members that one call removes.
local PRUNED = 256

-- A state is what one decision left:
--   last     the newest member, or nil if there is none
--   before   if this call added that member: the state that it was added to, or nil if there was
--            none
--   added    whether this call added that member
--   log      what is stored, read piece by piece as it is asked for; nil if nothing stored counts
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
    local out = redis.call('ZRANGE', log.key, cutoff, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1,
      'WITHSCORES')
    log.out = member(log, out)
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
      local out = newest_out(state.log, cutoff)
      if out then
        return after(out, last)
      end
      first = oldest(state.log)
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

  local log = state.log
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

function sliding_log.rule(horizon, limit, period)
  return { horizon = horizon, limit = limit, period = period }
end

function sliding_log.load(key)
  local reply = redis.pcall('ZRANGE', key, -1, -1, 'WITHSCORES')
  if reply.err then
    return nil, reply.err
  end
  local log = { key = key }
  local last = member(log, reply)
  if log.flaw then
    return nil, log.flaw
  end
  return last and { last = last, log = log, dropped = 0 }
end

function sliding_log.flaw(state)
  return state.log and state.log.flaw
end

function sliding_log.store(key, state, rule, now)
  local members, root = {}, nil
  while state and state.added do
    local last = state.last
    table.insert(members, string.format('%05.0f%015.0f:%.0f', last.lap, last.total, last.units))
    table.insert(members, last.at)
    root, state = state, state.before
  end
  root = state or root
  local why
  if root.wiped then
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
  local old = redis.call('ZCOUNT', key, '-inf', now - rule.period)
  if old > 0 then
    redis.call('ZREMRANGEBYRANK', key, 0, math.min(old, PRUNED) - 1)
  end
end

function sliding_log.expires_at(rule, state)
  return state.last and state.last.at + rule.period or 0
end

function sliding_log.clamp(rule, state, now)
  if state.last and state.last.at > now + rule.horizon then
    local last = { at = now, lap = 0, total = rule.limit, units = rule.limit }
    return { last = last, added = true, wiped = true }
  end
end

function sliding_log.earliest_fit(rule, state, at, cost)
  if cost > rule.limit then
    return nil
  end
  if not state or not state.last then
    return at
  end
  local from, room = math.max(at, state.last.at), rule.limit - cost
  if used(state, from - rule.period) <= room then
    return from
  end
  return math.max(from, leaver(state, room).at + rule.period)
end

function sliding_log.consume(rule, state, at, cost, now)
  local last = state and state.last
  local added = { at = at, lap = 0, total = cost, units = cost }
  if last and last.at <= now - rule.period then
    -- Every member has expired: the log starts again.
    return { last = added, added = true, wiped = true }
  end
  if last then
    added.lap, added.total = last.lap, last.total + cost
    if added.total >= LAP then
      added.lap, added.total = (added.lap + 1) % 100000, added.total - LAP
    end
  end
  return { last = added, before = state, added = true, log = state and state.log }
end

function sliding_log.max_unchecked_cost(rule)
  return rule.limit
end

function sliding_log.report(rule, state, now)
  local last = state and state.last
  if not last then
    return rule.limit, 0
  end
  local remaining = 0
  if last.at <= now then
    remaining = math.max(0, rule.limit - used(state, now - rule.period))
  end
  return remaining, math.max(0, last.at + rule.period - now)
end

function sliding_log.apply_refund(rule, state, now, units, cost, mark_at, mark_lap, mark_total)
  local last = state.last
  if not last or last.at ~= mark_at or last.lap ~= mark_lap or last.total ~= mark_total
    or last.units ~= cost then
    return nil
  end
  if last.at + rule.period <= now then
    return nil
  end
  local before, log = state.before, state.log
  if not state.added then
    local dropped = state.dropped + 1
    before = { last = ranked(log, -1 - dropped), log = log, dropped = dropped }
  end
  if units == cost then
    return before or { wiped = state.wiped }, units
  end
  -- The same member, with fewer units. The totals borrow from the laps, as they carry into them.
  local kept = { at = last.at, lap = last.lap, total = last.total - units, units = cost - units }
  if kept.total < 0 then
    kept.lap, kept.total = (kept.lap - 1) % 100000, kept.total + LAP
  end
  return { last = kept, before = before, added = true, log = log, wiped = state.wiped }, units
end

function sliding_log.mark(state)
  if state.last then
    return state.last.at, state.last.lap, state.last.total
  end
end
