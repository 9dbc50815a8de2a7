//! Smooth bursty: pacing with a store of unused permits, like Guava's `RateLimiter`.
//!
//! The twin of `scripts/smooth_bursty.lua`.

use std::time::Duration;

use super::in_lua::{integer, state_of, stored_pace};
use super::{
    Algorithm, Check, DEFAULT_HORIZON, Element, INEXACT, InLua, Mark, Refund, Report, Take, Unit,
    YEAR, micros, verdict::kept, without_burst,
};
use crate::core::quota::{Quota, QuotaError, Quotas};

/// Paces like Guava's `RateLimiter`: permits come one by one, and some are stored. A charge may
/// take more permits than are stored. No later charge fits until that debt is paid.
///
/// **Bound.** Within any stretch of time `d`, at most the stored permits and those of that time:
/// `(max_burst + d) * limit / period`, and one charge more. With `wait_for_own_cost` the last
/// charge is within that sum too, up to one permit.
///
/// **Cost.** A credit and two instants for each key: 213 bytes in Redis; 20 µs of script time
/// alone, 6.1 in a batch of 64.
///
/// **Source.** `SmoothRateLimiter.SmoothBursty` of Guava.
///
/// **Choose it** if an expensive charge should pass at once and delay the next one, or to decide
/// like services that use Guava. With [`wait_for_own_cost`](SmoothBursty::wait_for_own_cost), each
/// caller waits for its own permits.
///
/// **Timeline.** At 5 per second, five permits are stored. A charge of three leaves two. A charge
/// of four takes these two and two future ones, for which the next caller waits 400 ms.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct SmoothBursty {
    quota: Quota,
    horizon: Duration,
    max_debt: Duration,
    burst: Duration,
    own_cost: bool,
    full: bool,
}

impl SmoothBursty {
    /// A pace of the quota's limit per period, which stores the permits of one second.
    ///
    /// [`max_burst`](SmoothBursty::max_burst) sets how many permits it stores. The quota's burst
    /// does not: a quota whose burst differs from its limit is an error when the limiter is built.
    pub const fn new(quota: Quota) -> Self {
        let (horizon, burst) = (DEFAULT_HORIZON, Duration::from_secs(1));
        Self { quota, horizon, max_debt: YEAR, burst, own_cost: false, full: true }
    }

    /// Sets for how long an idle limiter stores permits. Default: 1 s.
    pub const fn max_burst(self, burst: Duration) -> Self {
        Self { burst, ..self }
    }

    /// Begins with no permits stored, as a new limiter of Guava does. Default: with all permits,
    /// since a key is forgotten when it is full. A charge that keeps units free finds a key full
    /// that nobody has charged before.
    pub const fn start_empty(self) -> Self {
        Self { full: false, ..self }
    }

    /// Makes each caller wait for its own permits, not for those of the callers before it. Default:
    /// each waits for the permits of those before it.
    ///
    /// A charge then fits only once it is paid for, so its `max_wait` must cover its own cost too.
    /// Otherwise one that costs more than the store holds never fits. A key then starts full. A
    /// store of less than one permit is an error: without a `max_wait` no charge would ever pass.
    pub const fn wait_for_own_cost(self) -> Self {
        Self { own_cost: true, ..self }
    }

    /// Returns a [`max_wait`](crate::Charge::max_wait) in proportion to the store: `ratio` times
    /// [`max_burst`](SmoothBursty::max_burst). A usual ratio is 0.5.
    #[must_use]
    pub fn cache(&self, ratio: f64) -> Duration {
        Duration::try_from_secs_f64(self.burst.as_secs_f64() * ratio).unwrap_or_default()
    }

    horizon_setter! {
        /// A charge with a longer `max_wait` waits at most this long.
    }

    max_debt_setter!();
}

/// The permits of `burst` µs are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    unit: Unit,
    burst: i64,
    cap: i64,
    own_cost: bool,
    full: bool,
    horizon: i64,
    max_debt: i64,
}

impl Rule {
    fn starting_full(&self) -> Self {
        Self { full: true, ..*self }
    }

    /// Converts the state to this rule's rate, and adds the permits stored since: credit and next.
    fn resynced(&self, state: Option<&State>, now: i64) -> (i64, i64) {
        let Some(state) = state else { return (if self.full { self.cap } else { 0 }, now) };
        let (mut credit, mut next) = (state.credit, state.next);
        if self.unit != state.unit {
            let (before, after) = (state.unit.denominator, self.unit.denominator);
            let (whole, rest) = (credit.div_euclid(before), credit.rem_euclid(before));
            credit = whole.min(self.burst) * after;
            if i128::from(before) * i128::from(after) < i128::from(INEXACT) {
                credit += rest * after / before;
            }
        }
        if now > next {
            if now - next > self.burst {
                credit = self.cap;
            } else {
                credit += (now - next) * self.unit.denominator;
            }
            next = now;
        }
        (credit.min(self.cap), next)
    }

