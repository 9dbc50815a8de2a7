//! Limiters answer one question: may this charge pass?
//!
//! [`Redis`] asks a store that many processes share, [`Memory`] decides in this one; everything else is
//! a limiter around a limiter, added by [`LimiterExt`]. A closure is a limiter too:
//!
//! ```
//! use tower_sluice::{FailOpen, Charge, Decision, Error, LimiterExt, Outcome};
//! use std::{future::ready, time::Duration};
//!
//! let only_alice = |charge: &Charge| {
//!     let outcome = match charge.key() {
//!         "alice" => Outcome::Allow,
//!         _ => Outcome::Deny { retry_after: None },
//!     };
//!     ready(Ok::<_, Error>(Decision::new(outcome)))
//! };
//! let limiter = only_alice.timeout(Duration::from_millis(20)).or_else(FailOpen);
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
//! # runtime.block_on(async {
//! assert!(limiter.acquire("alice").await.is_ok());
//! assert!(limiter.acquire("bob").await.is_err());
//! # });
//! ```
//!
//! | limiter | decides |
//! |---|---|
//! | [`Redis`] | by a script on a server that others ask too |
//! | [`Redisson`](crate::redisson::Redisson) | as Java's Redisson, on its own keys |
//! | [`Memory`] | by the same arithmetic in this process |
//! | [`Timeout`] | as its inner one, or fails at a deadline |
//! | [`OrElse`] | as its inner one, or as a fallback where that may be |
//! | [`AllAtOnce`] | by several in one Redis over different keys, in one call, all or nothing |
//! | [`AllInTurn`] | by several, whatever they are, one after another, all or nothing |
//! | [`Boxed`] | as its inner one, whose type it hides |

mod acquire;
mod all_in_turn;
mod boxed;
mod digest;
mod memory;
pub(crate) mod named;
mod operate;
mod or_else;
mod overtime;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod timeout;

#[cfg(feature = "redis")]
pub use self::redis::{AllAtOnce, AllAtOnceFuture, Members, Pool, PoolBuilder, Redis, RedisFuture};
pub use acquire::AcquireFuture;
pub(crate) use acquire::Admission;
pub use all_in_turn::AllInTurn;
pub use boxed::{Boxed, BoxedFuture};
pub use memory::{Memory, MemoryFuture};
pub use operate::{Operation, OperationFuture};
pub use or_else::{FailOpen, Fallback, OrElse, OrElseFuture};
pub use timeout::{Timeout, TimeoutFuture};

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::{Charge, Decision, Error, Reservation};

/// Decides charges.
///
/// The future owns what it needs, so that it can outlive the call that made it. A charge whose future
/// is dropped may or may not have been taken; before its first poll, nothing should be.
///
/// A limiter that asks a store keeps to [`Charge::deadline`].
pub trait Limiter {
    /// The answer to come.
    type Future: Future<Output = Result<Decision, Error>>;

    /// Asks whether `charge` may pass.
    fn check(&self, charge: &Charge) -> Self::Future;

    /// Settles what an admission took: `actual` is what the request cost in the end, in units.
    ///
    /// Less than the reservation's [`cost`](Reservation::cost) refunds the rest, as far as the algorithm
    /// can; 0 refunds all of it. More takes the difference, whether or not it fits. Best effort and off
    /// the caller's path: it returns at once.
    ///
    /// # Errors
    ///
    /// The reservation itself, if this limiter cannot settle it: it belongs to another limiter,
    /// `actual` is more and [`can_take_more`](Limiter::can_take_more) is false, or nothing can be sent
    /// now. Default: always, so a closure around a limiter settles nothing.
    fn settle(&self, reservation: Reservation, actual: u64) -> Result<(), Reservation> {
        let _ = actual;
        Err(reservation)
    }

    /// Whether [`settle`](Limiter::settle) can take more than was reserved. Default: no.
    ///
    /// A layer whose responder may take more asks this before a request passes.
    fn can_take_more(&self) -> bool {
        false
    }

    /// Changes a key without asking whether anything fits; the answer tells how the key stands since.
    /// `None`: this limiter cannot. See [`LimiterExt::penalize`] and [`LimiterExt::reset`].
    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        let _ = (operation, charge);
        None
    }
}

impl<F, Fut> Limiter for F
where
    F: Fn(&Charge) -> Fut,
    Fut: Future<Output = Result<Decision, Error>>,
{
    type Future = Fut;

    fn check(&self, charge: &Charge) -> Fut {
        self(charge)
    }
}

impl<L: Limiter + ?Sized> Limiter for Arc<L> {
    type Future = L::Future;

