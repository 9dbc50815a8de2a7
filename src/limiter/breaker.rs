//! A breaker, which stops asking a limiter that fails, and notices when that limiter answers again.
//!
//! `circuit.rs` has the states and counts. `shared_circuit.rs` has the state that clones share.
//! `breaker_call.rs` has the calls to a limiter with a breaker.

mod breaker_call;
mod circuit;
mod shared_circuit;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::shared_circuit::SharedCircuit;
use super::wrapped::Wrapped;

/// A circuit breaker for [`LimiterExt::breaker`](crate::LimiterExt::breaker). It is cheap to clone:
/// clones share one state.
///
/// After some failures the breaker opens. It then returns an error at once, and every 100 to 200 ms
/// it lets one call through as a probe. An answer to a probe closes the breaker. Give clones of one
/// breaker to all limiters over one store.
///
/// # What counts as a failure
///
/// | a call ends with | it counts as |
/// |---|---|
/// | a decision of the store or of a limiter in this process | an answer |
/// | an error of kind `Infrastructure` | a failure |
/// | `Capacity`, `Configuration`, `State` | an answer |
/// | `Saturation`, `Request` | nothing |
/// | a refusal of an inner `deny_cache`, an admission of an inner `FailOpen`, shadow or switch | nothing: no store decided it |
/// | any result but an `Infrastructure` error, after [`slow_after`](Breaker::slow_after) | a slow call: a failure too |
/// | no result, since its caller left | nothing, but a slow call after `slow_after` |
///
/// With the default settings, the breaker opens in one of these cases. A call is counted when it
/// ends.
///
/// - Five calls failed, and no call was answered for a second. If calls are rare, five failures in
///   a row are enough, over any length of time.
/// - For a whole second at least half of the calls failed, though some were answered.
/// - At least half of the calls of the last second were slow.
///
/// # While it is open
///
/// A call is refused at once with an error of kind `Infrastructure`, whose source is the last
/// failure. In these cases, the error is of kind `Saturation`, and [`FailOpen`](crate::FailOpen)
/// does not admit:
///
/// - if slow calls opened it, or a probe was slow or ended with `Saturation`, since load can make a
///   store slow;
/// - if some calls were answered while others failed: callers can choose keys in the part of a
///   cluster that is away, and all other keys must not fail open because of them.
///
/// In these cases the breaker closes after [`min_failures`](Breaker::min_failures) failed probes in
/// a row, and makes all calls. If no call is answered for a second, it opens again, with an error
/// of kind `Infrastructure`.
///
/// **Probes.** After a [pause](Breaker::pause) the next call is the probe, and other calls are
/// still refused. If the probe fails, the next pause begins. If it counts as nothing, the next call
/// is the probe. After five pauses without an answer, another call becomes the probe.
///
/// An operation, such as [`reset`](crate::LimiterExt::reset), is a call too: while the breaker is
/// open, it fails and changes nothing. [`settle`](crate::Limiter::settle) always passes.
///
/// # Where to write it
///
/// Write it next to the store, or after the store's `timeout`, and before the wrappers that still
/// work while it is open:
/// `redis.breaker(breaker).deny_cache().lease(100).timeout(..).or_else(share)`. An `or_else` inside
/// of a breaker hides failures from it. A breaker inside of itself or of a clone refuses the probes
/// of the outer one, which stays open.
#[derive(Clone)]
#[must_use]
pub struct Breaker {
    shared: Arc<SharedCircuit>,
}

impl Breaker {
    /// A closed breaker with the default settings.
    pub fn new() -> Self {
        Self { shared: Arc::new(SharedCircuit::new(Settings::DEFAULT, None)) }
    }

    /// Sets the least number of failures to open the breaker, 1 or more. It starts a new state,
    /// which earlier clones do not share. Default: 5.
    pub fn min_failures(self, failures: u32) -> Self {
        self.with(Settings { min_failures: failures.max(1), ..self.shared.settings })
    }

