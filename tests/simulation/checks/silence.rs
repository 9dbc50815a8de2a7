//! A server that says nothing is at fault, and not this process.

use std::time::Duration;

use tower_sluice::ErrorKind;
use tower_sluice::limiter::Origin;

use super::Seen;
use super::order::moves_slots;
use crate::network::{Dial, Disturbance, Fault};
use crate::plan::{SECOND, Way};
use crate::servers::{StrikeKind, Topology};
use crate::world::{Fate, Record};

/// So long after a silence begins, what was answered before it has arrived.
const SETTING_IN: Duration = Duration::from_millis(20);

/// So long after connections are cut, what was sent over them is given up.
const GIVING_UP: Duration = Duration::from_millis(400);

/// So often a process dials one host within a second: for two connections at first, ten times
/// after a failure, and for those that a strike cut. What replaces connections that the network
/// cut comes on top.
const MAX_CONNECTS: usize = 16;

impl Seen<'_> {
    /// While the one server is silent, and this process is well, no charge fails as by load.
    pub(super) fn silence(&self) -> Option<String> {
        let stack = &self.plan.stack;
        let is_plain = !stack.has_breaker && stack.timeout.is_none() && stack.lease.is_none();
        let has_one = self.plan.topology == Topology::One;
        if !is_plain || !has_one || self.plan.is_flooded {
            return None;
        }
        // A process that has no connection yet takes a dial that nobody answers for a slow one.
        let is_silent = |record: &&Record| {
            self.strikes.iter().any(|(begin, end, kind)| {
                let says_nothing = matches!(kind, StrikeKind::Stand | StrikeKind::Silence);
                let is_within = *begin + SETTING_IN < record.asked && record.ended < *end;
                // What cut its connection before leaves it without one.
                // The end of one silence ends another beside it.
                let others = self.strikes.iter().filter(|(from, until, other)| {
                    other != kind || (from != begin && from < end && begin < until)
                });
                let is_cut = self.disturbances.iter().any(|one| one.from < *begin);
                let is_alone = others.count() == 0 && !is_cut;
                says_nothing && is_within && is_alone && self.is_connected(record, *begin)
            })
        };
        let is_wrong = |record: &&Record| {
            let is_load = matches!(record.fate, Fate::Failed(Some(ErrorKind::Saturation)));
            // One that finds the queue full has its answer at once.
            let is_full = record.ended == record.asked;
            let is_charge = self.ask(record).way == Way::Acquire && !is_full;
            let before = record.asked.saturating_sub(SECOND);
            let is_well = self.frozen(before, record.ended).is_zero() && !self.is_flooded(record);
            is_load && is_charge && is_well
        };
        let mut all = self.records.iter().filter(is_silent);
        all.find(is_wrong).map(|record| self.shown(record))
    }

    /// While what opens connections panics, and all else is well, nothing is the server's fault.
    pub(super) fn panics(&self) -> Option<String> {
        if self.is_hasty() {
            return None;
        }
        let is_panicking = |kind| kind == StrikeKind::DialerPanics;
        // A slot may move to a server that was never dialled.
        let is_felt = |kind| moves_slots(kind) || !self.is_harmless(kind);
        let strikes = || self.strikes.iter().filter(|(_, _, kind)| is_felt(*kind));
        let mut own = strikes().filter(|(_, _, kind)| is_panicking(*kind));
        own.find_map(|(begin, end, _)| {
            let begin = self.after(*begin, GIVING_UP);
            let is_beside = |one: &(Duration, Duration)| self.is_felt(one.0, one.1, begin, *end);
            let others = strikes().filter(|(_, _, kind)| !is_panicking(*kind));
            let mut others = others
                .map(|(begin, end, _)| (*begin, *end))
                .chain(self.disturbances.iter().map(|one| (one.from, one.until)));
            if others.any(|one| is_beside(&one)) {
                return None;
            }
            let is_within = |record: &&Record| begin < record.asked && record.ended < *end;
            let is_wrong = |record: &&Record| {
                let by_store = Fate::Failed(Some(ErrorKind::Infrastructure));
                let is_wrong =
                    [by_store, Fate::AdmittedBy(Origin::FailOpen)].contains(&record.fate);
                is_wrong && !self.plan.stack.has_breaker
            };
            let mut all = self.records.iter().filter(is_within);
            all.find(is_wrong).map(|record| self.shown(record))
        })
    }

    /// A process dials a host that fails seldom enough.
    pub(super) fn connects(&self) -> Option<String> {
        for (place, Dial { at: from, host, .. }) in self.dials.iter().enumerate() {
            let is_own = |one: &&Dial| one.host == *host && one.at < *from + SECOND;
            let count = self.dials[place..].iter().filter(is_own).count();
            let is_cut = |one: &&Disturbance| {
                let is_cut = !matches!(one.fault, Fault::Stall | Fault::Silence | Fault::Refuse);
                is_cut && (*from..*from + SECOND).contains(&one.from)
            };
            let cut = self.disturbances.iter().filter(is_cut).count();
            if count > MAX_CONNECTS * self.plan.processes + cut {
                return Some(format!("{count} within a second of {from:?} to {host}"));
            }
        }
        None
    }
}
