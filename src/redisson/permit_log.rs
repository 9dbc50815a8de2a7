//! Redisson's `RRateLimiter`: a log of grants in milliseconds, and a count of free permits.
//!
//! The count decides, and the log says when permits become free. Redisson stores them under two
//! keys, so the count can be wrong: after an eviction, a manual change, or a command that was
//! sent twice. Unlike Redisson, this arithmetic then reads the log, and never admits more than
//! the log allows.
//!
//! The twin of `scripts/redisson.lua`. Members are stored as on the server.

mod state;

use state::{CHUNK, MAX_MEMBERS, State, member_of, permits_of, until};

use super::grant::GrantId;
use crate::algorithm::sealed::Sealed;
use crate::algorithm::{Algorithm, Answer, Check, Mark, Refund, Report, Verdict, exact};
use crate::quota::{Quota, QuotaError, Quotas};
use crate::{Error, Memory};

/// The most permits that one grant can hold.
const MAX_COST: i64 = u32::MAX as i64;

/// Redisson's arithmetic as an algorithm for [`Memory`]: replaces [`Redisson`](super::Redisson) in
/// tests.
///
/// **Bound.** At most `limit` permits in any stretch of a period, in whole milliseconds.
///
/// **Cost.** A key takes at most 700 bytes, and up to 100 more for each grant of the last period.
/// The format has no room for reserved waits: a refused caller asks again.
///
/// **Choose it** to test code that shares its limiter with Java; else choose
/// [`SlidingLog`](crate::algorithm::SlidingLog).
///
/// **Timeline.** Ten a second: three at the start, seven 100 ms later. Then the next waits for
/// the oldest to expire.
///
/// ```
/// # use tower_sluice::algorithm::{Algorithm, Check, Verdict::*};
/// # use tower_sluice::redisson::PermitLog;
/// # use tower_sluice::Quota;
/// let limit = PermitLog::new(Quota::per_second(10));
/// let rule = limit.rule(limit.quota())?;
/// let mut state = None;
/// let mut check = |millis: i64, cost| {
///     let now = 1_767_225_600_000_000 + millis * 1_000;
///     PermitLog::step(&rule, &mut state, now, Check { cost, max_wait: 0 }).verdict
/// };
/// assert_eq!(check(0, 3), Allow);
/// assert_eq!(check(100, 8), Deny(900_000));
/// assert_eq!(check(100, 7), Allow);
/// assert_eq!(check(999, 1), Deny(1_000));
/// assert_eq!(check(1_000, 3), Allow);
/// # Ok::<(), tower_sluice::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PermitLog {
    quota: Quota,
}

impl PermitLog {
    /// Takes the quota's limit as the rate and its period as the interval.
    ///
    /// The period must be whole milliseconds, and the quota has no burst. A limiter with another
    /// quota is an error when it is built.
    #[must_use]
    pub const fn new(quota: Quota) -> Self {
        Self { quota }
    }

    /// Takes permits for the grant of these random bytes. A grant is taken once. Instants are in
    /// µs.
    pub fn acquire(
        rule: &Rule,
        state: &mut State,
        now: i64,
        permits: i64,
        grant: &[u8],
    ) -> (Verdict, Report) {
        let member = member_of(grant, permits);
        if state.holds(&member) {
            return (Verdict::Allow, state.report_unchanged(rule, now));
        }
        state.add(rule, now, permits, member)
    }

    /// Takes permits whether or not they fit. The count may fall below 0.
    pub fn penalize(
        rule: &Rule,
        state: &mut State,
        now: i64,
        permits: i64,
        grant: &[u8],
    ) -> Report {
        let settled = state.remove_expired(rule, now / 1_000);
        state.value = Some(state.repair(rule, settled) - permits);
        state.members.insert((now / 1_000, member_of(grant, permits)));
        state.report(rule, now)
    }

    /// The wait until a permit is free, in µs.
    pub fn next_permit(rule: &Rule, state: &State, now: i64) -> i64 {
        match state.value {
            Some(1..) => 0,
            _ => until(now, state.wait_for(rule, now / 1_000, 1)),
        }
    }

