//! A model of the script, line by line: a count of free permits, and a log of grants.
//!
//! The count decides, and the log says when permits become free. Redisson stores them under two
//! keys. So the count can be wrong after an eviction, a manual change, or a command that was sent
//! twice. Unlike Redisson, the script then reads the log, and never admits more than the log
//! allows. Members are stored as on the server.

use std::collections::BTreeSet;

use crate::*;

/// The number of members that are read at once, and the most members that one step reads or
/// removes.
const CHUNK: usize = 256;
const MAX_MEMBERS: usize = 4_096;

/// The most members that are added up to check the count.
const SUM_LIMIT: usize = 256;

/// The free permits, and the time until all are free, in µs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) remaining: i64,
    pub(super) reset_after: i64,
}

/// `rate` permits in any `interval` ms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) rate: i64,
    pub(super) interval: i64,
}

/// The state of a limiter, without its configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// The free permits; below 0 after a lower rate or a penalty.
    pub(super) value: Option<i64>,
    /// The time of each grant, in ms, and its bytes, in the order of a sorted set.
    pub(super) members: BTreeSet<(i64, Vec<u8>)>,
}

impl State {
    /// Takes permits for the grant with these random bytes. A grant is taken only once, and the
    /// report about one that was taken counts from its instant. Instants are in µs.
    pub(super) fn acquire(
        &mut self,
        rule: &Rule,
        now: i64,
        permits: i64,
        grant: &[u8],
    ) -> (Verdict, Report) {
        let member = member_of(grant, permits);
        if let Some(granted) = self.granted_at(&member) {
            let Report { reset_after, .. } = self.report(rule, granted * 1_000);
            let report = Report { reset_after, ..self.report_unchanged(rule, now) };
            return (Verdict::Allow, report);
        }
        self.add(rule, now, permits, member)
    }

    /// Takes permits even if they do not fit. The count may fall below 0.
    pub(super) fn penalize(&mut self, rule: &Rule, now: i64, permits: i64, grant: &[u8]) -> Report {
        let settled = self.remove_expired(rule, now / 1_000);
        self.value = Some(self.repair(rule, settled) - permits);
        self.members.insert((now / 1_000, member_of(grant, permits)));
        self.report(rule, now)
    }

    /// The wait until a permit is free, in µs.
    pub(super) fn next_permit(&self, rule: &Rule, now: i64) -> i64 {
        match self.value {
            Some(1..) => 0,
            _ => until(now, self.wait_for(rule, now / 1_000, 1)),
        }
    }

    /// Reports the number of free permits. A missing count stays missing.
    pub(super) fn available(&mut self, rule: &Rule, now: i64) -> (Verdict, Report) {
        let settled = self.remove_expired(rule, now / 1_000);
        self.value = self.value.map(|_| settled);
        let value = self.repair(rule, settled);
        let verdict = match value {
            0.. => Verdict::Allow,
            _ => Verdict::Deny(until(now, self.wait_for(rule, now / 1_000, -value))),
        };
        (verdict, Report { remaining: value.clamp(0, rule.rate), ..self.report(rule, now) })
    }

    /// Releases permits of the oldest grants that have not expired. Returns their number, and true
    /// if there may be more.
    pub(super) fn release(&mut self, rule: &Rule, now: i64, permits: i64) -> (i64, bool) {
        let live = now / 1_000 - rule.interval;
        let (mut freed, mut seen) = (0, 0);
        loop {
            let newer = self.members.range((live + 1, Vec::new())..);
            let chunk: Vec<_> = newer.take(CHUNK).cloned().collect();
            let mut whole = 0;
            for (score, stored) in chunk {
                let held = permits_of(&stored);
                if freed + held > permits {
                    if freed < permits {
                        freed += self.remove_permits(score, stored, permits - freed);
                    }
                    break;
                }
                freed += self.remove_permits(score, stored, held);
                whole += 1;
            }
            seen += whole;
            if freed == permits || whole < CHUNK || seen >= MAX_MEMBERS {
                break;
            }
        }
        self.credit(rule, freed);
        (freed, freed < permits && seen >= MAX_MEMBERS)
    }

    /// Refunds permits of one grant with `held` permits, if it is still stored. Returns their
    /// number.
    pub(super) fn refund_grant(
        &mut self,
        rule: &Rule,
        permits: i64,
        grant: &[u8],
        held: i64,
    ) -> Option<i64> {
        let member = member_of(grant, held);
        let (score, member) = self.members.iter().find(|(_, stored)| *stored == member)?.clone();
        let freed = self.remove_permits(score, member, permits.min(held));
        self.credit(rule, freed);
        Some(freed)
    }

    /// Continues under another rate: taken permits stay taken.
    pub(super) fn keep_state(&mut self, rule: &Rule, now: i64) {
        self.remove_expired(rule, now / 1_000);
        self.value = Some(rule.rate - self.total_permits());
    }

