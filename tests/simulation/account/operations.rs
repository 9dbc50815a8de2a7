//! What is no check: penalties, grants, resets, blocks and pauses.

use tower_sluice::algorithm::Algorithm as _;

use super::super::packing::Packed;
use super::births::{is_any_other, keep_born};
use super::ledger::Ledger;
use super::{Account, Charge, List, Op, Works, keep, state_of};

/// A block of a key.
#[derive(Clone, Debug)]
pub struct Blocking {
    /// The instant of the world at which a client sent it.
    pub sent_at: i64,
    pub label: String,
    /// Its begin by the server's clock, and for how long it is.
    pub now: i64,
    pub time: i64,
}

/// Returns the instant at which the longest block of a charge's keys ends.
pub(super) fn blocked_until(charge: &Charge, works: &Works) -> Option<i64> {
    let until = charge.keys.iter().filter_map(|key| works[key].standing.blocked_until).max();
    until.filter(|until| *until > charge.now)
}

/// Returns the instants at which the blocks of a charge's keys end, 0 for a key that is not blocked.
pub(super) fn block_ends(charge: &Charge, works: &Works) -> Vec<i64> {
    let until = |key: &String| works[key].standing.blocked_until;
    let ends = charge.keys.iter().map(|key| until(key).filter(|until| *until > charge.now));
    ends.map(|until| until.unwrap_or(0)).collect()
}

/// Blocks a charge's keys.
pub(super) fn block(charge: &Charge, works: &mut Works) {
    let Op::Block { time } = charge.op else { return };
    for key in &*charge.keys {
        let standing = &mut works.get_mut(key).expect("it was read").standing;
        let before = standing.blocked_until.unwrap_or(0);
        standing.blocked_until = Some(before.max(charge.now + time));
    }
}

/// Pauses a charge's keys.
pub(super) fn pause(charge: &Charge, works: &mut Works) {
    let Op::Pause { time } = charge.op else { return };
    for key in &*charge.keys {
        let standing = &mut works.get_mut(key).expect("it was read").standing;
        standing.paused_until = standing.paused_until.max(charge.now + time);
    }
}

/// Returns the instants at which the pauses of a charge's keys end, 0 for a key that is not paused.
/// Empty if none is.
pub(super) fn paused_until(charge: &Charge, works: &Works) -> Vec<i64> {
    let until = |key: &String| Some(works[key].standing.paused_until);
    let ends = charge.keys.iter().map(|key| until(key).filter(|until| *until > charge.now));
    let ends: Vec<_> = ends.map(|until| until.unwrap_or(0)).collect();
    if ends.iter().any(|until| *until > 0) { ends } else { Vec::new() }
}

/// Ends the blocks and the pauses of a charge's keys.
pub(super) fn unblock(charge: &Charge, works: &mut Works) {
    for key in &*charge.keys {
        let standing = &mut works.get_mut(key).expect("it was read").standing;
        (standing.blocked_until, standing.paused_until) = (None, 0);
    }
}

/// Splits the ends of pauses from what follows after them in an answer.
pub(super) fn without_pause(answer: &Packed) -> Option<(Vec<i64>, Packed)> {
    let Packed::Text(text) = answer else { return None };
    let (ends, rest) = text.strip_prefix("PAUSED ")?.split_once(':')?;
    let ends = ends.split(' ').map(|end| end.parse().expect("a number")).collect();
    let rest = rest.parse().map_or_else(|_| Packed::Text(rest.into()), Packed::Integer);
    Some((ends, rest))
}

/// True if the answer to a charge tells pauses: it is no settlement's, no renewal's and no error. Of
/// one key, a block hides the pause.
pub(super) fn is_of_pause(answer: &Packed, charge: &Charge) -> bool {
    let is_told = match answer {
        Packed::Integer(_) => true,
        Packed::Text(text) if text.starts_with("BLOCKED ") => charge.keys.len() > 1,
        Packed::Text(text) => text.starts_with("RESET "),
        Packed::False | Packed::Nothing => false,
    };
    is_told && !matches!(charge.op, Op::Settle { .. } | Op::Renew { .. })
}

