//! Each admission was charged once, and what nobody has came back.

use std::collections::BTreeMap;
use std::time::Duration;

use tower_sluice::algorithm::{Algorithm, AnyAlgorithm};
use tower_sluice::limiter::Origin;

use super::{SETTLING, Seen, has_holds, kept_free, since_begin};
use crate::account::Booking;
use crate::clients::EVERYBODY;
use crate::network::{Disturbance, Fault};
use crate::plan::{Ask, Asking, Way};
use crate::servers::StrikeKind;
use crate::world::{Fate, Record, Settled, TIMEOUT};

/// An answer may be so late, and is awaited still.
pub(super) const LATENESS: Duration = Duration::from_millis(300);

/// A settlement is redirected for so long: it keeps later calls of its slot waiting.
const REDIRECTED_FOR: Duration = Duration::from_millis(100);

impl Seen<'_> {
    /// Each admission was charged once, and what nobody has was given back.
    pub(super) fn once(&self) -> Option<String> {
        if !self.is_exact() {
            return match self.plan.stack.lease {
                // Rows come and go, and each row of a charge may have a call of its own.
                None if self.plan.asking == Asking::Policies => None,
                None => self.once_in_turn(),
                Some(_) => self.leased(),
            };
        }
        let mut open: Vec<&Booking> = self.account.bookings.iter().collect();
        let returned = |record: &&Record| (self.tells_no_slot(record), self.has_settled(record));
        let mut own: Vec<&Record> = self.records.iter().collect();
        own.sort_by_key(returned);
        // Charges that somebody keeps, and that were settled in place of others with their mark; and
        // charges of those who settled that were not.
        let mut exchanged: Vec<&Booking> = Vec::new();
        let mut owed: Vec<&Booking> = Vec::new();
        for record in own {
            let Fate::Admitted { at, .. } = record.fate else { continue };
            let (ask, has_settled) = (self.ask(record), self.has_settled(record));
            let (cost, tells_no_slot) = (ask.cost.cast_signed(), self.tells_no_slot(record));
            let is_own = |one: &&&Booking| {
                let is_known = || self.has_unique_marks() && !self.account.has_twin(one);
                let is_kept = one.taken == one.cost || has_settled || !is_known();
                let is_at = one.at == at || tells_no_slot && one.at < at;
                let is_asked = one.cost == cost && one.label("api") == ask.key;
                let is_asked = is_asked && one.keep_free == kept_free(ask);
                is_at && is_asked && self.is_by_quota(ask, one) && is_kept
            };
            // Of charges that are alike, those who keep theirs have one that was not settled.
            let least = |one: &&&Booking| {
                let settlements = i64::from(one.settlements);
                let settled = if has_settled { -settlements } else { settlements };
                (at - one.at, settled, record.decided_at != Some(one.now), one.taken)
            };
            let Some(one) = open.iter().filter(is_own).min_by_key(least).copied() else {
                let went_on = |one: &Booking| has_settled && self.went_to_the_line(record, one);
                if self.account.bookings.iter().any(|one| is_own(&&one) && went_on(one)) {
                    continue;
                }
                return Some(format!("no charge stands for {}", self.shown(record)));
            };
            if let Some(wrong) = self.settled_wrongly(record, one) {
                return Some(wrong);
            }
            open.retain(|other| !std::ptr::eq(*other, one));
            if !has_settled && one.settlements > 0 {
                exchanged.push(one);
            }
            let is_done = has_settled && matches!(record.settlement, Some(Settled::GaveBack(_)));
            if is_done && one.settlements == 0 && !self.went_to_the_line(record, one) {
                owed.push(one);
            }
        }
        let mut unknown = self.unknown();
        let is_open = |one: &&&Booking| one.taken > 0 && !self.was_paused_away(one);
        for booking in open.iter().filter(is_open) {
            let key = (booking.label("api").to_owned(), booking.cost.cast_unsigned());
            match unknown.get_mut(&key).filter(|count| **count > 0) {
                Some(count) => *count -= 1,
                None => return Some(format!("nobody has {booking:?}")),
            }
        }
        let mut take_exchanged = |one: &Booking| {
            let place = exchanged.iter().position(|other| one.is_alike(other));
            place.map(|place| exchanged.swap_remove(place)).is_some()
        };
        owed.retain(|one| !take_exchanged(one));
        open.retain(|one| one.settlements > 0 || !take_exchanged(one));
        self.lost(&open)
    }

    /// True if a charge was asked by the quota that a caller brought, or by the limiter's own.
    pub(super) fn is_by_quota(&self, ask: &Ask, one: &Booking) -> bool {
        if self.plan.asking == Asking::Policies {
            return true;
        }
        let limit = &self.plan.limits[0];
        let brought = limit.own_quotas.iter().map(|quotas| quotas[0]);
        let own = limit.algorithms[0].quota().as_slice()[0];
        let quotas: Vec<_> = [own].into_iter().chain(brought).collect();
        // The account knows equal ones as the first of them.
        let asked = quotas[ask.own_quota.map_or(0, |own| own + 1)];
        quotas.iter().position(|quota| *quota == asked) == Some(one.quotas[0])
    }

    /// True if a waiter may have gone at a slot of before its own decision, as the store's clock
    /// has it: who had that slot left. It did not wait, so it tells the instant of its decision.
    pub(super) fn tells_no_slot(&self, record: &Record) -> bool {
        let Fate::Admitted { at, .. } = record.fate else { return false };
        let ask = self.ask(record);
        let may_wait = !ask.max_wait.is_zero() || self.plan.asking == Asking::Policies;
        let is_of_then = |one: &&Booking| one.now == at && one.label("api") == ask.key;
        let mut own = self.account.bookings.iter().filter(is_of_then).peekable();
        // One that took a slot at hand has reserved none.
        let took_spare = own.peek().is_none();
        let cost = ask.cost.cast_signed();
        may_wait
            && record.decided_at == Some(at)
            && (took_spare || own.any(|one| one.cost == cost && one.at > at))
    }

    /// True if the caller gave units back, or ended a hold.
    pub(super) fn has_settled(&self, record: &Record) -> bool {
        self.plan.limits.iter().any(|limit| self.has_settled_at(limit.name, record))
    }

    /// The same at one limiter.
    pub(super) fn has_settled_at(&self, limiter: &str, record: &Record) -> bool {
        let Fate::Admitted { settled: Some(actual), .. } = record.fate else { return false };
        let mut own = self.plan.limits.iter().filter(|limit| limit.name == limiter);
        // A policy that holds nothing does not hear of a hold's end.
        let hears = self.plan.asking != Asking::Policies;
        actual < self.ask(record).cost || hears && own.any(has_holds)
    }

    /// The same for limiters that are asked in turn. A decision says when one of them decided, so a
    /// charge is somebody's if it was made while that caller waited.
    pub(super) fn once_in_turn(&self) -> Option<String> {
        for limiter in ["api", EVERYBODY] {
            let mut own: Vec<&Booking> = self.account.bookings.iter().collect();
            own.retain(|one| !one.label(limiter).is_empty());
            own.sort_by_key(|one| one.now);
            let mut callers: Vec<&Record> = self.records.iter().collect();
            let mut open = Vec::new();
            for booking in own {
                let at = since_begin(booking.now);
                let is_whose = |record: &&Record| {
                    let Fate::Admitted { .. } = record.fate else { return false };
                    let ask = self.ask(record);
                    let label = if limiter == "api" { ask.key } else { EVERYBODY };
                    ask.cost == booking.cost.cast_unsigned()
                        && booking.label(limiter) == label
                        && (record.asked..=record.ended).contains(&at)
                        && (booking.settlements == 0
                            || self.has_settled_at(limiter, record) && !self.may_be_kept(record))
                };
                let whose = callers.iter().enumerate().filter(|(_, record)| is_whose(record));
                match whose.min_by_key(|(_, record)| record.ended) {
                    Some((place, _)) => drop(callers.swap_remove(place)),
                    None => open.push(booking),
                }
            }
            if self.has_unique_marks_of(limiter)
                && let Some(lost) = self.lost(&open)
            {
                return Some(lost);
            }
        }
        None
    }

    /// True if a settlement may not have reached its server, since the process died or a fault was
    /// in the way.
    fn may_be_kept(&self, record: &Record) -> bool {
        let process = self.ask(record).process;
        record.settled_at.is_some_and(|at| {
            let until = self.after(at, SETTLING);
            let mut deaths = self.deaths.iter().filter(|(_, who)| *who == process);
            self.is_disturbed(at, until)
                || deaths.any(|(death, _)| self.is_felt(*death, *death, at, until))
        })
    }

    /// Callers of which nobody knows whether they were charged, by key and cost.
    pub(super) fn unknown(&self) -> BTreeMap<(String, u64), usize> {
        let mut unknown = BTreeMap::new();
        for record in self.records {
            let may_be_charged = match record.fate {
                Fate::Left | Fate::Failed(_) | Fate::Panicked => true,
                // Who waited asked before the switch was off, and again since its key was paused.
                Fate::AdmittedBy(Origin::Off) => record.ended > record.asked,
                Fate::AdmittedBy(_) => true,
                // The layer does not tell who refused.
                Fate::Refused { by: None, .. } => self.plan.stack.has_fallback,
                Fate::Refused { by, .. } => by == Some(Origin::Local),
                _ => false,
            };
            let ask = self.ask(record);
            let charges = [Way::Acquire, Way::Layer, Way::Unready, Way::Refunded];
            if may_be_charged && charges.contains(&ask.way) {
                *unknown.entry((ask.key.to_owned(), ask.cost)).or_default() += 1;
            }
            if self.may_have_asked_on(record) {
                let most = (record.ended - record.asked).as_millis() as usize;
                *unknown.entry((ask.key.to_owned(), ask.cost)).or_default() += most;
            }
        }
        unknown
    }

    /// A charge whose caller has left was given back, or the store was asked to.
    pub(super) fn lost(&self, open: &[&Booking]) -> Option<String> {
        if self.has_odd_clocks() || self.forgets() {
            return None;
        }
        let mut open =
            open.iter().filter(|one| !self.may_be_lost(one, SETTLING) && !self.is_kept(one));
        if self.has_unique_marks() {
            let lost = open.find(|one| one.settlements == 0);
            return lost.map(|booking| format!("never given back: {booking:?}"));
        }
        // Marks that are alike say how many were given back, and not which.
        let mut missing: BTreeMap<(&str, i64), i64> = BTreeMap::new();
        for one in open {
            *missing.entry((one.label("api"), one.cost)).or_default() += 1;
        }
        for record in self.records {
            let ask = self.ask(record);
            if let Some(at) = record.settled_at.filter(|_| self.has_settled(record))
                && let Some(count) = missing.get_mut(&(ask.key, ask.cost.cast_signed()))
            {
                let until = self.after(at, SETTLING);
                // The answer that says that the slot has moved may come too late.
                let redirects = |(begin, end, kind): &(Duration, Duration, StrikeKind)| {
                    matches!(kind, StrikeKind::MoveSlots | StrikeKind::TakeSlots)
                        && self.is_felt(*begin, *end, at, until)
                };
                let is_redirected = self.strikes.iter().any(redirects);
                let awaited = if is_redirected { REDIRECTED_FOR } else { LATENESS };
                let is_late = self.frozen(at, until) >= awaited;
                let is_due = !is_late && !self.may_be_kept(record);
                *count += i64::from(is_due);
            }
        }
        for one in &self.account.bookings {
            if let Some(count) = missing.get_mut(&(one.label("api"), one.cost)) {
                *count -= i64::from(one.settlements);
            }
        }
        let lost = missing.into_iter().find(|(_, count)| *count > 0);
        lost.map(|((key, cost), count)| format!("{count} of {cost} for {key} never given back"))
    }

    /// True if the process of a waiter who left kept the slot: of slots that wait, a store takes
    /// back the newest alone.
    ///
    /// A process takes the latest one for that. It is another if a smaller quota cut the state in
    /// between: then a slot of before the cut lies later, and both are kept.
    pub(super) fn is_kept(&self, one: &Booking) -> bool {
        // They stand in the order of their decisions, those of one call, too.
        let mut own = self.account.bookings.iter().filter(|other| other.keys == one.keys);
        let is_later_of_before =
            |other: &Booking| other.taken > 0 && other.at > one.at && self.was_cut(other, one);
        let is_before = |other: &&Booking| !std::ptr::eq(*other, one);
        let is_kept_for_a_cut = own.by_ref().take_while(is_before).any(is_later_of_before);
        one.at > one.now && (is_kept_for_a_cut || own.any(|other| other.at >= one.at))
    }

    /// True if the slot of an admission lies in a later pause, or if its caller found such a pause
    /// when it was to go. So it asked again. The store may not have been able to take the slot back.
    pub(super) fn was_paused_away(&self, one: &Booking) -> bool {
        let is_of_key = |label: &String| one.keys.iter().any(|(_, own)| own == label);
        let looked = i64::try_from(TIMEOUT.as_micros()).expect("short") + one.known_at();
        // A clock that stepped forward says a later time than the caller waited for.
        let last = if self.has_odd_clocks() { i64::MAX } else { one.at.max(looked) };
        let covers = |from: i64, until: i64| (one.now..=last).contains(&from) && one.at < until;
        let mut pauses = self.account.pauses.iter();
        // The account may have taken its refund for that of a charge with the same mark.
        (one.settlements > 0 || self.account.has_settled_twin(one))
            && pauses.any(|(label, from, until)| is_of_key(label) && covers(*from, *until))
    }

    /// True if the state of a charge's keys was cut between two admissions.
    fn was_cut(&self, first: &Booking, second: &Booking) -> bool {
        let is_of_key = |label: &String| first.keys.iter().any(|(_, own)| own == label);
        let mut freed = self.account.freed.iter();
        freed.any(|(label, at)| is_of_key(label) && (first.now..=second.now).contains(at))
    }

    /// True if somebody makes the store forget charges.
    pub(super) fn forgets(&self) -> bool {
        let forgets = |way| {
            use Way::{Block, Grant, Pause, Penalize, Reset, Unblock};
            matches!(way, Reset | Block | Pause | Unblock | Penalize | Grant)
        };
        self.plan.stack.ban.is_some() || self.plan.asks.iter().any(|ask| forgets(ask.way))
    }

    /// True if a fault explains that nothing of a charge came back within this time.
    pub(super) fn may_be_lost(&self, one: &Booking, settling: Duration) -> bool {
        let at = since_begin(one.now);
        // Who waits for a service that is never ready may leave much later.
        let leaves = |record: &&Record| {
            let ask = self.ask(record);
            let is_of_key = one.label("api") == ask.key || one.label("api").is_empty();
            record.fate == Fate::Left
                && (is_of_key && ask.cost.cast_signed() == one.cost)
                && (record.asked..=record.ended).contains(&at)
        };
        let left = self.records.iter().filter(leaves).map(|record| record.ended).max();
        let until = since_begin(one.at).max(left.unwrap_or_default()) + settling;
        self.may_lose_settlement(at, until)
    }

    /// True if a fault explains that a settlement of this stretch did not reach the store.
    pub(super) fn may_lose_settlement(&self, at: Duration, until: Duration) -> bool {
        // A process that stood still sends late, and waits for the answer no more.
        // An answer that is late for no longer is awaited.
        let is_awaited = |one: &Disturbance| {
            one.fault == Fault::Stall && one.until - one.from < LATENESS && self.is_exact()
        };
        let mut felt = self.disturbances.iter().filter(|one| !is_awaited(one));
        let mut deaths = self.deaths.iter();
        self.is_struck(at, until)
            || deaths.any(|(death, _)| self.is_felt(*death, *death, at, until))
            || felt.any(|one| self.is_felt(one.from, one.until, at, until))
            || self.was_frozen(at.saturating_sub(TIMEOUT), until)
    }

    /// True if a mark tells a charge from all others.
    pub(super) fn has_unique_marks(&self) -> bool {
        match self.plan.asking {
            // Rows come and go, but for the first one.
            Asking::Policies => self.has_unique_marks_of("api"),
            _ => self.plan.limits.iter().any(|limit| self.has_unique_marks_of(limit.name)),
        }
    }

    pub(super) fn has_unique_marks_of(&self, limiter: &str) -> bool {
        let is_unique = |one: &AnyAlgorithm| {
            matches!(
                one,
                AnyAlgorithm::TokenBucket(_)
                    | AnyAlgorithm::SlidingLog(_)
                    | AnyAlgorithm::SmoothBursty(_)
                    | AnyAlgorithm::SmoothWarmingUp(_)
            )
        };
        let own = self.plan.limits.iter().filter(|limit| limit.name == limiter);
        own.flat_map(|limit| &limit.algorithms).any(is_unique)
    }
}