    /// Reports how many permits are free. A missing count stays missing.
    pub fn available(rule: &Rule, state: &mut State, now: i64) -> (Verdict, Report) {
        let settled = state.remove_expired(rule, now / 1_000);
        state.value = state.value.map(|_| settled);
        let value = state.repair(rule, settled);
        let verdict = match value {
            0.. => Verdict::Allow,
            _ => Verdict::Deny(until(now, state.wait_for(rule, now / 1_000, -value))),
        };
        (verdict, Report { remaining: value.clamp(0, rule.rate), ..state.report(rule, now) })
    }

    /// Releases permits of the oldest grants that have not expired. Returns how many, and whether
    /// there may be more.
    pub fn release(rule: &Rule, state: &mut State, now: i64, permits: i64) -> (i64, bool) {
        let live = now / 1_000 - rule.interval;
        let (mut freed, mut seen) = (0, 0);
        loop {
            let newer = state.members.range((live + 1, Vec::new())..);
            let chunk: Vec<_> = newer.take(CHUNK).cloned().collect();
            let mut whole = 0;
            for (score, stored) in chunk {
                let held = permits_of(&stored);
                if freed + held > permits {
                    if freed < permits {
                        freed += state.remove_permits(score, stored, permits - freed);
                    }
                    break;
                }
                freed += state.remove_permits(score, stored, held);
                whole += 1;
            }
            seen += whole;
            if freed == permits || whole < CHUNK || seen >= MAX_MEMBERS {
                break;
            }
        }
        state.credit(rule, freed);
        (freed, freed < permits && seen >= MAX_MEMBERS)
    }

    /// Refunds permits of one grant that holds `held`, if it is still stored. Returns how many.
    pub fn refund_grant(
        rule: &Rule,
        state: &mut State,
        permits: i64,
        grant: &[u8],
        held: i64,
    ) -> Option<i64> {
        let member = member_of(grant, held);
        let (score, member) = state.members.iter().find(|(_, stored)| *stored == member)?.clone();
        let freed = state.remove_permits(score, member, permits.min(held));
        state.credit(rule, freed);
        Some(freed)
    }

    /// Continues under another rate: taken permits stay taken.
    pub fn keep_state(rule: &Rule, state: &mut State, now: i64) {
        state.remove_expired(rule, now / 1_000);
        state.value = Some(rule.rate - state.total_permits());
    }
}

/// `rate` permits in any `interval` ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    rate: i64,
    interval: i64,
}

/// The random bytes of the grant with this number.
fn numbered(number: i64) -> GrantId {
    i128::from(number).to_be_bytes()
}

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
        if quota.get_burst() != quota.limit() {
            return Err(QuotaError("a rate limiter of Redisson has no burst"));
        }
        let micros = quota.period().as_micros();
        match i64::try_from(micros / 1_000) {
            Ok(interval) if micros % 1_000 == 0 => {
                Ok(Rule { rate: exact(quota.limit()), interval })
            }
            _ => Err(QuotaError("an interval of Redisson is in whole milliseconds")),
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

    fn consume(rule: &Rule, state: Option<State>, at: i64, cost: i64, _: i64) -> State {
        let mut state = state.unwrap_or_default();
        state.grant_count += 1;
        let grant = numbered(exact(state.grant_count));
        Self::penalize(rule, &mut state, at, cost, &grant);
        state
    }

    fn max_unchecked_cost(rule: &Rule) -> i64 {
        rule.rate.min(MAX_COST)
    }

    fn report(rule: &Rule, state: Option<&State>, now: i64) -> Report {
        Self::available(rule, &mut state.cloned().unwrap_or_default(), now).1
    }

    fn apply_refund(rule: &Rule, state: &mut State, _: i64, refund: &Refund<'_>) -> Option<i64> {
        let Refund { units, cost, mark } = *refund;
        Self::refund_grant(rule, state, units, &numbered(mark.first[0]), cost)
    }

    fn mark(state: &State) -> Mark {
        [exact(state.grant_count), 0, 0, 0].into()
    }

    /// As the script: refusals and peeks remove expired grants too.
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
        let mark = changed.then(|| Self::mark(&next));
        *state = (next != State::default()).then_some(next);
        Answer { verdict, report, members: Box::default(), mark }
    }
}

impl Memory<PermitLog> {
    /// Releases permits of the oldest grants of `key`, and returns how many. As
    /// [`RRateLimiter::release`](super::RRateLimiter::release).
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
