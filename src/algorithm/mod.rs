//! Algorithms: pure arithmetic that says when a charge fits.
//!
//! Take [`TokenBucket`] unless [choosing an algorithm][choose] says otherwise; a file or a table
//! may name an [`AnyAlgorithm`]. The page of each type states its bound, its cost, and when to
//! choose it. See also [what the bound means][bound].
//!
//! # Several quotas
//!
//! A limiter takes a tuple of two to eight algorithms too, 10 per second *and* 1,000 per day:
//! `(TokenBucket::new(second), FixedWindow::new(day))`. A charge fits at the earliest instant at
//! which it fits all members. It is taken from all or from none, in one call. If a charge states
//! its own quota, it states a tuple with one quota for each algorithm. A tuple becomes a `Vec` of
//! [`AnyAlgorithm`], which is an algorithm itself. [Several limits][several] has an example.
//!
//! The decision reports [each quota](crate::Decision::policies) as a policy. The policies of a
//! limiter called `api` are called `api-1`, `api-2` and so on, unless you
//! [name](crate::limiter::Description::names) them.
//!
//! # What an algorithm refunds
//!
//! A refund changes the state of the key as it is now, and never breaks a bound. It gives back all
//! units of a charge, or a part of them. A request may also cost more in the end:
//!
//! | | all of a charge | a part of it | more than the charge |
//! |---|---|---|---|
//! | windows, cells, counters | while the window or cell that counted it lasts | the same | up to the limit at a time |
//! | log | only of the newest charge | the same | up to the limit at a time |
//! | token bucket | only if no other charge was taken since | the same, once its slot has come | all of it, owed for up to `max_debt` |
//! | smooth limiters | only if no other charge was taken since | the same | all of it, owed for up to `max_debt` |
//! | budget | always, until its time is over | the same | all of it, owed for up to `max_debt` |
//! | concurrency | always, until its time is over | frees all of it | nothing |
//! | tuples | each member as above | the same | the same |
//! | Redisson | until they expire | the same | nothing |
//!
//! In a smooth limiter whose charges wait for their own cost, a partial refund gives back permits,
//! but no time. The end of a window cancels a debt.
//!
//! # Direct calls
//!
//! You can call an algorithm by [`Algorithm::step`]: see the timeline of a [`TokenBucket`]. Time is
//! an argument, in microseconds since the Unix epoch, and decisions use integers.
//!
//! [bound]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/choosing_an_algorithm/#what-the-bound-means
//! [choose]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/choosing_an_algorithm/
//! [several]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/several_limits/

#[macro_use]
mod common;

mod any;
mod budget;
#[cfg(feature = "calendar")]
mod calendar;
mod concurrency;
mod fixed_window;
mod in_lua;
pub(crate) mod sealed;
mod several;
mod sliding_counter;
mod sliding_log;
mod sliding_window;
mod smooth_bursty;
mod smooth_warming_up;
mod token_bucket;
mod verdict;

pub use any::AnyAlgorithm;
pub use budget::Budget;
#[cfg(feature = "calendar")]
pub(crate) use calendar::clocks_differ;
#[cfg(feature = "calendar")]
pub use calendar::{Calendar, UnknownName, Weekday};
pub use concurrency::Concurrency;
#[cfg(all(test, feature = "redis"))]
pub(crate) use fixed_window::CALENDAR;
pub use fixed_window::FixedWindow;
#[doc(hidden)]
pub use in_lua::Element;
pub(crate) use in_lua::integer;
pub use in_lua::{InLua, ScriptPart};
pub use several::IntoAlgorithm;
pub use sliding_counter::SlidingCounter;
pub use sliding_log::SlidingLog;
pub(crate) use sliding_log::{StoredMember, stored_log};
pub use sliding_window::SlidingWindow;
pub use smooth_bursty::SmoothBursty;
pub use smooth_warming_up::SmoothWarmingUp;
pub use token_bucket::TokenBucket;
pub use verdict::{Check, QuotaAnswer, Refund, Report, Ruling, Take, Verdict};
use verdict::{kept, kept_of};

/// Another name of the token bucket: the generic cell rate algorithm stores the same instant.
pub type Gcra = TokenBucket;