impl Account {
    /// The units that were granted of a key until an instant. A charge that is refunded after a
    /// grant may give back once more what that gave back.
    pub fn granted(&self, key: &str, until: i64) -> i64 {
        let own = self.grants.iter().filter(|(of, at, _)| of == key && *at <= until);
        own.map(|(_, _, units)| units).sum()
    }

    /// Does what is no check, and what a block does not hinder. Returns the units of a penalty that
    /// could not be taken.
    pub(super) fn operate(&mut self, charge: &Charge, works: &mut Works) -> i64 {
        let mut not_taken = 0;
        match &charge.op {
            Op::Penalize { cost, born } => {
                let mut state = state_of(charge, works);
                let answer = List::penalize(&charge.rule, &mut state, charge.now, *cost);
                let is_born = born.as_ref().is_none_or(|born| !is_any_other(charge, born, works));
                not_taken = if is_born { answer.not_taken } else { *cost };
                let before = state_of(charge, works);
                keep_born(charge, state, born.as_deref(), false, works);
                self.note_penalty(charge, before.as_ref(), works);
                self.taken_more.push((charge.label(0).to_owned(), charge.now));
                self.count("penalize", charge);
                let limit = self.limit_of(&charge.keys[0]).expect("known").0;
                let key = (self.limits[limit].name, charge.label(0).to_owned());
                *self.penalties.entry(key).or_default() += cost;
            }
            Op::Reset => {
                keep(charge, None, false, works);
                for key in &*charge.keys {
                    let work = works.get_mut(key).expect("it was read");
                    (work.before, work.bookings, work.is_changed) = (None, Vec::new(), false);
                    work.standing.birth = charge.now.max(work.standing.birth + 1);
                    work.standing.ledger = Ledger::default();
                }
                self.free(charge);
                self.count("reset", charge);
            }
            Op::Unblock => {
                unblock(charge, works);
                self.count("unblock", charge);
            }
            Op::Grant { cost } => {
                let mut state = state_of(charge, works);
                List::grant(&charge.rule, &mut state, charge.now, *cost);
                keep(charge, state, false, works);
                // A log of which all is given back in the call that made it is not stored.
                for key in &*charge.keys {
                    works.get_mut(key).expect("it was read").is_changed = false;
                }
                let keys = charge.keys.iter().map(|key| (key.clone(), charge.now, *cost));
                self.grants.extend(keys);
                self.free(charge);
                self.count("grant", charge);
            }
            _ => {}
        }
        not_taken
    }

    /// Notes a block, or the refusal of a check that it caused.
    pub(super) fn note_block(&mut self, charge: &Charge, works: &mut Works) {
        let now = charge.now;
        match charge.op {
            Op::Block { time } => {
                block(charge, works);
                for place in 0..charge.keys.len() {
                    let (label, sent_at) = (charge.label(place).to_owned(), charge.sent_at);
                    self.blocks.push(Blocking { sent_at, label, now, time });
                }
                self.count("block", charge);
            }
            Op::Check { cost, ref keep_free, .. } => {
                let wait = blocked_until(charge, works).map(|until| until - now);
                self.refuse(charge, cost, keep_free, wait);
            }
            _ => {}
        }
    }

    /// Notes a pause, after which the pauses of the charge's keys end at these instants.
    pub(super) fn note_pause(&mut self, charge: &Charge, ends: &[i64]) {
        for (place, until) in ends.iter().enumerate() {
            self.pauses.push((charge.label(place).to_owned(), charge.now, *until));
        }
        self.count("pause", charge);
    }

    pub(super) fn count(&mut self, name: &'static str, charge: &Charge) {
        let limit = self.limit_of(&charge.keys[0]).expect("known").0;
        let key = (name, self.limits[limit].name, charge.label(0).to_owned());
        *self.operations.entry(key).or_default() += 1;
    }
}
