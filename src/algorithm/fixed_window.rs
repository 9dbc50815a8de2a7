//! Fixed window: a number of units in each period of the clock, or in each window of a calendar.
//!
//! A count starts again with each period. Windows are aligned to the Unix epoch, so a daily quota
//! starts at midnight UTC for every key. Anchored windows start with the first charge of a key.
//!
//! The twin of `scripts/fixed_window.lua`, and of `scripts/calendar.lua`.

use std::time::Duration;

#[cfg(feature = "calendar")]
use super::Calendar;
#[cfg(any(feature = "calendar", test))]
use super::ScriptPart;
use super::{
    Algorithm, Check, DEFAULT_HORIZON, Element, InLua, Mark, NO_STATE, Refund, Report, Take, exact,
    in_lua::{integers, state_of},
    micros, without_burst,
};
use crate::core::quota::{Quota, QuotaError, Quotas};

/// Admits a number of units in each period of the clock, or in a period that begins with a key's
/// first charge.
///
/// **Bound.** At most `limit` units in each window. In any stretch of a period at most twice that:
/// the end of one window may be followed by the start of the next.
///
/// **Cost.** An instant and a count for each key: 181 bytes in Redis; 15 µs of script time alone,
/// 3.2 in a batch of 64.
///
/// **Windows** are counted from 1970-01-01 00:00 UTC, a Thursday, unless they are
/// [`anchored`](FixedWindow::anchored). For weeks that begin on Mondays, for months and for local
/// midnights take [`FixedWindow::calendar`], with the feature `calendar`.
///
/// **Choose it** for quotas that are sold by the period, such as 1,000 a day.
///
/// **Timeline.** At 2 per second, two charges are admitted in the last microsecond of a second, and
/// two more in the next microsecond.
///
/// ```
/// # use tower_sluice::algorithm::{Algorithm, Check, FixedWindow, Verdict::*};
/// # use tower_sluice::Quota;
/// let limit = FixedWindow::new(Quota::per_second(2));
/// let rule = limit.rule(limit.quota())?;
/// let mut state = None;
/// let mut check = |at: i64, cost, max_wait| {
///     let now = 1_767_225_600_000_000 + at;
///     FixedWindow::step(&rule, &mut state, now, Check::new(cost, max_wait)).verdict
/// };
/// assert_eq!([999_999, 999_999].map(|at| check(at, 1, 0)), [Allow; 2]);
/// assert_eq!(check(999_999, 1, 0), Deny(1));
/// assert_eq!([1_000_000, 1_000_000].map(|at| check(at, 1, 0)), [Allow; 2]);
/// assert_eq!(check(1_000_000, 1, 3_000_000), Wait(1_000_000));
/// # Ok::<(), tower_sluice::algorithm::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct FixedWindow {
    quota: Quota,
    horizon: Duration,
    begins: Begins,
}

/// When windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    /// With the periods of the clock.
    Epoch,
    /// With the first charge of a key.
    Anchored,
    #[cfg(feature = "calendar")]
    Calendar(Calendar),
}

impl FixedWindow {
    /// A window that admits the quota's limit in each of its periods.
    ///
    /// A window has no burst: a quota whose burst differs from its limit is an error when the
    /// limiter is built.
    pub const fn new(quota: Quota) -> Self {
        Self { quota, horizon: DEFAULT_HORIZON, begins: Begins::Epoch }
    }

    /// A window that admits `limit` units in each window of a calendar, such as a month in Berlin.
    ///
    /// The clock of the server decides. If it and that of the process differ by more than a window,
    /// charges get an error of kind [`Configuration`](crate::ErrorKind::Configuration) that names
    /// both. A wait ends in the next window at the latest: the horizon is at most 12 hours for
    /// days, and shorter than a window for all others.
    ///
    /// A charge brings its own quota by [`Calendar::quota`]. The quotas of decisions have the
    /// length of the window at hand as their period: 31 days in December.
    ///
    /// # Panics
    ///
    /// If [`FixedWindow::try_calendar`] returns an error; in a `const`, at compile time.
    #[cfg(feature = "calendar")]
    #[track_caller]
    pub const fn calendar(limit: u64, calendar: Calendar) -> Self {
        Self { begins: Begins::Calendar(calendar), ..Self::new(calendar.quota(limit)) }
    }