    /// The time until `units` are stored, from a credit on. `None` if the store never has as many.
    ///
    /// A caller who waits for its own permits waits as long for these.
    fn time_to_store(&self, credit: i64, units: i64) -> Option<i64> {
        let time = |from: i64| {
            let lacks = i128::from(units) * i128::from(self.unit.numerator) - i128::from(from);
            let up = if self.own_cost { 0 } else { self.unit.denominator - 1 };
            (lacks.max(0) + i128::from(up)) / i128::from(self.unit.denominator)
        };
        (time(self.cap) == 0).then(|| time(credit) as i64)
    }

    fn filled(&self, credit: i64, time: i64) -> i64 {
        (credit + time * self.unit.denominator).min(self.cap)
    }

    /// The time of the part of a cost that exceeds the credit, in whole µs.
    fn debt(&self, credit: i64, cost: i64) -> i64 {
        (cost * self.unit.numerator - credit).max(0) / self.unit.denominator
    }
}

/// The credit in µs over the denominator, and the instant from which no charge waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    credit: i64,
    next: i64,
    unit: Unit,
    last: i64,
}

impl Algorithm for SmoothBursty {
    type Rule = Rule;
    type State = State;

    of_one_quota!();

    /// Reports the stored permits as the burst, and at least 1: a charge passes even if nothing is
    /// stored.
    fn reported(&self, _: usize, quota: Quota, _: i64) -> Quota {
        let micros = quota.period().as_micros();
        let stored = self.burst.as_micros().saturating_mul(quota.limit().into()) / micros;
        quota.try_burst(u64::try_from(stored).unwrap_or(u64::MAX).max(1)).unwrap_or(quota)
    }

    fn rule(&self, quota: impl Into<Quotas>) -> Result<Rule, QuotaError> {
        let quota = without_burst(quota, "a pace has no burst: max_burst sets its store")?;
        let unit = Unit::of(quota)?;
        let cap = self.burst.as_micros().saturating_mul(unit.denominator.unsigned_abs().into());
        if cap > 1 << 52 {
            return Err(QuotaError(
                "max_burst * r exceeds 2^52, where r is the denominator of the reduced fraction period / limit",
            ));
        }
        if self.own_cost && cap < unit.numerator.unsigned_abs().into() && !unit.is_none() {
            return Err(QuotaError("a store of less than one permit"));
        }
        Ok(Rule {
            unit,
            burst: micros(self.burst),
            cap: cap as i64,
            own_cost: self.own_cost,
            full: self.full || self.own_cost,
            horizon: micros(self.horizon),
            max_debt: micros(self.max_debt),
        })
    }

    fn least_wait(rule: &Rule, cost: i64) -> i64 {
        if rule.own_cost { rule.debt(rule.cap, cost) } else { 0 }
    }

    fn expires_at(rule: &Rule, state: &State) -> i64 {
        let (credit, next) = rule.resynced(Some(state), state.next);
        next + (rule.cap - credit + rule.unit.denominator - 1) / rule.unit.denominator
    }

    fn clamp(_rule: &Rule, state: &State, now: i64) -> Option<State> {
        let next = (state.next - (state.last - now)).max(0);
        (now < state.last).then_some(State { next, last: now, ..*state })
    }

    fn earliest_fit(rule: &Rule, state: Option<&State>, at: i64, cost: i64) -> Option<i64> {
        if i128::from(cost) * i128::from(rule.unit.numerator) >= i128::from(INEXACT) {
            return None;
        }
        let (credit, mut next) = rule.resynced(state, at);
        if rule.own_cost {
            next = (next + rule.debt(credit, cost)).min(INEXACT - 1);
        }
        Some(next.max(at))
    }

    /// Without units that stay free, nothing is awaited but the debt of the charges before. With
    /// them, their permits and those of the cost must be stored.
    fn fit_keeping(
        rule: &Rule,
        state: Option<&State>,
        at: i64,
        cost: i64,
        keep_free: &[i64],
    ) -> Option<i64> {
        if kept(keep_free) == 0 {
            return Self::earliest_fit(rule, state, at, cost);
        }
        // A refusal writes no state, so that an empty key would stay empty.
        let (credit, next) = rule.starting_full().resynced(state, at);
        Some(next.max(at) + rule.time_to_store(credit, cost.saturating_add(kept(keep_free)))?)
    }

    fn consume(rule: &Rule, state: Option<State>, take: Take<'_>) -> (State, Mark) {
        let Take { at, cost, now, keep_free, .. } = take;
        let kept = kept(keep_free);
        let start = if kept > 0 { rule.starting_full() } else { *rule };
        let (credit, from) = start.resynced(state.as_ref(), now);
        // The time for which the store fills before the charge is admitted.
        let filled = match kept {
            0 => 0,
            kept => rule.time_to_store(credit, cost + kept).unwrap_or(0),
        };
        let (before, next) = (rule.filled(credit, filled), from + filled);
        let debt = rule.debt(before, cost);
        // A charge that also waits for another quota starts later, and no permits are stored
        // meanwhile.
        let due = next + if rule.own_cost { debt } else { 0 };
        let shift = (at - due).max(0);
        let added = debt.min(INEXACT - 1 - next - shift);
        let next = next + shift + added;
        let state = State {
            credit: before + debt * rule.unit.denominator - cost * rule.unit.numerator,
            next,
            unit: rule.unit,
            last: now,
        };
        // For a refund, the mark holds the credit before, and the time added to `next`: for the
        // debt, and for a later start. A credit may be slightly below 0, so one denominator is
        // added. The time for which the store filled is below 0: then there is no debt.
        let added = if filled > 0 { -filled } else { added };
        (state, [next, credit + rule.unit.denominator, added, shift].into())
    }

