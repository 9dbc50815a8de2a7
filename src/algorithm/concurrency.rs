//! Concurrency: units are held until they are released, or their time is over.
//!
//! Held units are counted in five eras. An era is dropped when its time is over: then the units of
//! a dead process are free.
//!
//! The twin of `scripts/concurrency.lua`.

use std::time::Duration;

use super::in_lua::{integers, state_of};
use super::{
    Algorithm, Check, DEFAULT_HORIZON, Element, InLua, Mark, Refund, Report, Take, at_most_a_year,
    checked_burst, exact, micros,
};
use crate::core::quota::{Quota, QuotaError, Quotas};

const DEFAULT_MAX_HOLD: Duration = Duration::from_secs(60);

/// The eras in [`Concurrency::max_hold`]. One more counts, since a charge may come at the end of
/// its era.
const ERAS: i64 = 4;

/// The shortest time after which a refused charge is to be asked again, in µs.
const PAUSE: i64 = 1_000_000;

/// Admits at most `limit` units at the same time: requests in flight for a key, over all processes.
///
/// A charge holds its units from its admission until they are released: by the drop of a
/// [`Hold`](crate::limiter::Hold), or by [`settle`](crate::Limiter::settle), with any cost.
///
/// **Bound.** The units of holds that are neither released nor older than
/// [`max_hold`](Concurrency::max_hold), since their charge or last
/// [renewal](crate::Limiter::renew), sum to at most `limit`, at every instant.
///
/// **Cost.** An instant and five counts for each key, however many requests hold units. That is 80
/// bytes in Redis, with a name of one letter; a sorted set of permits takes 5,168 for 100.
///
/// **Source.** Stripe's limiter of concurrent requests, and the expirable semaphore of Redisson.
///
/// **Choose it** if requests take very different times, and what is scarce is what runs: workers,
/// memory, connections, an upstream that limits parallel calls.
///
/// # Release every charge
///
/// A [layer](crate::RateLimitLayer) releases a request when the inner service has answered, failed
/// or panicked, or when the caller has left. With
/// [`settle_later(WithBody)`](crate::RateLimitLayer::settle_later) it does so when the body of the
/// response has ended or was dropped. Who calls [`acquire`](crate::LimiterExt::acquire) or
/// [`check`](crate::Limiter::check) settles the reservation, or [holds](crate::LimiterExt::hold) it
/// in a guard.
///
/// The units of a process that dies are held for `max_hold` at least, and for 1.25 times that time
/// at most. If the answer of another hold's renewal got lost meanwhile, they may count as long as
/// that renewal.
///
/// If a failover loses the write of a renewal, a request may outlast its units, and runs uncounted:
/// [`Hold::is_held`](crate::limiter::Hold::is_held) tells.
///
/// # No slot is promised
///
/// Nobody knows when units will be released. So no wait is reserved, and the time after which a
/// refused caller is to ask again is a guess: 1 to 3 s.
///
/// A charge that has a [`max_wait`](crate::Charge::max_wait) gets
/// [`Outcome::Retry`](crate::Outcome::Retry). A layer and `acquire` then queue it: the charges of a
/// key wait in the order in which they came to this process. The first one asks when this limiter
/// releases units of the key, and after pauses of 10 to 250 ms. The guide has a page on
/// [concurrency].
///
/// A charge of a tuple that waits for another quota holds its units meanwhile. It waits no longer
/// than two thirds of `max_hold`.
///
/// # Other operations
///
/// A [penalty](crate::LimiterExt::penalize) takes free units, which nobody releases: they are free
/// again when `max_hold` is over. Units that are not free are not taken.
///
/// Of a charge's own [`quota`](crate::Charge::quota), the limit counts.
///
/// If the clock steps back by more than a quarter of `max_hold`, held units cannot be released any
/// more.
///
/// # Example
///
/// ```
/// use tower_sluice::algorithm::Concurrency;
/// use tower_sluice::{Charge, Limiter, LimiterExt, Memory};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let exports = Memory::new("exports", Concurrency::new(2));
/// let first = exports.check(&Charge::new("alice")).await?;
/// let second = exports.check(&Charge::new("alice")).await?;
/// assert!(first.is_admitted() && second.is_admitted());
/// assert!(!exports.check(&Charge::new("alice")).await?.is_admitted());
///
/// let reservation = first.into_reservation().expect("it holds one unit");
/// let released = exports.settle(reservation, 0).expect("its own").await?;
/// assert_eq!(released.given_back, 1);
/// assert_eq!(exports.peek("alice").await?.remaining(), Some(1));
/// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
/// ```
///
/// **Timeline.** At most one, held for 4 s. A charge at 0.9 s belongs to the era that began at 0 s.
/// Its time is over five eras after that, at 5 s.
///
/// ```
/// # use tower_sluice::algorithm::{Algorithm, Check, Concurrency, Verdict::*};
/// # use std::time::Duration;
/// let limit = Concurrency::new(1).max_hold(Duration::from_secs(4));
/// let rule = limit.rule(limit.quota())?;
/// let mut state = None;
/// let mut check = |at: i64| {
///     let now = 1_767_225_600_000_000 + at;
///     Concurrency::step(&rule, &mut state, now, Check::new(1, 0)).verdict
/// };
/// assert_eq!(check(900_000), Allow);
/// assert!(matches!(check(4_999_999), Deny(1_000_000..=3_000_000)));
/// assert_eq!(check(5_000_000), Allow);
/// # Ok::<(), tower_sluice::algorithm::QuotaError>(())
/// ```
///
/// [concurrency]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/concurrency/
#[doc(alias("in flight", "parallel", "permits", "semaphore"))]
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Concurrency {
    quota: Quota,
    horizon: Duration,
    max_hold: Duration,
}

