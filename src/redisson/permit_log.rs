//! Redisson's `RRateLimiter`: a log of grants in milliseconds, and a count of free permits.
//!
//! The count decides, and the log says when permits become free. Redisson stores them under two
//! keys. So the count can be wrong after an eviction, a manual change, or a command that was sent
//! twice. Unlike Redisson, this arithmetic then reads the log, and never admits more than the log
//! allows.
//!
//! The twin of `scripts/redisson.lua`. Members are stored as on the server.

mod algorithm;
mod state;

use state::{CHUNK, MAX_MEMBERS, Rule, State, member_of, permits_of, until};

use crate::Quota;
use crate::algorithm::{Report, Verdict};

/// Redisson's arithmetic as an algorithm for [`Memory`](crate::Memory): replaces
/// [`Redisson`](super::Redisson) in tests.
///
/// **Bound.** At most `limit` permits in any stretch of a period, in whole milliseconds.
///
/// **Cost.** A key takes at most 700 bytes, and at most 100 more for each grant of the last period.
/// The format has no room for reserved waits: a refused caller asks again.
///
/// **Choose it** to test code that shares its limiter with Java. Otherwise choose
/// [`SlidingLog`](crate::algorithm::SlidingLog).
///
/// **Timeline.** Ten a second: three at the start, seven 100 ms later. The next charge then waits
/// until the oldest permits expire.
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
/// # Ok::<(), tower_sluice::algorithm::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PermitLog {
    quota: Quota,
}

impl PermitLog {
    /// Takes the quota's limit as the rate and its period as the interval.
    ///
    /// The period must be whole milliseconds, and the quota must have no burst. With another quota,
    /// building the limiter returns an error.
    #[must_use]
    pub const fn new(quota: Quota) -> Self {
        Self { quota }
    }

    /// Takes permits for the grant with these random bytes. A grant is taken only once, and the
    /// report about one that was taken counts from its instant. Instants are in µs.
    pub fn acquire(
        rule: &Rule,
        state: &mut State,
        now: i64,
        permits: i64,
        grant: &[u8],
    ) -> (Verdict, Report) {
        let member = member_of(grant, permits);
        if let Some(granted) = state.granted_at(&member) {
            let Report { reset_after, .. } = state.report(rule, granted * 1_000);
            let report = Report { reset_after, ..state.report_unchanged(rule, now) };
            return (Verdict::Allow, report);
        }
        state.add(rule, now, permits, member)
    }

    /// Takes permits even if they do not fit. The count may fall below 0.
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

    /// Reports the number of free permits. A missing count stays missing.
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

    /// Releases permits of the oldest grants that have not expired. Returns their number, and true
    /// if there may be more.
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

    /// Refunds permits of one grant with `held` permits, if it is still stored. Returns their
    /// number.
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
