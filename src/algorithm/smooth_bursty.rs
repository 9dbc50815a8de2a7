//! Smooth bursty: pacing with a store of unused permits, as Guava's `RateLimiter` has it.
//!
//! Permits appear one by one. Unused permits are stored, up to a burst. A charge is admitted as
//! soon as the charges before it are paid for, and the next caller waits for its debt. So an idle
//! limiter admits any cost at once. With [`wait_for_own_cost`](SmoothBursty::wait_for_own_cost)
//! each caller waits for its own permits.
//!
//! The twin of `scripts/smooth_bursty.lua`.

use std::time::Duration;

use super::{
    Algorithm, DEFAULT_HORIZON, Element, INEXACT, InLua, Mark, Refund, Report, clamped_horizon,
    exact, in_lua::state_of, micros, sealed::Sealed, sealed::Single, without_burst,
};
use crate::quota::{Quota, QuotaError, Quotas};

/// Paces as Guava's `RateLimiter` does: permits come one by one, and some are stored. A charge may
/// take more than there are, and the next caller waits until that debt is paid.
///
/// **Bound.** Between any two admissions, the stored permits and those of the time between:
/// `(max_burst + d) * limit / period`, and one charge more. With `wait_for_own_cost` the last
/// charge is within that too, to a permit.
///
/// **Cost.** A credit and two instants for each key: 213 bytes in Redis; 34 µs of script time
/// alone, 7.8 in a batch of 64.
///
/// **Source.** `SmoothRateLimiter.SmoothBursty` of Guava.
///
/// **Choose it** where an expensive charge should pass at once and delay the next one, or to agree
/// with services that use Guava. Where each caller should wait for its own permits:
/// [`wait_for_own_cost`](SmoothBursty::wait_for_own_cost).
///
/// **Timeline.** At 5 per second, five permits are stored. A charge of three leaves two. A charge
/// of four takes these and two that are still to come, for which the next caller waits 400 ms.
///
/// ```
/// # use tower_sluice::algorithm::{Algorithm, Check, SmoothBursty, Verdict::*};
/// # use tower_sluice::Quota;
/// let limit = SmoothBursty::new(Quota::per_second(5));
/// let rule = limit.rule(limit.quota())?;
/// let mut state = None;
/// let mut check = |at: i64, cost, max_wait| {
///     let now = 1_767_225_600_000_000 + at;
///     SmoothBursty::step(&rule, &mut state, now, Check { cost, max_wait }).verdict
/// };
/// assert_eq!([check(0, 3, 0), check(0, 4, 0)], [Allow; 2]);
/// assert_eq!(check(0, 1, 0), Deny(400_000));
/// assert_eq!(check(0, 1, 500_000), Wait(400_000));
/// # Ok::<(), tower_sluice::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmoothBursty {
    quota: Quota,
    horizon: Duration,
    burst: Duration,
    own_cost: bool,
    full: bool,
}

impl SmoothBursty {
    /// A pace of the quota's limit per period, which stores the permits of a second.
    ///
    /// [`max_burst`](SmoothBursty::max_burst) sets what it stores, not the quota's burst: a quota
    /// whose burst differs from its limit is an error when the limiter is built.
    #[must_use]
    pub const fn new(quota: Quota) -> Self {
        let burst = Duration::from_secs(1);
        Self { quota, horizon: DEFAULT_HORIZON, burst, own_cost: false, full: true }
    }

    /// Sets how long an idle limiter stores permits. Default: 1 s.
    #[must_use]
    pub const fn max_burst(self, burst: Duration) -> Self {
        Self { burst, ..self }
    }

    /// Begins with no permits stored, as a new limiter of Guava does. Default: with all, since a
    /// key is forgotten when it is full.
    #[must_use]
    pub const fn start_empty(self) -> Self {
        Self { full: false, ..self }
    }

    /// Lets each caller wait for its own permits instead of its predecessors'. Default: for theirs.
    ///
    /// A charge then fits only once it is paid for, so its cost counts in the test of its
    /// `max_wait`. One that costs more than the store never fits unless it may wait for the rest:
    /// it is denied without a time to come back. A key then starts full, and a store of less than
    /// one permit is refused: without a `max_wait` no charge would ever pass.
    #[must_use]
    pub const fn wait_for_own_cost(self) -> Self {
        Self { own_cost: true, ..self }
    }

