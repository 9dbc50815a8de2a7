//! Smooth warming up: pacing that is slow after a rest, as Guava's `RateLimiter` with a
//! warm-up period has it.
//!
//! It protects services that have to warm up, such as caches and connections. The longer a limiter
//! rested, the more its first permits cost, up to a factor. Once the permits of the warm-up are
//! used, they come at the stable pace. As with [`SmoothBursty`](super::SmoothBursty), a charge
//! waits for the charges before it, and with
//! [`wait_for_own_cost`](SmoothWarmingUp::wait_for_own_cost) for its own permits.
//!
//! This algorithm alone computes with fractions, so that it agrees with its model to the last bit.
//!
//! The twin of `scripts/smooth_warming_up.lua`.

use std::time::Duration;

use super::{
    Algorithm, DEFAULT_HORIZON, Element, INEXACT, InLua, Mark, Refund, Report, clamped_horizon,
    exact, in_lua::state_of, micros, sealed::Sealed, sealed::Single, without_burst,
};
use crate::quota::{Quota, QuotaError, Quotas};

/// Paces as Guava's warming-up limiter does: the longer it rested, the more its first permits cost.
///
/// **Bound.** As [`SmoothBursty`](super::SmoothBursty), without a burst: stored permits cost more
/// than fresh ones.
///
/// **Cost.** Permits and two instants for each key: 197 bytes in Redis; 31 µs of script time
/// alone, 12 in a batch of 64.
///
/// **Source.** `SmoothRateLimiter.SmoothWarmingUp` of Guava.
///
/// **Choose it** in front of a service that has to warm up after a rest, such as one with caches
/// and connections. It alone computes with floating-point numbers, so that it agrees with Guava to
/// the last bit.
///
/// **Timeline.** At 5 per second with a warm-up of 4 s: after a long rest each permit takes less
/// time than the one before, from 580 ms down to 200.
///
/// ```
/// # use tower_sluice::algorithm::{Algorithm, Check, SmoothWarmingUp, Verdict::*};
/// # use tower_sluice::Quota;
/// # use std::time::Duration;
/// let limit = SmoothWarmingUp::new(Quota::per_second(5), Duration::from_secs(4));
/// let rule = limit.rule(limit.quota())?;
/// let mut state = None;
/// let mut check = |at: i64, cost, max_wait| {
///     let now = 1_767_225_600_000_000 + at;
///     SmoothWarmingUp::step(&rule, &mut state, now, Check { cost, max_wait }).verdict
/// };
/// let answers = [0; 4].map(|at| check(at, 1, 60_000_000));
/// assert_eq!(answers, [Allow, Wait(580_000), Wait(1_120_000), Wait(1_620_000)]);
/// # Ok::<(), tower_sluice::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmoothWarmingUp {
    quota: Quota,
    warm_up: Duration,
    thousandths: u32,
    own_cost: bool,
    horizon: Duration,
}

impl SmoothWarmingUp {
    /// A pace of the quota's limit per period, reached `warm_up` after a long rest.
    ///
    /// A quota whose burst differs from its limit, or a warm-up of 0, is an error when the limiter
    /// is built.
    #[must_use]
    pub const fn new(quota: Quota, warm_up: Duration) -> Self {
        Self { quota, warm_up, thousandths: 3_000, own_cost: false, horizon: DEFAULT_HORIZON }
    }

    /// Sets how much more a permit costs after a long rest, to a thousandth. Less than 1 counts as
    /// 1, more than 1,000 as 1,000. Default: 3.
    #[must_use]
    pub const fn cold_factor(self, factor: f64) -> Self {
        let factor = if factor >= 1.0 { factor } else { 1.0 };
        let factor = if factor > 1_000.0 { 1_000.0 } else { factor };
        Self { thousandths: (factor * 1_000.0 + 0.5) as u32, ..self }
    }