    fn penalty(rule: &Rule, state: Option<&State>, now: i64, cost: i64) -> i64 {
        let (credit, next) = rule.resynced(state, now);
        let (denominator, room) = (rule.unit.denominator, now + rule.max_debt - next);
        let time = room.clamp(0, (INEXACT - 1) / denominator) * denominator;
        let exact = INEXACT - 1 + credit.min(0);
        let units = (time + denominator - 1 + credit).min(exact) / rule.unit.numerator;
        if room < 0 { 0 } else { cost.min(units) }
    }

    /// Stores permits as if the time of the units had passed. Under a quota of 0 no time brings a
    /// permit.
    fn give(rule: &Rule, state: &mut State, now: i64, units: i64) {
        if rule.unit.is_none() {
            return;
        }
        let (credit, next) = rule.resynced(Some(state), now);
        let (time, rest) = rule.unit.time(rule.unit.exact_units(units));
        let filled = (time - (next - now)).clamp(0, rule.burst);
        let credit = (credit + filled * rule.unit.denominator + rest).min(rule.cap);
        *state = State { credit, next: (next - time).max(now), unit: rule.unit, last: now };
    }

    fn report(rule: &Rule, state: Option<&State>, now: i64) -> Report {
        let (credit, next) = rule.resynced(state, now);
        let ahead = (next - now).max(0);
        let remaining = match (ahead, rule.own_cost) {
            (0, true) => {
                (credit + rule.unit.denominator - 1).div_euclid(rule.unit.numerator).max(0)
            }
            (0, false) if !rule.unit.is_none() => credit.div_euclid(rule.unit.numerator).max(1),
            _ => 0,
        };
        let full = if rule.full {
            (rule.cap - credit + rule.unit.denominator - 1) / rule.unit.denominator
        } else {
            0
        };
        Report { remaining, reset_after: ahead + full }
    }

    fn apply_refund(rule: &Rule, state: &mut State, _now: i64, refund: &Refund<'_>) -> Option<i64> {
        let [next, before, added, shift] = refund.mark.first;
        let credit_before = before - rule.unit.denominator;
        let filled = (-added).max(0);
        let (before, added) = (rule.filled(credit_before, filled), added.max(0));
        // The added time may be less than that of the debt, so that it is exact.
        let debt = rule.debt(before, refund.cost);
        let after = before + debt * rule.unit.denominator - refund.cost * rule.unit.numerator;
        if rule.unit != state.unit || (state.next, state.credit) != (next, after) {
            return None;
        }
        let (mut credit, mut next) = (credit_before, state.next - added - shift - filled);
        if !refund.is_whole() {
            credit = before;
            // The slot is kept, so a charge that waited for its own cost gives no time back.
            let debt = rule.debt(before, refund.kept());
            credit += debt * rule.unit.denominator - refund.kept() * rule.unit.numerator;
            next = if rule.own_cost { state.next } else { state.next - added + debt.min(added) };
        }
        *state = State { credit, next, ..*state };
        Some(refund.units)
    }
}

impl InLua for SmoothBursty {
    const NAME: &'static str = "smooth_bursty";
    const TAG: &'static str = "sb1";
    const SCRIPT: &'static str = include_str!("../../scripts/smooth_bursty.lua");

    fn arguments(rule: &Rule, _: i64) -> Vec<i64> {
        let Rule { unit, burst, horizon, max_debt, .. } = *rule;
        let (own_cost, full) = (i64::from(rule.own_cost), i64::from(rule.full));
        vec![horizon, unit.denominator, unit.numerator, burst, own_cost, full, max_debt]
    }

    fn state(_: &Rule, _: i64, _: Check<'_>, reply: &mut &[Element<'_>]) -> Option<Option<State>> {
        state_of(reply, |[next, credit, denominator, numerator, last]| {
            let unit = Unit::sent(numerator, denominator)?;
            // A credit may be slightly below 0, so one denominator is added when it is sent.
            Some(State { credit: credit - denominator, next, unit, last })
        })
    }

    fn stored(_: &Rule, text: &str) -> Option<State> {
        let (credit, rest) = text.split_once(':')?;
        let (next, unit, last) = stored_pace(rest)?;
        let credit = match credit.strip_prefix('-') {
            Some(digits) => {
                -integer(digits).filter(|below| (1..=unit.denominator).contains(below))?
            }
            None => integer(credit)?,
        };
        Some(State { credit, next, unit, last })
    }
}

#[cfg(test)]
mod tests;
