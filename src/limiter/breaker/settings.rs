//! The settings of a breaker.

use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(86_400);

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) window: Duration,
    pub(super) min_failures: u32,
    pub(super) failure_percent: u8,
    pub(super) slow_after: Option<Duration>,
    pub(super) pause: Duration,
}

impl Settings {
    pub(super) const DEFAULT: Self = Self {
        window: Duration::from_secs(1),
        min_failures: 5,
        failure_percent: 50,
        slow_after: None,
        pause: Duration::from_millis(100),
    };

    /// The nearest time that the window or the pause may be.
    pub(super) fn bounded(time: Duration) -> Duration {
        time.clamp(SHORTEST, LONGEST)
    }

    /// After this long a probe without an answer is given up.
    pub(super) fn probe_lost_after(&self) -> Duration {
        5 * self.pause
    }
}
