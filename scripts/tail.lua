-- What every script ends with: reads every key once, decides every charge, writes every changed key once.
-- KEYS, ARGV and the reply are described in README.md beside this file.

local ALLOW, WAIT, DENY, NEVER, REFUNDED = 0, 1, 2, 3, 5

-- Decides one charge. The twin of `step` in src/algorithm/mod.rs.
-- Returns the outcome, the wait, and the state to store if it changed.
local function decide(algorithm, rule, state, was_cut, now, cost, patience)
  local instant = algorithm.fit(rule, state, now, cost)
  if not instant then
    return NEVER, 0, nil
  end
  local wait = instant - now
  if cost == 0 then
    return wait == 0 and ALLOW or DENY, wait, nil
  end
  if wait <= math.min(patience, rule.horizon) then
    return wait == 0 and ALLOW or WAIT, wait, algorithm.take(rule, state, instant, cost)
  end
  -- The only write of a refusal: a cut state, or it would move along with the clock.
  return DENY, wait, was_cut and state or nil
end

-- Gives a booking back. Returns the units that were, and the state to store if it changed.
local function refund(algorithm, rule, state, now, cost, left, left_too)
  if not state then
    return 0, nil
  end
  local next, units = algorithm.give_back(rule, state, now, cost, left, left_too)
  return units or 0, next
end

-- What a key holds: `state`, or why it cannot be used as `broken`.
local function load(algorithm, key, text)
  if not text then
    return { key = key }
  end
  local state = algorithm.read(text)
  if not state then
    return { key = key, broken = 'CORRUPT the stored value is not one that this limiter writes' }
  end
  return { key = key, state = state, stored = true }
end

-- Why a key that reads as absent cannot be used: it may hold another type.
local function why_absent(key)
  local value = redis.pcall('GET', key)
  return type(value) == 'table' and value.err or nil
end

-- Writes a changed key. Returns why it could not.
-- Expiry only collects garbage: it never comes before the state is old.
local function store(algorithm, entry, now, given)
  local value = algorithm.write(entry.state)
  local old = math.max(algorithm.old(entry.rule, entry.state), now)
  local unit, expiry = 'PXAT', math.ceil(old / 1000) + 1
  if given then
    unit, expiry = 'PX', math.ceil((old - now) / 1000) + ONE_HOUR
  end
  local written
  if entry.stored then
    written = redis.pcall('SET', entry.key, value, unit, expiry)
  else
    written = redis.pcall('SET', entry.key, value, unit, expiry, 'NX')
  end
  if not written then
    return 'WRONGTYPE the key holds a value of another type'
  end
  return written.err
end

local function run(algorithm)
  local given = ARGV[1] ~= ''
  local now = clock(ARGV[1])
  local at = 2

  local function read_rule()
    local numbers = {}
    for i = 1, algorithm.arguments do
      numbers[i] = tonumber(ARGV[at + i - 1])
    end
    at = at + algorithm.arguments
    return algorithm.rule(unpack(numbers))
  end

  local common = read_rule()
  local texts = redis.call('MGET', unpack(KEYS))
  local reply, entries, changed = { now }, {}, {}

  -- Plan: every charge is answered with the state that the ones before it left.
  for i, key in ipairs(KEYS) do
    local entry = entries[key]
    if not entry then
      entry = load(algorithm, key, texts[i])
      entries[key] = entry
    end

    local rule = common
    if ARGV[at] == 'quota' then
      at = at + 1
      rule = read_rule()
    end
    local cut = entry.state and algorithm.cut(rule, entry.state, now)
    local state = cut or entry.state

    local outcome, wait, next
    if ARGV[at] == 'refund' then
      outcome = REFUNDED
      wait, next = refund(algorithm, rule, state, now, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]))
      at = at + 4
    else
      outcome, wait, next = decide(algorithm, rule, state, cut, now, tonumber(ARGV[at]), tonumber(ARGV[at + 1]))
      at = at + 2
    end

    if next then
      state = next
      entry.state, entry.rule = next, rule
      if not entry.changed then
        entry.changed = true
        changed[#changed + 1] = entry
      end
    elseif not entry.stored and not entry.changed and not entry.broken then
      entry.broken = why_absent(key)
    end

    local left, left_too = 0, 0
    if state then
      left, left_too = algorithm.left(state)
    end
    local remaining, reset_after = algorithm.report(rule, state, now)
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = outcome, wait, remaining
    reply[n + 4], reply[n + 5], reply[n + 6] = reset_after, left, left_too
  end

  -- Commit: one write for each changed key. What fails, fails the charges of its key.
  for _, entry in ipairs(changed) do
    if not entry.broken then
      entry.broken = store(algorithm, entry, now, given)
    end
  end
  for i, key in ipairs(KEYS) do
    if entries[key].broken then
      reply[i * 6 - 4] = entries[key].broken
    end
  end
  return reply
end