    /// Lets each caller wait for its own permits instead of its predecessors'. Default: for theirs.
    ///
    /// A charge then fits only once it is paid for, so its cost counts in the test of its
    /// `max_wait`. Stored permits take time too. So a charge that may not wait for its cost at the
    /// stable pace never fits: it is denied without a time to come back.
    #[must_use]
    pub const fn wait_for_own_cost(self) -> Self {
        Self { own_cost: true, ..self }
    }

    /// A [`max_wait`](crate::Charge::max_wait) in proportion to the store: `ratio` times the time
    /// that all permits stored after a long rest take at the stable pace. A usual ratio is 0.5.
    #[must_use]
    pub fn cache(&self, ratio: f64) -> Duration {
        let factor = f64::from(self.thousandths) / 1_000.0;
        let bucket = self.warm_up.as_secs_f64() * (0.5 + 2.0 / (1.0 + factor));
        Duration::try_from_secs_f64(bucket * ratio).unwrap_or_default()
    }

    /// Sets the longest wait that is reserved for any charge, at most 365 days. Default: 60 s.
    ///
    /// A charge with a longer `max_wait` waits this long at most.
    #[must_use]
    pub const fn horizon(self, horizon: Duration) -> Self {
        Self { horizon: clamped_horizon(horizon), ..self }
    }
}

/// A permit takes `unit_numerator / unit_denominator` µs. Up to `most` are stored, of which
/// `whole_most` are whole; those above the threshold cost more, the more there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    unit_denominator: i64,
    unit_numerator: i64,
    warm_up: f64,
    factor: f64,
    own_cost: bool,
    horizon: i64,
    stable: f64,
    threshold: f64,
    most: f64,
    whole_most: i64,
    slope: f64,
}

impl Rule {
    /// The stable interval in µs, the threshold, and the permits that are stored when cold.
    fn pace(warm_up: f64, factor: f64, denominator: i64, numerator: i64) -> (f64, f64, f64) {
        let stable = 1_000_000.0 / (denominator as f64 * 1_000_000.0 / numerator as f64);
        let threshold = 0.5 * warm_up / stable;
        let most = threshold + 2.0 * warm_up / (stable + stable * factor);
        (stable, threshold, most)
    }

    /// Returns true if the state was kept under this rule's rate.
    fn has_rate_of(&self, state: &State) -> bool {
        (state.unit_denominator, state.unit_numerator)
            == (self.unit_denominator, self.unit_numerator)
    }

    /// The state under this rule's rate, with the permits stored since: the permits, and next.
    fn resynced(&self, state: Option<&State>, now: i64) -> (f64, i64) {
        let Some(state) = state else { return (self.most, now) };
        let has_rate = self.has_rate_of(state);
        let mut most = self.most;
        if !has_rate {
            let (denominator, numerator) = (state.unit_denominator, state.unit_numerator);
            most = Self::pace(self.warm_up, self.factor, denominator, numerator).2;
        }
        let (mut stored, mut next) = (state.stored.min(most), state.next);
        if now > next {
            stored = most.min(stored + (now - next) as f64 / (self.warm_up / most));
            next = now;
        }
        if !has_rate {
            // It may round to a bit above the most. Guava keeps that bit too.
            stored = stored * self.most / most;
        }
        (stored, next)
    }

    /// The time that a cost takes, in whole µs: permits stored above the threshold take longer.
    fn price(&self, stored: f64, cost: i64) -> i64 {
        let mut take = stored.min(cost as f64);
        let fresh = cost as f64 - take;
        let above = stored - self.threshold;
        let mut time = 0.0;
        if above > 0.0 {
            let part = above.min(take);
            let length =
                (self.stable + above * self.slope) + (self.stable + (above - part) * self.slope);
            time = (part * length / 2.0).floor();
            take -= part;
        }
        (time + (self.stable * take).floor() + (fresh * self.stable).floor()) as i64
    }

    /// The whole permits among those stored. Where the most is a whole number, its double may be
    /// a bit below it, and so are those that were stored at a time.
    fn whole(&self, stored: f64) -> i64 {
        let whole = self.whole_most as f64;
        let stored = if self.most < whole { whole - (self.most - stored) } else { stored };
        (stored.floor() as i64).min(self.whole_most)
    }

