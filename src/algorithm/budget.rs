//! Budget: a token bucket whose charges are held until they are settled.
//!
//! Held units are counted in two eras, so that a process that ends without settling does not hold
//! them forever.
//!
//! The twin of `scripts/budget.lua`.

use std::time::Duration;

use super::in_lua::{StoredInstant, integers, state_of, stored_instant};
use super::{
    Algorithm, Check, DEFAULT_HORIZON, Element, INEXACT, InLua, Mark, Refund, Report, Take, Unit,
    YEAR, at_most_a_year, exact, micros,
};
use crate::core::quota::{Quota, QuotaError, Quotas};

const DEFAULT_MAX_HOLD: Duration = Duration::from_secs(60);

/// The smallest value of that time.
const MIN_MAX_HOLD: Duration = Duration::from_micros(1);

/// Holds the units that a charge may cost, and later spends the units that it did cost.
///
/// A request is charged an estimate, which a budget holds until the
/// [settlement](crate::Limiter::settle). Then it spends the used units. All others are free at
/// once, even if other charges were decided meanwhile. The guide has [costs and budgets][costs].
///
/// **Bound.** The units that are settled within any stretch of time `d` sum to at most
/// `burst + d * limit / period`. A settlement counts at the instant at which it is made. Held
/// units, and spent units that have not refilled yet, sum to at most the burst.
///
/// **Cost.** Two instants and two counts for each key: 181 bytes in Redis; 18 µs of script time
/// alone, 5.2 in a batch of 64, and twice that with the settlement, which is a second call.
///
/// **Source.** Payment cards: a payment is authorized first and captured later.
///
/// **Choose it** if the cost is known only at the end. Units do not refill while they are held, and
/// requests that run or wait hold at most `burst` units together. So choose a burst that is large
/// enough for all requests that run at the same time.
///
/// Units that a settlement frees go to the next charge. It may overtake those that wait. No wait is
/// reserved while only a settlement makes room.
///
/// # Settle every charge
///
/// A [layer](crate::RateLimitLayer) settles each request that the inner service has answered: the
/// closure of [`settle`](crate::RateLimitLayer::settle) returns the cost, by default the full cost.
/// [`acquire`](crate::LimiterExt::acquire) and [`check`](crate::Limiter::check) return the decision
/// to their caller, who must settle it, even if all units were used.
///
/// A charge that is never settled counts as spent after [`max_hold`](Budget::max_hold). A
/// settlement after that time, or after a reset of the key, changes nothing, and gives back 0.
///
/// Eight requests may use 1,000 tokens each, and use 100 each:
///
/// ```
/// use tower_sluice::algorithm::Budget;
/// use tower_sluice::{Charge, Limiter, LimiterExt, Memory, Quota};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let tokens = Memory::new("tokens", Budget::new(Quota::per_day(10_000)));
/// let estimate = Charge::new("alice").cost(1_000);
/// let mut held = Vec::new();
/// for _ in 0..8 {
///     held.extend(tokens.check(&estimate).await?.take_reservation());
/// }
/// assert_eq!(tokens.peek("alice").await?.remaining(), Some(2_000));
/// for reservation in held {
///     let settled = tokens.settle(reservation, 100).expect("its own");
///     assert_eq!(settled.await?.given_back, 900);
/// }
/// assert_eq!(tokens.peek("alice").await?.remaining(), Some(9_200));
/// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
/// ```
///
/// [costs]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/costs_and_budgets/
#[doc(alias("authorize", "capture", "hold", "llm", "tokens"))]
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Budget {
    quota: Quota,
    horizon: Duration,
    max_debt: Duration,
    max_hold: Duration,
}

impl Budget {
    /// A budget of the quota's capacity that refills by its limit per period.
    pub const fn new(quota: Quota) -> Self {
        let (horizon, max_hold) = (DEFAULT_HORIZON, DEFAULT_MAX_HOLD);
        Self { quota, horizon, max_debt: YEAR, max_hold }
    }

    /// Sets the shortest time for which a charge is held, 1 µs to 365 days. Default: 60 s.
    ///
    /// The time begins when the units are reserved.
    ///
    /// A charge that is not settled within this time counts as spent, after twice this time at the
    /// latest. So choose a time longer than the longest request, its wait included. No charge waits
    /// longer than this time, even if the [`horizon`](Budget::horizon) is longer.
    ///
    /// Limiters that share keys must set the same time. After a change, the new time also applies
    /// to the units that are already held.
    pub const fn max_hold(self, max_hold: Duration) -> Self {
        let max_hold = at_most_a_year(max_hold);
        let is_short = max_hold.as_micros() < MIN_MAX_HOLD.as_micros();
        Self { max_hold: if is_short { MIN_MAX_HOLD } else { max_hold }, ..self }
    }

    horizon_setter! {
        /// A charge with a longer `max_wait` waits at most this long, and never longer than
        /// [`max_hold`](Budget::max_hold).
    }

    max_debt_setter!();
}

/// An era takes `max_hold`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    unit: Unit,
    burst: i64,
    horizon: i64,
    max_debt: i64,
    max_hold: i64,
}

