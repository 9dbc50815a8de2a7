//! Smooth warming up: pacing that is slow after a rest, like Guava's `RateLimiter` with a warm-up
//! period.
//!
//! The twin of `scripts/smooth_warming_up.lua`.

use std::time::Duration;

use super::in_lua::{state_of, stored_pace};
use super::{
    Algorithm, Check, DEFAULT_HORIZON, Element, INEXACT, InLua, Mark, Refund, Report, Take, Unit,
    YEAR, micros, verdict::kept, without_burst,
};
use crate::core::quota::{Quota, QuotaError, Quotas};

/// Paces like Guava's warming-up limiter: the longer it was idle, the more time its first permits
/// take.
///
/// **Bound.** That of [`SmoothBursty`](super::SmoothBursty) without a burst: stored permits take
/// more time than new ones.
///
/// **Cost.** Permits and two instants for each key: 197 bytes in Redis; 21 µs of script time
/// alone, 6.7 in a batch of 64.
///
/// **Source.** `SmoothRateLimiter.SmoothWarmingUp` of Guava.
///
/// **Choose it** in front of a service that has to warm up after a rest, such as one with caches
/// and connections. Only this algorithm computes with floating-point numbers, so that it agrees
/// with Guava to the last bit.
///
/// **Timeline.** At 5 per second with a warm-up of 4 s: after a long rest each permit takes less
/// time than the one before, from 580 ms down to 200.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct SmoothWarmingUp {
    quota: Quota,
    warm_up: Duration,
    thousandths: u32,
    own_cost: bool,
    horizon: Duration,
    max_debt: Duration,
}

impl SmoothWarmingUp {
    /// A pace of the quota's limit per period, reached `warm_up` after a long rest.
    ///
    /// A quota whose burst differs from its limit, or a warm-up of 0, is an error when the limiter
    /// is built.
    pub const fn new(quota: Quota, warm_up: Duration) -> Self {
        let (horizon, max_debt) = (DEFAULT_HORIZON, YEAR);
        Self { quota, warm_up, thousandths: 3_000, own_cost: false, horizon, max_debt }
    }

    /// Sets how many times longer a permit takes after a long rest, in steps of a thousandth. Less
    /// than 1 counts as 1, and more than 1,000 as 1,000. Default: 3.
    pub const fn cold_factor(self, factor: f64) -> Self {
        let factor = if factor >= 1.0 { factor } else { 1.0 };
        let factor = if factor > 1_000.0 { 1_000.0 } else { factor };
        Self { thousandths: (factor * 1_000.0 + 0.5) as u32, ..self }
    }

    /// Makes each caller wait for its own permits, not for those of the callers before it. Default:
    /// each waits for the permits of those before it.
    ///
    /// A charge then fits only once it is paid for, so its `max_wait` must cover its own cost too.
    /// A charge never fits if it may not wait for its cost at the stable pace.
    pub const fn wait_for_own_cost(self) -> Self {
        Self { own_cost: true, ..self }
    }

    /// Returns a [`max_wait`](crate::Charge::max_wait) in proportion to the store. It is `ratio`
    /// times the time that all permits stored after a long rest take at the stable pace. A usual
    /// ratio is 0.5.
    #[must_use]
    pub fn cache(&self, ratio: f64) -> Duration {
        let factor = f64::from(self.thousandths) / 1_000.0;
        let bucket = self.warm_up.as_secs_f64() * (0.5 + 2.0 / (1.0 + factor));
        Duration::try_from_secs_f64(bucket * ratio).unwrap_or_default()
    }

    horizon_setter! {
        /// A charge with a longer `max_wait` waits at most this long.
    }

    max_debt_setter!();
}

/// Up to `most` permits are stored, of which `whole_most` are whole. Permits above the threshold
/// take longer, the more are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    unit: Unit,
    warm_up: f64,
    factor: f64,
    own_cost: bool,
    horizon: i64,
    max_debt: i64,
    stable: f64,
    threshold: f64,
    most: f64,
    whole_most: i64,
    slope: f64,
}

