//! The settings of a breaker.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) window: Duration,
    pub(super) min_failures: u32,
    pub(super) failure_percent: u8,
    pub(super) slow_after: Option<Duration>,
    pub(super) pause: Duration,
}

impl Settings {
    /// The bounds of its times.
    pub(super) const SHORTEST: Duration = Duration::from_millis(10);
    pub(super) const LONGEST: Duration = Duration::from_secs(86_400);

    pub(super) const DEFAULT: Self = Self {
        window: Duration::from_secs(1),
        min_failures: 5,
        failure_percent: 50,
        slow_after: None,
        pause: Duration::from_millis(100),
    };

    /// After this long a probe without an answer is given up.
    pub(super) fn probe_lost_after(&self) -> Duration {
        5 * self.pause
    }
}