impl Concurrency {
    /// Admits at most `limit` units at the same time.
    ///
    /// # Panics
    ///
    /// As [`Quota::at_once`]: if the limit is 0 or more than 2^50.
    #[track_caller]
    pub const fn new(limit: u64) -> Self {
        Self::of(Quota::at_once(limit))
    }

    /// Admits at most the limit of a quota at the same time, for a quota that comes from a file or
    /// a user. Its period does not count.
    pub const fn of(quota: Quota) -> Self {
        Self { quota, horizon: DEFAULT_HORIZON, max_hold: DEFAULT_MAX_HOLD }
    }

    /// Sets the shortest time for which units are held that nobody releases or renews, 1 µs to 365
    /// days. Default: 60 s.
    ///
    /// It counts from the charge, also for one that waits for another quota. After 1.25 times this
    /// time, the units are free. If the clock steps back meanwhile, it may be 1.5 times.
    ///
    /// Limiters that share keys must set the same time. After a change, the new time also applies
    /// to the units that are already held. They may then be held too short once, by a quarter of
    /// the longer time.
    pub const fn max_hold(self, max_hold: Duration) -> Self {
        let max_hold = at_most_a_year(max_hold);
        let is_short = max_hold.as_micros() == 0;
        Self { max_hold: if is_short { Duration::from_micros(1) } else { max_hold }, ..self }
    }

    horizon_setter! {
        /// It is for charges of several quotas that wait for another one. They never wait longer
        /// than two thirds of [`max_hold`](Concurrency::max_hold).
    }
}

/// `limit` units, in eras of `width` µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    limit: i64,
    width: i64,
    horizon: i64,
}

impl Rule {
    #[inline]
    fn era(&self, at: i64) -> i64 {
        at - at % self.width
    }

    /// Returns the state as it is at `now`, without the eras whose time is over.
    fn rolled(&self, state: &State, now: i64) -> State {
        let mut next = State { begin: self.era(state.begin), ..*state };
        while next.begin + self.width <= now {
            if next.sum() == 0 {
                next.begin = self.era(now);
                break;
            }
            next.begin += self.width;
            next.held.rotate_right(1);
            next.held[0] = 0;
        }
        next
    }

    #[inline]
    fn held(&self, state: Option<&State>, now: i64) -> i64 {
        state.map_or(0, |state| self.rolled(state, now).sum())
    }

    /// The end of the time of the last units of a state.
    fn end(&self, state: &State) -> i64 {
        let eras = state.held.iter().zip((1..=ERAS + 1).rev());
        let last = eras.filter(|(units, _)| **units > 0).map(|(_, eras)| eras).max();
        state.begin + self.width * last.unwrap_or(0)
    }
}

/// The state of a key: the start of the latest era, and the units that are held since that era and
/// since each one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    begin: i64,
    held: [i64; ERAS as usize + 1],
}

impl State {
    #[inline]
    fn sum(&self) -> i64 {
        self.held.iter().sum()
    }
}

impl Algorithm for Concurrency {
    type Rule = Rule;
    type State = State;

    of_one_quota!();

    fn reported(&self, _: usize, quota: Quota, _: i64) -> Quota {
        Quota::try_at_once(quota.limit()).unwrap_or(quota)
    }

