//! The promises of settlements, from the books: the result that a caller gets is what was done,
//! once, and it reaches a server that is well.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{SETTLING, Seen, has_holds, is_cut, since_begin};
use crate::account::Booking;
use crate::network::Fault;
use crate::world::{Fate, Record, Settled};

/// A connection that was cut is replaced within this time.
const RECONNECTING: Duration = Duration::from_millis(20);

/// The longest pause before the next attempt, where others were cut a little earlier.
const PAUSE: Duration = Duration::from_millis(300);

/// So long after a cut the next one is not the first.
const TROUBLE: Duration = Duration::from_secs(2);

impl Seen<'_> {
    /// Each settlement that is said to be done was done, and it fails for a fault alone.
    pub(super) fn settled_exactly(&self) -> Option<String> {
        if !self.is_exact() {
            return None;
        }
        let mut done: BTreeMap<(&str, i64), i64> = BTreeMap::new();
        for one in &self.account.bookings {
            // What the store could not take back of a slot, it is asked for again.
            let is_final = one.at == one.now && self.has_unique_marks() && !self.forgets();
            if one.settlements > 1 && is_final {
                return Some(format!("twice: {one:?}"));
            }
            *done.entry((one.label("api"), one.cost)).or_default() += i64::from(one.settlements);
        }
        for record in self.records.iter().filter(|record| self.has_settled(record)) {
            let ask = self.ask(record);
            match record.settlement {
                Some(Settled::GaveBack(_)) => {
                    let key = (ask.key, ask.cost.cast_signed());
                    let left = done.entry(key).or_default();
                    *left -= 1;
                    if *left < 0 {
                        return Some(format!("nobody asked a server: {}", self.shown(record)));
                    }
                }
                Some(Settled::Failed) if !self.may_fail(record) => {
                    return Some(format!("failed: {}", self.shown(record)));
                }
                _ => {}
            }
        }
        None
    }

    /// True if a fault explains that a settlement failed.
    fn may_fail(&self, record: &Record) -> bool {
        let Some(from) = record.settled_at else { return true };
        let until = from + SETTLING;
        let is_over = |fault: Fault, end: Duration| {
            let is_before = |at: Duration| at < end && end <= at + TROUBLE;
            let mut all = self.disturbances.iter();
            let has_trouble = all.any(|one| is_cut(one.fault) && is_before(one.until));
            let pause = if has_trouble { PAUSE } else { Duration::ZERO };
            is_cut(fault) && end + RECONNECTING + pause < from
        };
        let mut felt = self.disturbances.iter().filter(|one| !is_over(one.fault, one.until));
        self.is_struck(from, until)
            || felt.any(|one| self.is_felt(one.from, one.until, from, until))
            || self.was_frozen(from, until)
            || self.plan.is_flooded
    }

    /// True if the caller settled before its process knew that the slot had come: the slot goes to
    /// the next who waits there. The process waits from the moment at which it read the answer.
    pub(super) fn went_to_the_line(&self, record: &Record, booking: &Booking) -> bool {
        let (begun, slot) = (since_begin(booking.now), since_begin(booking.at));
        record.settled_at.is_some_and(|settled| settled < slot + self.frozen(begun, settled))
    }

    /// Returns the fault of a charge that is a settled caller's alone, and that is not what the
    /// caller settled.
    pub(super) fn settled_wrongly(&self, record: &Record, booking: &Booking) -> Option<String> {
        let Fate::Admitted { settled: Some(actual), .. } = record.fate else { return None };
        let is_alike = |other: &&Booking| {
            let is_of_key = other.label("api") == booking.label("api");
            is_of_key && (other.at, other.cost) == (booking.at, booking.cost)
        };
        let is_only = self.account.bookings.iter().filter(is_alike).count() == 1;
        let has_holds = self.plan.limits.iter().any(has_holds);
        let is_told = self.has_unique_marks() && !has_holds && !self.forgets();
        // Which of the earlier slots is its own then, is a guess, and so is which of two charges
        // with one mark it settled: a server that lost one gave its mark anew.
        if self.tells_no_slot(record) || self.account.has_twin(booking) {
            return None;
        }
        let Some(Settled::GaveBack(units)) = record.settlement else { return None };
        if self.went_to_the_line(record, booking) {
            return None;
        }
        let back = booking.cost - booking.taken;
        let most = booking.cost - actual.cast_signed().min(booking.cost);
        let is_wrong = back != units.cast_signed() || back > most;
        (is_only && is_told && is_wrong)
            .then(|| format!("{booking:?} is not what settled {}", self.shown(record)))
    }

    /// All penalties that are done took their units.
    pub(super) fn penalized(&self, key: &str) -> Option<String> {
        let (mut least, mut most) = (0, 0);
        for record in self.records.iter().filter(|record| self.ask(record).key == key) {
            let ask = self.ask(record);
            let units = match record.fate {
                _ if ask.way == crate::plan::Way::Penalize => ask.cost,
                Fate::Admitted { settled: Some(actual), .. } => actual.saturating_sub(ask.cost),
                _ => 0,
            };
            let is_of_store = self.is_exact() && !self.plan.limits.iter().any(has_holds);
            let is_done = match record.settlement {
                Some(Settled::GaveBack(_)) => is_of_store,
                _ => record.fate == Fate::Done,
            };
            most += units.cast_signed();
            least += if is_done { units.cast_signed() } else { 0 };
        }
        let booked = self.account.penalties.get(&("api", key.to_owned()));
        let booked = *booked.unwrap_or(&0);
        (booked < least || booked > most && self.is_exact())
            .then(|| format!("{booked} units of {key} are penalties, of {least} to {most}"))
    }
}
