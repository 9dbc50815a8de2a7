//! A breaker: it stops asking a limiter that fails, and notices when that answers again.
//!
//! `circuit.rs` is the bookkeeping. `shared_circuit.rs` is what the clones of a breaker share.
//! `breaker_future.rs` is the decision of the limiter behind it.

mod breaker_future;
mod circuit;
mod shared_circuit;

pub use breaker_future::WithBreakerFuture;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::shared_circuit::Shared;
use super::{Limiter, Operation};
use crate::Charge;

/// A circuit breaker for [`LimiterExt::breaker`](crate::LimiterExt::breaker). Cheap to clone:
/// clones are one breaker.
///
/// A call to a store that is away costs its caller the whole timeout. So after some failures the
/// breaker opens: it answers with an error at once, and lets one call through as a probe every 100
/// to 200 ms. A probe that is answered closes it.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::algorithm::TokenBucket;
/// use tower_sluice::limiter::{Breaker, BreakerState};
/// use tower_sluice::testing::Scripted;
/// use tower_sluice::{ErrorKind, Limiter, LimiterExt, Memory, Quota};
///
/// # let mut builder = tokio::runtime::Builder::new_current_thread();
/// # builder.enable_time().start_paused(true).build().unwrap().block_on(async {
/// // In a service: `Redis::new("api", TokenBucket::new(quota), pool)`.
/// let store = (0..5).fold(Scripted::new(), |store, _| store.fail(ErrorKind::Infrastructure));
/// let breaker = Breaker::new();
/// let share = Memory::new("share", TokenBucket::new(Quota::per_second(10)));
/// let limiter = store
///     .clone()
///     .timeout(Duration::from_millis(20))
///     .breaker(breaker.clone())
///     .or_else(share);
/// for _ in 0..9 {
///     assert_eq!(limiter.check(&"alice".into()).await?.limiter(), Some("share"));
/// }
/// // Five calls failed, and opened the breaker. The others did not reach the store.
/// assert_eq!((store.charges().len(), breaker.counts().refused), (5, 4));
/// assert_eq!(breaker.state(), BreakerState::Open);
///
/// let store = store.allow();
/// tokio::time::sleep(Duration::from_millis(200)).await;
/// limiter.check(&"alice".into()).await?;
/// assert_eq!(breaker.state(), BreakerState::Closed);
/// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
/// ```
///
/// # What counts as a failure
///
/// | a call ends with | it counts as |
/// |---|---|
/// | a decision of the store or of a limiter in this process | an answer |
/// | an error of kind [`Infrastructure`](crate::ErrorKind::Infrastructure) | a failure |
/// | [`Capacity`], [`Configuration`], [`State`] | an answer of the store that the caller must see |
/// | [`Saturation`] | nothing: this process is busy |
/// | [`Request`] | nothing: the charge is invalid |
/// | a refusal that a `deny_cache` inside repeats | nothing: no store decided it |
/// | an admission of [`FailOpen`], a shadow or a switch inside | nothing: no store decided it |
/// | anything but an `Infrastructure` error, after [`slow_after`] | a slow call: a failure too |
/// | no result, since its caller left | nothing; after [`slow_after`] a slow call |
///
/// [`Capacity`]: crate::ErrorKind::Capacity
/// [`Configuration`]: crate::ErrorKind::Configuration
/// [`State`]: crate::ErrorKind::State
/// [`Saturation`]: crate::ErrorKind::Saturation
/// [`Request`]: crate::ErrorKind::Request
/// [`FailOpen`]: crate::FailOpen
/// [`slow_after`]: Breaker::slow_after
///
/// The breaker opens in one of these cases. A call is counted when it ends.
///
/// - Five calls failed, and none was answered for a second. Where calls are rare, five failures in
///   a row are enough, however long they take.
/// - Other calls are answered, but at least half of the calls have failed, for a whole second.
/// - At least half of the calls of the last second were slow.
///
/// # While it is open
///
/// A call is refused at once with an error. If failures opened the breaker and nothing was
/// answered, the error is of kind `Infrastructure`, and the last failure is its source. So a
/// fallback answers as it would answer that failure. Otherwise the error is of kind `Saturation`,
/// and [`FailOpen`](crate::FailOpen) does not admit:
///
/// - if slow calls opened it, since load can make a store slow;
/// - after a probe that is slow or ends with `Saturation`, for the same reason;
/// - if some calls were answered while others failed. Where part of a cluster is away, callers can
///   choose keys there, and must not fail open for all other keys.
///
/// In these cases five probes in a row that fail close it, and all calls are made. If nothing is
/// answered for a second, it opens again, with an error of kind `Infrastructure`.
///
/// **Probes.** After a [pause](Breaker::pause) the next call is the probe, and the others are still
/// refused. The probe's caller waits for its result, as for any call. If it fails, the next pause
/// begins. If it counts as nothing in the table above, or its caller leaves, the next call is the
/// probe. A probe without an answer is given up after five pauses, and another call is the probe.
/// An answer to any of them closes the breaker.
///
/// [`estimate`](crate::LimiterExt::estimate), [`penalize`](crate::LimiterExt::penalize) and
/// [`reset`](crate::LimiterExt::reset) are calls as well: while the breaker is open, they fail, and
/// nothing is changed. [`settle`](crate::Limiter::settle) always passes: no caller waits for it.
///
/// # Where to write it
///
/// Write it next to the store, or after its `timeout`. There each call that it counts is a call to
/// the store. While it is open, the wrappers around it go on: a
/// [`deny_cache`](crate::LimiterExt::deny_cache) repeats its refusals, a
/// [`lease`](crate::LimiterExt::lease) spends its units, and an
/// [`or_else`](crate::LimiterExt::or_else) answers the rest:
///
/// ```text
/// redis.breaker(breaker).deny_cache().lease(100).timeout(..).or_else(share)
/// ```
///
/// Inside of a breaker, an `or_else` would hide each failure from it. Never put a breaker inside of
/// itself or of a clone: the inner one refuses the probes of the outer one, and it stays open.
///
/// # Cost
///
/// A call takes one short lock more, and with `slow_after` a timer. Give all limiters over one
/// store clones of one breaker: then each knows the failures of the others.
#[derive(Clone)]
pub struct Breaker {
    shared: Arc<Shared>,
}