    /// A window of a calendar, for a limit from a file or a user.
    ///
    /// # Errors
    ///
    /// If the limit exceeds 2^50 units. A limit of 0 admits [nothing](Quota::none).
    #[cfg(feature = "calendar")]
    pub fn try_calendar(limit: u64, calendar: Calendar) -> Result<Self, QuotaError> {
        let quota = calendar.try_quota(limit)?;
        Ok(Self { begins: Begins::Calendar(calendar), ..Self::new(quota) })
    }

    /// Starts a key's window with its first charge. Default: with the periods of the clock.
    ///
    /// A refused charge or a peek does not start a window.
    pub const fn anchored(self) -> Self {
        Self { begins: Begins::Anchored, ..self }
    }

    horizon_setter! {
        /// A charge with a longer `max_wait` waits at most this long.
    }
}

/// `limit` units in each `period`. A calendar has a longest wait that is shorter than its windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    limit: i64,
    period: i64,
    horizon: i64,
    begins: Begins,
}

impl Rule {
    /// The start of the window that holds `at`, or that starts there.
    #[inline]
    fn begin(&self, at: i64) -> i64 {
        match self.begins {
            Begins::Epoch => at - at % self.period,
            Begins::Anchored => at,
            #[cfg(feature = "calendar")]
            Begins::Calendar(calendar) => calendar.window(at)[0],
        }
    }

    /// Returns the state if its window has not ended by `at`.
    #[inline]
    fn alive(&self, state: Option<&State>, at: i64) -> Option<State> {
        let state = *state?;
        let over = self.end(&state) <= at;
        let emptied = state.units == 0 && state.begin <= at;
        (!over && !emptied).then_some(state)
    }

    #[inline]
    fn end(&self, state: &State) -> i64 {
        #[cfg(feature = "calendar")]
        if let Begins::Calendar(calendar) = self.begins {
            return calendar.window(state.begin)[1];
        }
        self.begin(state.begin) + self.period
    }
}

/// The latest window that holds units: an instant in it, and its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    begin: i64,
    units: i64,
}

impl Algorithm for FixedWindow {
    type Rule = Rule;
    type State = State;

    of_one_quota!();

    fn rule(&self, quota: impl Into<Quotas>) -> Result<Rule, QuotaError> {
        let quota = without_burst(quota, "a window has no burst")?;
        let horizon = match self.begins {
            #[cfg(feature = "calendar")]
            Begins::Calendar(calendar) if calendar.mean() != quota.period() && !quota.is_none() => {
                return Err(QuotaError(
                    "a quota of another period than the windows of the calendar",
                ));
            }
            #[cfg(feature = "calendar")]
            Begins::Calendar(calendar) => self.horizon.min(calendar.shortest()),
            _ => self.horizon,
        };
        Ok(Rule {
            limit: exact(quota.limit()),
            period: micros(quota.period()),
            horizon: micros(horizon),
            begins: self.begins,
        })
    }

    #[cfg(feature = "calendar")]
    fn reported(&self, _: usize, quota: Quota, now: i64) -> Quota {
        let Begins::Calendar(calendar) = self.begins else { return quota };
        let [begin, end] = calendar.window(now);
        let period = Duration::from_micros((end - begin).unsigned_abs());
        Quota::try_new(quota.limit(), period).unwrap_or(quota)
    }

    #[inline]
    fn expires_at(rule: &Rule, state: &State) -> i64 {
        rule.end(state)
    }

    #[inline]
    fn clamp(rule: &Rule, state: &State, now: i64) -> Option<State> {
        let late = match rule.begins {
            Begins::Epoch => false,
            Begins::Anchored => state.begin > now + rule.horizon + rule.period,
            #[cfg(feature = "calendar")]
            Begins::Calendar(calendar) => {
                state.begin > now && state.begin >= calendar.end_after(now, 2)
            }
        };
        if rule.begins != Begins::Epoch {
            return late.then(|| State { begin: rule.begin(now), units: rule.limit });
        }
        let reach = (rule.horizon + rule.period - 1) / rule.period + 1;
        let ahead = (rule.begin(state.begin) - rule.begin(now)) / rule.period;
        (ahead > reach).then_some(State { begin: rule.begin(now), units: rule.limit })
    }

