//! The units that are held of a key, each hold by itself: what a limit of concurrency counts in
//! eras. A ledger belongs to a stored value, so what a failover has lost is in none.

use tower_sluice::Quota;
use tower_sluice::algorithm::Algorithm as _;

use super::births::is_other;
use super::{Account, Charge, List, State, Works};

/// The eras in the shortest time of a hold. One more counts.
const ERAS: i64 = 4;

/// More units than a world holds.
const MANY: i64 = 1 << 40;

/// The holds of a key that were not released.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ledger {
    holds: Vec<HeldUnits>,
    /// The instant of the last call.
    last: i64,
    /// The clock went back: nothing is known of it.
    is_odd: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct HeldUnits {
    units: i64,
    /// Its charge, or its last renewal.
    since: i64,
    booking: Option<usize>,
}

impl Ledger {
    fn come_to(&mut self, now: i64) {
        self.is_odd |= now < self.last;
        self.last = now;
    }

    fn add(&mut self, units: i64, since: i64, booking: Option<usize>) {
        self.holds.push(HeldUnits { units, since, booking });
    }

    /// Takes out a hold whose mark is of an era, or as many units of others. Returns false if there
    /// are not so many since that era.
    ///
    /// The earliest units go. If they are of others, these have its units from then on: it was
    /// renewed later than its mark says.
    fn take(&mut self, (era, width): (i64, i64), units: i64, booking: usize) -> bool {
        let is_since = |one: &HeldUnits| one.since - one.since % width >= era;
        let sum: i64 = self.holds.iter().filter(|one| is_since(one)).map(|one| one.units).sum();
        if sum < units {
            return false;
        }
        let (mut found, mut kept): (Vec<_>, Vec<_>) = self.holds.drain(..).partition(is_since);
        found.sort_by_key(|one| one.since);
        let mut places: Vec<_> = found.iter().map(|one| (one.since, one.units)).collect();
        take_first(&mut places, units);
        // A charge that this value never saw has none, and takes those of others.
        for other in found.iter().filter(|one| one.booking != Some(booking)) {
            let mut missing = other.units;
            while let Some((since, most)) = places.first().copied().filter(|_| missing > 0) {
                let here = missing.min(most);
                take_first(&mut places, here);
                kept.push(HeldUnits { units: here, since, ..*other });
                missing -= here;
            }
        }
        // What is left is its own still: of charges that are alike, it was taken for another one.
        let own = |(since, units)| HeldUnits { units, since, booking: Some(booking) };
        kept.extend(places.into_iter().map(own));
        self.holds = kept;
        true
    }

    /// The units that are held for certain, and the most that may count still: an era ends after
    /// all holds in it are old.
    fn bounds(&self, now: i64, width: i64) -> [i64; 2] {
        let of = |is_its: &dyn Fn(&HeldUnits) -> bool| {
            let own = self.holds.iter().filter(|one| is_its(one));
            own.map(|one| one.units).sum()
        };
        let age = |one: &HeldUnits| now - one.since;
        let certain = |one: &HeldUnits| age(one) < ERAS * width;
        let counted = |one: &HeldUnits| age(one) < (ERAS + 1) * width;
        [of(&certain), of(&counted)]
    }
}

/// Takes units away from the first places, each an instant and its units.
fn take_first(places: &mut Vec<(i64, i64)>, mut units: i64) {
    for (_, own) in places.iter_mut() {
        let taken = units.min(*own);
        (*own, units) = (*own - taken, units - taken);
    }
    places.retain(|(_, own)| *own > 0);
}

/// The width of an era of the key at a place, if it is one of concurrency.
fn width(charge: &Charge, place: usize) -> Option<i64> {
    let tag = charge.keys[place].split(':').nth(2).unwrap_or_default();
    let is_at_once = tag.trim_start_matches(|digit: char| digit.is_ascii_digit()) == "cc1";
    let hold_time = List::hold_time(&vec![charge.rule[place].clone()]);
    hold_time.filter(|_| is_at_once).map(|time| time / ERAS)
}

