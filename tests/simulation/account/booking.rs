//! Admissions, and which of them a mark stands for.

use std::collections::BTreeSet;
use std::rc::Rc;

use tower_sluice::algorithm::Mark;

use super::{Account, Charge, Op, Works};

/// An admission that a server made.
#[derive(Clone, Debug)]
pub struct Booking {
    pub server: usize,
    /// The number of the connection that asked for it.
    pub session: u64,
    /// The instant of the world at which a client sent it.
    pub sent_at: i64,
    /// The instants of the decision and of its slot, by the server's clock.
    pub now: i64,
    pub at: i64,
    /// The instant of the world at which the client had read the answer. `None`: it did not arrive.
    pub read_at: Option<i64>,
    /// The labels of its keys by the names of their limiters.
    pub keys: Vec<(&'static str, String)>,
    pub(super) names: Rc<[String]>,
    /// The number of the last reset of each key.
    pub(super) births: Vec<i64>,
    /// For each key, the place of its limiter's quota by which it was asked.
    pub quotas: Vec<usize>,
    pub cost: i64,
    /// The units that are taken of it still.
    pub taken: i64,
    /// The number of times that it was settled.
    pub settlements: u32,
    /// The number of times that one of its keys alone was released. Marks of keys of concurrency
    /// are alike, so it may have been that of another one.
    pub(super) releases: u32,
    /// A settlement failed, and may have given back its units of some of its keys.
    pub was_settled_in_part: bool,
    /// The units that a refund of a charge gave back of it, which a failover had lost.
    pub given_for_lost: i64,
    /// The units that it left free of its first quota.
    pub keep_free: i64,
    pub(super) mark: Mark,
    /// The marks that it had before it was renewed. A client whose renewal had no answer knows one
    /// of them alone.
    pub(super) former_marks: Vec<Mark>,
}

impl Booking {
    /// The instant at which its caller knew of it, by the server's clock.
    pub fn known_at(&self) -> i64 {
        self.now + self.read_at.map_or(0, |read_at| read_at - self.sent_at)
    }

    /// The number of its renewals.
    pub fn renewals(&self) -> usize {
        self.former_marks.len() / 2
    }

    /// The label of its key of a limiter.
    pub fn label(&self, limiter: &str) -> &str {
        let own = self.keys.iter().find(|(name, _)| *name == limiter);
        own.map_or("", |(_, label)| label)
    }

    /// True if no settlement can tell one from the other.
    pub fn is_alike(&self, other: &Self) -> bool {
        let is_of_key = self.cost == other.cost && self.names == other.names;
        let has_mark = |mark: &Mark| other.marked(&self.names, &mark.words()).is_some();
        is_of_key && self.births == other.births && self.marks().any(has_mark)
    }

    /// Its marks, the present one first.
    fn marks(&self) -> impl Iterator<Item = &Mark> {
        [&self.mark].into_iter().chain(&self.former_marks)
    }

    /// The place of these keys among its own. A policy of concurrency is released by itself.
    fn place_of(&self, keys: &[String]) -> Option<usize> {
        self.names.windows(keys.len()).position(|own| own == keys)
    }

    /// Its mark with these words, or the part of it that stands for the only one of these keys.
    pub(super) fn marked(&self, keys: &[String], words: &[String]) -> Option<Mark> {
        let place = self.place_of(keys)?;
        let own = 4 * place..4 * (place + keys.len());
        let mark = self.marks().find(|mark| mark.words().get(own.clone()) == Some(words))?;
        if keys.len() == self.names.len() {
            return Some(mark.clone());
        }
        let numbers: Result<Vec<_>, _> = words.iter().map(|word| word.parse()).collect();
        Some(Mark::from(<[i64; 4]>::try_from(numbers.ok()?).ok()?))
    }