/// Another name of the token bucket: a leaky bucket as a meter admits the same charges.
///
/// For a leaky bucket as a queue, set `burst(1)` and give the charges a
/// [`max_wait`](crate::Charge::max_wait). They leave one by one, at the pace of the quota.
pub type LeakyBucket = TokenBucket;

use std::fmt::Debug;

pub(crate) use any::TAGS;
pub(crate) use common::{DEFAULT_HORIZON, INEXACT, exact};
use common::{Unit, YEAR, at_most_a_year, checked_burst, micros, without_burst};

use crate::core::Quota;
pub use crate::core::mark::Mark;
pub use crate::core::quota::{QuotaError, Quotas};

/// The instant that a mark holds if there was no state before a charge: the start of the epoch. A
/// mark holds each instant plus one, since 0 stands for no instant.
const NO_STATE: i64 = 1;

/// The latest instant for which the arithmetic is exact, in the year 2112.
pub(crate) const LATEST: i64 = 1 << 52;

/// Decides when a charge fits, by pure functions over a stored state.
///
/// Sealed: most algorithms also have a script ([`InLua`]), and only this crate adds scripts.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an algorithm",
    note = "a quota needs an algorithm that counts it: write `TokenBucket::new(quota)`",
    note = "several are a tuple: `(TokenBucket::new(second), FixedWindow::new(day))`",
    note = "a limiter of a tuple has the type of a `Vec<AnyAlgorithm>`"
)]
pub trait Algorithm: sealed::Sealed + Clone + Debug + Send + Sync + 'static {
    /// The quota, in the numbers that the arithmetic needs.
    type Rule: Clone + Debug + Send + Sync + 'static;
    /// The state that is stored for a key.
    type State: Clone + Debug + PartialEq + Send + 'static;

    /// Returns true if the units of the quota at `index` come back one by one, as in a bucket.
    /// Returns false if they come back when a window ends.
    fn refills(&self, index: usize) -> bool {
        let _ = index;
        false
    }

    /// Returns the quota at `index` as decisions report it. Its burst may come from a setting of
    /// the algorithm instead of the quota, and its period from the window of `now`.
    #[inline]
    fn reported(&self, index: usize, quota: Quota, now: i64) -> Quota {
        let _ = (index, now);
        quota
    }

    /// Returns the separate answer of each of several quotas, in order; empty for one quota. The
    /// reports are not known yet.
    fn judge_each(
        rule: &Self::Rule,
        state: Option<&Self::State>,
        now: i64,
        check: Check<'_>,
    ) -> Box<[QuotaAnswer]> {
        let _ = (rule, state, now, check);
        Box::default()
    }

    /// Sets the report of each of several quotas.
    fn report_each(
        rule: &Self::Rule,
        state: Option<&Self::State>,
        now: i64,
        members: &mut [QuotaAnswer],
    ) {
        let _ = (rule, state, now, members);
    }

    /// Returns the quota of charges that state no quota.
    fn quota(&self) -> Quotas;

    /// Converts `quota` to the numbers that the arithmetic needs.
    ///
    /// # Errors
    ///
    /// If this algorithm cannot follow such a quota exactly.
    fn rule(&self, quota: impl Into<Quotas>) -> Result<Self::Rule, QuotaError>;

    /// Returns the longest wait that is reserved for any charge, in µs.
    fn horizon(rule: &Self::Rule) -> i64;

    /// Returns the longest wait that is reserved for a charge of this cost now, in µs; 0 while
    /// others must be settled first. Called only if a charge has to wait.
    #[inline]
    fn max_wait(rule: &Self::Rule, state: Option<&Self::State>, now: i64, cost: i64) -> i64 {
        let _ = (state, now, cost);
        Self::horizon(rule)
    }

    /// Returns the shortest time, in µs, for which the units of a charge are held until it is
    /// settled. Then it must be settled even if it used all of its units. `None`: it holds nothing.
    #[inline]
    fn hold_time(rule: &Self::Rule) -> Option<i64> {
        let _ = rule;
        None
    }

    /// Returns true if the units of a charge are held until it is settled.
    #[inline]
    fn holds(rule: &Self::Rule) -> bool {
        Self::hold_time(rule).is_some()
    }

    /// Returns the wait of a charge of this cost when nothing was taken before, in µs. A charge
    /// that may not wait that long never fits. The result may be a few µs too short.
    #[inline]
    fn least_wait(rule: &Self::Rule, cost: i64) -> i64 {
        let _ = (rule, cost);
        0
    }

    /// Returns when the state becomes equivalent to no state, in µs since the Unix epoch.
    fn expires_at(rule: &Self::Rule, state: &Self::State) -> i64;

    /// Clamps a state from the future: the clock was set back, or the quota was lowered. `None` if
    /// there is nothing to clamp.
    fn clamp(rule: &Self::Rule, state: &Self::State, now: i64) -> Option<Self::State>;

    /// Returns the earliest instant from `at` on at which `cost` fits; `None` if it never does.
    fn earliest_fit(
        rule: &Self::Rule,
        state: Option<&Self::State>,
        at: i64,
        cost: i64,
    ) -> Option<i64>;

    /// Returns the earliest instant from `at` on at which `cost` fits and leaves the units of
    /// `keep_free` free; `None` if it never does.
    #[inline]
    fn fit_keeping(
        rule: &Self::Rule,
        state: Option<&Self::State>,
        at: i64,
        cost: i64,
        keep_free: &[i64],
    ) -> Option<i64> {
        Self::earliest_fit(rule, state, at, cost.saturating_add(kept(keep_free)))
    }

    /// Returns [`max_wait`](Algorithm::max_wait) of a check, which may leave units free, and whose
    /// key may be paused.
    #[inline]
    fn max_wait_of(
        rule: &Self::Rule,
        state: Option<&Self::State>,
        now: i64,
        check: Check<'_>,
    ) -> i64 {
        Self::max_wait(rule, state, now, check.cost.saturating_add(kept(check.keep_free)))
    }

    /// Returns the state after units are consumed, and the mark of that state.
    fn consume(
        rule: &Self::Rule,
        state: Option<Self::State>,
        take: Take<'_>,
    ) -> (Self::State, Mark);

    /// Returns the state after `cost` units are spent at the instant `at`, even if they do not fit.
    /// The same as `consume`, unless `consume` only holds them.
    fn spend(
        rule: &Self::Rule,
        state: Option<Self::State>,
        at: i64,
        cost: i64,
        now: i64,
    ) -> Self::State {
        Self::consume(rule, state, Take { at, cost, now, has_others: false, keep_free: &[] }).0
    }

    /// Returns the units of a penalty that can be taken now: those that may be owed, and in a
    /// window at most its limit. `spend` takes them exactly.
    fn penalty(rule: &Self::Rule, state: Option<&Self::State>, now: i64, cost: i64) -> i64;

    /// Returns false if nothing can be granted: whoever holds the units still has them.
    #[inline]
    fn grants(rule: &Self::Rule) -> bool {
        let _ = rule;
        true
    }

    /// Gives back up to `units` of the taken units, at least one, whoever took them. Held units
    /// stay held.
    fn give(rule: &Self::Rule, state: &mut Self::State, now: i64, units: i64);

    /// Returns the units that remain, and the time until the state is equivalent to no state.
    fn report(rule: &Self::Rule, state: Option<&Self::State>, now: i64) -> Report;

    /// Gives back units of a reservation. Returns how many it gave back. `None`: it gave back
    /// nothing, and the state is as before.
    ///
    /// A full refund restores what the reservation took. A partial refund leaves the state that a
    /// charge of the kept units at the same slot would have left; the slot itself is kept.
    ///
    /// An algorithm that holds what a charge takes settles it here. There, the units to give back
    /// are 0 if all units were used, and below 0 if more were used. Then it returns the units that
    /// it could not take, below 0.
    fn apply_refund(
        rule: &Self::Rule,
        state: &mut Self::State,
        now: i64,
        refund: &Refund<'_>,
    ) -> Option<i64>;

    /// Decides one charge: the twin of the loops `scripts/single.lua` and `several.lua`.
    #[inline]
    fn step(
        rule: &Self::Rule,
        state: &mut Option<Self::State>,
        now: i64,
        check: Check<'_>,
    ) -> Ruling {
        let clamped = state.as_ref().and_then(|state| Self::clamp(rule, state, now));
        let seen = clamped.as_ref().or(state.as_ref());
        let members = Self::judge_each(rule, seen, now, check);
        let (verdict, instant) = judge::<Self>(rule, seen, now, check);
        let mark = match (verdict, instant) {
            (Verdict::Allow | Verdict::Wait(_), Some(instant)) if check.cost > 0 => {
                let before = clamped.or_else(|| state.take());
                let Check { cost, keep_free, .. } = check;
                // A pause determines the instant as another quota would.
                let has_others = check.pause_end() > now;
                let take = Take { at: instant, cost, now, has_others, keep_free };
                let (next, mark) = Self::consume(rule, before, take);
                *state = Some(next);
                mark
            }
            // A refusal writes only a clamped state. Without that, the state would move along with
            // the clock.
            (Verdict::Deny(_), _) if check.cost > 0 && clamped.is_some() => {
                *state = clamped;
                Mark::default()
            }
            _ => return answer::<Self>(rule, seen, now, verdict, members, check.paused),
        };
        let answer = answer::<Self>(rule, state.as_ref(), now, verdict, members, check.paused);
        Ruling { mark: Some(mark), ..answer }
    }

    /// Returns the answer that `step` would give, and takes nothing: the report shows the key as it
    /// is. The twin of the operation `estimate` of a complete script.
    fn estimate(
        rule: &Self::Rule,
        state: Option<&Self::State>,
        now: i64,
        check: Check<'_>,
    ) -> Ruling {
        let clamped = state.and_then(|state| Self::clamp(rule, state, now));
        let seen = clamped.as_ref().or(state);
        let members = Self::judge_each(rule, seen, now, check);
        let (verdict, _) = judge::<Self>(rule, seen, now, check);
        answer::<Self>(rule, seen, now, verdict, members, check.paused)
    }

    /// Returns the answer where keys are blocked: until one instant for all quotas, or one for each,
    /// 0 for those that answer by their state. The twin of `BLOCKED` in a script's reply.
    fn blocked(
        rule: &Self::Rule,
        state: Option<&Self::State>,
        now: i64,
        check: Check<'_>,
        ends: &[i64],
    ) -> Ruling {
        let until = |end: i64| QuotaAnswer {
            verdict: Verdict::Deny(end - now),
            report: Report { remaining: 0, reset_after: end - now },
        };
        let mut answer = Self::estimate(rule, state, now, check);
        for (index, member) in answer.members.iter_mut().enumerate() {
            if let end @ 1.. = kept(kept_of(ends, index)) {
                *member = until(end);
            }
        }
        let QuotaAnswer { verdict, report } = until(ends.iter().copied().fold(0, i64::max));
        Ruling { verdict, report, paused_until: 0, is_blocked: true, ..answer }
    }

    /// Takes a cost even if it does not fit, but for the units that may not be owed. Returns the
    /// answer of a peek after it: the twin of the operation `penalize`.
    fn penalize(rule: &Self::Rule, state: &mut Option<Self::State>, now: i64, cost: i64) -> Ruling {
        let clamped = state.as_ref().and_then(|state| Self::clamp(rule, state, now));
        let seen = clamped.as_ref().or(state.as_ref());
        let taken = Self::penalty(rule, seen, now, cost);
        if taken > 0 {
            let at = Self::earliest_fit(rule, seen, now, 0).unwrap_or(now);
            let before = clamped.or_else(|| state.take());
            *state = Some(Self::spend(rule, before, at, taken, now));
        }
        let answer = Self::estimate(rule, state.as_ref(), now, Check::PEEK);
        Ruling { mark: (taken > 0).then(Mark::default), not_taken: cost - taken, ..answer }
    }

    /// Gives back units without a reservation. Returns the answer of a peek after it: the twin of
    /// the operation `grant`.
    fn grant(rule: &Self::Rule, state: &mut Option<Self::State>, now: i64, units: i64) -> Ruling {
        let own = state.as_mut().filter(|_| units > 0);
        let is_changed = own.is_some();
        if let Some(own) = own {
            if let Some(clamped) = Self::clamp(rule, own, now) {
                *own = clamped;
            }
            Self::give(rule, own, now, units);
        }
        let answer = Self::estimate(rule, state.as_ref(), now, Check::PEEK);
        Ruling { mark: is_changed.then(Mark::default), ..answer }
    }

    /// Gives back units of a reservation, and returns how many: the twin of the operation `refund`.
    /// `None`: the state is unchanged.
    fn refund(
        rule: &Self::Rule,
        state: &mut Option<Self::State>,
        now: i64,
        refund: &Refund<'_>,
    ) -> Option<i64> {
        let most_kept = if Self::holds(rule) { i64::MAX } else { refund.cost - 1 };
        let is_possible = refund.units <= refund.cost && refund.kept() <= most_kept;
        let state = state.as_mut().filter(|_| is_possible)?;
        let Some(mut clamped) = Self::clamp(rule, state, now) else {
            return Self::apply_refund(rule, state, now, refund);
        };
        let units = Self::apply_refund(rule, &mut clamped, now, refund)?;
        *state = clamped;
        Some(units)
    }

    /// Holds the units of a reservation as if they were charged now: the twin of the operation
    /// `renew`. Returns the mark that settles them from now on, and false if they were no longer
    /// held. Then no renewal or release finds units by that mark: they would be of others.
    fn renew(
        rule: &Self::Rule,
        state: &mut Option<Self::State>,
        now: i64,
        cost: i64,
        mark: &Mark,
    ) -> (Mark, bool) {
        if !Self::holds(rule) {
            return (mark.clone(), false);
        }
        if Self::refund(rule, state, now, &Refund::of_all(cost, mark)).is_none() {
            return (Mark::lost(), false);
        }
        let take = Take { at: now, cost, now, has_others: false, keep_free: &[] };
        let (next, mark) = Self::consume(rule, state.take(), take);
        *state = Some(next);
        (mark, true)
    }

    /// Settles a reservation: gives back the units of `refund`, or takes more if they are below 0.
    /// Returns how many it gave back; below 0, how many it could not take. `None`: the state is
    /// unchanged.
    fn settle(
        rule: &Self::Rule,
        state: &mut Option<Self::State>,
        now: i64,
        refund: &Refund<'_>,
    ) -> Option<i64> {
        match refund.units {
            ..0 if !Self::holds(rule) => {
                Some(-Self::penalize(rule, state, now, -refund.units).not_taken)
            }
            _ => Self::refund(rule, state, now, refund),
        }
    }
}

