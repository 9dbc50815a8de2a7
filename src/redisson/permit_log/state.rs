//! The rate and the state of one limiter: a count of free permits, and a log of grants.

use std::collections::BTreeSet;

use crate::algorithm::{Report, Verdict};

/// The number of members that are read at once, and the most members that one step reads or
/// removes.
pub(super) const CHUNK: usize = 256;
pub(super) const MAX_MEMBERS: usize = 4_096;

/// The most members that are added up to check the count.
const SUM_LIMIT: usize = 256;

/// `rate` permits in any `interval` ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(super) rate: i64,
    pub(super) interval: i64,
}

/// The state of a limiter, without its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The free permits; below 0 after a lower rate or a penalty.
    pub value: Option<i64>,
    /// The time of each grant, in ms, and its bytes, in the order of a sorted set.
    pub members: BTreeSet<(i64, Vec<u8>)>,
    /// The number of grants that this process made.
    pub(super) grant_count: u64,
}

impl State {
    /// The permits of all members, expired or not.
    pub(super) fn total_permits(&self) -> i64 {
        self.members.iter().map(|(_, member)| permits_of(member)).sum()
    }

    /// Removes expired members, and returns the new count.
    pub(super) fn remove_expired(&mut self, rule: &Rule, now: i64) -> i64 {
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
    pub(super) fn repair(&self, rule: &Rule, value: i64) -> i64 {
        match self.members.len() {
            0..=SUM_LIMIT => value.max(rule.rate - self.total_permits()),
            _ => value,
        }
    }

    /// Takes permits for a new member.
    pub(super) fn add(
        &mut self,
        rule: &Rule,
        now: i64,
        permits: i64,
        member: Vec<u8>,
    ) -> (Verdict, Report) {
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

    /// A value that differs after every change, except after the removal of a part of a member.
    pub(super) fn fingerprint(&self) -> (Option<i64>, usize, u64) {
        (self.value, self.members.len(), self.grant_count)
    }

    /// The wait in ms until this number of further permits is free. It is a lower bound if these
    /// permits belong to more members than one step reads.
    pub(super) fn wait_for(&self, rule: &Rule, now: i64, permits: i64) -> i64 {
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
    pub(super) fn remove_permits(&mut self, score: i64, member: Vec<u8>, permits: i64) -> i64 {
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
    pub(super) fn granted_at(&self, member: &[u8]) -> Option<i64> {
        self.members.iter().find(|(_, stored)| stored == member).map(|(score, _)| *score)
    }

    /// The report, without a change of the state. It does not add up many members for a missing
    /// count.
    pub(super) fn report_unchanged(&self, rule: &Rule, now: i64) -> Report {
        let mut seen = self.clone();
        let lost = seen.value.is_none();
        let settled = seen.remove_expired(rule, now / 1_000);
        let value = if lost && seen.members.len() > SUM_LIMIT { 0 } else { settled };
        Report { remaining: value.clamp(0, rule.rate), ..self.report(rule, now) }
    }

    pub(super) fn credit(&mut self, rule: &Rule, permits: i64) {
        self.value = self.value.map(|value| (value + permits).min(rule.rate));
    }

    pub(super) fn report(&self, rule: &Rule, now: i64) -> Report {
        let remaining = self.value.unwrap_or_else(|| rule.rate - self.total_permits());
        let expires_at = self.members.last().map_or(0, |(score, _)| score + rule.interval);
        Report {
            remaining: remaining.clamp(0, rule.rate),
            reset_after: until(now, (expires_at - now / 1_000).max(0)),
        }
    }
}

/// The µs until `millis` ms after the millisecond of `now`.
pub(super) fn until(now: i64, millis: i64) -> i64 {
    (millis * 1_000 - now % 1_000).max(0)
}

pub(super) fn permits_of(member: &[u8]) -> i64 {
    member.last_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes).into())
}

pub(super) fn member_of(grant: &[u8], permits: i64) -> Vec<u8> {
    [&[grant.len() as u8], grant, &(permits as u32).to_ne_bytes()].concat()
}
