//! The promises of a shadow and of a switch.

use std::collections::BTreeMap;
use std::time::Duration;

use tower_sluice::limiter::{Origin, ShadowCounts, SwitchMode};

use super::{Seen, since_begin};
use crate::plan::{SECOND, Way};
use crate::world::{Fate, Record};

/// The longest time that a charge is on its way when a switch goes off.
const ON_ITS_WAY: Duration = SECOND;

impl Seen<'_> {
    /// The records of charges: what a shadow admits, and a switch that is off.
    fn charges(&self) -> impl Iterator<Item = &Record> {
        let is_charge =
            |record: &&Record| matches!(self.ask(record).way, Way::Acquire | Way::Layer);
        self.records.iter().filter(is_charge)
    }

    /// A shadow refuses nobody, and its counts are what the store decided.
    pub(super) fn shadowed(&self) -> Option<String> {
        if !self.plan.stack.is_shadow {
            return None;
        }
        let is_refused =
            |record: &&Record| matches!(record.fate, Fate::Refused { .. } | Fate::Failed(_));
        if let Some(record) = self.charges().find(is_refused) {
            return Some(self.shown(record));
        }
        let mut told: BTreeMap<usize, [u64; 3]> = BTreeMap::new();
        for record in self.charges() {
            let place = match record.fate {
                Fate::Admitted { .. } => 0,
                Fate::Spared { .. } => 1,
                Fate::AdmittedBy(Origin::Shadow) => 2,
                _ => continue,
            };
            told.entry(self.ask(record).process).or_default()[place] += 1;
        }
        self.shadow_counts.iter().enumerate().find_map(|(process, counts)| {
            let ShadowCounts { admitted, delayed, refused, undecided, .. } = *counts;
            let (counts, told) = (
                [admitted + delayed, refused, undecided],
                told.remove(&process).unwrap_or_default(),
            );
            (counts != told).then(|| format!("process {process} counted {counts:?}, told {told:?}"))
        })
    }

    /// A switch that is off asks nobody; in a shadow, nobody is refused; on, it limits.
    pub(super) fn switched(&self) -> Option<String> {
        if self.plan.stack.switches.is_empty() {
            return None;
        }
        let ends = self.modes.iter().skip(1).map(|(at, _)| *at).chain([Duration::MAX]);
        self.modes.iter().zip(ends).find_map(|((begin, mode), end)| {
            let is_within = |record: &&Record| *begin < record.asked && record.ended < end;
            // A queue says that its caller is to come later, and a shadow admits that one.
            let is_spared = |record: &Record| {
                let is_local = record.fate == Fate::AdmittedBy(Origin::Local);
                *mode == SwitchMode::Shadow && is_local && self.is_behind(record)
            };
            let is_wrong = |record: &&Record| !is_of(*mode, &record.fate) && !is_spared(record);
            let wrong = self.charges().filter(is_within).find(is_wrong);
            let while_off = || match mode {
                SwitchMode::Off => self.charged_between(*begin, end),
                _ => None,
            };
            let wrong = wrong.map(|record| format!("{mode:?}, and {}", self.shown(record)));
            wrong.or_else(while_off)
        })
    }

    /// A charge that the store took in a stretch, though no fault can have delayed it. One that was
    /// asked before is sent once its process runs.
    fn charged_between(&self, begin: Duration, until: Duration) -> Option<String> {
        let from = self.after(begin, ON_ITS_WAY);
        let is_within = |at: Duration| from < at && at < until;
        let mut all = self.account.bookings.iter();
        let is_odd = |at| self.has_odd_clocks() || self.is_disturbed(begin, at);
        let one = all.find(|one| is_within(since_begin(one.now)) && !is_odd(since_begin(one.now)));
        one.map(|one| format!("off since {from:?}, and {one:?}"))
    }
}

/// True if a charge may fare so in a mode.
fn is_of(mode: SwitchMode, fate: &Fate) -> bool {
    match fate {
        Fate::Left | Fate::Panicked => true,
        Fate::AdmittedBy(Origin::Off) => mode == SwitchMode::Off,
        Fate::Spared { .. } | Fate::AdmittedBy(Origin::Shadow) => mode == SwitchMode::Shadow,
        Fate::Refused { .. } | Fate::Failed(_) | Fate::AdmittedBy(_) => mode == SwitchMode::On,
        Fate::Admitted { .. } | Fate::Done => mode != SwitchMode::Off,
    }
}
