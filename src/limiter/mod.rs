//! Limiters: the trait, its wrappers, and the limiters of this crate.
//!
//! A [`Limiter`] decides about a [`Charge`]. [`Redis`] decides on a server that many processes
//! share, [`Memory`] in this process. [`LimiterExt`] adds wrappers. [Tuning](crate::guide::tuning)
//! has their order:
//!
//! | purpose | methods |
//! |---|---|
//! | a time limit, another answer if the store fails | `timeout`, `or_else`, `breaker` |
//! | fewer calls | `deny_cache`, `lease` |
//! | a trial, a switch | `shadow`, `switch` |
//! | metrics, events | `metrics` of `MetricsExt`, `trace` of `TraceExt`, `inspect` |
//! | names in header fields | `describe` |
//! | one type for all limiters | `boxed` |
//!
//! Several limiters decide together: [`AllAtOnce`] in one call to Redis, all or nothing.
//! [`AllInTurn`] takes limiters of any type, and refunds the others if one refuses.
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::algorithm::TokenBucket;
//! use tower_sluice::limiter::{AllInTurn, Boxed};
//! use tower_sluice::{Charge, FailOpen, LimiterExt, Memory, Quota};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
//! # runtime.block_on(async {
//! let user = Memory::new("user", TokenBucket::new(Quota::per_second(5)));
//! let everyone = Memory::new("everyone", TokenBucket::new(Quota::per_second(1_000)));
//! let both = AllInTurn::new([user.boxed(), everyone.boxed()], |charge: &Charge| {
//!     [charge.clone(), Charge::new("everyone")]
//! });
//! let limiter: Boxed = both.timeout(Duration::from_millis(50)).or_else(FailOpen).boxed();
//! limiter.acquire("alice").await?;
//! # Ok::<_, tower_sluice::Refusal>(()) }).unwrap();
//! ```

#[macro_use]
mod pass_on;

mod acquire;
mod all_in_turn;
mod boxed;
mod breaker;
pub(crate) mod charge_numbers;
pub(crate) mod combination;
pub(crate) mod configured;
mod deny_cache;
mod describe;
mod ext;
mod inspect;
mod lease;
mod line;
pub(crate) mod memory;
#[cfg(feature = "metrics")]
mod metered;
mod on_time;
mod operate;
mod or_else;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod runtime;
mod shadow;
mod shards;
mod switch;
pub(crate) mod timeout;
#[cfg(feature = "tracing")]
mod traced;
mod wrapped;

#[cfg(feature = "redis")]
#[doc(hidden)]
pub use self::redis::script_texts;
#[cfg(feature = "redis")]
pub use self::redis::{AllAtOnce, Members, Pool, PoolBuilder, Redis};
pub(crate) use acquire::{Admission, DEFAULT_MAX_WAITERS};
pub use all_in_turn::AllInTurn;
pub use boxed::Boxed;
pub use breaker::{Breaker, BreakerCounts, BreakerState, WithBreaker};
pub use combination::{MemberCharges, Parts};
pub use deny_cache::DenyCache;
pub use describe::{Described, Description};
pub use ext::LimiterExt;
pub use inspect::Inspect;
pub use lease::Lease;
pub use memory::Memory;
#[cfg(feature = "metrics")]
pub use metered::{Metered, MetricsExt};
pub use operate::Operation;
pub use or_else::{FailOpen, Fallback, FallbackIf, OrElse};
pub use shadow::{Shadow, ShadowCounts};
pub use switch::{Switch, SwitchMode, WithSwitch};
pub use timeout::Timeout;
#[cfg(feature = "tracing")]
pub use traced::{TraceExt, Traced};
pub use wrapped::Wrapped;

/// The limiters' futures, which are public in [`crate::future`].
pub(crate) mod futures {
    pub use super::acquire::AcquireFuture;
    pub use super::boxed::BoxedFuture;
    pub use super::lease::LeaseFuture;
    pub use super::memory::MemoryFuture;
    pub use super::operate::OperationFuture;
    pub use super::or_else::OrElseFuture;
    #[cfg(feature = "redis")]
    pub use super::redis::RedisFuture;
    pub use super::timeout::TimeoutFuture;
    pub use super::wrapped::WrappedFuture;
}

