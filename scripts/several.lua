-- Several quotas of one key as one algorithm, all or nothing. The twin of src/algorithm/several.rs.
--
-- Arguments of a rule:  those of each member
-- Stored:               each member's state under a key of its own
-- Mark of a state:      four numbers for each member

-- Keys may be asked for in any company: what is known of each stands by its name, and a
-- charge's state, which holds the members' states by number, is put together for it and taken
-- apart once it is decided.
local function all_of(...)
  local members = { ... }
  local several = { quotas = #members, arguments = 0, texts = false }
  for _, member in ipairs(members) do
    several.arguments = several.arguments + member.arguments
    several.texts = several.texts or not member.load
  end

  -- By a key's name: its member, and its state; the text it held, and the number if that is a plain
  -- one; the rule that it was changed under; whether it was reset; and why it cannot be used. And
  -- the names in order.
  local keys, order = {}, {}

  local function known(j, key, text)
    local one = keys[key]
    if not one then
      one = { key = key, member = members[j] }
      if one.member.load then
        one.state, one.why = one.member.load(key)
      elseif text then
        one.text = text
        one.state, one.number = one.member.read(text)
        one.why = not one.state and CORRUPT or nil
      else
        one.why = why_absent(key)
      end
      keys[key], order[#order + 1] = one, one
    end
    return one
  end

  -- A state with the same members, of which `change` makes new ones: it returns one, or nil
  -- to keep what is.
  local function changed(state, change)
    local next = { changed = {} }
    local any = false
    for j, member in ipairs(members) do
      local now = change(j, member, state and state[j])
      next[j] = now or state and state[j]
      next.changed[j] = now and true or state and state.changed[j]
      any = any or now
    end
    return any and next
  end

  function several.rule(...)
    local numbers, at = { ... }, 1
    local rule = { horizon = math.huge }
    for j, member in ipairs(members) do
      rule[j] = member.rule(unpack(numbers, at, at + member.arguments - 1))
      rule.horizon = math.min(rule.horizon, rule[j].horizon)
      at = at + member.arguments
    end
    return rule
  end

  -- The state of a charge. `before` is the number of keys before its own.
  function several.load(_, before, texts)
    local state, why = { changed = {} }, nil
    for j = 1, #members do
      local one = known(j, KEYS[before + j], texts[before + j])
      state[j], why = one.state, why or one.why
    end
    return state, why
  end

  -- Keeps what a decision changed.
  function several.keep(rule, state, before)
    for j = 1, #members do
      if state.changed[j] then
        local one = keys[KEYS[before + j]]
        one.state, one.rule = state[j], rule[j]
      end
    end
  end

  function several.reset(before)
    for j = 1, #members do
      local one = keys[KEYS[before + j]]
      one.state, one.rule, one.why, one.reset = nil, nil, nil, true
    end
  end

  -- Why a charge failed after it was decided.
  function several.why(before)
    for j = 1, #members do
      local why = keys[KEYS[before + j]].why
      if why then
        return why
      end
    end
  end

  function several.flaw(state)
    for j, member in ipairs(members) do
      local flaw = state[j] and member.flaw and member.flaw(state[j])
      if flaw then
        return flaw
      end
    end
  end

  function several.commit(now, given)
    for _, one in ipairs(order) do
      if one.reset then
        one.why = failure('UNLINK', one.key)
        one.text, one.number = nil, nil
      end
      if one.why or not one.rule or not one.state then
        -- Nothing is to be stored.
      elseif one.member.store then
        one.why = store_pieces(one.member, one.key, one.rule, one.state, now, given)
      else
        one.why = store(one.member, one.key, one.text, one.number, one.rule, one.state, now, given)
      end
    end
  end

  function several.clamp(rule, state, now)
    return changed(state, function(j, member, one)
      return one and member.clamp(rule[j], one, now)
    end)
  end

  function several.earliest_fit(rule, state, at, cost)
    -- What fits at an instant fits at every later one, so the latest of all is the
    -- earliest for all.
    local latest = at
    for j, member in ipairs(members) do
      local instant = member.earliest_fit(rule[j], state and state[j], at, cost)
      if not instant then
        return nil
      end
      latest = math.max(latest, instant)
    end
    return latest
  end

  function several.blocking_quota(rule, state, now, cost)
    local latest, quota_index = now, nil
    for j, member in ipairs(members) do
      local instant = member.earliest_fit(rule[j], state and state[j], now, cost)
      if not instant then
        return j
      elseif instant > latest then
        latest, quota_index = instant, j
      end
    end
    return quota_index
  end

  function several.tightest(rule, state, now)
    local least, quota_index = math.huge, 1
    for j, member in ipairs(members) do
      local remaining = member.report(rule[j], state and state[j], now)
      if remaining < least then
        least, quota_index = remaining, j
      end
    end
    return quota_index
  end

  function several.consume(rule, state, at, cost, now)
    return changed(state, function(j, member, one)
      local consume = member.consume_with_others or member.consume
      return consume(rule[j], one, at, math.min(cost, member.max_unchecked_cost(rule[j])), now)
    end)
  end

  function several.max_unchecked_cost(rule)
    local most = 0
    for j, member in ipairs(members) do
      most = math.max(most, member.max_unchecked_cost(rule[j]))
    end
    return most
  end

  function several.report(rule, state, now)
    local least, latest = math.huge, 0
    for j, member in ipairs(members) do
      local remaining, reset_after = member.report(rule[j], state and state[j], now)
      least, latest = math.min(least, remaining), math.max(latest, reset_after)
    end
    return least, latest
  end

  function several.apply_refund(rule, state, now, units, cost, ...)
    local mark, most = { ... }, 0
    local next = changed(state, function(j, member, one)
      local next, given
      if one then
        local first = (j - 1) * MARK_LENGTH + 1
        next, given =
          member.apply_refund(rule[j], one, now, units, cost, unpack(mark, first, j * MARK_LENGTH))
      end
      most = math.max(most, given or 0)
      return next
    end)
    return next or nil, most
  end

  -- Writes the marks into the reply, after its first `n` elements.
  function several.write_mark(state, reply, n)
    for j, member in ipairs(members) do
      local one, two, three, four
      if state and state[j] then
        one, two, three, four = member.mark(state[j])
      end
      reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] =
        one or 0, two or 0, three or 0, four or 0
      n = n + MARK_LENGTH
    end
  end

  return several
end
