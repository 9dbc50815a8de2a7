//! The units that a key used lately.

use std::time::Duration;

use tokio::time::Instant;

/// The units that were admitted in the current stretch of time and in the one before it.
#[derive(Debug)]
pub(super) struct Demand {
    since: Instant,
    units: u64,
    before: u64,
}

impl Demand {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, units: 0, before: 0 }
    }

    pub(super) fn add(&mut self, now: Instant, stretch: Duration, units: u64) {
        self.move_on(now, stretch);
        self.units += units;
    }

    /// The units of the busier of both stretches.
    pub(super) fn recent(&mut self, now: Instant, stretch: Duration) -> u64 {
        self.move_on(now, stretch);
        self.units.max(self.before)
    }

    /// Returns the instant at which the demand becomes 0, unless more units are admitted.
    pub(super) fn ends_at(&self, stretch: Duration) -> Instant {
        self.since + 2 * stretch
    }

    fn move_on(&mut self, now: Instant, stretch: Duration) {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= 2 * stretch {
            *self = Self::new(now);
        } else if elapsed >= stretch {
            *self = Self { since: self.since + stretch, units: 0, before: self.units };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busier_of_two_stretches_counts_until_both_are_over() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut demand = Demand::new(start);
        demand.add(start, second, 3);
        demand.add(start + second / 2, second, 2);
        assert_eq!(demand.recent(start + second / 2, second), 5);
        demand.add(start + second, second, 1);
        assert_eq!(demand.recent(start + second, second), 5);
        assert_eq!(demand.recent(start + 2 * second, second), 1);
        assert_eq!(demand.ends_at(second), start + 4 * second);
        assert_eq!(demand.recent(start + 4 * second, second), 0);
    }
}
