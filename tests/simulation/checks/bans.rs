//! The promises of bans, of quotas of nothing, and of windows by a calendar.

use std::time::Duration;

use tower_sluice::algorithm::{Algorithm as _, AnyAlgorithm};

use super::{MIN_TIMEOUT, Seen, since_begin};
use crate::account::{Blocking, Booking};
use crate::plan::{Ask, Ban, SECOND, Way};
use crate::world::{Fate, Record, TIMEOUT};

impl Seen<'_> {
    /// A key is blocked if a process refused it often enough, and no other key is; and so long as
    /// the ban says.
    pub(super) fn banned(&self) -> Option<String> {
        let ban = self.plan.stack.ban?;
        let blocks = self.plan.asks.iter().any(|ask| ask.way == Way::Block);
        if blocks || self.has_odd_clocks() {
            return None;
        }
        self.banned_wrongly(&ban).or_else(|| self.not_banned(&ban))
    }

    /// A block for which no process refused its key often enough, or that has another length.
    fn banned_wrongly(&self, ban: &Ban) -> Option<String> {
        let time = i64::try_from(ban.time.as_micros()).expect("short");
        self.account.blocks.iter().find_map(|block| {
            let (label, lasting) = (&block.label, block.time);
            if lasting != time {
                return Some(format!("{label} is blocked for {lasting} us, not {time}"));
            }
            // It waits behind those that asked before.
            let at = since_begin(block.sent_at);
            let waited = 2 * TIMEOUT;
            let waited = waited + self.frozen(at.saturating_sub(SECOND + waited), at);
            let from = at.saturating_sub(ban.window + waited);
            let is_enough = (0..self.plan.processes).any(|process| {
                let is_its = |record: &&Record| {
                    let ask = self.ask(record);
                    let is_shared = label.as_str() == crate::clients::EVERYBODY;
                    let is_of_key = ask.key == *label || is_shared;
                    let is_own = ask.process == process && is_of_key;
                    is_own && record.ended >= from && record.asked <= at && may_be_refused(record)
                };
                self.records.iter().filter(is_its).count() as u64 >= ban.refusals
            });
            (!is_enough).then(|| format!("{block:?}, sent at {at:?}: it was not refused so often"))
        })
    }

    /// As many refusals of a key by one process within a window after which it was not blocked.
    fn not_banned(&self, ban: &Ban) -> Option<String> {
        // A fallback decides behind the ban.
        let stack = &self.plan.stack;
        if stack.has_fallback || stack.timeout.is_some() || stack.has_breaker {
            return None;
        }
        let terms = |record: &Record| {
            let Ask { process, key, .. } = self.ask(record);
            (*process, *key)
        };
        let mut refused: Vec<&Record> =
            self.records.iter().filter(|one| self.is_refused(one)).collect();
        refused.sort_by_key(|record| record.ended);
        refused.iter().enumerate().find_map(|(place, first)| {
            let own = refused[place..].iter().filter(|one| terms(one) == terms(first));
            let last = own.take(2 * ban.refusals as usize).last()?;
            let all = refused[place..].iter().filter(|one| terms(one) == terms(first));
            let count = all.take_while(|one| one.ended <= last.ended).count() as u64;
            // Twice as many within less than a window: one window has enough of them.
            let is_within = last.ended + MIN_TIMEOUT < first.asked + ban.window;
            let from = first.asked.saturating_sub(ban.window);
            // The block waits behind those that asked before.
            let until = last.ended + 2 * TIMEOUT;
            let is_quiet = !self.is_disturbed(from, until) && !self.was_frozen(from, until);
            let is_blocked = |block: &Blocking| {
                let at = since_begin(block.now);
                block.label == self.ask(first).key && from <= at && at <= until
            };
            let is_wrong = count >= 2 * ban.refusals
                && is_within
                && is_quiet
                && !self.plan.is_flooded
                && !self.is_flooded(last)
                && !self.account.blocks.iter().any(is_blocked);
            is_wrong.then(|| format!("{count} from {} to {}", self.shown(first), self.shown(last)))
        })
    }

    /// True if a caller was refused for certain: one that may wait may leave a queue.
    fn is_refused(&self, record: &Record) -> bool {
        let is_refused = matches!(record.fate, Fate::Refused { by: Some(_), .. });
        is_refused && self.ask(record).max_wait.is_zero()
    }

    /// True if a refusal tells the end of a ban that it brought about.
    pub(super) fn is_of_ban(&self, record: &Record, retry_after: Option<Duration>) -> bool {
        let (Some(ban), Some(now)) = (self.plan.stack.ban, record.decided_at) else { return false };
        let mut blocks = self.account.blocks.iter();
        // A longer one may have been there before.
        let is_its = |at: i64| at == now && retry_after >= Some(ban.time);
        blocks.any(|block| block.label == self.ask(record).key && is_its(block.now))
    }

    /// Nobody is admitted by a quota of nothing.
    pub(super) fn suspended(&self) -> Option<String> {
        let limit = &self.plan.limits[0];
        let is_none = |own: usize| limit.own_quotas.get(own).is_some_and(|all| all[0].is_none());
        let is_taken = |one: &&Booking| {
            !one.label("api").is_empty() && one.quotas[0].checked_sub(1).is_some_and(is_none)
        };
        if let Some(one) = self.account.bookings.iter().find(is_taken) {
            return Some(format!("{one:?}"));
        }
        let is_wrong = |record: &&Record| {
            let is_admitted = matches!(record.fate, Fate::Admitted { .. });
            is_admitted && self.ask(record).own_quota.is_some_and(is_none)
        };
        self.records.iter().find(is_wrong).map(|record| self.shown(record))
    }

    /// No window of a calendar has more units than its limit: the world has one edge of windows.
    pub(super) fn calendar_bound(&self) -> Option<String> {
        let edge = self.plan.edge.filter(|_| !self.has_odd_clocks())?;
        self.account.histories().into_iter().find_map(|(key, bookings)| {
            let (limit, member) = self.account.limit_of(&key)?;
            let algorithm = self.plan.limits[limit].algorithms[member];
            let quota = algorithm.quota().as_slice()[0];
            let day = Duration::from_secs(86_400);
            let AnyAlgorithm::FixedWindow(_) = algorithm else { return None };
            if quota.period() < day {
                return None;
            }
            let taken = |is_after: bool| {
                let own = bookings.iter().filter(|one| (one.at >= edge) == is_after);
                own.map(|one| one.taken - one.given_for_lost).sum::<i64>()
            };
            let most = taken(false).max(taken(true));
            let limit = quota.limit().cast_signed() + self.account.granted(&key, i64::MAX);
            (most > limit).then(|| format!("{key}: {most} units in a window, not {limit}"))
        })
    }
}

/// True if a caller may have been refused, even if nobody knows.
fn may_be_refused(record: &Record) -> bool {
    !matches!(record.fate, Fate::Admitted { .. } | Fate::Done)
}