    fn rule(&self, quota: impl Into<Quotas>) -> Result<Rule, QuotaError> {
        let quota = checked_burst(quota.into().only()?, "a limit at once has no burst")?;
        let max_hold = micros(self.max_hold);
        Ok(Rule {
            limit: exact(quota.limit()),
            width: (max_hold + ERAS - 1) / ERAS,
            // A charge that waits is first renewed at its slot. A third is left for that.
            horizon: micros(self.horizon).min(max_hold - max_hold / 3),
        })
    }

    fn hold_time(rule: &Rule) -> Option<i64> {
        Some(rule.width * ERAS)
    }

    fn max_wait(rule: &Rule, state: Option<&State>, now: i64, cost: i64) -> i64 {
        if rule.held(state, now) + cost > rule.limit { 0 } else { rule.horizon }
    }

    fn expires_at(rule: &Rule, state: &State) -> i64 {
        rule.end(&State { begin: rule.era(state.begin), ..*state })
    }

    fn clamp(rule: &Rule, state: &State, now: i64) -> Option<State> {
        let next = rule.rolled(state, now);
        // A step back of the clock by less than an era changes no era.
        let is_ahead = next.begin > now + rule.width;
        is_ahead.then(|| State { begin: rule.era(now), held: [next.sum(), 0, 0, 0, 0] })
    }

    fn earliest_fit(rule: &Rule, state: Option<&State>, at: i64, cost: i64) -> Option<i64> {
        if cost > rule.limit {
            return None;
        }
        // Only a release makes room, so the other instant is a guess.
        let fits = rule.held(state, at) + cost <= rule.limit;
        Some(if fits { at } else { at + PAUSE + at % (2 * PAUSE + 1) })
    }

    fn consume(rule: &Rule, state: Option<State>, take: Take<'_>) -> (State, Mark) {
        let Take { cost, now, .. } = take;
        let new = State { begin: rule.era(now), held: [0; 5] };
        let mut next = state.map_or(new, |state| rule.rolled(&state, now));
        next.held[0] += cost;
        (next, [next.begin, 0, 0, 0].into())
    }

    fn penalty(rule: &Rule, state: Option<&State>, now: i64, cost: i64) -> i64 {
        cost.min((rule.limit - rule.held(state, now)).max(0))
    }

    /// All units are held by somebody.
    fn grants(_: &Rule) -> bool {
        false
    }

    /// As the script, which writes the keys of all quotas: in the era of now.
    fn give(rule: &Rule, state: &mut State, now: i64, _: i64) {
        *state = rule.rolled(state, now);
    }

    fn report(rule: &Rule, state: Option<&State>, now: i64) -> Report {
        let Some(state) = state else { return Report::full(rule.limit) };
        let state = rule.rolled(state, now);
        let remaining = (rule.limit - state.sum()).max(0);
        Report { remaining, reset_after: (rule.end(&state) - now).max(0) }
    }

    /// Releases all units of the charge, however many were used.
    ///
    /// They are in the era of the mark, or in later ones: a renewal whose answer got lost has moved
    /// them there. All units of an era are alike. Each hold takes those of its earliest era, so
    /// that every other one still finds as many from its own era on.
    fn apply_refund(rule: &Rule, state: &mut State, now: i64, refund: &Refund<'_>) -> Option<i64> {
        let mut next = rule.rolled(state, now);
        let age = (next.begin - rule.era(refund.mark.first[0])) / rule.width;
        let eras = usize::try_from(age).ok().and_then(|age| next.held.get_mut(..=age))?;
        let mut missing = refund.cost;
        for held in eras.iter_mut().rev() {
            let freed = missing.min(*held);
            (*held, missing) = (*held - freed, missing - freed);
        }
        if missing > 0 {
            return None;
        }
        *state = next;
        Some(refund.units.max(0))
    }
}

impl InLua for Concurrency {
    const NAME: &'static str = "concurrency";
    const TAG: &'static str = "cc1";
    const SCRIPT: &'static str = include_str!("../../scripts/concurrency.lua");

    fn arguments(rule: &Rule, _: i64) -> Vec<i64> {
        vec![rule.horizon, rule.limit, rule.width]
    }

    fn state(_: &Rule, _: i64, _: Check<'_>, reply: &mut &[Element<'_>]) -> Option<Option<State>> {
        state_of(reply, |[begin, held @ ..]: [i64; 6]| Some(State { begin, held }))
    }

    fn stored(_: &Rule, text: &str) -> Option<State> {
        integers(text).map(|[begin, held @ ..]: [i64; 6]| State { begin, held })
    }
}

#[cfg(test)]
mod tests;