    /// The time until the limiter is cold.
    fn rest(&self, stored: f64) -> i64 {
        ((self.most - stored) * (self.warm_up / self.most)).ceil() as i64
    }
}

/// The stored permits, and the instant from which no charge waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    stored: f64,
    next: i64,
    unit_denominator: i64,
    unit_numerator: i64,
    last: i64,
    /// For a refund of the charge that wrote this state: the permits before it, and what it added
    /// to `next`.
    before: f64,
    added: i64,
}

impl Sealed for SmoothWarmingUp {}
impl Single for SmoothWarmingUp {}

impl Algorithm for SmoothWarmingUp {
    type Rule = Rule;
    type State = State;

    fn quota(&self) -> Quotas {
        self.quota.into()
    }

    /// Reports what it stores as the burst, and 1 at least: a charge passes though nothing is
    /// stored.
    fn reported(&self, _: usize, quota: Quota) -> Quota {
        let Ok(rule) = self.rule(quota.burst(quota.limit())) else { return quota };
        quota.try_burst(rule.whole_most.max(1).cast_unsigned()).unwrap_or(quota)
    }

    fn rule(&self, quota: impl Into<Quotas>) -> Result<Rule, QuotaError> {
        let quota = without_burst(quota, "a pace has no burst")?;
        let (numerator, denominator) = quota.unit();
        let warm_up = self.warm_up.as_micros();
        if warm_up == 0 {
            return Err(QuotaError("the warm-up is 0"));
        }
        if warm_up > 1 << 50 || warm_up * u128::from(denominator) > u128::from(numerator) << 50 {
            return Err(QuotaError("the permits of the warm-up exceed 2^50"));
        }
        // From integers, since the double of the most may be a bit below.
        let thousandths = u128::from(self.thousandths);
        let permits = warm_up * u128::from(denominator) * (5_000 + thousandths);
        let whole_most = (permits / (u128::from(numerator) * 2 * (1_000 + thousandths))) as i64;
        let (unit_denominator, unit_numerator) = (exact(denominator), exact(numerator));
        let (warm_up, factor) = (warm_up as f64, f64::from(self.thousandths) / 1_000.0);
        let (stable, threshold, most) =
            Rule::pace(warm_up, factor, unit_denominator, unit_numerator);
        let slope = (stable * factor - stable) / (most - threshold);
        let (own_cost, horizon) = (self.own_cost, micros(self.horizon));
        Ok(Rule {
            unit_denominator,
            unit_numerator,
            warm_up,
            factor,
            own_cost,
            horizon,
            stable,
            threshold,
            most,
            whole_most,
            slope,
        })
    }

    fn horizon(rule: &Rule) -> i64 {
        rule.horizon
    }

    /// No permit costs less than at the stable pace, and a price is cut to whole µs three times.
    fn least_wait(rule: &Rule, cost: i64) -> i64 {
        if rule.own_cost { (rule.stable * cost as f64).floor() as i64 - 3 } else { 0 }
    }

    fn expires_at(rule: &Rule, state: &State) -> i64 {
        let (stored, next) = rule.resynced(Some(state), state.next);
        next + rule.rest(stored) + 1
    }

    fn clamp(_rule: &Rule, state: &State, now: i64) -> Option<State> {
        let next = (state.next - (state.last - now)).max(0);
        (now < state.last).then_some(State { next, last: now, ..*state })
    }

    fn earliest_fit(rule: &Rule, state: Option<&State>, at: i64, cost: i64) -> Option<i64> {
        if i128::from(cost) * i128::from(rule.unit_numerator) >= i128::from(INEXACT) {
            return None;
        }
        let (stored, mut next) = rule.resynced(state, at);
        if rule.own_cost {
            next = (next + rule.price(stored, cost)).min(INEXACT - 1);
        }
        Some(next.max(at))
    }