    /// True if its keys had these births.
    fn is_born(&self, keys: &[String], born: &[i64]) -> bool {
        let place = self.place_of(keys);
        place.is_some_and(|place| self.births[place..][..keys.len()] == *born)
    }
}

impl Account {
    /// The bookings that settlements cannot tell from this one, and from one another: a server that
    /// lost renewals gives two holds one mark, and later one of them has that of a third.
    pub(super) fn all_alike(&self, index: usize) -> Vec<usize> {
        let mut alike = vec![index];
        let mut next = 0;
        while let Some(one) = alike.get(next).map(|index| &self.bookings[*index]) {
            let others = 0..self.bookings.len();
            let is_new =
                |other: &usize| !alike.contains(other) && self.bookings[*other].is_alike(one);
            let new: Vec<_> = others.filter(is_new).collect();
            alike.extend(new);
            next += 1;
        }
        alike
    }

    /// True if another admission has the same mark, as where a server lost charges: then a
    /// settlement may be of either.
    pub fn has_twin(&self, booking: &Booking) -> bool {
        let mut all = self.bookings.iter();
        all.any(|one| !std::ptr::eq(one, booking) && one.is_alike(booking))
    }

    /// True if another admission with the same mark was settled.
    pub fn has_settled_twin(&self, booking: &Booking) -> bool {
        let mut settled = self.bookings.iter().filter(|one| one.settlements > 0);
        settled.any(|one| !std::ptr::eq(one, booking) && one.is_alike(booking))
    }

    /// The admissions that the value of a charge's first key has seen.
    pub(super) fn seen_by(&self, charge: &Charge, works: &Works) -> BTreeSet<usize> {
        let work = &works[&charge.keys[0]];
        let mut seen: BTreeSet<usize> = work.bookings.iter().copied().collect();
        let mut next = work.before;
        while let Some(node) = next.and_then(|version| self.nodes.get(&version)) {
            seen.extend(&node.bookings);
            next = node.before;
        }
        seen
    }

    /// Notes that a refund of an admission gave back units of others: a window holds units, and not
    /// whose they are. Its own are gone if the value of the key never saw it, or if another one
    /// gave them back before.
    pub(super) fn give_for_lost(
        &mut self,
        lost: usize,
        units: i64,
        charge: &Charge,
        works: &Works,
    ) {
        let seen = self.seen_by(charge, works);
        let mut units = match seen.contains(&lost) {
            false => units,
            true => {
                let own = &mut self.bookings[lost];
                let left = own.given_for_lost.min(own.taken);
                std::mem::replace(&mut own.given_for_lost, left) - left
            }
        };
        for index in seen.into_iter().rev() {
            let one = &mut self.bookings[index];
            if one.names == charge.keys {
                let given = units.min(one.taken - one.given_for_lost);
                one.given_for_lost += given;
                units -= given;
            }
        }
    }

    /// The admission that a mark stands for. Marks of windows are alike, and a server that lost
    /// charges may give their marks anew: then one that is not settled yet, and that the key's
    /// value has seen.
    pub(super) fn booking_of(
        &self,
        charge: &Charge,
        works: &Works,
        cost: i64,
        (mark, born): (&[String], &[i64]),
    ) -> Option<usize> {
        let seen = self.seen_by(charge, works);
        let own = |(_, one): &(usize, &Booking)| {
            // A policy alone ends a hold. All others are settled and renewed together.
            let ends = matches!(charge.op, Op::Settle { used, cost, .. } if used == cost);
            let is_whole = one.names.len() == charge.keys.len();
            let is_born = one.cost == cost && one.is_born(&charge.keys, born);
            (ends || is_whole) && is_born && one.marked(&charge.keys, mark).is_some()
        };
        let least = |(index, one): &(usize, &Booking)| {
            let is_former = one.mark.words() != mark;
            (one.settlements + one.releases, is_former, !seen.contains(index), -one.taken)
        };
        let bookings = self.bookings.iter().enumerate().rev();
        bookings.filter(own).min_by_key(least).map(|(index, _)| index)
    }
}
