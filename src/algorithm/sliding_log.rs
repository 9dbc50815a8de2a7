//! Sliding log: remembers every admission of the last period, so nothing is rounded.
//!
//! Each member of the log has the running total of units, so a binary search finds the member that
//! must leave first.
//!
//! The twin of `scripts/sliding_log.lua`.

use std::collections::VecDeque;
use std::time::Duration;

use super::{
    Algorithm, Check, DEFAULT_HORIZON, Element, INEXACT, InLua, Mark, Refund, Report, Take, exact,
    in_lua::{integer, state_of},
    micros,
    verdict::kept,
    without_burst,
};
use crate::core::quota::{Quota, QuotaError, Quotas};

/// The most units that a log may hold: up to it, every difference of totals is exact.
const MAX_COUNTED: i128 = 100_000_000_000_000;

/// The units of a lap. The script stores a total as a count of laps and a rest.
const LAP: i64 = 1_000_000_000_000_000;

/// The number of laps after which a script counts them from 0 again.
const LAPS: i64 = 100_000;

const PRUNED: usize = 256;

/// Remembers every admission of the last period, so that nothing is rounded.
///
/// **Bound.** At most `limit` units in any stretch of a period, and no throughput is lost for it. A
/// charge counts at the instant of its admission. Calls take different times to arrive, so a
/// supplier may count more: see the margin in [clients].
///
/// **Cost.** A member for each charge of the last period: about 120 bytes each in Redis (472 for
/// ten, 1.2 MB for 10,000). 37 µs of script time alone, and at most 1.2 times that at 10,000
/// members. Limits above 10,000 need [`max_limit`](SlidingLog::max_limit).
///
/// **Choose it** if a small limit must hold exactly over every window, such as five attempts in any
/// minute.
///
/// **Timeline.** Five a second: three at the start, two 150 ms later. A unit is free again exactly
/// a second after it was taken.
///
/// [clients]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/clients/
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct SlidingLog {
    quota: Quota,
    horizon: Duration,
    max_limit: u64,
}

impl SlidingLog {
    /// A log that admits the quota's limit in any stretch of its period.
    ///
    /// A log has no burst: a quota whose burst differs from its limit is an error when the limiter
    /// is built. A limit above [`max_limit`](SlidingLog::max_limit) is an error too.
    pub const fn new(quota: Quota) -> Self {
        Self { quota, horizon: DEFAULT_HORIZON, max_limit: 10_000 }
    }

    /// Sets the largest limit that a quota may have. A key stores up to that many members, of about
    /// 120 bytes each. Default: 10,000.
    pub const fn max_limit(self, units: u64) -> Self {
        Self { max_limit: units, ..self }
    }

    horizon_setter! {
        /// A charge with a longer `max_wait` waits at most this long.
    }
}

/// `limit` units in any `period` µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    limit: i64,
    period: i64,
    horizon: i64,
}

/// The admissions of the last period, and some older ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    members: VecDeque<LoggedCharge>,
    /// The number of laps, of [`LAP`] units each, that the members' totals leave out.
    laps: i64,
}

/// One admission: its instant, the total of units up to it, and its own units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LoggedCharge {
    at: i64,
    total: i64,
    units: i64,
}

/// A member of a stored log: its text, and its score.
pub(crate) type StoredMember = (String, f64);

/// Reads a member: its instant, its total with all laps, and its units. `None`: no script writes
/// it.
fn stored_member((text, score): &StoredMember) -> Option<(i64, i128, i64)> {
    let at = Some(*score).filter(|at| at.fract() == 0.0 && (0.0..INEXACT as f64).contains(at));
    let (digits, units) = text.split_once(':')?;
    let is_total = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let total = digits.parse().ok().filter(|_| is_total)?;
    Some((at? as i64, total, integer(units).filter(|units| *units > 0)?))
}

