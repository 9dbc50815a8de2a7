//! Mutants of the scripts: one edit each, and the judge that must notice.

use crate::judges::Judge::{self, *};

/// A one-line edit of a script.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    /// The script that is edited, and the algorithm that is judged.
    pub(crate) file: &'static str,
    pub(crate) algorithm: &'static str,
    pub(crate) judge: Judge,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

const fn mutant(
    name: &'static str,
    [file, algorithm]: [&'static str; 2],
    judge: Judge,
    from: &'static str,
    to: &'static str,
) -> Mutant {
    Mutant { name, file, algorithm, judge, from, to }
}

const TAIL: [&str; 2] = ["tail", "token_bucket"];
const HEAD: [&str; 2] = ["head", "token_bucket"];
const BUCKET: [&str; 2] = ["token_bucket", "token_bucket"];
const WINDOW: [&str; 2] = ["fixed_window", "fixed_window"];
const LOG: [&str; 2] = ["sliding_log", "sliding_log"];
const CELLS: [&str; 2] = ["sliding_window", "sliding_window"];
const COUNTER: [&str; 2] = ["sliding_counter", "sliding_counter"];
const BURSTY: [&str; 2] = ["smooth_bursty", "smooth_bursty"];
const JAVA: [&str; 2] = ["redisson", "redisson"];
const WARM: [&str; 2] = ["smooth_warming_up", "smooth_warming_up"];

pub(crate) const MUTANTS: [Mutant; 40] = [
    mutant(
        "state_through_tostring",
        BUCKET,
        Mixed,
        "return string.format('%.0f+%.0f/%.0f', state.full, state.part, state.denominator)",
        "return tostring(state.full)",
    ),
    mutant(
        "capacity_plus_one",
        BUCKET,
        Saturating,
        "time(rule, rule.burst - cost)",
        "time(rule, rule.burst + 1 - cost)",
    ),
    mutant(
        "less_for_less_or_equal",
        TAIL,
        Edges,
        "if wait <= max_wait and",
        "if wait < max_wait and",
    ),
    mutant(
        "window_full_one_early",
        WINDOW,
        Mixed,
        "if state.units + cost <= rule.limit",
        "if state.units + cost < rule.limit",
    ),
    mutant(
        "remainder_dropped",
        BUCKET,
        Mixed,
        "return (product - rest) / rule.unit_denominator, rest",
        "return (product - rest) / rule.unit_denominator, 0",
    ),
    mutant("weight_floored", COUNTER, Mixed, "+ (rest > 0 and 1 or 0)", ""),
    mutant(
        "expiry_too_soon",
        TAIL,
        Expiry,
        "'PXAT', math.ceil((expires_at + SPARE) / 1000)",
        "'PXAT', math.ceil((expires_at - 20000) / 1000)",
    ),
    mutant(
        "no_expiry",
        TAIL,
        Expiry,
        "redis.pcall('SET', key, value, unit, expiry, 'NX')",
        "redis.pcall('SET', key, value, 'NX')",
    ),
    mutant(
        "log_without_expiry",
        ["tail", "sliding_log"],
        Expiry,
        "redis.call('PEXPIREAT', key, math.ceil((expires_at + SPARE) / 1000))",
        "expires_at = nil",
    ),
    mutant(
        "in_place_beyond_its_expiry",
        TAIL,
        Expiry,
        "value - value % SPARE == number - number % SPARE",
        "true",
    ),
    mutant(
        "two_readings_of_the_clock",
        TAIL,
        Saturating,
        "local wait = instant - now\n  if cost == 0",
        "now = clock('')\n  local wait = instant - now\n  if cost == 0",
    ),
    mutant(
        "member_without_its_total",
        LOG,
        Saturating,
        "last.lap, last.total, last.units))",
        "0, last.at % 1000000, last.units))",
    ),
    mutant(
        "cost_left_out",
        BUCKET,
        Mixed,
        "time(rule, rule.burst - cost)",
        "time(rule, rule.burst - 1)",
    ),
    mutant(
        "charge_on_refusal",
        TAIL,
        Mixed,
        "return DENY, wait, was_clamped and state or nil",
        "return DENY, wait, algorithm.consume(rule, state, instant, cost, now)",
    ),
    mutant(
        "old_members_counted",
        LOG,
        Mixed,
        "log.key, cutoff, '-inf'",
        "log.key, cutoff - 1000, '-inf'",
    ),
    mutant(
        "pruned_too_early",
        LOG,
        Mixed,
        "redis.call('ZCOUNT', key, '-inf', now - rule.period)",
        "redis.call('ZCOUNT', key, '-inf', now - rule.period / 2)",
    ),
    mutant(
        "any_number_read",
        HEAD,
        Corrupt,
        "if #text > 16 or not string.find(text, '^%d+$') then\n    return nil\n  end\n  local number = tonumber(text)\n",
        "local number = tonumber(text) or 0\n  if true then return number end\n",
    ),
    mutant(
        "full_refund_although_others_followed",
        BUCKET,
        Mixed,
        "if full ~= mark_full or part ~= mark_part then",
        "if false then",
    ),
    mutant(
        "refund_of_an_older_member",
        LOG,
        Mixed,
        "last.at ~= mark_at or last.lap ~= mark_lap or last.total ~= mark_total\n    or",
        "",
    ),
    mutant(
        "n_cells_for_n_plus_one",
        CELLS,
        Mixed,
        "for i = at - state.newest + 1, rule.cells + 1 do",
        "for i = at - state.newest + 2, rule.cells + 1 do",
    ),
    mutant("no_clamp", BUCKET, Clock, "if full > latest or", "if false or"),
    mutant("no_clamp_of_the_log", LOG, Clock, "state.last.at > now + rule.horizon", "false"),
    mutant(
        "deny_everything",
        TAIL,
        Use,
        "local instant = algorithm.earliest_fit(rule, state, now, cost)\n",
        "local instant = algorithm.earliest_fit(rule, state, now, cost)\n  instant = instant and instant + 1\n",
    ),
    mutant(
        "horizon_ignored",
        TAIL,
        Edges,
        "if wait <= max_wait and wait <= rule.horizon then",
        "if wait <= max_wait then",
    ),
    mutant(
        "owed_fraction_forgotten",
        BURSTY,
        Mixed,
        "credit = credit + debt * rule.unit_denominator - cost * rule.unit_numerator,",
        "credit = math.max(0, credit + debt * rule.unit_denominator - cost * rule.unit_numerator),",
    ),
    mutant(
        "own_cost_for_the_next_callers",
        ["smooth_bursty", "smooth_bursty_own_debt"],
        Mixed,
        "if rule.own_cost then\n    next = math.min",
        "if false then\n    next = math.min",
    ),
    mutant("warm_is_never_cold", WARM, Mixed, "if above > 0 then", "if false then"),
    mutant(
        "taken_although_another_refuses",
        ["several", "several"],
        Mixed,
        "latest = math.max(latest, instant)",
        "latest = instant",
    ),
    mutant(
        "left_at_the_slot_of_another",
        ["token_bucket", "several"],
        Mixed,
        "if from > 0 and units == cost then",
        "if false then",
    ),
    mutant(
        "changes_of_one_call_not_seen",
        ["several", "several"],
        Mixed,
        "one.state, one.rule = state[j], rule[j]",
        "one.rule = rule[j]",
    ),
    mutant(
        "refund_of_a_tuple_subtracts_only",
        ["several", "several"],
        Mixed,
        "member.consume_with_others or member.consume",
        "member.consume",
    ),
    // Two calls, one that reads and one that writes, with those of others between them: what is
    // decided on is what the call before found, which a second database keeps.
    mutant(
        "read_and_written_by_two_calls",
        TAIL,
        Saturating,
        "local texts = algorithm.load and not algorithm.texts and {} or redis.call('MGET', unpack(KEYS))",
        "redis.call('SELECT', 1)
  local texts = redis.call('MGET', unpack(KEYS))
  redis.call('SELECT', 0)
  local found = redis.call('MGET', unpack(KEYS))
  redis.call('SELECT', 1)
  for i, key in ipairs(KEYS) do
    if found[i] then
      redis.call('SET', key, found[i])
    end
  end
  redis.call('SELECT', 0)",
    ),
    mutant(
        "redisson_cost_left_out",
        JAVA,
        Mixed,
        "  if limiter.value < permits then\n    outcome, wait",
        "  if limiter.value < 1 then\n    outcome, wait",
    ),
    mutant(
        "redisson_expires_one_ms_early",
        JAVA,
        Edges,
        "and expired_count or 0, now - limiter.interval\n",
        "and expired_count or 0, now - limiter.interval + 1\n",
    ),
    mutant(
        "redisson_expires_one_ms_late",
        JAVA,
        Edges,
        "and expired_count or 0, now - limiter.interval\n",
        "and expired_count or 0, now - limiter.interval - 1\n",
    ),
    mutant(
        "redisson_waits_for_the_oldest_alone",
        JAVA,
        Edges,
        "wait_for(limiter, now, permits - limiter.value)",
        "wait_for(limiter, now, 1)",
    ),
    mutant(
        "redisson_waits_three_ms_more",
        JAVA,
        Edges,
        "math.max(1, math.min(math.ceil(score + limiter.interval - now), MAX_MILLIS))",
        "math.max(1, math.min(math.ceil(score + limiter.interval - now), MAX_MILLIS)) + 3",
    ),
    mutant(
        "redisson_release_leaves_the_member",
        JAVA,
        Mixed,
        "  write('ZREM', limiter.permits_key, member)\n",
        "",
    ),
    mutant(
        "redisson_member_is_time_alone",
        JAVA,
        Saturating,
        "local member = member_of(random, permits)",
        "local member = member_of(string.format('%016.0f', now), permits)",
    ),
    mutant(
        "redisson_charges_on_refusal",
        JAVA,
        Mixed,
        "outcome, wait = REFUSED, wait_for(limiter, now, permits - limiter.value)",
        "outcome, wait, limiter.value = REFUSED, wait_for(limiter, now, permits - limiter.value), limiter.value - 1",
    ),
];