#[inline]
fn judge<A: Algorithm>(
    rule: &A::Rule,
    state: Option<&A::State>,
    now: i64,
    check: Check,
) -> (Verdict, Option<i64>) {
    let Check { cost, max_wait, keep_free, .. } = check;
    let may_wait =
        |wait| cost > 0 && wait <= max_wait && wait <= A::max_wait_of(rule, state, now, check);
    let instant = A::fit_keeping(rule, state, now, cost, keep_free);
    // What fits at an instant also fits later.
    let instant = instant.map(|instant| instant.max(check.pause_end()));
    let verdict = match instant.map(|instant| instant - now) {
        None => Verdict::Never,
        Some(0) => Verdict::Allow,
        Some(wait) if may_wait(wait) => Verdict::Wait(wait),
        Some(_) if A::least_wait(rule, cost) > max_wait.min(A::horizon(rule)) => Verdict::Never,
        Some(wait) => Verdict::Deny(wait),
    };
    (verdict, instant)
}

/// The answer of a step that wrote no state.
#[inline]
fn answer<A: Algorithm>(
    rule: &A::Rule,
    state: Option<&A::State>,
    now: i64,
    verdict: Verdict,
    mut members: Box<[QuotaAnswer]>,
    paused: &[i64],
) -> Ruling {
    A::report_each(rule, state, now, &mut members);
    for (index, member) in members.iter_mut().enumerate() {
        member.report = member.report.paused(now, kept(kept_of(paused, index)));
    }
    let paused_until = paused.iter().copied().fold(0, i64::max);
    let report = match members.is_empty() {
        true => A::report(rule, state, now).paused(now, paused_until),
        false => several::joined(members.iter().map(|member| member.report)),
    };
    Ruling { verdict, report, members, mark: None, not_taken: 0, paused_until, is_blocked: false }
}
