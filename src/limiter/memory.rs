//! The limiter of one process.
//!
//! `key_store.rs` keeps the keys in shards (`key_shard.rs`), and decides by the time of `clock.rs`.
//! `one_lock.rs` decides for several limiters at once.

mod clock;
#[cfg(all(test, interleavings))]
mod interleavings;
mod key_shard;
mod key_store;
mod one_lock;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use self::clock::Clock;
use self::key_store::Store;
use super::configured::{ConfiguredAlgorithm, expect_valid_quota};
use super::{Limiter, Operation};
use crate::algorithm::{Algorithm, IntoAlgorithm};
use crate::core::quota::QuotaError;
use crate::core::reservation::Reservation;
use crate::core::settlement::{Renewal, Settlement};
use crate::core::{Charge, Decision, Error};

const DEFAULT_MAX_KEYS: usize = 100_000;

/// A limiter in this process. It is cheap to clone: clones share their keys.
///
/// It is for tests, for a single instance, and for the fallback share of a process while the store
/// is away. It decides by the same arithmetic as [`Redis`](crate::Redis).
///
/// ```
/// use tower_sluice::{Charge, Limiter, Memory, Outcome, Quota, algorithm::TokenBucket};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let limiter = Memory::new("login", TokenBucket::new(Quota::per_minute(5).burst(1)));
/// let first = limiter.check(&Charge::new("alice")).await?;
/// let second = limiter.check(&Charge::new("alice")).await?;
/// assert_eq!(first.outcome(), Outcome::Allow);
/// assert!(second.retry_after().is_some_and(|wait| wait.as_secs() >= 11));
/// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
/// ```
///
/// It uses tokio's clock, so a test with paused time controls it. Unless units are held, the time
/// for which a machine was suspended, or by which its clock was set forward, counts too, from 10 s
/// on. If the memory is full of live
/// keys, a new key is an error of kind [`Capacity`](crate::ErrorKind::Capacity).
///
/// # Memory
///
/// The memory is limited in bytes as well as in keys: a key of more than 64 bytes is kept as its
/// digest. A key takes at most
///
/// | bytes | algorithm |
/// |---|---|
/// | 300 | [`TokenBucket`], [`FixedWindow`] |
/// | 360 | [`Budget`], [`Concurrency`], [`SlidingCounter`], [`SmoothBursty`], [`SmoothWarmingUp`] |
/// | 450 | [`SlidingWindow`] of 10 cells; 8 more for each additional cell |
/// | 370 | [`SlidingLog`]; at most 48 more for each charge of the last period or reserved wait |
/// | the sum of the members | a tuple |
///
/// [`max_limit`] bounds the entries of a log.
///
/// [`TokenBucket`]: crate::algorithm::TokenBucket
/// [`FixedWindow`]: crate::algorithm::FixedWindow
/// [`Budget`]: crate::algorithm::Budget
/// [`Concurrency`]: crate::algorithm::Concurrency
/// [`SlidingCounter`]: crate::algorithm::SlidingCounter
/// [`SmoothBursty`]: crate::algorithm::SmoothBursty
/// [`SmoothWarmingUp`]: crate::algorithm::SmoothWarmingUp
/// [`SlidingWindow`]: crate::algorithm::SlidingWindow
/// [`SlidingLog`]: crate::algorithm::SlidingLog
/// [`max_limit`]: crate::algorithm::SlidingLog::max_limit
#[doc(alias("in_memory", "local"))]
#[must_use]
pub struct Memory<A: Algorithm> {
    store: Arc<Store<A>>,
}

impl<A: Algorithm> Memory<A> {
    /// A limiter called `name`, for up to 100,000 live keys.
    ///
    /// # Panics
    ///
    /// If [`Memory::try_new`] returns an error.
    #[track_caller]
    pub fn new(name: impl Into<Arc<str>>, algorithm: impl IntoAlgorithm<Algorithm = A>) -> Self {
        let name = name.into();
        expect_valid_quota(&name, Self::try_new(Arc::clone(&name), algorithm))
    }

    /// A limiter called `name`, for a quota that comes from a file or a user.
    ///
    /// # Errors
    ///
    /// If the algorithm cannot follow its quota: a window with a burst, or a limit with which it
    /// cannot compute exactly. Also if the name is empty.
    pub fn try_new(
        name: impl Into<Arc<str>>,
        algorithm: impl IntoAlgorithm<Algorithm = A>,
    ) -> Result<Self, QuotaError> {
        let named = ConfiguredAlgorithm::new(name.into(), algorithm.into_algorithm())?;
        Ok(Self { store: Arc::new(Store::new(named, DEFAULT_MAX_KEYS)) })
    }