    /// The permits of all members, expired or not.
    fn total_permits(&self) -> i64 {
        self.members.iter().map(|(_, member)| permits_of(member)).sum()
    }

    /// Removes expired members, and returns the new count.
    fn remove_expired(&mut self, rule: &Rule, now: i64) -> i64 {
        let (mut removed, mut expired_count) = (0, 0);
        while expired_count < MAX_MEMBERS
            && let Some((score, _)) = self.members.first()
            && *score <= now - rule.interval
        {
            removed += self.members.pop_first().map_or(0, |(_, member)| permits_of(&member));
            expired_count += 1;
        }
        let Some(mut value) = self.value else { return rule.rate - self.total_permits() };
        if expired_count > 0 {
            value += removed;
            // Each member has at least one permit. So if adding up the members would take long,
            // their number limits the value. The value exceeds the rate only if permits were
            // credited twice: then the members are added up.
            let held = match self.members.len() {
                count @ SUM_LIMIT.. if count > SUM_LIMIT && value <= rule.rate => count as i64,
                _ => self.total_permits(),
            };
            value = value.min(rule.rate - held);
        }
        value.min(rule.rate)
    }

    /// Raises the count to the free permits according to the members. The count is too low if
    /// permits were subtracted twice, or members are missing.
    fn repair(&self, rule: &Rule, value: i64) -> i64 {
        match self.members.len() {
            0..=SUM_LIMIT => value.max(rule.rate - self.total_permits()),
            _ => value,
        }
    }

    /// Takes permits for a new member.
    fn add(&mut self, rule: &Rule, now: i64, permits: i64, member: Vec<u8>) -> (Verdict, Report) {
        if permits > rule.rate {
            return (Verdict::Never, self.report_unchanged(rule, now));
        }
        let millis = now / 1_000;
        let mut value = self.remove_expired(rule, millis);
        if value < permits {
            value = self.repair(rule, value);
        }
        let verdict = if value < permits {
            Verdict::Deny(until(now, self.wait_for(rule, millis, permits - value)))
        } else {
            self.members.insert((millis, member));
            value -= permits;
            Verdict::Allow
        };
        self.value = Some(value);
        (verdict, self.report(rule, now))
    }

    /// The wait in ms until this number of further permits is free. It is a lower bound if these
    /// permits belong to more members than one step reads.
    fn wait_for(&self, rule: &Rule, now: i64, permits: i64) -> i64 {
        let (mut freed, mut last) = (0, now);
        for (score, member) in self.members.iter().take(MAX_MEMBERS) {
            if freed < permits {
                (freed, last) = (freed + permits_of(member), *score);
            }
        }
        (last + rule.interval - now).max(1)
    }

    /// Removes permits from a member, or the whole member, and returns the number of removed
    /// permits.
    fn remove_permits(&mut self, score: i64, member: Vec<u8>, permits: i64) -> i64 {
        let rest = permits_of(&member) - permits;
        if rest > 0 {
            let mut smaller = member[..member.len() - 4].to_vec();
            smaller.extend((rest as u32).to_ne_bytes());
            if self.granted_at(&smaller).is_some() {
                // This is another grant: the four bytes of an old format are equal for both.
                return 0;
            }
            self.members.insert((score, smaller));
        }
        self.members.remove(&(score, member));
        permits
    }

    /// The instant of the grant with this member, in ms.
    fn granted_at(&self, member: &[u8]) -> Option<i64> {
        self.members.iter().find(|(_, stored)| stored == member).map(|(score, _)| *score)
    }

    /// The report, without a change of the state. It does not add up many members for a missing
    /// count.
    fn report_unchanged(&self, rule: &Rule, now: i64) -> Report {
        let mut seen = self.clone();
        let lost = seen.value.is_none();
        let settled = seen.remove_expired(rule, now / 1_000);
        let value = if lost && seen.members.len() > SUM_LIMIT { 0 } else { settled };
        Report { remaining: value.clamp(0, rule.rate), ..self.report(rule, now) }
    }

    fn credit(&mut self, rule: &Rule, permits: i64) {
        self.value = self.value.map(|value| (value + permits).min(rule.rate));
    }

    fn report(&self, rule: &Rule, now: i64) -> Report {
        let remaining = self.value.unwrap_or_else(|| rule.rate - self.total_permits());
        let expires_at = self.members.last().map_or(0, |(score, _)| score + rule.interval);
        Report {
            remaining: remaining.clamp(0, rule.rate),
            reset_after: until(now, (expires_at - now / 1_000).max(0)),
        }
    }
}

/// The µs until `millis` ms after the millisecond of `now`.
fn until(now: i64, millis: i64) -> i64 {
    (millis * 1_000 - now % 1_000).max(0)
}

fn permits_of(member: &[u8]) -> i64 {
    member.last_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes).into())
}

fn member_of(grant: &[u8], permits: i64) -> Vec<u8> {
    [&[grant.len() as u8], grant, &(permits as u32).to_ne_bytes()].concat()
}