    fn consume(rule: &Rule, state: Option<State>, at: i64, cost: i64, now: i64) -> State {
        let (before, next) = rule.resynced(state.as_ref(), now);
        let price = rule.price(before, cost);
        // A charge that also waits for another quota starts later, and nothing is stored meanwhile.
        let due = next + if rule.own_cost { price } else { 0 };
        let added = ((at - due).max(0) + price).min(INEXACT - 1 - next);
        State {
            stored: before - before.min(cost as f64),
            next: next + added,
            unit_denominator: rule.unit_denominator,
            unit_numerator: rule.unit_numerator,
            last: now,
            before,
            added,
        }
    }

    fn max_unchecked_cost(rule: &Rule) -> i64 {
        (INEXACT - 1) / rule.unit_numerator
    }

    fn report(rule: &Rule, state: Option<&State>, now: i64) -> Report {
        let (stored, next) = rule.resynced(state, now);
        let ahead = (next - now).max(0);
        let remaining = match (ahead, rule.own_cost) {
            (0, false) => rule.whole(stored).max(1),
            _ => 0,
        };
        Report { remaining, reset_after: ahead + rule.rest(stored) }
    }

    fn apply_refund(rule: &Rule, state: &mut State, _now: i64, refund: &Refund<'_>) -> Option<i64> {
        let [next, high, low, added] = refund.mark.first;
        let before = f64::from_bits(high.cast_unsigned() << 32 | low.cast_unsigned());
        let after = before - before.min(refund.cost as f64);
        if !rule.has_rate_of(state) || (state.next, state.stored) != (next, after) {
            return None;
        }
        let (mut stored, mut next) = (before, state.next - added);
        if !refund.is_whole() {
            // The slot is kept, so a charge that waited for its own cost gives no time back.
            let price = rule.price(before, refund.cost);
            if price > added {
                return None;
            }
            stored = before - before.min(refund.kept() as f64);
            let less = price - rule.price(before, refund.kept());
            next = state.next - if rule.own_cost { 0 } else { less.max(0) };
        }
        *state = State { stored, next, before: 0.0, added: 0, ..*state };
        Some(refund.units)
    }

    fn mark(state: &State) -> Mark {
        let bits = state.before.to_bits();
        [state.next, (bits >> 32) as i64, (bits & 0xffff_ffff) as i64, state.added].into()
    }
}

impl InLua for SmoothWarmingUp {
    const NAME: &'static str = "smooth_warming_up";
    const TAG: &'static str = "su1";
    const SCRIPT: &'static str = include_str!("../../scripts/smooth_warming_up.lua");

    fn state_elements(_rule: &Rule) -> usize {
        5
    }

    fn arguments(rule: &Rule) -> Vec<i64> {
        let factor = (rule.factor * 1_000.0).round() as i64;
        let Rule { unit_denominator, unit_numerator, warm_up, own_cost, horizon, .. } = *rule;
        vec![horizon, unit_denominator, unit_numerator, warm_up as i64, factor, i64::from(own_cost)]
    }

    fn state(
        _rule: &Rule,
        _now: i64,
        _cost: i64,
        elements: &[Element<'_>],
    ) -> Option<Option<State>> {
        let (stored, numbers) = elements.split_last()?;
        let state = state_of(numbers, |[next, unit_denominator, unit_numerator, last]| {
            Some((next, unit_denominator, unit_numerator, last))
        })?;
        let Some((next, unit_denominator, unit_numerator, last)) = state else { return Some(None) };
        // Permits come in fractions: as the eight bytes of a double.
        let Element::Text(stored) = stored else { return None };
        let stored = f64::from_be_bytes((*stored).try_into().ok()?);
        let is_possible = (0.0..INEXACT as f64).contains(&stored);
        (is_possible && unit_denominator > 0 && unit_numerator > 0).then_some(Some(State {
            stored,
            next,
            unit_denominator,
            unit_numerator,
            last,
            before: 0.0,
            added: 0,
        }))
    }
}

#[cfg(test)]
mod tests;
