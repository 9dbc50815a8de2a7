//! Sliding counter: two fixed windows, the earlier one weighted by the share that still counts.
//!
//! The twin of `scripts/sliding_counter.lua`.

use std::time::Duration;

use super::in_lua::{integers, state_of};
use super::{
    Algorithm, Check, DEFAULT_HORIZON, Element, INEXACT, InLua, Mark, NO_STATE, Refund, Report,
    Take, exact, micros, without_burst,
};
use crate::core::quota::{Quota, QuotaError, Quotas};

/// Counts units in two fixed windows, and weights the earlier window by its share that is still
/// within the last period. Many gateways do this; here the waits are exact.
///
/// **Bound.** Below `2 * limit` units in any stretch of a period; `limit` for steady traffic.
///
/// **Cost.** Two counts and two instants: 197 bytes in Redis; 16 µs of script time alone, 5.3
/// in a batch of 64.
///
/// **Choose it** to replace a gateway such as Cloudflare's with the same decisions, or for a large
/// limit that may be approximate, but should not jump with the clock.
///
/// **Timeline.** Ten per second. Ten units are taken at the end of a second. A tenth of a second
/// into the next one they count as nine, and one more fits.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct SlidingCounter {
    quota: Quota,
    horizon: Duration,
}

impl SlidingCounter {
    /// A counter that admits about the quota's limit in any stretch of its period.
    ///
    /// A window has no burst: a quota whose burst differs from its limit is an error when the
    /// limiter is built. A quota whose limit times its period in µs exceeds 2^53 is an error too: a
    /// day reaches that at about 104,000 units.
    pub const fn new(quota: Quota) -> Self {
        Self { quota, horizon: DEFAULT_HORIZON }
    }

    horizon_setter! {
        /// A charge with a longer `max_wait` waits at most this long.
    }
}

/// `limit` units in each `period`. Up to `most` units are computed exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    limit: i64,
    period: i64,
    horizon: i64,
    most: i64,
}

impl Rule {
    fn begin(&self, at: i64) -> i64 {
        at - at % self.period
    }

    fn rebase(&self, state: Option<&State>) -> Option<State> {
        let state = state?;
        let begin = self.begin(state.latest);
        let before = self.begin((state.begin - 1).max(0));
        let (mut current, mut previous) = (state.current, 0);
        if before == begin {
            current += state.previous;
        } else if before == begin - self.period {
            previous = state.previous;
        }
        Some(State {
            begin,
            current: current.min(self.most),
            previous: previous.min(self.most),
            latest: state.latest,
        })
    }

    /// The units of the window that begins at `begin`, and of the one before it.
    fn units(&self, state: &State, begin: i64) -> (i64, i64) {
        if begin == state.begin {
            return (state.current, state.previous);
        } else if begin == state.begin + self.period {
            return (0, state.current);
        }
        (0, 0)
    }

    /// The units that count at `at`. The units of the window before are weighted by the share that
    /// still counts, rounded up.
    fn used(&self, state: &State, at: i64) -> i64 {
        let begin = self.begin(at);
        let (current, previous) = self.units(state, begin);
        let weighted = previous * (self.period - (at - begin));
        current + weighted / self.period + i64::from(weighted % self.period > 0)
    }

    /// The instant at which the last unit of the state stops to count.
    fn end(&self, state: &State) -> i64 {
        if state.current > 0 {
            return state.begin + 2 * self.period;
        } else if state.previous > 0 {
            return state.begin + self.period;
        }
        state.latest
    }
}

/// The latest window that holds units, its units and those of the one before, and the latest
/// instant of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    begin: i64,
    current: i64,
    previous: i64,
    latest: i64,
}

impl Algorithm for SlidingCounter {
    type Rule = Rule;
    type State = State;

    of_one_quota!();

    fn rule(&self, quota: impl Into<Quotas>) -> Result<Rule, QuotaError> {
        let quota = without_burst(quota, "a window has no burst")?;
        let (limit, period) = (exact(quota.limit()), micros(quota.period()));
        let most = INEXACT / period;
        if limit > most {
            return Err(QuotaError("limit * period exceeds 2^53, the period in microseconds"));
        }
        Ok(Rule { limit, period, horizon: micros(self.horizon), most })
    }

    fn expires_at(rule: &Rule, state: &State) -> i64 {
        rule.rebase(Some(state)).map_or(0, |state| rule.end(&state))
    }

    fn clamp(rule: &Rule, state: &State, now: i64) -> Option<State> {
        let late = state.latest > now + rule.horizon;
        let (begin, current) = (rule.begin(now), rule.limit);
        late.then_some(State { begin, current, previous: 0, latest: now })
    }

