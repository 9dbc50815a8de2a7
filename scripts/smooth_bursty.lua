-- Smooth bursty: Guava's pacing with a store of unused permits. The twin of src/algorithm/smooth_bursty.rs.
--
-- Arguments of a rule:  horizon  r  p  burst  own  full     r permits take p microseconds; burst: what is stored, in time
-- Stored:               the credit in microseconds over r, the instant from which on nobody waits, the rate, and the last
--                       now, as `credit:next:r/p:last`
-- Mark of a state:     next  credit before, made positive  what was added to next, for its debt and
--                       for a later start

local smooth_bursty = { arguments = 6 }

local function quotient(dividend, divisor)
  return (dividend - dividend % divisor) / divisor
end

-- The state under this rule's rate, with what the time since has stored.
local function resynced(rule, state, now)
  if not state then
    return rule.full and rule.cap or 0, now
  end
  local credit, next = state.credit, state.next
  if state.r ~= rule.r or state.p ~= rule.p then
    local whole, rest = quotient(credit, state.r), credit % state.r
    credit = math.min(whole, rule.burst) * rule.r
    if state.r * rule.r < INEXACT then
      credit = credit + quotient(rest * rule.r, state.r)
    end
  end
  if now > next then
    if now - next > rule.burst then
      credit = rule.cap
    else
      credit = credit + (now - next) * rule.r
    end
    next = now
  end
  return math.min(credit, rule.cap), next
end

-- The time that a cost takes beyond the credit, in whole microseconds.
local function debt(rule, credit, cost)
  return quotient(math.max(0, cost * rule.p - credit), rule.r)
end

function smooth_bursty.rule(horizon, r, p, burst, own, full)
  return { horizon = horizon, r = r, p = p, burst = burst, cap = burst * r, own = own == 1, full = full == 1 }
end

function smooth_bursty.read(text)
  local sign, credit, next, r, p, last = string.match(text, '^(%-?)(%d+):(%d+):(%d+)/(%d+):(%d+)$')
  if not sign then
    return nil
  end
  credit, next, r, p, last = integer(credit), integer(next), integer(r), integer(p), integer(last)
  if not credit or not next or not r or not p or not last or r == 0 or p == 0 then
    return nil
  end
  if sign == '-' then
    if credit == 0 or credit > r then
      return nil
    end
    credit = -credit
  end
  return { credit = credit, next = next, r = r, p = p, last = last }
end

function smooth_bursty.write(state)
  return string.format('%.0f:%.0f:%.0f/%.0f:%.0f', state.credit, state.next, state.r, state.p, state.last)
end

function smooth_bursty.expires_at(rule, state)
  local credit, next = resynced(rule, state, state.next)
  return next + math.ceil((rule.cap - credit) / rule.r)
end

function smooth_bursty.clamp(rule, state, now)
  if now < state.last then
    local next = math.max(0, state.next - (state.last - now))
    return { credit = state.credit, next = next, r = state.r, p = state.p, last = now }
  end
end

function smooth_bursty.earliest_fit(rule, state, at, cost)
  if cost * rule.p >= INEXACT then
    return nil
  end
  local credit, next = resynced(rule, state, at)
  if rule.own then
    next = math.min(next + debt(rule, credit, cost), INEXACT - 1)
  end
  return math.max(next, at)
end

function smooth_bursty.consume(rule, state, at, cost, now)
  local credit, next = resynced(rule, state, now)
  local debt = debt(rule, credit, cost)
  -- Who has to wait for something else as well starts later, and nothing is stored meanwhile.
  local due = next + (rule.own and debt or 0)
  local shift = math.max(0, at - due)
  local added = math.min(debt, INEXACT - 1 - next - shift)
  return {
    credit = credit + debt * rule.r - cost * rule.p,
    next = next + shift + added,
    r = rule.r,
    p = rule.p,
    last = now,
    before = credit,
    added = added,
    shift = shift,
  }
end

function smooth_bursty.max_unchecked_cost(rule)
  return (INEXACT - 1 - (INEXACT - 1) % rule.p) / rule.p
end

function smooth_bursty.report(rule, state, now)
  local credit, next = resynced(rule, state, now)
  local ahead = math.max(0, next - now)
  local remaining = 0
  if ahead == 0 and rule.own then
    remaining = math.max(0, quotient(credit + rule.r - 1, rule.p))
  elseif ahead == 0 then
    remaining = math.max(1, quotient(credit, rule.p))
  end
  if not rule.full then
    return remaining, ahead
  end
  return remaining, ahead + math.ceil((rule.cap - credit) / rule.r)
end

function smooth_bursty.apply_refund(rule, state, now, cost, mark_next, mark_before, mark_added, mark_shift)
  local before = mark_before - rule.r
  local after = before + mark_added * rule.r - cost * rule.p
  if state.r ~= rule.r or state.p ~= rule.p or state.next ~= mark_next or state.credit ~= after then
    return nil
  end
  return { credit = before, next = state.next - mark_added - mark_shift, r = state.r, p = state.p, last = state.last }, cost
end

function smooth_bursty.mark(state)
  return state.next, (state.before or 0) + state.r, state.added, state.shift
end
