//! The promises of a limit of concurrency, by the callers' records: no more units are held at the
//! same time, each hold is released once, and those who wait in a process go in their order.

use std::collections::BTreeMap;
use std::time::Duration;

use tower_sluice::algorithm::{Algorithm as _, AnyAlgorithm};
use tower_sluice::limiter::Origin;

use super::{MIN_TIMEOUT, Seen, kept_free, since_begin};
use crate::account::Limit;
use crate::clients::EVERYBODY;
use crate::plan::{Ask, Asking, SECOND, Way, max_hold};
use crate::servers::StrikeKind;
use crate::world::{Fate, Record, TIMEOUT};

/// The first pause of a queue.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// The limit of concurrency among the members of a limiter: its units and its longest hold.
fn at_once_of(limit: &Limit) -> Option<(i64, Duration)> {
    limit.algorithms.iter().enumerate().find_map(|(member, one)| {
        let AnyAlgorithm::Concurrency(_) = one else { return None };
        let own = limit.own_quotas.iter().map(|quotas| quotas[member].limit());
        let most = own.chain([one.quota().as_slice()[0].limit()]).max();
        Some((most?.cast_signed(), max_hold(*one)?))
    })
}

impl Seen<'_> {
    /// True if units of a limit are held at the same time.
    pub(super) fn holds_at_once(&self) -> bool {
        self.plan.limits.iter().any(|limit| at_once_of(limit).is_some())
    }

    /// True if a server may have lost what was charged, or renewed.
    fn may_lose(&self) -> bool {
        use StrikeKind::{CrashLosingData, Failover, NodeFailover, SplitBrain};
        let loses = |kind| matches!(kind, CrashLosingData | Failover | NodeFailover | SplitBrain);
        self.strikes.iter().any(|(_, _, kind)| loses(*kind))
    }

    /// At no instant callers hold more units that were neither released nor are older than they may
    /// be, since their charge or their last renewal.
    pub(super) fn concurrent(&self) -> Option<String> {
        let resets = self.plan.asks.iter().any(|ask| ask.way == Way::Reset);
        if self.may_lose() || self.has_odd_clocks() || resets || !self.is_exact() {
            return None;
        }
        self.plan.limits.iter().enumerate().find_map(|(place, limit)| {
            let (most, max_hold) = at_once_of(limit)?;
            // Who was admitted by a table without its row holds nothing of it.
            if self.plan.tables.iter().any(|(_, table)| table.quotas[place].is_none()) {
                return None;
            }
            let is_by_key = limit.name == "api" || self.plan.asking == Asking::Policies;
            let mut changes: BTreeMap<&str, Vec<(Duration, i64, usize)>> = BTreeMap::new();
            for (place, record) in self.records.iter().enumerate() {
                let Fate::Admitted { at, .. } = record.fate else { continue };
                let ask = self.ask(record);
                if let Way::Layer = ask.way {
                    // Released with its response.
                    continue;
                }
                let label = if is_by_key { ask.key } else { EVERYBODY };
                let cost = ask.cost.cast_signed();
                let until = self.held_until(record, at, max_hold);
                if until > record.ended {
                    let own = changes.entry(label).or_default();
                    own.extend([(record.ended, cost, place), (until, -cost, place)]);
                }
            }
            changes.into_iter().find_map(|(label, mut changes)| {
                changes.sort_unstable();
                let (mut held, mut holders) = (0, Vec::new());
                for (instant, units, place) in changes {
                    held += units;
                    match units > 0 {
                        true => holders.push(place),
                        false => holders.retain(|one| *one != place),
                    }
                    if held > most {
                        let shown: Vec<_> =
                            holders.iter().map(|place| self.shown(&self.records[*place])).collect();
                        return Some(format!("{held} of {label} at {instant:?}: {shown:#?}"));
                    }
                }
                None
            })
        })
    }

    /// The instant until which an admission holds its units for certain.
    fn held_until(&self, record: &Record, at: i64, max_hold: Duration) -> Duration {
        // A slot may have been reserved for who left.
        let charged = match self.tells_no_slot(record) {
            true => record.asked.saturating_sub(SECOND),
            false => self.reserved(record, at).min(record.asked),
        };
        let released = record.settled_at.unwrap_or(Duration::MAX);
        let last = record.renewed.iter().copied().fold(charged, Duration::max);
        let guarded = record.guarded_at.filter(|_| {
            let until = released.min(charged + 10 * max_hold);
            // Every third it is renewed, and the answer takes its time.
            max_hold > 3 * MIN_TIMEOUT
                && !self.is_disturbed(charged, until)
                && !self.was_frozen(charged, until)
                && record.guarded_at.is_some_and(|at| at + MIN_TIMEOUT < charged + max_hold)
        });
        let old = last + max_hold;
        match guarded {
            Some(_) if self.deaths.is_empty() => released,
            _ => released.min(old),
        }
    }

    /// No more holds are released than callers released, or left.
    pub(super) fn released(&self) -> Option<String> {
        // A waiter may give its slot back, and another one may take that.
        let is_plain =
            self.plan.asking == Asking::Alone && self.plan.limits[0].algorithms.len() == 1;
        if !is_plain || !self.holds_at_once() || !self.is_exact() {
            return None;
        }
        let mut counts: BTreeMap<(&str, i64), i64> = BTreeMap::new();
        // A waiter whose key is paused gives its slot back, and asks again.
        let own = self.account.bookings.iter().filter(|one| !self.was_paused_away(one));
        for one in own {
            *counts.entry((one.label("api"), one.cost)).or_default() += i64::from(one.settlements);
        }
        for record in self.records {
            let ask = self.ask(record);
            let may_release = match record.fate {
                Fate::Admitted { settled, .. } => settled.is_some() || ask.way == Way::Layer,
                Fate::Refused { by: Some(_), .. } | Fate::Spared { .. } | Fate::Done => false,
                _ => true,
            };
            // Each time that a fallback answered it, its charge may have been lost, and given back.
            let is_refused = matches!(record.fate, Fate::Refused { by: Some(Origin::Local), .. });
            if self.plan.stack.has_fallback && is_refused || self.may_have_asked_on(record) {
                counts.insert((ask.key, ask.cost.cast_signed()), i64::MIN / 2);
            }
            if may_release {
                *counts.entry((ask.key, ask.cost.cast_signed())).or_default() -= 1;
            }
        }
        let more = counts.into_iter().find(|(_, count)| *count > 0);
        more.map(|((key, cost), count)| format!("{count} more of {cost} for {key} than were held"))
    }

    /// True if a fallback may have answered a waiter in between, so that charges of it were lost.
    pub(super) fn may_have_asked_on(&self, record: &Record) -> bool {
        self.plan.stack.has_fallback
            && self.holds_at_once()
            && !self.ask(record).max_wait.is_zero()
            && self.is_disturbed(record.asked, record.ended)
    }

    /// True if a refusal may be that of a queue: its caller waited behind another one of its process
    /// until it could not wait for as long as the shortest pause any more.
    pub(super) fn may_have_queued(&self, record: &Record) -> bool {
        // Each table has a longest wait of its own.
        let tables = self.plan.tables.iter().map(|(_, table)| table.max_wait);
        let waits = tables.filter(|wait| !wait.is_zero());
        let max_wait = waits.min().unwrap_or(self.ask(record).max_wait);
        let waited = record.ended + SHORTEST_PAUSE > record.asked + max_wait;
        // Whom a fallback answered in between stands behind those who came meanwhile.
        waited && (self.is_behind(record) || self.may_have_asked_on(record))
    }

    /// True if another one of its process waits before a caller in a queue.
    pub(super) fn is_behind(&self, record: &Record) -> bool {
        let ask = self.ask(record);
        let is_before = |one: &Record| {
            let other = self.ask(one);
            let is_own = (other.process, other.key) == (ask.process, ask.key);
            let waits = one.number < record.number && one.ended >= record.asked;
            is_own && waits && !other.max_wait.is_zero()
        };
        let may_wait = self.holds_at_once() && !ask.max_wait.is_zero();
        may_wait && self.records.iter().any(is_before)
    }

    /// True if nobody knows when units will be free, and the process spreads by the clock when its
    /// caller is to ask again: a queue that is left, or a pause of it in a shadow.
    pub(super) fn is_guess(&self, record: &Record, retry_after: Option<Duration>) -> bool {
        let micros = record.decided_at.unwrap_or(0).rem_euclid(1_000_000).unsigned_abs();
        let guess = SECOND + Duration::from_micros(2 * micros);
        let may_wait = self.holds_at_once() && !self.ask(record).max_wait.is_zero();
        may_wait && [Some(guess), Some(SHORTEST_PAUSE)].contains(&retry_after)
    }

    /// Those who wait for units of a key in a process go in their order.
    pub(super) fn queued(&self) -> Option<String> {
        if !self.holds_at_once() || self.asks_in_turn() || self.has_odd_clocks() {
            return None;
        }
        let terms = |ask: &Ask| (ask.process, ask.key, ask.cost, kept_free(ask), ask.own_quota);
        let waits = |record: &&Record| {
            let ask = self.ask(record);
            matches!(ask.way, Way::Acquire | Way::Layer) && !ask.max_wait.is_zero()
        };
        let all: Vec<_> = self.records.iter().filter(waits).collect();
        all.iter().find_map(|second| {
            let Fate::Admitted { .. } = second.fate else { return None };
            // It went as the first of the queue, and not with its first question.
            let has_queued = second.ended > second.asked + 2 * TIMEOUT;
            let decided = since_begin(second.decided_at?);
            let is_overtaken = |first: &&&Record| {
                // Another limit may have let it wait after that: it left the queue before.
                let left = first.decided_at.map_or(first.ended, since_begin);
                terms(self.ask(first)) == terms(self.ask(second))
                    && first.asked + 2 * TIMEOUT < second.asked
                    && decided + TIMEOUT < left
                    && decided > second.asked + 2 * TIMEOUT
            };
            let first = all.iter().find(is_overtaken).filter(|_| has_queued)?;
            // A fallback has queues of its own, and keeps units for those whom it admitted.
            let mut own = self.records.iter().filter(|one| one.asked <= first.ended);
            let is_local = own.any(|one| one.fate == Fate::AdmittedBy(Origin::Local));
            let is_quiet = !self.is_disturbed(first.asked, first.ended)
                && !self.was_frozen(first.asked, first.ended)
                && !is_local;
            is_quiet.then(|| format!("{} before {}", self.shown(second), self.shown(first)))
        })
    }
}
