//! The log as an algorithm for [`Memory`]. Grants have numbers instead of random bytes.

use super::PermitLog;
use super::state::{Rule, State, member_of, until};
use crate::algorithm::sealed::Sealed;
use crate::algorithm::{Algorithm, Answer, Check, Mark, Refund, Report, Take, Verdict, exact};
use crate::quota::{QuotaError, Quotas};
use crate::redisson::grant::GrantId;
use crate::{Error, Memory};

/// The most permits of one grant.
const MAX_COST: i64 = u32::MAX as i64;

impl Sealed for PermitLog {}

impl Algorithm for PermitLog {
    type Rule = Rule;
    type State = State;

    const RESERVES: bool = false;

    fn quota(&self) -> Quotas {
        self.quota.into()
    }

    fn rule(&self, quota: impl Into<Quotas>) -> Result<Rule, QuotaError> {
        let quota = quota.into().one()?;
        if quota.burst_size() != quota.limit() {
            return Err(QuotaError("a rate limiter of Redisson has no burst"));
        }
        let micros = quota.period().as_micros();
        match i64::try_from(micros / 1_000) {
            Ok(interval) if micros % 1_000 == 0 => {
                Ok(Rule { rate: exact(quota.limit()), interval })
            }
            _ => Err(QuotaError("an interval of Redisson must be whole milliseconds")),
        }
    }

    fn horizon(_: &Rule) -> i64 {
        0
    }

    fn expires_at(rule: &Rule, state: &State) -> i64 {
        state.members.last().map_or(0, |(score, _)| (score + rule.interval) * 1_000)
    }

    fn clamp(_: &Rule, _: &State, _: i64) -> Option<State> {
        None
    }

    fn earliest_fit(rule: &Rule, state: Option<&State>, at: i64, cost: i64) -> Option<i64> {
        if cost > rule.rate.min(MAX_COST) {
            return None;
        }
        let mut seen = state.cloned().unwrap_or_default();
        let settled = seen.remove_expired(rule, at / 1_000);
        let value = seen.repair(rule, settled);
        if value >= cost {
            return Some(at);
        }
        Some(at + until(at, seen.wait_for(rule, at / 1_000, cost - value)))
    }

    fn consume(rule: &Rule, state: Option<State>, take: Take) -> (State, Mark) {
        let Take { at, cost, .. } = take;
        let mut state = state.unwrap_or_default();
        state.grant_count += 1;
        let grant = numbered(exact(state.grant_count));
        Self::penalize(rule, &mut state, at, cost, &grant);
        let mark = mark(&state);
        (state, mark)
    }

    fn penalty(rule: &Rule, state: Option<&State>, now: i64, cost: i64) -> i64 {
        let fits_now = Self::earliest_fit(rule, state, now, 0) == Some(now);
        if fits_now { cost.min(rule.rate.min(MAX_COST)) } else { 0 }
    }

    fn report(rule: &Rule, state: Option<&State>, now: i64) -> Report {
        Self::available(rule, &mut state.cloned().unwrap_or_default(), now).1
    }

    fn apply_refund(rule: &Rule, state: &mut State, _: i64, refund: &Refund<'_>) -> Option<i64> {
        let Refund { units, cost, mark } = *refund;
        Self::refund_grant(rule, state, units, &numbered(mark.first[0]), cost)
    }

    /// Works like the script: refusals and peeks remove expired grants too.
    fn step(rule: &Rule, state: &mut Option<State>, now: i64, check: Check) -> Answer {
        let mut next = state.take().unwrap_or_default();
        let before = next.fingerprint();
        let (verdict, report) = match check.cost {
            0 => Self::available(rule, &mut next, now),
            cost if cost > MAX_COST => (Verdict::Never, next.report_unchanged(rule, now)),
            cost => {
                let grant = numbered(exact(next.grant_count + 1));
                let decided = next.add(rule, now, cost, member_of(&grant, cost));
                next.grant_count += u64::from(decided.0 == Verdict::Allow);
                decided
            }
        };
        let changed = next.fingerprint() != before;
        let mark = changed.then(|| mark(&next));
        *state = (next != State::default()).then_some(next);
        Answer { verdict, report, members: Box::default(), mark, not_taken: 0 }
    }
}

impl Memory<PermitLog> {
    /// Releases permits of the oldest grants of `key`, and returns their number, like
    /// [`RRateLimiter::release`](crate::redisson::RRateLimiter::release).
    ///
    /// # Errors
    ///
    /// If the clock is past the year 2112.
    pub fn release(&self, key: &str, permits: u64) -> Result<u64, Error> {
        let mut rest = i64::try_from(permits).unwrap_or(i64::MAX);
        let freed = self.update_state(key, |rule, now, state| {
            let Some(state) = state else { return (0, None) };
            let mut all = 0;
            loop {
                let (freed, may_be_more) = PermitLog::release(rule, state, now, rest);
                (all, rest) = (all + freed, rest - freed);
                if !may_be_more {
                    return (all, Some(PermitLog::expires_at(rule, state)));
                }
            }
        })?;
        Ok(freed.cast_unsigned())
    }
}

/// The number of the latest grant.
fn mark(state: &State) -> Mark {
    [exact(state.grant_count), 0, 0, 0].into()
}

/// The bytes of the grant with this number.
fn numbered(number: i64) -> GrantId {
    i128::from(number).to_be_bytes()
}
