-- What every script ends with: reads every key, decides every charge, writes every changed key.
-- KEYS, ARGV and the reply are described in README.md beside this file.

local ALLOW, WAIT, DENY, NEVER, REFUNDED = 0, 1, 2, 3, 5

-- The numbers of a mark, for each quota: a mark identifies a state, and holds what a refund needs
-- of the one before.
local MARK_LENGTH = 4

-- How much longer than its state a key lives, in µs: as long as the state stays within one such
-- stretch, the expiry that was set first suffices. Part of the format: every writer of a key
-- keeps to one number.
local SPARE = 10000000

-- Decides one charge. The twin of `step` in src/algorithm/mod.rs.
-- Returns the outcome, the wait, and the state to store if it changed.
local function decide(algorithm, rule, state, was_clamped, now, cost, max_wait)
  local instant = algorithm.earliest_fit(rule, state, now, cost)
  if not instant then
    return NEVER, 0, nil
  end
  local wait = instant - now
  if cost == 0 then
    return wait == 0 and ALLOW or DENY, wait, nil
  end
  if wait <= max_wait and wait <= rule.horizon then
    return wait == 0 and ALLOW or WAIT, wait, algorithm.consume(rule, state, instant, cost, now)
  end
  -- The only write of a refusal: a clamped state, or it would move along with the clock.
  return DENY, wait, was_clamped and state or nil
end

-- Takes a cost without a check that it fits, unless the debt is past the horizon. Returns what a
-- peek after it would answer, and the state to store if it changed. The twin of `penalize` in
-- src/algorithm/mod.rs.
local function penalize(algorithm, rule, state, now, cost)
  local instant, next = algorithm.earliest_fit(rule, state, now, 0), nil
  if instant - now <= rule.horizon and cost > 0 then
    local taken = math.min(cost, algorithm.max_unchecked_cost(rule))
    next = algorithm.consume(rule, state, instant, taken, now)
    next = algorithm.clamp(rule, next, now) or next
    instant = algorithm.earliest_fit(rule, next, now, 0)
  end
  local wait = instant - now
  return wait == 0 and ALLOW or DENY, wait, next
end

-- Gives a reservation back. Returns the units that were, and the state to store if it changed.
local function refund(algorithm, rule, state, now, units, cost, ...)
  if not state or units < 1 or units > cost then
    return REFUNDED, 0, nil
  end
  local next, given = algorithm.apply_refund(rule, state, now, units, cost, ...)
  return REFUNDED, given or 0, next
end

-- Why a key that reads as absent cannot be used: it may hold another type.
local function why_absent(key)
  return failure('GET', key)
end

-- Writes a changed key, which held `number` if that was a plain one. Returns why it could not.
-- Expiry only collects garbage: it never comes before the state is equivalent to no state.
local function store(algorithm, key, exists, number, rule, state, now, given)
  local value = algorithm.write(state)
  if number and not given and type(value) == 'number'
    and value - value % SPARE == number - number % SPARE then
    return failure('INCRBY', key, value - number)
  end
  local expires_at = math.max(algorithm.expires_at(rule, state), now)
  local unit, expiry = 'PXAT', math.ceil((expires_at + SPARE) / 1000)
  if given then
    unit, expiry = 'PX', math.ceil((expires_at - now) / 1000) + ONE_HOUR
  end
  local written
  if exists then
    written = redis.pcall('SET', key, value, unit, expiry)
  else
    written = redis.pcall('SET', key, value, unit, expiry, 'NX')
  end
  if not written then
    return 'WRONGTYPE the key holds a value of another type'
  end
  return written.err
end