impl Rule {
    /// The stable interval in µs, the threshold, and the permits that are stored when cold.
    fn pace(warm_up: f64, factor: f64, unit: Unit) -> (f64, f64, f64) {
        let stable = 1_000_000.0 / (unit.denominator as f64 * 1_000_000.0 / unit.numerator as f64);
        let threshold = 0.5 * warm_up / stable;
        let most = threshold + 2.0 * warm_up / (stable + stable * factor);
        (stable, threshold, most)
    }

    /// Converts the state to this rule's rate, and adds the permits stored since: the permits, and
    /// next.
    fn resynced(&self, state: Option<&State>, now: i64) -> (f64, i64) {
        let Some(state) = state else { return (self.most, now) };
        let has_rate = self.unit == state.unit;
        let mut most = self.most;
        if !has_rate {
            most = Self::pace(self.warm_up, self.factor, state.unit).2;
        }
        let (mut stored, mut next) = (state.stored.min(most), state.next);
        if now > next {
            stored = most.min(stored + (now - next) as f64 / (self.warm_up / most));
            next = now;
        }
        if !has_rate {
            // Rounding may make it a bit larger than `most`. Guava keeps that bit too.
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

    /// The time until `units` are stored. `None` if the store never has as many. A thousandth of a
    /// microsecond is the room for rounding.
    fn time_to_store(&self, stored: f64, units: i64) -> Option<i64> {
        let units = units as f64;
        let time = (units.min(self.most) - stored) * (self.warm_up / self.most);
        (units <= (self.most + 1e-6).floor()).then(|| (time - 0.001).ceil().max(0.0) as i64)
    }

    /// The permits after the store has filled for a time. Drops a bit above `most`, which a change
    /// of the rate may leave.
    fn filled(&self, stored: f64, time: i64) -> f64 {
        self.most.min(stored + time as f64 / (self.warm_up / self.most))
    }

    /// The number of whole permits among those stored. If `most` is a whole number, its double may
    /// be a bit below that number, and so may the stored permits.
    fn whole_permits(&self, stored: f64) -> i64 {
        let whole = self.whole_most as f64;
        let stored = if self.most < whole { whole - (self.most - stored) } else { stored };
        (stored.floor() as i64).min(self.whole_most)
    }

    fn rest(&self, stored: f64) -> i64 {
        ((self.most - stored) * (self.warm_up / self.most)).ceil() as i64
    }
}

/// The stored permits, and the instant from which no charge waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    stored: f64,
    next: i64,
    unit: Unit,
    last: i64,
}

impl Algorithm for SmoothWarmingUp {
    type Rule = Rule;
    type State = State;

    of_one_quota!();

    /// Reports the stored permits as the burst, and at least 1: a charge passes even if nothing is
    /// stored.
    fn reported(&self, _: usize, quota: Quota, _: i64) -> Quota {
        let Ok(rule) = self.rule(quota.burst(quota.limit())) else { return quota };
        quota.try_burst(rule.whole_most.max(1).cast_unsigned()).unwrap_or(quota)
    }

    fn rule(&self, quota: impl Into<Quotas>) -> Result<Rule, QuotaError> {
        let quota = without_burst(quota, "a pace has no burst")?;
        let unit = Unit::of(quota)?;
        let [numerator, denominator] =
            [unit.numerator, unit.denominator].map(|part| u128::from(part.unsigned_abs()));
        let warm_up = self.warm_up.as_micros();
        if warm_up == 0 {
            return Err(QuotaError("the warm-up is 0"));
        }
        if warm_up > 1 << 50 || warm_up * denominator > numerator << 50 {
            return Err(QuotaError("the permits of the warm-up exceed 2^50"));
        }
        // From integers, since the double of `most` may be a bit below.
        let thousandths = u128::from(self.thousandths);
        let permits = warm_up * denominator * (5_000 + thousandths);
        let whole_most = (permits / (numerator * 2 * (1_000 + thousandths))) as i64;
        let (warm_up, factor) = (warm_up as f64, f64::from(self.thousandths) / 1_000.0);
        let (stable, threshold, most) = Rule::pace(warm_up, factor, unit);
        let slope = (stable * factor - stable) / (most - threshold);
        let (horizon, max_debt) = (micros(self.horizon), micros(self.max_debt));
        Ok(Rule {
            unit,
            warm_up,
            factor,
            own_cost: self.own_cost,
            horizon,
            max_debt,
            stable,
            threshold,
            most,
            whole_most,
            slope,
        })
    }