    /// Sets the most live keys, at least 1, and forgets all keys. Clones keep theirs. Default:
    /// 100,000.
    ///
    /// A key is live while units of it count, and for ten minutes after a reset. Keys are spread
    /// over shards of equal size, so a large memory can be full a few percent early.
    pub fn max_keys(mut self, keys: usize) -> Self {
        Arc::make_mut(&mut self.store).set_max_keys(keys.max(1));
        self
    }

    /// Decides by `clock`, the time since the Unix epoch, and forgets all keys, whose times are
    /// from another clock. Default: tokio's clock.
    ///
    /// Such a clock may step back, so keys are dropped only when the memory is full.
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.store).decide_by(Clock::Callers(Arc::new(clock)));
        self
    }

    /// The number of keys held, including expired keys that are not dropped yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns true if no key is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes a limiter of the same keys with another algorithm, for limits that are read again
    /// while requests run. It can settle reservations of this one, which stays as it is.
    ///
    /// The taken units stay taken, as [`Charge::quota`](crate::Charge::quota) describes. For an
    /// algorithm of another kind in [`AnyAlgorithm`](crate::algorithm::AnyAlgorithm), the keys
    /// begin anew.
    ///
    /// # Errors
    ///
    /// If the algorithm cannot follow its quota.
    pub fn with_algorithm(&self, algorithm: A) -> Result<Self, QuotaError> {
        Ok(Self { store: Arc::new(self.store.with_algorithm(algorithm)?) })
    }

    /// Decides by the clock of another limiter, and forgets all keys. Limiters that decide
    /// [together](crate::store::Together::of_memory) need one clock.
    pub fn clock_of<B: Algorithm>(mut self, other: &Memory<B>) -> Self {
        Arc::make_mut(&mut self.store).decide_by(other.store.clock().clone());
        self
    }

    /// Makes a limiter over the same store, as in another process.
    #[cfg(test)]
    pub(super) fn in_another_process(&self) -> Self {
        let mut store = Store::clone(&self.store);
        store.named.lines = Arc::default();
        Self { store: Arc::new(store) }
    }

    #[cfg(test)]
    pub(super) fn assert_nobody_waits(&self) {
        self.store.named.lines.assert_nobody_waits();
    }

    #[inline]
    fn ask(&self, operation: Option<Operation>, charge: Charge) -> MemoryFuture<A> {
        MemoryFuture { store: Some(Arc::clone(&self.store)), operation, charge }
    }
}

impl<A: Algorithm> Limiter for Memory<A> {
    type Future = MemoryFuture<A>;

    fn keys(&self) -> Option<usize> {
        Some(1)
    }

    #[inline]
    fn check(&self, charge: &Charge) -> MemoryFuture<A> {
        self.ask(None, charge.clone())
    }

    #[inline]
    fn check_owned(&self, charge: Charge) -> MemoryFuture<A> {
        self.ask(None, charge)
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        self.store.named.settle(reservation, actual, |reserved, cost| {
            // It fails if the clock is out of range, or if the key is gone and the memory is full.
            self.store.settle(reserved, cost, actual).map(|settled| Settlement::from(Ok(settled)))
        })
    }

    fn renew(&self, reservation: &mut Reservation) -> Option<Renewal> {
        let store = Arc::clone(&self.store);
        self.store.named.renew(reservation, |reserved, cost, mark| async move {
            let (next, is_held) = store.renew(&reserved, cost, &mark.get())?;
            mark.set(next);
            Ok(is_held)
        })
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<MemoryFuture<A>> {
        Some(self.ask(Some(operation), charge.clone()))
    }
}

impl<A: Algorithm> Clone for Memory<A> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store) }
    }
}

impl<A: Algorithm> fmt::Debug for Memory<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("named", &self.store.named)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// The future of a decision in [`Memory`](crate::Memory).
///
/// It decides at the first poll, and is then ready. If it is dropped before, it takes nothing.
#[must_use = "nothing is decided until it is awaited"]
pub struct MemoryFuture<A: Algorithm> {
    /// `None` after the decision.
    store: Option<Arc<Store<A>>>,
    /// The operation. `None` for a check.
    operation: Option<Operation>,
    charge: Charge,
}

impl<A: Algorithm> Future for MemoryFuture<A> {
    type Output = Result<Decision, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let store = this.store.take().expect("polled after it was done");
        Poll::Ready(match this.operation {
            None => store.decide(&mut this.charge),
            Some(operation) => store.change(operation, &this.charge),
        })
    }
}

debug_by_name!([A: Algorithm] MemoryFuture<A>);