-- The same for an algorithm that keeps its state in pieces and writes those that changed.
local function store_pieces(algorithm, key, rule, state, now, given)
  local why = algorithm.store(key, state, rule, now)
  if why then
    return why
  end
  local expires_at = math.max(algorithm.expires_at(rule, state), now)
  if given then
    redis.call('PEXPIRE', key, math.ceil((expires_at - now) / 1000) + ONE_HOUR)
  else
    redis.call('PEXPIREAT', key, math.ceil((expires_at + SPARE) / 1000))
  end
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
  -- A charge has a key for each of its quotas; the first stands for all.
  local quotas = algorithm.quotas or 1
  local texts = algorithm.load and not algorithm.texts and {} or redis.call('MGET', unpack(KEYS))
  -- What is known of a key, at the place of its first charge. A rule stands where the state has
  -- changed. (Several plain arrays: a table for each key would cost more than all the arithmetic.)
  local places, states, numbers, rules, broken, reset = {}, {}, {}, {}, {}, {}
  local reply = { now }
  local n = 1

  -- Plan: every charge is answered with the state that the ones before it left.
  local last, count = 0, #KEYS / quotas
  local width = 4 + MARK_LENGTH * quotas + (quotas > 1 and 1 or 0)
  while last < count do
    local first = last + 1
    last = last + tonumber(ARGV[at])
    at = at + 1
    local rule = common
    if ARGV[at] == 'quota' then
      at = at + 1
      rule = read_rule()
    end
    local op, units, cost, max_wait, mark = ARGV[at], nil, nil, nil, nil
    if op == 'refund' or op == 'refund_part' then
      units = tonumber(ARGV[at + 1])
      at = at + (op == 'refund' and 1 or 2)
      cost, mark = tonumber(ARGV[at]), {}
      for i = 1, MARK_LENGTH * quotas do
        mark[i] = tonumber(ARGV[at + i]) or ARGV[at + i]
      end
      op, at = 'refund', at + 1 + MARK_LENGTH * quotas
    elseif op == 'penalize' then
      cost = tonumber(ARGV[at + 1])
      at = at + 2
    elseif op == 'estimate' then
      cost, max_wait = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
      at = at + 3
    elseif op == 'reset' then
      at = at + 1
    else
      op, cost, max_wait = nil, tonumber(op), tonumber(ARGV[at + 1])
      at = at + 2
    end

    for i = first, last do
      local before = (i - 1) * quotas
      local key = KEYS[before + 1]
      local place = quotas == 1 and places[key]
      if not place then
        place = i
        places[key] = i
        if algorithm.load then
          states[i], broken[i] = algorithm.load(key, before, texts)
        elseif texts[i] then
          states[i], numbers[i] = algorithm.read(texts[i])
          if not states[i] then
            broken[i] = CORRUPT
          end
        end
      end
      local state = states[place]
      local clamped = state and algorithm.clamp(rule, state, now)
      state = clamped or state

      local asks = not op or op == 'estimate'
      local blocking = algorithm.blocking_quota and asks
        and algorithm.blocking_quota(rule, state, now, cost)
      local outcome, wait, next
      if not op then
        outcome, wait, next = decide(algorithm, rule, state, clamped, now, cost, max_wait)
      elseif op == 'refund' then
        outcome, wait, next = refund(algorithm, rule, state, now, units, cost, unpack(mark))
      elseif op == 'penalize' then
        outcome, wait, next = penalize(algorithm, rule, state, now, cost)
      elseif op == 'estimate' then
        -- What would be decided; the next state is dropped.
        outcome, wait = decide(algorithm, rule, state, nil, now, cost, max_wait)
      else
        -- Whatever the key holds, it holds it no more.
        outcome, wait, state = ALLOW, 0, nil
        states[place], rules[place], broken[place], reset[place] = nil, rule, nil, true
        if quotas > 1 then
          algorithm.reset(before)
        end
      end
      if next then
        state = next
        states[place], rules[place] = next, rule
        broken[place] = broken[place] or algorithm.flaw and algorithm.flaw(next)
        if quotas > 1 and not broken[place] then
          algorithm.keep(rule, next, before)
        end
      elseif not state and not broken[place] and not reset[place] and not algorithm.load then
        broken[place] = why_absent(key)
      end

      reply[n + 1], reply[n + 2] = outcome, wait
      reply[n + 3], reply[n + 4] = algorithm.report(rule, state, now)
      if quotas == 1 then
        local one, two, three, four
        if state then
          one, two, three, four = algorithm.mark(state)
        end
        reply[n + 5], reply[n + 6], reply[n + 7], reply[n + 8] =
          one or 0, two or 0, three or 0, four or 0
      else
        algorithm.write_mark(state, reply, n + 4)
        if not asks then
          blocking = algorithm.blocking_quota(rule, state, now, 0)
        end
        -- Counted from 0.
        reply[n + width] = (blocking or algorithm.tightest(rule, state, now)) - 1
      end
      if state and algorithm.flaw then
        broken[place] = broken[place] or algorithm.flaw(state)
      end
      n = n + width
    end
  end

  -- Commit: one write for each changed key. What fails, fails the charges of its key.
  local failed = false
  if quotas > 1 then
    algorithm.commit(now, given)
  end
  for place = 1, count do
    if quotas > 1 then
      broken[place] = broken[place] or algorithm.why((place - 1) * quotas)
    elseif rules[place] and not broken[place] then
      local key, rule, state = KEYS[place], rules[place], states[place]
      if reset[place] then
        broken[place] = failure('UNLINK', key)
        texts[place], numbers[place] = nil, nil
      end
      if broken[place] or not state then
        -- Nothing is to be stored.
      elseif algorithm.store then
        broken[place] = store_pieces(algorithm, key, rule, state, now, given)
      else
        broken[place] = store(algorithm, key, texts[place], numbers[place], rule, state, now, given)
      end
    end
    failed = failed or broken[place]
  end
  if failed then
    for i = 1, count do
      local at = 2 + (i - 1) * width
      reply[at] = broken[quotas == 1 and places[KEYS[i]] or i] or reply[at]
    end
  end
  return cmsgpack.pack(reply)
end