    /// Returns a lower bound: no permit takes less time than at the stable pace, and a price is
    /// rounded down to whole µs three times.
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
        if i128::from(cost) * i128::from(rule.unit.numerator) >= i128::from(INEXACT) {
            return None;
        }
        let (stored, mut next) = rule.resynced(state, at);
        if rule.own_cost {
            next = (next + rule.price(stored, cost)).min(INEXACT - 1);
        }
        Some(next.max(at))
    }

    /// Without units that stay free, nothing is awaited but the debt of the charges before, and
    /// the own cost. With them, their permits and those of the cost must be stored.
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
        let (stored, next) = rule.resynced(state, at);
        let stored = rule.filled(stored, 0);
        let filled = rule.time_to_store(stored, cost.saturating_add(kept(keep_free)))?;
        let stored = rule.filled(stored, filled);
        let price = if rule.own_cost { rule.price(stored, cost) } else { 0 };
        Some((next.max(at) + filled + price).min(INEXACT - 1))
    }

    fn consume(rule: &Rule, state: Option<State>, take: Take<'_>) -> (State, Mark) {
        let Take { at, cost, now, keep_free, .. } = take;
        let (mut stored, mut next) = rule.resynced(state.as_ref(), now);
        // The time for which the store fills before the charge is admitted.
        let (mut before, mut filled) = (stored, 0);
        if kept(keep_free) > 0 {
            stored = rule.filled(stored, 0);
            filled = rule.time_to_store(stored, cost.saturating_add(kept(keep_free))).unwrap_or(0);
            (before, next) = (rule.filled(stored, filled), next + filled);
        }
        let price = rule.price(before, cost);
        // A charge that also waits for another quota starts later, and no permits are stored
        // meanwhile.
        let due = next + if rule.own_cost { price } else { 0 };
        let added = ((at - due).max(0) + price).min(INEXACT - 1 - next);
        let state = State {
            stored: before - before.min(cost as f64),
            next: next + added,
            unit: rule.unit,
            last: now,
        };
        // For a refund, the mark holds the permits before, and the time that was added to `next`.
        // If the store filled before, a list holds that time and the time for which it filled.
        let bits = stored.to_bits();
        let [high, low] = [(bits >> 32) as i64, (bits & 0xffff_ffff) as i64];
        let mark = match filled {
            0 => [state.next, high, low, added].into(),
            _ => Mark::from([state.next, high, low, 0]).with_list([added, filled].into()),
        };
        (state, mark)
    }

    /// Searches by halves, since the price of a unit depends on the permits that are stored.
    fn penalty(rule: &Rule, state: Option<&State>, now: i64, cost: i64) -> i64 {
        let (stored, next) = rule.resynced(state, now);
        let fits = |cost| rule.price(stored, cost) <= now + rule.max_debt - next;
        let most = cost.min((INEXACT - 1) / rule.unit.numerator);
        if fits(most) {
            return most;
        }
        let (mut low, mut high) = (0, most);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        low
    }

    /// Stores permits as if the time of the units at the stable pace had passed. Under a quota of 0
    /// no time brings a permit.
    fn give(rule: &Rule, state: &mut State, now: i64, units: i64) {
        if rule.unit.is_none() {
            return;
        }
        let (stored, next) = rule.resynced(Some(state), now);
        let time = (units as f64 * rule.stable).min((INEXACT - 1) as f64).floor() as i64;
        let filled = (time - (next - now)).max(0);
        let stored = rule.filled(stored, filled);
        *state = State { stored, next: (next - time).max(now), unit: rule.unit, last: now };
    }

    fn report(rule: &Rule, state: Option<&State>, now: i64) -> Report {
        let (stored, next) = rule.resynced(state, now);
        let ahead = (next - now).max(0);
        let remaining = match (ahead, rule.own_cost) {
            (0, false) if !rule.unit.is_none() => rule.whole_permits(stored).max(1),
            _ => 0,
        };
        Report { remaining, reset_after: ahead + rule.rest(stored) }
    }

    fn apply_refund(rule: &Rule, state: &mut State, _now: i64, refund: &Refund<'_>) -> Option<i64> {
        let [next, high, low, added] = refund.mark.first;
        let stored_before = f64::from_bits(high.cast_unsigned() << 32 | low.cast_unsigned());
        let (added, filled) = match *refund.mark.list(0) {
            [added, filled] => (added, filled),
            _ => (added, 0),
        };
        let before = if filled > 0 { rule.filled(stored_before, filled) } else { stored_before };
        let after = before - before.min(refund.cost as f64);
        if rule.unit != state.unit || (state.next, state.stored) != (next, after) {
            return None;
        }
        let (mut stored, mut next) = (stored_before, state.next - added - filled);
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
        *state = State { stored, next, ..*state };
        Some(refund.units)
    }
}