    /// Sets the percentage of calls that must fail to open the breaker, 1 to 100. It starts a new
    /// state, which earlier clones do not share. Default: 50.
    pub fn failure_percent(self, percent: u8) -> Self {
        self.with(Settings { failure_percent: percent.clamp(1, 100), ..self.shared.settings })
    }

    /// Sets the time over which that percentage is counted, 10 ms to a day. It starts a new state,
    /// which earlier clones do not share. Default: 1 s.
    pub fn window(self, window: Duration) -> Self {
        self.with(Settings { window: Settings::bounded(window), ..self.shared.settings })
    }

    /// Sets the time after which a call is slow: it counts as failed even if it is decided. It
    /// starts a new state, which earlier clones do not share. Default: never, since a
    /// [`timeout`](crate::LimiterExt::timeout) turns calls that take too long into errors.
    ///
    /// While slow calls keep the breaker open, [`FailOpen`](crate::FailOpen) does not admit.
    pub fn slow_after(self, time: Duration) -> Self {
        self.with(Settings { slow_after: Some(time), ..self.shared.settings })
    }

    /// Sets the time between a failure and the next probe, 10 ms to a day. A random time up to the
    /// same length is added, so that processes probe at different times. It starts a new state,
    /// which earlier clones do not share. Default: 100 ms, so 100 to 200 ms.
    pub fn pause(self, pause: Duration) -> Self {
        self.with(Settings { pause: Settings::bounded(pause), ..self.shared.settings })
    }

    /// Sets the breaker's name in metrics and events. It starts a new state, which earlier clones
    /// do not share. Default: no name, and then no metric.
    pub fn name(self, name: impl Into<Arc<str>>) -> Self {
        Self { shared: Arc::new(SharedCircuit::new(self.shared.settings, Some(name.into()))) }
    }

    /// Returns the state, which determines what happens to a call now.
    #[must_use]
    pub fn state(&self) -> BreakerState {
        self.shared.state()
    }

    /// Returns the counts since the breaker was made.
    #[must_use]
    pub fn counts(&self) -> BreakerCounts {
        self.shared.counts()
    }

    fn with(&self, settings: Settings) -> Self {
        let name = self.shared.watch.name.clone();
        Self { shared: Arc::new(SharedCircuit::new(settings, name)) }
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("name", &self.shared.watch.name)
            .field("state", &self.state())
            .field("counts", &self.counts())
            .field("settings", &self.shared.settings)
            .finish()
    }
}

const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(86_400);

#[derive(Clone, Copy, Debug)]
struct Settings {
    window: Duration,
    min_failures: u32,
    failure_percent: u8,
    slow_after: Option<Duration>,
    pause: Duration,
}

impl Settings {
    const DEFAULT: Self = Self {
        window: Duration::from_secs(1),
        min_failures: 5,
        failure_percent: 50,
        slow_after: None,
        pause: Duration::from_millis(100),
    };

    /// Limits a time to the range of the window and the pause.
    fn bounded(time: Duration) -> Duration {
        time.clamp(SHORTEST, LONGEST)
    }

    /// Returns the time after which a probe without an answer is given up.
    fn probe_lost_after(&self) -> Duration {
        5 * self.pause
    }
}

/// The state of a [`Breaker`](crate::limiter::Breaker). As a number, it is the value of the metric
/// `rate_limit_breaker_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// Every call is made.
    Closed = 0,
    /// Calls are refused.
    Open = 2,
    /// A probe is in flight, or the next call is a probe. All other calls are refused.
    HalfOpen = 1,
}

/// The counts of a [`Breaker`](crate::limiter::Breaker) since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerCounts {
    /// The number of times that it opened. A failed probe does not count.
    pub opened: u64,
    /// Calls that it refused.
    pub refused: u64,
    /// Probes that it let through.
    pub probes: u64,
}

/// A limiter with a [`Breaker`]. Made by [`LimiterExt::breaker`](crate::LimiterExt::breaker).
pub type WithBreaker<L> = Wrapped<L, Breaker>;