impl Rule {
    /// The latest instant at which a budget is full again that owes for `time`.
    fn latest(&self, now: i64, time: i64) -> (i64, i64) {
        let (span, spare) = self.unit.time(self.burst);
        (now + time + span, spare)
    }

    /// The instant at which the budget is full again if all held units are spent.
    fn full(&self, state: &State, now: i64) -> (i64, i64) {
        let mut spent = *state;
        spent.spend(self, state.held().min(self.burst), now);
        (spent.full, spent.part)
    }

    /// The state with its mark of a debt.
    fn marked(&self, state: State, now: i64) -> State {
        State { owes: self.full(&state, now) > self.latest(now, self.horizon), ..state }
    }

    #[inline]
    fn era(&self, at: i64) -> i64 {
        at - at % self.max_hold
    }

    /// The units of the burst that a charge of this cost leaves; below 0 if too many are held.
    #[inline]
    fn room(&self, state: &State, cost: i64) -> i64 {
        self.burst - cost - state.held()
    }

    /// Returns the state as it is at `now`. When the hold of units ends, they count as spent from
    /// that instant on.
    fn rolled(&self, state: &State, now: i64) -> State {
        let mut next = *state;
        if next.denominator != self.unit.denominator {
            if next.part > 0 {
                (next.full, next.part) = (next.full + 1, 0);
            }
            next.denominator = self.unit.denominator;
        }
        next.begin = self.era(next.begin);
        while next.begin + self.max_hold <= now {
            if next.held() == 0 {
                next.begin = self.era(now);
                break;
            }
            next.begin += self.max_hold;
            if next.former > 0 {
                next.spend(self, next.former.min(self.burst), next.begin);
            }
            (next.current, next.former) = (0, next.current);
        }
        next
    }
}

/// The state of a key. The spent units have refilled at `full + part / denominator` µs. Held units
/// are `current` in the era that begins at `begin`, and `former` in the era before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    full: i64,
    part: i64,
    denominator: i64,
    begin: i64,
    current: i64,
    former: i64,
    /// True if the last change left a debt that lasts longer than the horizon.
    owes: bool,
}

impl State {
    fn new(rule: &Rule, now: i64) -> Self {
        let (denominator, begin) = (rule.unit.denominator, rule.era(now));
        Self { full: 0, part: 0, denominator, begin, current: 0, former: 0, owes: false }
    }

    #[inline]
    fn held(&self) -> i64 {
        self.current + self.former
    }

    /// Spends units at an instant. The state must have the rule's denominator.
    fn spend(&mut self, rule: &Rule, units: i64, at: i64) {
        let start = (self.full, self.part).max((at, 0));
        (self.full, self.part) = rule.unit.after(start, units);
    }
}

impl Algorithm for Budget {
    type Rule = Rule;
    type State = State;

    fn refills(&self, _: usize) -> bool {
        true
    }

    of_one_quota!();

    fn rule(&self, quota: impl Into<Quotas>) -> Result<Rule, QuotaError> {
        let quota = quota.into().one()?;
        let max_hold = micros(self.max_hold);
        Ok(Rule {
            unit: Unit::of(quota)?,
            burst: exact(quota.burst_size()),
            // A charge that waits must not count as spent before its slot has come.
            horizon: micros(self.horizon).min(max_hold),
            max_debt: micros(self.max_debt),
            max_hold,
        })
    }

    fn hold_time(rule: &Rule) -> Option<i64> {
        Some(rule.max_hold)
    }

    fn max_wait(rule: &Rule, state: Option<&State>, now: i64, cost: i64) -> i64 {
        let is_unsettled = |state: &State| rule.room(&rule.rolled(state, now), cost) < 0;
        if state.is_some_and(is_unsettled) { 0 } else { rule.horizon }
    }

    fn expires_at(rule: &Rule, state: &State) -> i64 {
        // At this instant, no unit that is held now can still be held.
        let last = rule.rolled(state, rule.era(state.begin) + 2 * rule.max_hold);
        last.full + i64::from(last.part > 0)
    }

    fn clamp(rule: &Rule, state: &State, now: i64) -> Option<State> {
        let mut next = rule.rolled(state, now);
        // A step back of the clock by less than an era changes no era.
        let is_ahead = next.begin > now + rule.max_hold;
        if is_ahead {
            next.spend(rule, next.held().min(rule.burst), now);
            (next.begin, next.current, next.former) = (rule.era(now), 0, 0);
        }
        // Held units make a budget owe beyond a shorter `max_debt`, too.
        let longest = rule.horizon.max(if next.owes { rule.max_debt } else { 0 });
        let last = rule.latest(now, longest);
        let is_late = (next.full, next.part) > last;
        if is_late {
            (next.full, next.part) = last;
        }
        (is_ahead || is_late).then(|| rule.marked(next, now))
    }