    /// A [`max_wait`](crate::Charge::max_wait) in proportion to the store: `ratio` times
    /// [`max_burst`](SmoothBursty::max_burst). A usual ratio is 0.5.
    ///
    /// With `wait_for_own_cost`, at most that share of the stored permits is then waited for at a
    /// time.
    #[must_use]
    pub fn cache(&self, ratio: f64) -> Duration {
        Duration::try_from_secs_f64(self.burst.as_secs_f64() * ratio).unwrap_or_default()
    }

    /// Sets the longest wait that is reserved for any charge, at most 365 days. Default: 60 s.
    ///
    /// A charge with a longer `max_wait` waits this long at most.
    #[must_use]
    pub const fn horizon(self, horizon: Duration) -> Self {
        Self { horizon: clamped_horizon(horizon), ..self }
    }
}

/// A permit takes `unit_numerator / unit_denominator` µs. The permits of `burst` µs are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    unit_denominator: i64,
    unit_numerator: i64,
    burst: i64,
    cap: i64,
    own_cost: bool,
    full: bool,
    horizon: i64,
}

impl Rule {
    /// Returns true if the state was kept under this rule's rate.
    fn has_rate_of(&self, state: &State) -> bool {
        (state.unit_denominator, state.unit_numerator)
            == (self.unit_denominator, self.unit_numerator)
    }

    /// The state under this rule's rate, with the permits stored since: credit and next.
    fn resynced(&self, state: Option<&State>, now: i64) -> (i64, i64) {
        let Some(state) = state else { return (if self.full { self.cap } else { 0 }, now) };
        let (mut credit, mut next) = (state.credit, state.next);
        if !self.has_rate_of(state) {
            let (before, after) = (state.unit_denominator, self.unit_denominator);
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
                credit += (now - next) * self.unit_denominator;
            }
            next = now;
        }
        (credit.min(self.cap), next)
    }

    /// The time that a cost takes beyond the credit, in whole µs.
    fn debt(&self, credit: i64, cost: i64) -> i64 {
        (cost * self.unit_numerator - credit).max(0) / self.unit_denominator
    }
}

/// The credit in µs over the denominator, and the instant from which no charge waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    credit: i64,
    next: i64,
    unit_denominator: i64,
    unit_numerator: i64,
    last: i64,
    /// For a refund of the charge that wrote this state: the credit before it, and what it added to
    /// `next`, for its debt and for a later start.
    before: i64,
    added: i64,
    shift: i64,
}

impl Sealed for SmoothBursty {}
impl Single for SmoothBursty {}

impl Algorithm for SmoothBursty {
    type Rule = Rule;
    type State = State;

    fn quota(&self) -> Quotas {
        self.quota.into()
    }

    /// Reports what it stores as the burst, and 1 at least: a charge passes though nothing is
    /// stored.
    fn reported(&self, _: usize, quota: Quota) -> Quota {
        let micros = quota.period().as_micros();
        let stored = self.burst.as_micros().saturating_mul(quota.limit().into()) / micros;
        quota.try_burst(u64::try_from(stored).unwrap_or(u64::MAX).max(1)).unwrap_or(quota)
    }

    fn rule(&self, quota: impl Into<Quotas>) -> Result<Rule, QuotaError> {
        let quota = without_burst(quota, "a pace has no burst but what it stores: see max_burst")?;
        let (numerator, denominator) = quota.unit();
        let cap = self.burst.as_micros().saturating_mul(denominator.into());
        if cap > 1 << 52 {
            return Err(QuotaError(
                "max_burst * r exceeds 2^52, where r is the denominator of the reduced fraction period / limit",
            ));
        }
        if self.own_cost && cap < numerator.into() {
            return Err(QuotaError("a store of less than one permit"));
        }
        Ok(Rule {
            unit_denominator: exact(denominator),
            unit_numerator: exact(numerator),
            burst: micros(self.burst),
            cap: cap as i64,
            own_cost: self.own_cost,
            full: self.full || self.own_cost,
            horizon: micros(self.horizon),
        })
    }

    fn horizon(rule: &Rule) -> i64 {
        rule.horizon
    }

    fn least_wait(rule: &Rule, cost: i64) -> i64 {
        if rule.own_cost { rule.debt(rule.cap, cost) } else { 0 }
    }

    fn expires_at(rule: &Rule, state: &State) -> i64 {
        let (credit, next) = rule.resynced(Some(state), state.next);
        next + (rule.cap - credit + rule.unit_denominator - 1) / rule.unit_denominator
    }