    fn check(&self, charge: &Charge) -> L::Future {
        (**self).check(charge)
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<(), Reservation> {
        (**self).settle(reservation, actual)
    }

    fn can_take_more(&self) -> bool {
        (**self).can_take_more()
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<L::Future> {
        (**self).operate(operation, charge)
    }
}

/// What can be put around a limiter, and asked of it.
pub trait LimiterExt: Limiter + Sized {
    /// Fails decisions that take longer than `deadline`, waiting for a connection included.
    ///
    /// The charge carries the deadline, as [`Charge::deadline`]: a limiter over a store returns its own error by then.
    /// A limiter that ignores it is ended 5 ms later, with an error of kind [`Saturation`](crate::ErrorKind::Saturation),
    /// which [`FailOpen`] does not admit. Put it inside of `or_else`: a fallback inside gets only the time that is left.
    fn timeout(self, deadline: Duration) -> Timeout<Self> {
        Timeout::new(self, deadline)
    }

    /// Asks `fallback` where this limiter cannot decide and its error's [`ErrorKind`](crate::ErrorKind)
    /// permits it: [`FailOpen`] or another limiter.
    fn or_else<F: Fallback>(self, fallback: F) -> OrElse<Self, F> {
        OrElse::new(self, fallback)
    }

    /// Hides the type, so that limiters of different types fit one place.
    fn boxed(self) -> Boxed
    where
        Self: Send + Sync + 'static,
        Self::Future: Send + 'static,
    {
        Boxed::new(self)
    }

    /// Decides, and sleeps the reserved wait: for workers and for clients without a service.
    ///
    /// Patience is the charge's `max_wait`, else as long as the algorithm reserves (its horizon); where nothing can be reserved
    /// ([`Outcome::Retry`](crate::Outcome::Retry)), else for ever.
    /// Dropping the future before its slot has come gives the slot back.
    ///
    /// # Errors
    ///
    /// The [`Refusal`](crate::Refusal), if the charge is denied or could not be decided.
    fn acquire(&self, charge: impl Into<Charge>) -> AcquireFuture<'_, Self> {
        AcquireFuture::new(self, charge.into())
    }

    /// Tells how a key stands, and takes nothing.
    fn peek(&self, charge: impl Into<Charge>) -> Self::Future {
        self.check(&charge.into().peek())
    }

    /// Refunds all that an admission took: [`settle`](Limiter::settle) with 0.
    ///
    /// # Errors
    ///
    /// As [`settle`](Limiter::settle).
    fn refund(&self, reservation: Reservation) -> Result<(), Reservation> {
        self.settle(reservation, 0)
    }

    /// What a check of a charge would answer now, without taking anything: whether it would be admitted,
    /// and how long it would wait or had to wait.
    ///
    /// `remaining` and `reset_after` are of the key as it stands. The estimate promises nothing: another
    /// charge may come first. A [`peek`](LimiterExt::peek) has cost 0, so it does not tell about a cost.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::{Charge, LimiterExt, Memory, Quota, algorithm::TokenBucket};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    /// # runtime.block_on(async {
    /// let limiter = Memory::new("api", TokenBucket::new(Quota::per_minute(60).burst(10)));
    /// limiter.acquire(Charge::new("alice").cost(10)).await.unwrap();
    /// let estimate = limiter.estimate(Charge::new("alice").cost(5)).await?;
    /// let wait = estimate.retry_after().unwrap();
    /// assert!(wait > Duration::from_secs(4) && wait <= Duration::from_secs(5));
    /// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As a check; and of the kind [`Configuration`](crate::ErrorKind::Configuration) if the limiter
    /// cannot: closures and [`Redisson`](crate::redisson::Redisson) cannot.
    fn estimate(&self, charge: impl Into<Charge>) -> OperationFuture<Self::Future> {
        OperationFuture::new(self.operate(Operation::Estimate, &charge.into()))
    }

    /// Takes without asking whether it fits: against abuse. What a request cost in the end is for
    /// [`settle`](Limiter::settle).
    ///
    /// The answer is what a peek would then be told; it cannot be given back. A bucket and the smooth limiters owe
    /// all of it, up to their horizon and as much again at the most; a window, a log or a counter at most its limit,
    /// as more than all of a window cannot be taken.
    ///
    /// # Errors
    ///
    /// As a check; and of [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) if the limiter cannot.
    fn penalize(&self, charge: impl Into<Charge>) -> OperationFuture<Self::Future> {
        OperationFuture::new(self.operate(Operation::Penalize, &charge.into()))
    }

    /// Forgets what was taken of a key, and whatever else stands in its place.
    ///
    /// # Errors
    ///
    /// As a check; and of [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) if the limiter cannot.
    fn reset(&self, charge: impl Into<Charge>) -> OperationFuture<Self::Future> {
        OperationFuture::new(self.operate(Operation::Reset, &charge.into()))
    }
}

impl<L: Limiter> LimiterExt for L {}