impl Breaker {
    /// A closed breaker with the default settings.
    #[must_use]
    pub fn new() -> Self {
        Self { shared: Arc::new(Shared::new(Settings::DEFAULT, None)) }
    }

    /// Sets how many failures it takes at least to open, 1 or more. It starts anew: clones made
    /// before are another breaker. Default: 5.
    #[must_use]
    pub fn min_failures(self, failures: u32) -> Self {
        self.with(Settings { min_failures: failures.max(1), ..self.shared.settings })
    }

    /// Sets which share of the calls must fail to open it, 1 to 100 per cent. It starts anew:
    /// clones made before are another breaker. Default: 50.
    #[must_use]
    pub fn failure_percent(self, percent: u8) -> Self {
        self.with(Settings { failure_percent: percent.clamp(1, 100), ..self.shared.settings })
    }

    /// Sets over which time the share is taken, 10 ms to a day. It starts anew: clones made before
    /// are another breaker. Default: 1 s.
    ///
    /// A store that falls silent under load is left after this time.
    #[must_use]
    pub fn window(self, window: Duration) -> Self {
        self.with(Settings { window: Settings::bounded(window), ..self.shared.settings })
    }

    /// Sets after which time a call is slow, and counts as failed even if it is decided. It starts
    /// anew: clones made before are another breaker. Default: never, since a
    /// [`timeout`](crate::LimiterExt::timeout) makes an error of a call that takes too long.
    ///
    /// A call is not slow where this process is: a timer that fires late, or an answer that was
    /// there and not yet read, does not count. While slow calls keep the breaker open,
    /// [`FailOpen`](crate::FailOpen) does not admit.
    #[must_use]
    pub fn slow_after(self, time: Duration) -> Self {
        self.with(Settings { slow_after: Some(time), ..self.shared.settings })
    }

    /// Sets the time between a failure and the next probe, 10 ms to a day. Up to as much again is
    /// added at random, so that processes do not probe in step. It starts anew: clones made before
    /// are another breaker. Default: 100 ms, so 100 to 200 ms.
    #[must_use]
    pub fn pause(self, pause: Duration) -> Self {
        self.with(Settings { pause: Settings::bounded(pause), ..self.shared.settings })
    }

    /// Names it in metrics and events. It starts anew: clones made before are another breaker.
    /// Default: no name, and then no metric.
    #[must_use]
    pub fn name(self, name: impl Into<Arc<str>>) -> Self {
        Self { shared: Arc::new(Shared::new(self.shared.settings, Some(name.into()))) }
    }

    /// Returns its state: what it does with a call now.
    #[must_use]
    pub fn state(&self) -> BreakerState {
        self.shared.state()
    }

    /// Returns the counts of what it has done since it was made.
    #[must_use]
    pub fn counts(&self) -> BreakerCounts {
        self.shared.counts()
    }

    fn with(&self, settings: Settings) -> Self {
        let name = self.shared.watch.name().cloned();
        Self { shared: Arc::new(Shared::new(settings, name)) }
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
            .field("name", &self.shared.watch.name())
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

    /// The nearest time that the window or the pause may be.
    fn bounded(time: Duration) -> Duration {
        time.clamp(SHORTEST, LONGEST)
    }

    /// After this long a probe without an answer is given up.
    fn probe_lost_after(&self) -> Duration {
        5 * self.pause
    }
}

/// The state of a [`Breaker`](crate::limiter::Breaker).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// Every call is made.
    Closed,
    /// Calls are refused.
    Open,
    /// A probe is under way, or the next call is one. All others are refused.
    HalfOpen,
}

/// The counts of what a [`Breaker`](crate::limiter::Breaker) has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerCounts {
    /// The number of times that it opened. A probe that fails does not open it again.
    pub opened: u64,
    /// Calls that it refused.
    pub refused: u64,
    /// Probes that it let through.
    pub probes: u64,
}

/// A limiter with a [`Breaker`]: made by [`LimiterExt::breaker`](crate::LimiterExt::breaker).
#[derive(Clone, Debug)]
pub struct WithBreaker<L> {
    inner: L,
    breaker: Breaker,
}

impl<L> WithBreaker<L> {
    pub(in crate::limiter) fn new(inner: L, breaker: Breaker) -> Self {
        Self { inner, breaker }
    }
}

impl<L: Limiter> Limiter for WithBreaker<L> {
    type Future = WithBreakerFuture<L::Future>;

    fn check(&self, charge: &Charge) -> Self::Future {
        let shared = Arc::clone(&self.breaker.shared);
        if shared.refuses() {
            return WithBreakerFuture::new(None, shared);
        }
        WithBreakerFuture::new(Some(self.inner.check(charge)), shared)
    }

    // A settlement passes even while the breaker is open, and is not counted: nobody waits for it.
    pass_on!(check_keyless, settle, can_take_more);

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        // Also while it is open: the inner limiter says whether it can. Its future does nothing
        // before it is polled.
        let answer = self.inner.operate(operation, charge)?;
        Some(WithBreakerFuture::new(Some(answer), Arc::clone(&self.breaker.shared)))
    }
}