pub use crate::decision::{Done, Origin, PolicyReport, QuotaUnit};
pub use crate::reservation::{Owner, Reservation};

use std::future::Future;
use std::sync::Arc;

use crate::settlement::Settlement;
use crate::{Charge, Decision, Error};

/// Decides if a charge may pass.
///
/// [`Redis`] asks a store that many processes share, [`Memory`] decides in this process. Most
/// others are wrappers around a limiter, added by [`LimiterExt`]:
///
/// | limiter | decides |
/// |---|---|
/// | [`Redis`] | by a script on a server that other processes ask too |
/// | [`Redisson`](https://docs.rs/tower-sluice-redisson) | like Java's Redisson, on the same keys |
/// | [`Memory`] | by the same arithmetic in this process |
/// | [`Timeout`] | like its inner limiter, or fails at a deadline |
/// | [`OrElse`] | like its inner limiter, or like a fallback if that may answer |
/// | [`WithBreaker`] | like its inner limiter, and skips it while it fails |
/// | [`DenyCache`] | like its inner limiter, and repeats a refusal without asking again |
/// | [`Shadow`] | like its inner limiter, but admits every charge |
/// | [`WithSwitch`] | like its inner limiter, unless a [`Switch`] turned that off |
/// | [`Inspect`] | like its inner limiter, and shows each decision to a closure |
/// | [`Metered`] | like its inner limiter, and counts each decision |
/// | [`Traced`] | like its inner limiter, and makes an event of each decision |
/// | [`Lease`] | like its inner limiter, from which it takes several units in one call |
/// | [`Described`] | like its inner limiter, and names its policies |
/// | [`AllAtOnce`] | by several limiters in one Redis, with different keys, in one call |
/// | [`AllInTurn`] | by several limiters of any type, one after another |
/// | [`Boxed`] | like its inner limiter, whose type it hides |
///
/// A closure is a limiter too:
///
/// ```
/// use std::{future::ready, time::Duration};
/// use tower_sluice::{Charge, Decision, Error, FailOpen, LimiterExt};
///
/// let only_alice = |charge: &Charge| {
///     let decision = match charge.key() {
///         "alice" => Decision::admitted(),
///         _ => Decision::denied(None),
///     };
///     ready(Ok::<_, Error>(decision))
/// };
/// let limiter = only_alice.timeout(Duration::from_millis(20)).or_else(FailOpen);
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// assert!(limiter.acquire("alice").await.is_ok());
/// assert!(limiter.acquire("bob").await.is_err());
/// # });
/// ```
///
/// # Functions over any limiter
///
/// The futures of this crate's limiters are `Send` if those of your own limiters inside are. A
/// generic function that spawns tasks says so:
///
/// ```
/// use tower_sluice::{Limiter, LimiterExt, Refusal};
///
/// async fn work<L>(limiter: L) -> Result<(), Refusal>
/// where
///     L: Limiter<Future: Send> + Clone + Send + Sync + 'static,
/// {
///     let job = tokio::spawn(async move { limiter.acquire("mailer").await });
///     job.await.expect("it does not panic")?;
///     Ok(())
/// }
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # let limiter = tower_sluice::testing::Scripted::new().allow();
/// # runtime.block_on(work(limiter)).unwrap();
/// ```
///
/// # Limiters of your own
///
/// The future must own its data, so that it can outlive the call that made it. Take no units before
/// its first poll. After that, if the future is dropped, the units may be taken or not. A limiter
/// that asks a store must answer before [`Charge::deadline`]. If the store has not answered by
/// then, return an error of kind [`Infrastructure`](crate::ErrorKind::Infrastructure). The error of
/// a [`Timeout`] around it is of kind [`Saturation`](crate::ErrorKind::Saturation), for which
/// [`FailOpen`] does not admit. A limiter that refunds makes a [`Reservation`] of the taken units,
/// and implements [`settle`](Limiter::settle). [Limiters of your
/// own](crate::guide::limiters_of_your_own) has a limiter over a table in 40 lines.
///
/// Do not reserve a longer wait than the charge's [`max_wait`](Charge::max_wait), where `None`
/// means 0. A longer wait is refunded, and the request is refused as undecided, with an error of
/// kind [`State`](crate::ErrorKind::State).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limiter",
    note = "an algorithm needs a name and a store: write `Memory::new(\"api\", algorithm)` or `Redis::new(\"api\", algorithm, pool)`",
    note = "a closure is a limiter if it takes a `&Charge` and its future returns a `Result<Decision, Error>`",
    note = "limiters are shared as an `Arc`; `.boxed()` of `LimiterExt` hides the type of one"
)]
pub trait Limiter {
    /// The future of the decision.
    type Future: Future<Output = Result<Decision, Error>>;