/// Makes the state of a stored log of its newest member and the `first` that count. With it comes
/// the number of first members that are needed: more than one if a penalty exceeded the limit.
/// `Some(None)`: the log stands for no state. `None`: no script writes such members.
pub(crate) fn stored_log(
    limit: u64,
    first: &[StoredMember],
    newest: &StoredMember,
) -> Option<Option<(State, usize)>> {
    let members = first.iter().filter(|member| *member != newest).chain([newest]);
    let members: Vec<_> = members.map(stored_member).collect::<Option<_>>()?;
    let (begin, last) = (*members.first()?, *members.last()?);
    if last.0 == 0 && last.1 == 0 {
        return Some(None);
    }
    let member = |(at, total, units)| {
        // Totals wrap after all laps.
        let after = i128::rem_euclid(total - begin.1, i128::from(LAP) * i128::from(LAPS));
        let total = i64::try_from(after).ok().filter(|units| *units < INEXACT)?;
        Some(LoggedCharge { at, total, units })
    };
    let members: VecDeque<_> = members.into_iter().map(member).collect::<Option<_>>()?;
    let used = members.back()?.total + begin.2;
    let needed = usize::try_from(used - exact(limit) + 1).unwrap_or(1).max(1);
    Some(Some((State { members, laps: 0 }, needed)))
}

impl State {
    fn mark(&self) -> Mark {
        let last = self.last().map(|last| {
            let laps = self.laps + last.total.div_euclid(LAP);
            [last.at, laps.rem_euclid(LAPS), last.total.rem_euclid(LAP), 0]
        });
        last.unwrap_or_default().into()
    }

    fn last(&self) -> Option<&LoggedCharge> {
        self.members.back()
    }

    /// Removes some expired members, as each script that adds a member does.
    fn prune(&mut self, cutoff: i64) {
        for _ in 0..PRUNED {
            match self.members.front() {
                Some(first) if first.at <= cutoff => self.members.pop_front(),
                _ => break,
            };
        }
    }

    /// The units admitted after `cutoff`.
    fn used(&self, cutoff: i64) -> i64 {
        let out = self.members.partition_point(|member| member.at <= cutoff);
        match (self.members.get(out), self.last()) {
            (Some(first), Some(last)) => last.total - first.total + first.units,
            _ => 0,
        }
    }
}

impl Algorithm for SlidingLog {
    type Rule = Rule;
    type State = State;

    of_one_quota!();

    fn rule(&self, quota: impl Into<Quotas>) -> Result<Rule, QuotaError> {
        let quota = without_burst(quota, "a log has no burst")?;
        if quota.limit() > self.max_limit {
            return Err(QuotaError("the limit exceeds the max_limit of the log"));
        }
        let rule = Rule {
            limit: exact(quota.limit()),
            period: micros(quota.period()),
            horizon: micros(self.horizon),
        };
        let periods = i128::from(rule.horizon / rule.period) + 2;
        if i128::from(rule.limit) * periods > MAX_COUNTED {
            return Err(QuotaError("limit * horizon / period is too large for a log: over 10^14"));
        }
        Ok(rule)
    }

    fn expires_at(rule: &Rule, state: &State) -> i64 {
        state.last().map_or(0, |last| last.at + rule.period)
    }

    fn clamp(rule: &Rule, state: &State, now: i64) -> Option<State> {
        let late = state.last().is_some_and(|last| last.at > now + rule.horizon);
        late.then(|| Self::spend(rule, None, now, rule.limit, now))
    }

    fn earliest_fit(rule: &Rule, state: Option<&State>, at: i64, cost: i64) -> Option<i64> {
        if cost > rule.limit {
            return None;
        }
        let Some((state, last)) = state.and_then(|state| Some((state, state.last()?))) else {
            return Some(at);
        };
        let (from, room) = (at.max(last.at), rule.limit - cost);
        if state.used(from - rule.period) <= room {
            return Some(from);
        }
        // The oldest member with no more than `room` units after it: the cost fits as soon as that
        // member leaves the window.
        let leaver = state.members.partition_point(|member| last.total - member.total > room);
        Some(from.max(state.members[leaver].at + rule.period))
    }

