//! Mutants of the scripts: one edit each, and the judge that must notice.

use super::judges::Judge::{self, *};

/// A one-line edit of a script.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    /// The algorithm that is judged.
    pub(crate) algorithm: &'static str,
    pub(crate) judge: Judge,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

const fn mutant(
    name: &'static str,
    algorithm: &'static str,
    judge: Judge,
    from: &'static str,
    to: &'static str,
) -> Mutant {
    Mutant { name, algorithm, judge, from, to }
}

const BUCKET: &str = "token_bucket";
const WINDOW: &str = "fixed_window";
const LOG: &str = "sliding_log";
const CELLS: &str = "sliding_window";
const COUNTER: &str = "sliding_counter";
const BURSTY: &str = "smooth_bursty";
const JAVA: &str = "redisson";
const BUDGET: &str = "budget";
const WARM: &str = "smooth_warming_up";

pub(crate) const MUTANTS: [Mutant; 56] = [
    mutant("released_and_not_spent", BUDGET, Held, "if back < cost then", "if back > cost then"),
    mutant(
        "a_hold_lives_for_one_era",
        BUDGET,
        Held,
        "current, former = 0, current",
        "current, former = 0, 0",
    ),
    mutant(
        "an_era_ends_late",
        BUDGET,
        Held,
        "while begin + max_hold <= now do",
        "while begin + max_hold < now do",
    ),
    mutant(
        "spent_when_it_is_found",
        BUDGET,
        Held,
        "full, part, begin, math.min(former, burst)",
        "full, part, now, math.min(former, burst)",
    ),
    mutant(
        "settled_too_late",
        BUDGET,
        Held,
        "elseif since + max_hold == begin then",
        "elseif since < begin then",
    ),
    mutant(
        "only_this_era_counts",
        BUDGET,
        Held,
        "local room = burst - cost - current - former",
        "local room = burst - cost - current",
    ),
    mutant(
        "a_wait_for_a_settlement",
        BUDGET,
        Held,
        "if wait <= max_wait and not unsettled then",
        "if wait <= max_wait then",
    ),
    mutant(
        "a_debt_is_cut_at_the_horizon",
        BUDGET,
        Held,
        "local last = now + (owes and max_debt or horizon) +",
        "local last = now + horizon +",
    ),
    mutant("no_mark_of_a_debt", BUDGET, Held, "owes and '-' or ''", "''"),
    mutant(
        "what_others_hold_may_be_owed_too",
        BUDGET,
        Held,
        "full, part, now, spent, unit_numerator, unit_denominator)",
        "full, part, now, cost - back, unit_numerator, unit_denominator)",
    ),
    mutant(
        "state_through_tostring",
        BUCKET,
        Mixed,
        "value = format('%s%d+%d/%d', sign, full, part, denominator)",
        "value = tostring(full)",
    ),
    mutant(
        "capacity_plus_one",
        BUCKET,
        Saturating,
        "instant = full + time - span",
        "instant = full + time - span - math.floor(unit_numerator / unit_denominator)",
    ),
    mutant(
        "less_for_less_or_equal",
        BUCKET,
        Edges,
        "if wait <= max_wait then",
        "if wait < max_wait then",
    ),
    mutant(
        "a_reset_keeps_the_birth",
        CELLS,
        Reset,
        "birth = math.max(now, (birth or 0) + 1)",
        "birth = birth",
    ),
    mutant(
        "births_of_one_microsecond_are_alike",
        WINDOW,
        Reset,
        "birth = math.max(now, (birth or 0) + 1)",
        "birth = now",
    ),
    mutant("a_refund_of_any_birth", COUNTER, Reset, "and (birth or 0) == born[1] then", "then"),
    mutant(
        "the_birth_of_a_log_is_not_kept",
        LOG,
        Reset,
        "why = failure('ZADD', key, 'inf', format('reset:%d', birth))",
        "why = nil",
    ),
    mutant(
        "cells_compared_after_they_moved",
        CELLS,
        Reset,
        "if newest * cell_width > now + horizon then",
        "if math.floor(((newest + 1) * cell_width - 1) / width) * width > now + horizon then",
    ),
    mutant(
        "window_full_one_early",
        WINDOW,
        Mixed,
        "if units + cost > limit then",
        "if units + cost >= limit then",
    ),
    mutant(
        "remainder_dropped",
        BUCKET,
        Mixed,
        "full + time, part + rest, unit_denominator",
        "full + time, part, unit_denominator",
    ),
    mutant(
        "weight_floored",
        COUNTER,
        Mixed,
        "(room * period - room * period % before) / before",
        "(room * period - room * period % before) / before + 1",
    ),
    mutant(
        "expiry_too_soon",
        BUCKET,
        Expiry,
        "'PXAT', ceil((expires_at + SPARE) / 1000)",
        "'PXAT', ceil((expires_at - 20000) / 1000)",
    ),
    mutant(
        "no_expiry",
        BUCKET,
        Expiry,
        "pcall('SET', key, value, unit, expiry, 'NX')",
        "pcall('SET', key, value, 'NX')",
    ),
    mutant(
        "log_without_expiry",
        "sliding_log",
        Expiry,
        "redis.call('PEXPIREAT', key, ceil((expires_at + SPARE) / 1000))",
        "expires_at = nil",
    ),
    mutant(
        "in_place_beyond_its_expiry",
        BUCKET,
        Expiry,
        "plain - plain % SPARE == number - number % SPARE",
        "true",
    ),
    mutant(
        "two_readings_of_the_clock",
        BUCKET,
        Saturating,
        "local wait, instant = 0, nil",
        "now = clock('')\nlocal wait, instant = 0, nil",
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
        "instant = full + time - span",
        "instant = full + math.floor(unit_numerator / unit_denominator) - span",
    ),
    mutant(
        "charge_on_refusal",
        BUCKET,
        Mixed,
        "elseif clamped then",
        "else\nfull = (full or now) + time",
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
        "redis.call('ZCOUNT', key, '-inf', now - period)",
        "redis.call('ZCOUNT', key, '-inf', now - period / 2)",
    ),
    mutant(
        "any_number_read",
        BUCKET,
        Corrupt,
        "local number = tonumber(text)\n",
        "local number = tonumber(text) or 0\n  if true then return number end\n",
    ),
    mutant(
        "number_of_another_form_read",
        BUCKET,
        Corrupt,
        "and format('%d', number) == text then",
        "then",
    ),
    mutant(
        "full_refund_although_others_followed",
        BUCKET,
        Mixed,
        "if full == mark1 and part == mark2 then",
        "if true then",
    ),
    mutant(
        "refund_of_an_older_member",
        LOG,
        Mixed,
        "last and last.at == mark1 and last.lap == mark2 and last.total == mark3",
        "last",
    ),
    mutant(
        "n_cells_for_n_plus_one",
        CELLS,
        Mixed,
        "for i = cell - newest + 1, cells + 1 do",
        "for i = cell - newest + 2, cells + 1 do",
    ),
    mutant("no_clamp", BUCKET, Clock, "if full >= last and", "if false and"),
    mutant("no_clamp_of_the_log", LOG, Clock, "log.last.at > now + horizon", "false"),
    mutant("deny_everything", BUCKET, Use, "wait = instant - now", "wait = instant + 1 - now"),
    mutant(
        "horizon_ignored",
        BUCKET,
        Edges,
        "math.min(ARGV[a + 1] + 0, horizon)",
        "ARGV[a + 1] + 0",
    ),
    mutant(
        "owed_fraction_forgotten",
        BURSTY,
        Mixed,
        "credit = has + debt * unit_denominator - cost * unit_numerator",
        "credit = math.max(0, has + debt * unit_denominator - cost * unit_numerator)",
    ),
    mutant(
        "own_cost_for_the_next_callers",
        "smooth_bursty_own_debt",
        Mixed,
        "if own_cost == 1 then",
        "if false then",
    ),
    mutant("warm_is_never_cold", WARM, Mixed, "if above > 0 then", "if false then"),
    mutant(
        "taken_although_another_refuses",
        "several",
        Mixed,
        "elseif instant_2 > fits_at then",
        "else",
    ),
    mutant(
        "left_at_the_slot_of_another",
        "several",
        Mixed,
        "if mark3 > 0 and back == cost then",
        "if false then",
    ),
    mutant(
        "changes_of_one_call_not_seen",
        BUCKET,
        Saturating,
        "for _ = 1, repeats do\n",
        "for _ = 1, repeats do\nfull, part = full_before, part_before\n",
    ),
    mutant(
        "refund_of_a_tuple_not_stored",
        "several",
        Mixed,
        "kept_1 = kept_1 or refunded_1 ~= nil or any and clamped_1",
        "kept_1 = kept_1 or any and clamped_1",
    ),
    // Two calls, one that reads and one that writes, with those of others between them: what is
    // decided on is what the call before found, which a second database keeps.
    mutant(
        "read_and_written_by_two_calls",
        BUCKET,
        Saturating,
        "local texts = redis.call('MGET', unpack(KEYS))",
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