    /// Decides about `charge`, and takes its units if it may pass: `check(&Charge::new("alice"))`.
    ///
    /// A refusal is a [`Decision`] too, not an error: see [`Decision::is_admitted`]. The future
    /// does not sleep: if the charge has a [`max_wait`](Charge::max_wait), the caller must sleep
    /// the wait in [`Decision::outcome`]. [`LimiterExt::acquire`] sleeps itself, and returns a
    /// refusal as its error.
    #[doc(alias("check_key", "check_n", "consume"))]
    fn check(&self, charge: &Charge) -> Self::Future;

    /// Decides about a request without a key, which cannot be charged. `why` says what the request
    /// lacks. Default: `None`, which refuses it.
    ///
    /// A layer calls it in place of [`check`](Limiter::check), and no store is asked. A [`Shadow`]
    /// admits such a request, and so does a [`Switch`] that is off or in a shadow. Limiters that
    /// count decisions count it. If your own limiter wraps another one, it must forward this call:
    /// otherwise an inner switch has no effect on such requests.
    fn check_keyless(&self, why: &Error) -> Option<Decision> {
        let _ = why;
        None
    }

    /// Settles the units of an admission. `actual` is the final cost of the request in units.
    ///
    /// If `actual` is less than the reservation's [`cost`](Reservation::cost), the rest is
    /// refunded, as far as the algorithm can; 0 refunds all of it. If it is more, the difference is
    /// taken, even if it does not fit: a bucket owes it. A limiter that cannot take more keeps the
    /// charge, and reports the rest as `not_taken` of [`Settled`](crate::future::Settled). The
    /// call returns at once. The [`Settlement`] is a future of the units given back and of those
    /// that could not be taken. It need not be awaited. The units are lost if the store is then
    /// away. A [`Redis`] limiter and its clones send a refund before later charges.
    ///
    /// # Errors
    ///
    /// The reservation itself, if this limiter cannot settle it. It may belong to another limiter.
    /// Or nothing can be sent: a store needs a tokio runtime, and a full [`Memory`] has no room for
    /// a new debt. Default: always an error, so a closure around a limiter settles nothing.
    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        let _ = actual;
        Err(reservation)
    }

    /// The number of keys that each charge must have. `None`: it depends, or is not known.
    #[doc(hidden)]
    fn keys(&self) -> Option<usize> {
        None
    }

    /// Runs an operation on a key: see [`LimiterExt::estimate`], [`LimiterExt::penalize`],
    /// [`LimiterExt::reset`] and [`LimiterExt::block`]. Returns `None` if this limiter cannot run
    /// it, which is the default.
    ///
    /// An estimate answers like a check, and changes nothing. The other operations change the key,
    /// and answer with its state afterwards.
    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        let _ = (operation, charge);
        None
    }
}

#[diagnostic::do_not_recommend]
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

    pass_on!((**self), of self: check, check_keyless, settle, keys, operate);
}
