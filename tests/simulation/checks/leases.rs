//! The promises of a lease, from the books. A leased unit is spent under the instant at which its
//! lease was taken, so each admission points at a charge of the store. With `bound`, which holds
//! for these charges, follows the bound of a lease: what a window of length `T` hands out was taken
//! in one of length `T` and the validity.

use std::collections::BTreeMap;
use std::time::Duration;

use super::once::LATENESS;
use super::{Seen, since_begin};
use crate::account::Booking;
use crate::plan::Way;
use crate::world::{Fate, Record};

/// The time for which leased units may be spent.
const VALIDITY: Duration = Duration::from_millis(100);

/// The longest time after a charge until its lease is over, and its last holder has settled.
const SETTLING: Duration = Duration::from_millis(1_500);

/// The charges of one key at one instant, and who was admitted by them.
#[derive(Default)]
struct Group<'a> {
    bookings: Vec<&'a Booking>,
    holders: Vec<&'a Record>,
}

impl Seen<'_> {
    /// Each leased unit was handed out once and in its time, and what was left of a lease was given
    /// back once.
    pub(super) fn leased(&self) -> Option<String> {
        let mut groups: BTreeMap<(&str, i64), Group<'_>> = BTreeMap::new();
        for one in &self.account.bookings {
            groups.entry((one.label("api"), one.at)).or_default().bookings.push(one);
        }
        let mut own: Vec<&Record> = self.records.iter().collect();
        own.sort_by_key(|record| self.tells_no_slot(record));
        let mut elsewhere = Vec::new();
        for record in own {
            let Fate::Admitted { at, .. } = record.fate else { continue };
            let group = groups.entry((self.ask(record).key, at)).or_default();
            group.holders.push(record);
            // It has a slot of another instant, or is alike to one that has.
            let is_too_much = self.most_held(&group.holders) > group.cost()
                || self.kept_by(&group.holders) > group.taken();
            if self.tells_no_slot(record) && is_too_much {
                elsewhere.extend(group.holders.pop());
            }
        }
        let outdated = |((_, at), group): (&(&str, i64), &Group<'_>)| {
            let record = group.holders.iter().find(|record| self.is_outdated(record, *at));
            record.map(|record| format!("units of another time for {}", self.shown(record)))
        };
        let twice = |(key, group): (&(&str, i64), &Group<'_>)| {
            let (most, taken) = (self.most_held(&group.holders), group.cost());
            (most > taken).then(|| {
                let holders: Vec<_> = group.holders.iter().map(|one| self.shown(one)).collect();
                format!("{most} units of {taken} at {key:?} are handed out, to {holders:#?}")
            })
        };
        groups
            .iter()
            .find_map(outdated)
            .or_else(|| groups.iter().find_map(|(group, one)| self.of_before(group, one)))
            .or_else(|| groups.iter().find_map(twice))
            .or_else(|| self.returned(&groups, &elsewhere))
    }

    /// True if the units were taken too long before the caller asked, or after it was answered. A
    /// process that stands still reads late when a slot is due, and may keep it for as long.
    fn is_outdated(&self, record: &Record, at: i64) -> bool {
        let at = since_begin(at);
        let late = self.frozen(Duration::ZERO, record.asked).min(LATENESS);
        !self.has_odd_clocks() && (at + VALIDITY + late < record.asked || at > record.ended)
    }

    /// A unit of a lease from before a reset that its own process spent after that.
    fn of_before(&self, (key, at): &(&str, i64), group: &Group<'_>) -> Option<String> {
        let at = since_begin(*at);
        let is_reset = |spent: &Record| {
            self.records.iter().any(|reset| {
                let (own, other) = (self.ask(spent), self.ask(reset));
                (other.way, other.process, other.key) == (Way::Reset, own.process, *key)
                    && reset.fate == Fate::Done
                    && at < reset.asked
                    && reset.ended < spent.asked
            })
        };
        let spent = group.holders.iter().find(|one| !self.has_odd_clocks() && is_reset(one));
        spent.map(|spent| format!("units of before a reset for {}", self.shown(spent)))
    }

    /// The most units that callers had at once.
    fn most_held(&self, holders: &[&Record]) -> i64 {
        let mut changes = Vec::new();
        for record in holders {
            changes.push((record.ended, self.ask(record).cost.cast_signed()));
            let back = self.ask(record).cost.cast_signed() - self.kept(record);
            changes.extend(record.settled_at.map(|at| (at, -back)));
        }
        changes.sort_unstable();
        let (mut held, mut most) = (0, 0);
        for (_, units) in changes {
            held += units;
            most = most.max(held);
        }
        most
    }

    /// The units of its lease that a caller has still when all is quiet.
    fn kept(&self, record: &Record) -> i64 {
        let cost = self.ask(record).cost;
        match record.fate {
            Fate::Admitted { settled, .. } => settled.unwrap_or(cost).min(cost).cast_signed(),
            _ => 0,
        }
    }

    /// The same of several callers.
    fn kept_by(&self, holders: &[&Record]) -> i64 {
        holders.iter().map(|record| self.kept(record)).sum()
    }

    /// The units that a caller took when it settled, of whatever lease.
    fn more(&self, record: &Record) -> i64 {
        match record.fate {
            Fate::Admitted { settled: Some(actual), .. } => {
                actual.saturating_sub(self.ask(record).cost).cast_signed()
            }
            _ => 0,
        }
    }

    /// Units that were given back were not spent, and for units that were not spent the store was
    /// asked. `elsewhere` hold units of instants that they do not tell.
    fn returned(
        &self,
        groups: &BTreeMap<(&str, i64), Group<'_>>,
        elsewhere: &[&Record],
    ) -> Option<String> {
        if self.has_odd_clocks() || self.forgets() {
            return None;
        }
        let mut keys: BTreeMap<&str, Sums> = BTreeMap::new();
        for ((key, at), group) in groups {
            let (kept, taken) = (self.kept_by(&group.holders), group.taken());
            if self.has_unique_marks() && taken < kept {
                return Some(format!("{taken} of {kept} units at {at} are left of {key}"));
            }
            // Who renewed its units settles late.
            let settled = || group.holders.iter().filter_map(|holder| holder.settled_at);
            let is_hindered = settled().any(|at| self.may_lose_settlement(at, at + SETTLING));
            let is_lost = |one: &&&Booking| {
                let may_be_lost = is_hindered || self.may_be_lost(one, SETTLING);
                one.settlements == 0 && !may_be_lost && !self.is_kept(one)
            };
            let unsettled: i64 = group.bookings.iter().filter(is_lost).map(|one| one.cost).sum();
            let sums = keys.entry(key).or_default();
            sums.kept += kept;
            sums.taken += taken;
            sums.unsettled += unsettled;
            sums.missing += (unsettled - kept).max(0);
            sums.more += group.holders.iter().map(|record| self.more(record)).sum::<i64>();
        }
        for record in elsewhere {
            let sums = keys.entry(self.ask(record).key).or_default();
            sums.kept += self.kept(record);
            sums.missing -= self.kept(record);
        }
        keys.into_iter().find_map(|(key, sums)| {
            if sums.taken < sums.kept {
                return Some(format!("{} of {} units are left of {key}", sums.taken, sums.kept));
            }
            // Marks that are alike do not say which of the charges was settled.
            let missing = match self.has_unique_marks() {
                true => sums.missing,
                false => sums.unsettled - sums.kept,
            };
            (missing > sums.more)
                .then(|| format!("{missing} leased units of {key} were never given back"))
        })
    }
}

impl Group<'_> {
    fn cost(&self) -> i64 {
        self.bookings.iter().map(|one| one.cost).sum()
    }

    /// The units that are left of the cost when all is quiet.
    fn taken(&self) -> i64 {
        self.bookings.iter().map(|one| one.taken).sum()
    }
}

/// The units of one key.
#[derive(Default)]
struct Sums {
    kept: i64,
    taken: i64,
    /// Of charges that nobody settled, though nothing hindered it.
    unsettled: i64,
    /// Those of them that no caller of the same instant has.
    missing: i64,
    /// Taken by callers who used more than they had asked for.
    more: i64,
}
