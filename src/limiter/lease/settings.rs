//! The settings of a limiter with leases.

use std::time::Duration;

const DEFAULT_VALIDITY: Duration = Duration::from_millis(100);
const DEFAULT_MAX_KEYS: usize = 10_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// The most units of one lease.
    pub(super) max_units: u64,
    /// The time for which leased units may be spent.
    pub(super) validity: Duration,
    /// The most keys that are watched at once.
    pub(super) max_keys: usize,
}

impl Settings {
    pub(super) const MIN_VALIDITY: Duration = Duration::from_millis(1);
    pub(super) const MAX_VALIDITY: Duration = Duration::from_secs(86_400);

    pub(super) fn new(max_units: u64) -> Self {
        Self { max_units, validity: DEFAULT_VALIDITY, max_keys: DEFAULT_MAX_KEYS }
    }
}
