//! The refills of one key: those under way, and the units of the next one.

use std::time::Instant as StdInstant;

use tokio::runtime;
use tokio::time::Instant;

use super::demand::Demand;
use super::settings::Settings;

#[derive(Debug)]
pub(super) struct Refills {
    demand: Demand,
    /// The units that the last answer of the inner limiter left.
    remaining: Option<u64>,
    under_way: UnderWay,
}

/// The refills under way. All belong to one runtime, so that a runtime that stands still delays no
/// other.
#[derive(Debug, Default)]
struct UnderWay {
    runtime: Option<runtime::Id>,
    /// The latest of their deadlines, if each has one.
    deadline: Option<StdInstant>,
    count: usize,
    units: u64,
}

impl Refills {
    pub(super) fn new(now: Instant) -> Self {
        Self { demand: Demand::new(now), remaining: None, under_way: UnderWay::default() }
    }

    /// Returns true if no refill is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.count == 0
    }

    /// The units that are under way.
    pub(super) fn units(&self) -> u64 {
        self.under_way.units
    }

    /// Returns true if a caller of this runtime may wait for a refill until `deadline`. A caller
    /// that has less time than the refills would not get the error with which they fail.
    pub(super) fn may_serve(&self, runtime: runtime::Id, deadline: Option<StdInstant>) -> bool {
        let is_before = |end| deadline.is_some_and(|deadline| deadline < end);
        let UnderWay { runtime: other, deadline: end, .. } = self.under_way;
        other.is_none_or(|other| other == runtime && !end.map_or(deadline.is_some(), is_before))
    }

    /// The units of the next lease: at most half of the recent use, so that a lease is spent in
    /// time, and at most half of what is left, so that others find some.
    pub(super) fn next_units(&mut self, now: Instant, settings: &Settings) -> u64 {
        let wanted = self.demand.recent(now, settings.validity) / 2;
        let remaining = self.remaining.unwrap_or(u64::MAX);
        wanted.min(remaining.saturating_sub(self.units()) / 2).min(settings.max_units)
    }

    pub(super) fn begin(&mut self, runtime: runtime::Id, units: u64, deadline: Option<StdInstant>) {
        let is_first = self.under_way.runtime.replace(runtime).is_none();
        let end = self.under_way.deadline;
        self.under_way.deadline =
            if is_first { deadline } else { end.zip(deadline).map(|(one, other)| one.max(other)) };
        self.under_way.count += 1;
        self.under_way.units += units;
    }

    /// Records that a refill has ended, with any result.
    pub(super) fn end(&mut self, units: u64) {
        self.under_way.count = self.under_way.count.saturating_sub(1);
        self.under_way.units = self.under_way.units.saturating_sub(units);
        if self.under_way.count == 0 {
            self.under_way = UnderWay::default();
        }
    }

    /// Notes the units that the last answer of the inner limiter left.
    pub(super) fn note_remaining(&mut self, remaining: Option<u64>) {
        self.remaining = remaining;
    }

    /// Notes units that were admitted.
    pub(super) fn note_use(&mut self, units: u64, now: Instant, settings: &Settings) {
        self.demand.add(now, settings.validity, units);
    }

    /// Forgets the demand: the key must show some again before the next refill.
    pub(super) fn forget_demand(&mut self, now: Instant) {
        self.demand = Demand::new(now);
    }

    /// Returns the instant at which the demand becomes 0, unless more units are admitted.
    pub(super) fn demand_ends_at(&self, settings: &Settings) -> Instant {
        self.demand.ends_at(settings.validity)
    }
}