    #[inline]
    fn earliest_fit(rule: &Rule, state: Option<&State>, at: i64, cost: i64) -> Option<i64> {
        if cost > rule.limit {
            return None;
        }
        let Some(state) = rule.alive(state, at) else { return Some(at) };
        if state.units + cost <= rule.limit {
            return Some(at.max(state.begin));
        }
        Some(rule.end(&state))
    }

    #[inline]
    fn consume(rule: &Rule, state: Option<State>, take: Take<'_>) -> (State, Mark) {
        let Take { at, cost, now, has_others, .. } = take;
        let next = match rule.alive(state.as_ref(), at) {
            Some(State { begin, units }) => State { begin, units: units + cost },
            None => State { begin: rule.begin(at), units: cost },
        };
        let from = match has_others && at > now {
            true => state.map_or((NO_STATE, 0), |state| (state.begin + 1, state.units)),
            false => (0, 0),
        };
        (next, [next.begin, next.units, from.0, from.1].into())
    }

    /// Nothing if the window holds more than its limit already.
    fn penalty(rule: &Rule, state: Option<&State>, now: i64, cost: i64) -> i64 {
        let is_over = rule.alive(state, now).is_some_and(|state| state.units > rule.limit);
        if is_over { 0 } else { cost.min(rule.limit) }
    }

    fn give(_: &Rule, state: &mut State, _: i64, units: i64) {
        state.units = (state.units - units).max(0);
    }

    #[inline]
    fn report(rule: &Rule, state: Option<&State>, now: i64) -> Report {
        let Some(state) = rule.alive(state, now) else { return Report::full(rule.limit) };
        let remaining = if state.begin > now { 0 } else { (rule.limit - state.units).max(0) };
        // If a refund emptied a window before its begin, it counts as no window once it has begun.
        let reset = if state.units == 0 { state.begin } else { rule.end(&state) };
        Report { remaining, reset_after: reset - now }
    }

    fn apply_refund(rule: &Rule, state: &mut State, now: i64, refund: &Refund<'_>) -> Option<i64> {
        let alive = rule.alive(Some(state), now)?;
        let [mark_begin, mark_units, from, from_units] = refund.mark.first;
        if alive.begin != mark_begin {
            return None;
        }
        // The state is what the charge wrote: the window holds no other charge.
        if from > 0 && refund.is_whole() && alive.units == mark_units {
            *state = State { begin: from - 1, units: from_units };
            return Some(refund.units);
        }
        let units = refund.units.min(alive.units);
        *state = State { begin: alive.begin, units: alive.units - units };
        Some(units)
    }
}

/// The script of windows by a calendar. Its states are those of other windows.
#[cfg(any(feature = "calendar", test))]
pub(crate) const CALENDAR: ScriptPart = ScriptPart {
    name: "calendar",
    tag: FixedWindow::TAG,
    script: include_str!("../../scripts/calendar.lua"),
    own_costs: false,
};

impl InLua for FixedWindow {
    const NAME: &'static str = "fixed_window";
    const TAG: &'static str = "fw1";
    const SCRIPT: &'static str = include_str!("../../scripts/fixed_window.lua");

    #[cfg(feature = "calendar")]
    fn parts(&self) -> Vec<ScriptPart> {
        vec![match self.begins {
            Begins::Calendar(_) => CALENDAR,
            _ => ScriptPart::of::<Self>(),
        }]
    }

    fn arguments(rule: &Rule, present: i64) -> Vec<i64> {
        #[cfg(feature = "calendar")]
        if let Begins::Calendar(calendar) = rule.begins {
            return [rule.horizon, rule.limit].into_iter().chain(calendar.edges(present)).collect();
        }
        let _ = present;
        vec![rule.horizon, rule.limit, rule.period, i64::from(rule.begins == Begins::Anchored)]
    }

    #[cfg(feature = "calendar")]
    fn is_dated(rule: &Rule) -> bool {
        matches!(rule.begins, Begins::Calendar(_))
    }

    fn state(_: &Rule, _: i64, _: Check<'_>, reply: &mut &[Element<'_>]) -> Option<Option<State>> {
        state_of(reply, |[begin, units]| Some(State { begin, units }))
    }

    fn short_state(rule: &Rule, now: i64, units: i64) -> Option<Option<State>> {
        Some((units > 0).then(|| State { begin: rule.begin(now), units }))
    }

    fn stored(_: &Rule, text: &str) -> Option<State> {
        integers(text).map(|[begin, units]| State { begin, units })
    }
}
