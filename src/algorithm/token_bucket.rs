//! Token bucket, also known as GCRA, or as the leaky bucket as a meter.
//!
//! It stores no count, but the instant at which it is full again: no step refills it, and no
//! remainder of a division is lost.
//!
//! The twin of `scripts/token_bucket.lua`.

use std::time::Duration;

use super::{
    Algorithm, Check, DEFAULT_HORIZON, Element, InLua, Mark, NO_STATE, Refund, Report, Take, Unit,
    YEAR, exact,
    in_lua::{StoredInstant, state_of, stored_instant},
    micros,
};
use crate::core::quota::{Quota, QuotaError, Quotas};

/// Admits units at a steady rate, and a burst at once: the generic cell rate algorithm, or the
/// leaky bucket as a meter.
///
/// **Bound.** The admissions within any stretch of time `d` sum to at most
/// `burst + d * limit / period` units.
///
/// **Cost.** One instant for each key: 151 bytes in Redis; 11 µs of script time alone, 2.5
/// in a batch of 64.
///
/// **Source.** The generic cell rate algorithm of ITU-T I.371, with times in exact fractions.
///
/// **Choose it** by default: it stores least, it smooths traffic, and it remembers debt. With
/// `burst(1)` and a `max_wait` it is the leaky bucket as a queue, with an even pace.
///
/// **Timeline.** At 5 per second, ten charges come at once, with a `max_wait` of half a second.
/// Five are admitted, two get slots at 200 and 400 ms, and three are denied: they would fit after
/// 600 ms.
///
/// ```
/// # use tower_sluice::algorithm::{Algorithm, Check, TokenBucket, Verdict::*};
/// # use tower_sluice::Quota;
/// let limit = TokenBucket::new(Quota::per_second(5));
/// let rule = limit.rule(limit.quota())?;
/// let mut state = None;
/// let mut check = |at: i64, cost, max_wait| {
///     let now = 1_767_225_600_000_000 + at;
///     TokenBucket::step(&rule, &mut state, now, Check::new(cost, max_wait)).verdict
/// };
/// let answers: Vec<_> = (0..10).map(|_| check(0, 1, 500_000)).collect();
/// assert_eq!(answers[..5], [Allow; 5]);
/// assert_eq!(answers[5..7], [Wait(200_000), Wait(400_000)]);
/// assert_eq!(answers[7..], [Deny(600_000); 3]);
/// # Ok::<(), tower_sluice::algorithm::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct TokenBucket {
    quota: Quota,
    horizon: Duration,
    max_debt: Duration,
}

impl TokenBucket {
    /// A bucket of the quota's capacity that refills by its limit per period.
    pub const fn new(quota: Quota) -> Self {
        Self { quota, horizon: DEFAULT_HORIZON, max_debt: YEAR }
    }

    horizon_setter! {
        /// A charge with a longer `max_wait` waits at most this long.
    }

    max_debt_setter!();
}

/// A burst takes `span + spare / unit.denominator` µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    unit: Unit,
    burst: i64,
    horizon: i64,
    max_debt: i64,
    span: i64,
    spare: i64,
}

impl Rule {
    /// The latest instant at which a bucket is full again that owes for `time`.
    #[inline]
    fn latest(&self, now: i64, time: i64) -> (i64, i64) {
        (now + time + self.span, self.spare)
    }

    #[inline]
    fn state(&self, full: (i64, i64), now: i64) -> State {
        let owes = full > self.latest(now, self.horizon);
        State { full: full.0, part: full.1, denominator: self.unit.denominator, owes }
    }
}

/// The instant at which the bucket is full again: `full + part / denominator` µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    full: i64,
    part: i64,
    denominator: i64,
    /// True if the last change left a debt that lasts longer than the horizon.
    owes: bool,
}

impl State {
    /// Converts the instant to this rule's denominator, rounded up if the state has another one.
    #[inline]
    fn rebase(self, rule: &Rule) -> (i64, i64) {
        if self.part > 0 && self.denominator != rule.unit.denominator {
            return (self.full + 1, 0);
        }
        (self.full, self.part)
    }
}

impl Algorithm for TokenBucket {
    type Rule = Rule;
    type State = State;

    fn refills(&self, _: usize) -> bool {
        true
    }

    of_one_quota!();

    fn rule(&self, quota: impl Into<Quotas>) -> Result<Rule, QuotaError> {
        let quota = quota.into().one()?;
        let (unit, burst) = (Unit::of(quota)?, exact(quota.burst_size()));
        let (span, spare) = unit.time(burst);
        let (horizon, max_debt) = (micros(self.horizon), micros(self.max_debt));
        Ok(Rule { unit, burst, horizon, max_debt, span, spare })
    }