impl InLua for SmoothWarmingUp {
    const NAME: &'static str = "smooth_warming_up";
    const TAG: &'static str = "su1";
    const SCRIPT: &'static str = include_str!("../../scripts/smooth_warming_up.lua");

    fn arguments(rule: &Rule, _: i64) -> Vec<i64> {
        let factor = (rule.factor * 1_000.0).round() as i64;
        let Rule { unit, warm_up, horizon, max_debt, .. } = *rule;
        let (warm_up, own_cost) = (warm_up as i64, i64::from(rule.own_cost));
        vec![horizon, unit.denominator, unit.numerator, warm_up, factor, own_cost, max_debt]
    }

    fn state(_: &Rule, _: i64, _: Check<'_>, reply: &mut &[Element<'_>]) -> Option<Option<State>> {
        let state = state_of(reply, |[next, denominator, numerator, last]| {
            Some((next, Unit::sent(numerator, denominator)?, last))
        })?;
        let (stored, rest) = reply.split_first()?;
        *reply = rest;
        let Some((next, unit, last)) = state else { return Some(None) };
        // Permits have fractions, so they are sent as the eight bytes of a double.
        let Element::Text(stored) = stored else { return None };
        let stored = f64::from_be_bytes((*stored).try_into().ok()?);
        let is_possible = (0.0..INEXACT as f64).contains(&stored);
        is_possible.then_some(Some(State { stored, next, unit, last }))
    }

    fn stored(_: &Rule, text: &str) -> Option<State> {
        let (digits, rest) = text.split_once(':')?;
        let (next, unit, last) = stored_pace(rest)?;
        let stored = digits.parse().ok().filter(|_| digits.len() <= 24)?;
        let is_written = (0.0..INEXACT as f64).contains(&stored) && written(stored) == digits;
        is_written.then_some(State { stored, next, unit, last })
    }
}

/// Writes stored permits as the script does: `%.17g` of C.
fn written(stored: f64) -> String {
    let scientific = format!("{stored:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let short = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    match exponent.parse::<i32>() {
        Ok(exponent @ ..-4) => format!("{}e-{:02}", short(mantissa), -exponent),
        Ok(exponent) => {
            short(&format!("{stored:.*}", (16 - exponent).max(0).unsigned_abs() as usize))
        }
        Err(_) => scientific,
    }
}

#[cfg(test)]
mod tests;