    fn consume(rule: &Rule, state: Option<State>, take: Take<'_>) -> (State, Mark) {
        let Take { at, cost, now, .. } = take;
        let mut state = state.unwrap_or_default();
        if state.last().is_some_and(|last| last.at <= now - rule.period) {
            // Every member has expired: the log starts again.
            state = State::default();
        }
        let total = state.last().map_or(0, |last| last.total) + cost;
        state.members.push_back(LoggedCharge { at, total, units: cost });
        state.prune(now - rule.period);
        let mark = state.mark();
        (state, mark)
    }

    /// Nothing if more than the limit count already.
    fn penalty(rule: &Rule, state: Option<&State>, now: i64, cost: i64) -> i64 {
        let last = |state: &State| state.last().map_or(now, |last| last.at.max(now));
        let used = state.map_or(0, |state| state.used(last(state) - rule.period));
        if used > rule.limit { 0 } else { cost.min(rule.limit) }
    }

    /// Gives back the newest units first: a change of older ones would make the later totals wrong.
    fn give(rule: &Rule, state: &mut State, now: i64, units: i64) {
        if units >= state.used(now - rule.period) {
            return *state = State::default();
        }
        let mut rest = units;
        while let Some(newest) = state.last().filter(|newest| newest.units <= rest) {
            rest -= newest.units;
            state.members.pop_back();
        }
        if let Some(newest) = state.members.back_mut().filter(|_| rest > 0) {
            (newest.units, newest.total) = (newest.units - rest, newest.total - rest);
            state.prune(now - rule.period);
        }
    }

    fn report(rule: &Rule, state: Option<&State>, now: i64) -> Report {
        let Some((state, last)) = state.and_then(|state| Some((state, state.last()?))) else {
            return Report::full(rule.limit);
        };
        let remaining = match last.at <= now {
            true => (rule.limit - state.used(now - rule.period)).max(0),
            false => 0,
        };
        Report { remaining, reset_after: (last.at + rule.period - now).max(0) }
    }

    /// Refunds only the newest member: a change of an older one would make the later totals wrong.
    fn apply_refund(rule: &Rule, state: &mut State, now: i64, refund: &Refund<'_>) -> Option<i64> {
        let newest = state.mark().first;
        let last = state.members.back_mut()?;
        let is_marked = newest == refund.mark.first && last.units == refund.cost;
        if last.at + rule.period <= now || !is_marked {
            return None;
        }
        if refund.is_whole() {
            state.members.pop_back();
        } else {
            last.units -= refund.units;
            last.total -= refund.units;
            state.prune(now - rule.period);
        }
        Some(refund.units)
    }
}

impl InLua for SlidingLog {
    const NAME: &'static str = "sliding_log";
    const TAG: &'static str = "sl1";
    const SCRIPT: &'static str = include_str!("../../scripts/sliding_log.lua");

    fn arguments(rule: &Rule, _: i64) -> Vec<i64> {
        vec![rule.horizon, rule.limit, rule.period]
    }

    fn state(
        rule: &Rule,
        now: i64,
        check: Check<'_>,
        reply: &mut &[Element<'_>],
    ) -> Option<Option<State>> {
        state_of(reply, |[at, lap, total, counted, leaver_at]| {
            // Only the members that this decision needs: the first whose units count, the one that
            // the charge waits for, and the newest.
            let cutoff = at.max(now) - rule.period;
            let cost = check.cost + kept(check.keep_free);
            let mut members = VecDeque::with_capacity(3);
            if counted > 0 {
                members.push_back(LoggedCharge {
                    at: cutoff + 1,
                    total: total - counted,
                    units: 0,
                });
            }
            if cost <= rule.limit && counted > rule.limit - cost {
                members.push_back(LoggedCharge { at: leaver_at, total, units: 0 });
            }
            members.push_back(LoggedCharge { at, total, units: counted });
            Some(State { members, laps: lap })
        })
    }
}

#[cfg(test)]
mod tests;