    fn earliest_fit(rule: &Rule, state: Option<&State>, at: i64, cost: i64) -> Option<i64> {
        if cost > rule.limit {
            return None;
        }
        let Some(state) = rule.rebase(state) else { return Some(at) };
        let from = at.max(state.latest);
        let mut begin = rule.begin(from);
        loop {
            let (current, previous) = rule.units(&state, begin);
            let room = rule.limit - cost - current;
            if room >= 0 {
                // The longest rest of this window for which the weighted window before it fits into
                // the room.
                let mut rest = rule.period;
                if previous > room {
                    rest = room * rule.period / previous;
                }
                if rest > 0 {
                    return Some(from.max(begin + rule.period - rest));
                }
            }
            begin += rule.period;
        }
    }

    /// With others, the mark holds the state before even if the charge does not wait.
    fn consume(rule: &Rule, state: Option<State>, take: Take<'_>) -> (State, Mark) {
        let Take { at, cost, has_others, .. } = take;
        let before = rule.rebase(state.as_ref());
        let begin = rule.begin(at);
        let (current, previous) = before.map_or((0, 0), |before| rule.units(&before, begin));
        let current = (current + cost).min(rule.most);
        let from = match before {
            _ if !has_others => [0; 3],
            Some(before) => [before.latest + 1, before.current, before.previous],
            None => [NO_STATE, 0, 0],
        };
        let mark = [at, from[0], from[1], from[2]].into();
        (State { begin, current, previous, latest: at }, mark)
    }

    /// Nothing if more than the limit count already.
    fn penalty(rule: &Rule, state: Option<&State>, now: i64, cost: i64) -> i64 {
        let used = rule.rebase(state).map_or(0, |state| rule.used(&state, now.max(state.latest)));
        if used > rule.limit { 0 } else { cost.min(rule.limit) }
    }

    /// Gives back the units of the latest window first.
    fn give(rule: &Rule, state: &mut State, _: i64, units: i64) {
        let own = rule.rebase(Some(state)).unwrap_or(*state);
        let given = units.min(own.current);
        let previous = (own.previous - (units - given)).max(0);
        *state = State { current: own.current - given, previous, ..own };
    }

    fn report(rule: &Rule, state: Option<&State>, now: i64) -> Report {
        let Some(state) = rule.rebase(state) else { return Report::full(rule.limit) };
        let remaining = match state.latest <= now {
            true => (rule.limit - rule.used(&state, now)).max(0),
            false => 0,
        };
        Report { remaining, reset_after: (rule.end(&state) - now).max(0) }
    }

    fn apply_refund(rule: &Rule, state: &mut State, now: i64, refund: &Refund<'_>) -> Option<i64> {
        let mut next = rule.rebase(Some(state))?;
        let [mark_latest, from, current, previous] = refund.mark.first;
        let mark_begin = rule.begin(mark_latest);
        if mark_begin + 2 * rule.period <= now {
            return None;
        }
        if from > 0 && refund.is_whole() {
            let (begin, latest) = (rule.begin(from - 1), from - 1);
            let before = State { begin, current, previous, latest };
            let (current, previous) = rule.units(&before, mark_begin);
            let exact = (mark_latest, current + refund.cost, previous);
            if (next.latest, next.current, next.previous) == exact {
                *state = before;
                return Some(refund.units);
            }
        }
        let units = if next.begin == mark_begin {
            &mut next.current
        } else if next.begin - rule.period == mark_begin {
            &mut next.previous
        } else {
            return None;
        };
        let given = refund.units.min(*units);
        *units -= given;
        if from > 0 && given > 0 && next.latest > now {
            // A later reservation may fill the freed room, at the same latest instant. Its state
            // must differ from the one before.
            next.latest += 1;
            if next.latest > now + rule.horizon || rule.begin(next.latest) != next.begin {
                return None;
            }
        }
        *state = next;
        Some(given)
    }
}

impl InLua for SlidingCounter {
    const NAME: &'static str = "sliding_counter";
    const TAG: &'static str = "sc1";
    const SCRIPT: &'static str = include_str!("../../scripts/sliding_counter.lua");

    fn arguments(rule: &Rule, _: i64) -> Vec<i64> {
        vec![rule.horizon, rule.limit, rule.period]
    }

    fn state(_: &Rule, _: i64, _: Check<'_>, reply: &mut &[Element<'_>]) -> Option<Option<State>> {
        state_of(reply, |[begin, current, previous, latest]| {
            let state = State { begin, current, previous, latest };
            (begin <= latest).then_some(state)
        })
    }

    fn short_state(rule: &Rule, now: i64, number: i64) -> Option<Option<State>> {
        let (previous, current) = (number / (rule.limit + 1), number % (rule.limit + 1));
        let begin = rule.begin(now);
        let state = State { begin, current, previous, latest: begin };
        (previous <= rule.limit).then_some((number > 0).then_some(state))
    }

    fn stored(_: &Rule, text: &str) -> Option<State> {
        let [begin, current, previous, latest] = integers(text)?;
        (begin <= latest).then_some(State { begin, current, previous, latest })
    }
}

#[cfg(test)]
mod tests;