    fn clamp(_rule: &Rule, state: &State, now: i64) -> Option<State> {
        let next = (state.next - (state.last - now)).max(0);
        (now < state.last).then_some(State { next, last: now, ..*state })
    }

    fn earliest_fit(rule: &Rule, state: Option<&State>, at: i64, cost: i64) -> Option<i64> {
        if i128::from(cost) * i128::from(rule.unit_numerator) >= i128::from(INEXACT) {
            return None;
        }
        let (credit, mut next) = rule.resynced(state, at);
        if rule.own_cost {
            next = (next + rule.debt(credit, cost)).min(INEXACT - 1);
        }
        Some(next.max(at))
    }

    fn consume(rule: &Rule, state: Option<State>, at: i64, cost: i64, now: i64) -> State {
        let (before, next) = rule.resynced(state.as_ref(), now);
        let debt = rule.debt(before, cost);
        // A charge that also waits for another quota starts later, and nothing is stored meanwhile.
        let due = next + if rule.own_cost { debt } else { 0 };
        let shift = (at - due).max(0);
        let added = debt.min(INEXACT - 1 - next - shift);
        State {
            credit: before + rule.debt(before, cost) * rule.unit_denominator
                - cost * rule.unit_numerator,
            next: next + shift + added,
            unit_denominator: rule.unit_denominator,
            unit_numerator: rule.unit_numerator,
            last: now,
            before,
            added,
            shift,
        }
    }

    fn max_unchecked_cost(rule: &Rule) -> i64 {
        (INEXACT - 1) / rule.unit_numerator
    }

    fn report(rule: &Rule, state: Option<&State>, now: i64) -> Report {
        let (credit, next) = rule.resynced(state, now);
        let ahead = (next - now).max(0);
        let remaining = match (ahead, rule.own_cost) {
            (0, true) => {
                (credit + rule.unit_denominator - 1).div_euclid(rule.unit_numerator).max(0)
            }
            (0, false) => credit.div_euclid(rule.unit_numerator).max(1),
            _ => 0,
        };
        let full = if rule.full {
            (rule.cap - credit + rule.unit_denominator - 1) / rule.unit_denominator
        } else {
            0
        };
        Report { remaining, reset_after: ahead + full }
    }

    fn apply_refund(rule: &Rule, state: &mut State, _now: i64, refund: &Refund<'_>) -> Option<i64> {
        let [next, before, added, shift] = refund.mark.first;
        let before = before - rule.unit_denominator;
        let after = before + added * rule.unit_denominator - refund.cost * rule.unit_numerator;
        if !rule.has_rate_of(state) || (state.next, state.credit) != (next, after) {
            return None;
        }
        let (mut credit, mut next) = (before, state.next - added - shift);
        if !refund.is_whole() {
            // The slot is kept, so a charge that waited for its own cost gives no time back.
            let debt = rule.debt(before, refund.kept());
            credit += debt * rule.unit_denominator - refund.kept() * rule.unit_numerator;
            next = if rule.own_cost { state.next } else { state.next - added + debt };
        }
        *state = State { credit, next, before: 0, added: 0, shift: 0, ..*state };
        Some(refund.units)
    }

    fn mark(state: &State) -> Mark {
        [state.next, state.before + state.unit_denominator, state.added, state.shift].into()
    }
}

impl InLua for SmoothBursty {
    const NAME: &'static str = "smooth_bursty";
    const TAG: &'static str = "sb1";
    const SCRIPT: &'static str = include_str!("../../scripts/smooth_bursty.lua");

    fn state_elements(_rule: &Rule) -> usize {
        5
    }

    fn arguments(rule: &Rule) -> Vec<i64> {
        let Rule { unit_denominator, unit_numerator, burst, own_cost, full, horizon, .. } = *rule;
        vec![horizon, unit_denominator, unit_numerator, burst, i64::from(own_cost), i64::from(full)]
    }

    fn state(
        _rule: &Rule,
        _now: i64,
        _cost: i64,
        elements: &[Element<'_>],
    ) -> Option<Option<State>> {
        state_of(elements, |[next, credit, unit_denominator, unit_numerator, last]| {
            // A credit may be a little below nothing, so it is sent with one denominator more.
            let credit = credit - unit_denominator;
            let (before, added, shift) = (0, 0, 0);
            (unit_denominator > 0 && unit_numerator > 0).then_some(State {
                credit,
                next,
                unit_denominator,
                unit_numerator,
                last,
                before,
                added,
                shift,
            })
        })
    }
}

#[cfg(test)]
mod tests;