    fn earliest_fit(rule: &Rule, state: Option<&State>, at: i64, cost: i64) -> Option<i64> {
        if cost > rule.burst {
            return None;
        }
        let Some(state) = state else { return Some(at) };
        let state = rule.rolled(state, at);
        let room = rule.room(&state, cost);
        let from = (state.full, state.part).max((at, 0));
        let (time, rest) = rule.unit.time(room.abs().min(rule.burst));
        if room >= 0 {
            return Some((from.0 - time + i64::from(from.1 > rest)).max(at));
        }
        // The instant that would follow if all held units were spent now. In fact only a settlement
        // makes room.
        let over = from.1 + rest;
        let carry = i64::from(over > 0) + i64::from(over > rule.unit.denominator);
        Some(from.0 + time + carry)
    }

    fn consume(rule: &Rule, state: Option<State>, take: Take<'_>) -> (State, Mark) {
        let Take { cost, now, .. } = take;
        let next = state.map_or_else(|| State::new(rule, now), |state| rule.rolled(&state, now));
        let held = State { current: next.current + cost, ..next };
        (rule.marked(held, now), [next.begin, 0, 0, 0].into())
    }

    fn spend(rule: &Rule, state: Option<State>, _: i64, cost: i64, now: i64) -> State {
        let mut next =
            state.map_or_else(|| State::new(rule, now), |state| rule.rolled(&state, now));
        next.spend(rule, cost, now);
        rule.marked(next, now)
    }

    fn penalty(rule: &Rule, state: Option<&State>, now: i64, cost: i64) -> i64 {
        let from = state.map_or((now, 0), |state| rule.full(&rule.rolled(state, now), now));
        cost.min(rule.unit.between(from, rule.latest(now, rule.max_debt)))
    }

    /// Gives back spent units. What is held is somebody's still.
    fn give(rule: &Rule, state: &mut State, now: i64, units: i64) {
        let mut next = rule.rolled(state, now);
        (next.full, next.part) = rule.unit.before((next.full, next.part), units, now);
        *state = rule.marked(next, now);
    }

    fn report(rule: &Rule, state: Option<&State>, now: i64) -> Report {
        let Some(state) = state else { return Report::full(rule.burst) };
        let mut state = rule.rolled(state, now);
        let free = rule.room(&state, 0).max(0);
        let ahead = (state.full, state.part).max((now, 0));
        let ahead = (ahead.0 - now, ahead.1);
        let remaining = if ahead > rule.unit.time(free) {
            0
        } else {
            let time = free * rule.unit.numerator - ahead.0 * rule.unit.denominator - ahead.1;
            time / rule.unit.numerator
        };
        state.spend(rule, rule.burst - free, now);
        Report { remaining, reset_after: state.full - now + i64::from(state.part > 0) }
    }

    fn apply_refund(rule: &Rule, state: &mut State, now: i64, refund: &Refund<'_>) -> Option<i64> {
        let mut next = rule.rolled(state, now);
        let since = rule.era(refund.mark.first[0]);
        let earlier = match next.begin - since {
            0 => 0,
            age if age == rule.max_hold => next.former.min(refund.cost),
            _ => return None,
        };
        // Units that are no longer held count as spent, or were forgotten. A renewal whose answer
        // got lost has moved them to the later era.
        if earlier + next.current < refund.cost {
            return None;
        }
        next.former -= earlier;
        next.current -= refund.cost - earlier;
        // The held units fit, and what was used beyond them may be owed.
        let held = refund.cost.min((INEXACT - 1) / rule.unit.numerator);
        let kept = refund.kept();
        let spent = Self::penalty(rule, Some(&next), now, kept).max(kept.min(held));
        if spent > 0 {
            next.spend(rule, spent, now);
        }
        *state = rule.marked(next, now);
        Some(if refund.units < 0 { spent - kept } else { refund.units })
    }
}

impl InLua for Budget {
    const NAME: &'static str = "budget";
    const TAG: &'static str = "bg1";
    const SCRIPT: &'static str = include_str!("../../scripts/budget.lua");

    fn arguments(rule: &Rule, _: i64) -> Vec<i64> {
        let Rule { horizon, unit, burst, max_debt, max_hold } = *rule;
        vec![horizon, unit.numerator, unit.denominator, burst, max_debt, max_hold]
    }

    /// A script has clamped the state. So if it owes for longer than the horizon, it has the mark.
    fn state(
        rule: &Rule,
        now: i64,
        _: Check<'_>,
        reply: &mut &[Element<'_>],
    ) -> Option<Option<State>> {
        state_of(reply, |[full, part, begin, current, former]| {
            let denominator = rule.unit.denominator;
            let owes = (full, part) > rule.latest(now, rule.horizon);
            let state = State { full, part, denominator, begin, current, former, owes };
            (part < denominator).then_some(state)
        })
    }

    fn stored(_: &Rule, text: &str) -> Option<State> {
        let (instant, held) = text.split_once(':')?;
        let StoredInstant { full, part, denominator, owes } = stored_instant(instant)?;
        let [begin, current, former] = integers(held)?;
        Some(State { full, part, denominator, begin, current, former, owes })
    }
}

#[cfg(test)]
mod tests;