    #[inline]
    fn expires_at(_rule: &Rule, state: &State) -> i64 {
        state.full + i64::from(state.part > 0)
    }

    #[inline]
    fn clamp(rule: &Rule, state: &State, now: i64) -> Option<State> {
        let latest = rule.latest(now, if state.owes { rule.max_debt } else { rule.horizon });
        (state.rebase(rule) > latest).then(|| rule.state(latest, now))
    }

    #[inline]
    fn earliest_fit(rule: &Rule, state: Option<&State>, at: i64, cost: i64) -> Option<i64> {
        if cost > rule.burst {
            return None;
        }
        let start = state.map_or((at, 0), |state| state.rebase(rule)).max((at, 0));
        let credit = rule.unit.time(rule.burst - cost);
        let instant = start.0 - credit.0 + i64::from(start.1 > credit.1);
        Some(instant.max(at))
    }

    #[inline]
    fn consume(rule: &Rule, state: Option<State>, take: Take<'_>) -> (State, Mark) {
        let Take { at, cost, now, has_others, .. } = take;
        let before = state.map(|state| state.rebase(rule));
        let start = before.map_or((at, 0), |before| before.max((at, 0)));
        let full = rule.unit.after(start, cost);
        let from = match has_others && at > now {
            true => before.map_or((NO_STATE, 0), |(full, part)| (full + 1, part)),
            false => (0, 0),
        };
        (rule.state(full, now), [full.0, full.1, from.0, from.1].into())
    }

    fn penalty(rule: &Rule, state: Option<&State>, now: i64, cost: i64) -> i64 {
        let from = state.map_or((now, 0), |state| state.rebase(rule)).max((now, 0));
        cost.min(rule.unit.between(from, rule.latest(now, rule.max_debt)))
    }

    fn give(rule: &Rule, state: &mut State, now: i64, units: i64) {
        *state = rule.state(rule.unit.before(state.rebase(rule), units, now), now);
    }

    #[inline]
    fn report(rule: &Rule, state: Option<&State>, now: i64) -> Report {
        let (full, part) = state.map_or((now, 0), |state| state.rebase(rule)).max((now, 0));
        let ahead = full - now;
        let remaining = if ahead > rule.span {
            0
        } else {
            (rule.burst * rule.unit.numerator - ahead * rule.unit.denominator - part).max(0)
                / rule.unit.numerator
        };
        Report { remaining, reset_after: ahead + i64::from(part > 0) }
    }

    fn apply_refund(rule: &Rule, state: &mut State, now: i64, refund: &Refund<'_>) -> Option<i64> {
        let (full, part) = state.rebase(rule);
        let [mark_full, mark_part, from, from_part] = refund.mark.first;
        if (full, part) != (mark_full, mark_part) {
            return None;
        }
        if from > 0 && refund.is_whole() {
            *state = rule.state((from - 1, from_part), now);
            return Some(refund.units);
        }
        if !refund.is_whole() {
            // Before its slot has come, no part is given back: a later charge could be admitted
            // before the slot.
            let (ahead, rest) =
                if from > 0 { rule.unit.time(refund.cost) } else { (rule.span, rule.spare) };
            if full - ahead + i64::from(part > rest) > now {
                return None;
            }
        }
        let time = rule.unit.time(refund.units);
        let borrow = i64::from(part < time.1);
        let full = (full - time.0 - borrow, part - time.1 + borrow * rule.unit.denominator);
        *state = rule.state(full, now);
        Some(refund.units)
    }
}

impl InLua for TokenBucket {
    const NAME: &'static str = "token_bucket";
    const TAG: &'static str = "tb1";
    const SCRIPT: &'static str = include_str!("../../scripts/token_bucket.lua");

    fn arguments(rule: &Rule, _: i64) -> Vec<i64> {
        let Rule { horizon, unit, burst, max_debt, .. } = *rule;
        vec![horizon, unit.numerator, unit.denominator, burst, max_debt]
    }

    /// A script has clamped the state. So if it owes for longer than the horizon, it has the mark.
    fn state(
        rule: &Rule,
        now: i64,
        _: Check<'_>,
        reply: &mut &[Element<'_>],
    ) -> Option<Option<State>> {
        state_of(reply, |[full, part]| {
            (part < rule.unit.denominator).then(|| rule.state((full, part), now))
        })
    }

    fn short_state(rule: &Rule, now: i64, number: i64) -> Option<Option<State>> {
        Some((number > 0).then(|| rule.state((number, 0), now)))
    }

    fn stored(_: &Rule, text: &str) -> Option<State> {
        let StoredInstant { full, part, denominator, owes } = stored_instant(text)?;
        Some(State { full, part, denominator, owes })
    }
}

#[cfg(test)]
mod tests;