/// The ledgers of a charge's keys of concurrency, each with its place and the width of an era.
fn each(charge: &Charge, works: &mut Works, mut act: impl FnMut(&mut Ledger, usize, i64)) {
    for place in 0..charge.keys.len() {
        let Some(width) = width(charge, place) else { continue };
        let work = works.get_mut(&charge.keys[place]).expect("it was read");
        let ledger = &mut work.standing.ledger;
        ledger.come_to(charge.now);
        let end = (ERAS + 1) * width;
        ledger.holds.retain(|one| one.since - one.since % width + end > charge.now);
        act(ledger, place, width);
    }
}

/// Notes what an admission holds.
pub(super) fn hold(charge: &Charge, units: i64, booking: Option<usize>, works: &mut Works) {
    each(charge, works, |ledger, _, _| ledger.add(units, charge.now, booking));
}

/// The marks of a settlement or a renewal, and the births of the keys.
type MarksAndBirths<'a> = (&'a [String], &'a [i64]);

/// Takes out the units of a settlement or a renewal, and puts them back in as of now if they are
/// renewed.
pub(super) fn release(
    charge: &Charge,
    (units, booking): (i64, usize),
    (mark, born): MarksAndBirths<'_>,
    is_renewal: bool,
    works: &mut Works,
) {
    let others: Vec<_> =
        (0..charge.keys.len()).map(|place| is_other(charge, place, born[place], works)).collect();
    each(charge, works, |ledger, place, width| {
        let era: i64 = mark[4 * place].parse().expect("a number");
        let era = era - era % width;
        let is_alive = era + (ERAS + 1) * width > charge.now;
        let is_known = !others[place] && is_alive;
        if is_known && ledger.take((era, width), units, booking) && is_renewal {
            ledger.add(units, charge.now, Some(booking));
        }
    });
}

impl Account {
    /// The units that are held of the key at a place of a charge, as the reference has them.
    fn held(&self, charge: &Charge, place: usize, state: Option<&State>) -> i64 {
        let (limit, member) = self.limit_of(&charge.keys[place]).expect("it was read");
        let many = vec![self.limits[limit].algorithms[member]];
        let many = many.rule(Quota::at_once(MANY.unsigned_abs())).expect("a rule");
        let own = state.and_then(|state| state[place].clone());
        MANY - List::report(&many, Some(&vec![own]), charge.now).remaining
    }

    /// Notes what a penalty took: nobody releases it.
    pub(super) fn note_penalty(&self, charge: &Charge, before: Option<&State>, works: &mut Works) {
        let after = super::state_of(charge, works);
        let taken: Vec<_> = (0..charge.keys.len())
            .map(|place| {
                width(charge, place).map_or(0, |_| {
                    self.held(charge, place, after.as_ref()) - self.held(charge, place, before)
                })
            })
            .collect();
        each(charge, works, |ledger, place, _| {
            if taken[place] > 0 {
                ledger.add(taken[place], charge.now, None);
            }
        });
    }

    /// The units that count as held are those of holds that were neither released nor are older
    /// than they may be, and of no others.
    pub(super) fn check_held(&self, charge: &Charge, works: &mut Works) -> Result<(), String> {
        let (state, mut wrong) = (super::state_of(charge, works), None);
        each(charge, works, |ledger, place, width| {
            let held = self.held(charge, place, state.as_ref());
            let [certain, most] = ledger.bounds(charge.now, width);
            if !ledger.is_odd && !(certain..=most).contains(&held) {
                let key = &charge.keys[place];
                wrong = Some(format!(
                    "held: {held} units of {key}, not {certain} to {most}: {ledger:?} {charge:?}"
                ));
            }
        });
        wrong.map_or(Ok(()), Err)
    }

    /// No more units are held after an admission than its limit.
    pub(super) fn check_at_once(&self, charge: &Charge, works: &mut Works) -> Result<(), String> {
        let mut wrong = None;
        each(charge, works, |ledger, place, width| {
            let (limit, member) = self.limit_of(&charge.keys[place]).expect("it was read");
            let limit = &self.limits[limit];
            let quota = match charge.quotas[place] {
                0 => limit.algorithms[member].quota().as_slice()[0],
                own => limit.own_quotas[own - 1][member],
            };
            let [certain, _] = ledger.bounds(charge.now, width);
            if !ledger.is_odd && certain > quota.limit().cast_signed() {
                wrong = Some(format!("bound: {certain} units at once: {ledger:?} {charge:?}"));
            }
        });
        wrong.map_or(Ok(()), Err)
    }
}
