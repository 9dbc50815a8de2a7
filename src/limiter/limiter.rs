//! The trait of all limiters.

use std::future::Future;
use std::sync::Arc;

use super::Operation;
use crate::core::reservation::Reservation;
use crate::core::settlement::{Renewal, Settlement};
use crate::core::{Charge, Decision, Error};

/// Decides if a charge may pass.
///
/// [`Redis`] asks a store that many processes share, [`Memory`] decides in this process. Most
/// others are wrappers around a limiter, added by [`LimiterExt`]. A closure is a limiter too:
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
/// The futures of this crate's limiters are `Send` if those of your own limiters inside are. A
/// generic function that spawns tasks says so:
/// `L: Limiter<Future: Send> + Clone + Send + Sync + 'static`.
///
/// # Limiters of your own
///
/// The future must own its data, so that it can outlive the call that made it. Take no units before
/// its first poll. After that, if the future is dropped, the units may be taken or not. A limiter
/// that asks a store must answer before [`Charge::deadline`]: if the store has not answered by
/// then, with an error of kind [`Infrastructure`](crate::ErrorKind::Infrastructure). A limiter that
/// refunds makes a [`Reservation`] of the taken units, and implements [`settle`](Limiter::settle).
/// [Limiters of your own][page] has a limiter over a table in 40 lines.
///
/// Do not reserve a longer wait than the charge's [`max_wait`](Charge::max_wait), where `None`
/// means 0. A longer wait is refunded, and the request is refused as undecided, with an error of
/// kind [`State`](crate::ErrorKind::State).
///
/// [`LimiterExt`]: crate::limiter::LimiterExt
/// [`Memory`]: crate::limiter::Memory
/// [`Redis`]: crate::redis::Redis
/// [page]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/limiters_of_your_own/
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
    /// the wait in [`Decision::outcome`]. [`LimiterExt::acquire`] sleeps itself.
    ///
    /// [`LimiterExt::acquire`]: crate::limiter::LimiterExt::acquire
    #[doc(alias("check_key", "check_n", "consume"))]
    fn check(&self, charge: &Charge) -> Self::Future;

    /// Decides about a charge that its caller needs no longer, so that it need not be copied.
    /// Default: [`check`](Limiter::check).
    #[doc(hidden)]
    fn check_owned(&self, charge: Charge) -> Self::Future {
        self.check(&charge)
    }

    /// Decides about a request without a key, which cannot be charged. `why` says what the request
    /// lacks. Default: `None`, which refuses it.
    ///
    /// A layer calls it in place of [`check`](Limiter::check), and no store is asked. A [`Shadow`]
    /// admits such a request, and so does a [`Switch`] that is off or in a shadow. Limiters that
    /// count decisions count it. If your own limiter wraps another one, it must forward this call:
    /// otherwise an inner switch has no effect on such requests.
    ///
    /// [`Shadow`]: crate::limiter::Shadow
    /// [`Switch`]: crate::limiter::Switch
    fn check_keyless(&self, why: &Error) -> Option<Decision> {
        let _ = why;
        None
    }

    /// Settles the units of an admission. `actual` is the final cost of the request in units.
    ///
    /// If `actual` is less than the reservation's [`cost`](Reservation::cost), the rest is
    /// refunded, as far as [the algorithm can](crate::algorithm#what-an-algorithm-refunds); 0
    /// refunds all of it. If it is more, the difference is taken, even if it does not fit. The call
    /// returns at once. The [`Settlement`] is a future that need not be awaited. A [`Redis`]
    /// limiter and its clones send a refund before later charges.
    ///
    /// # Errors
    ///
    /// The reservation itself, if this limiter cannot settle it: it belongs to another limiter, the
    /// tokio runtimes in which it was asked have ended, so that none can send, or a full [`Memory`]
    /// has no room for a new debt. Default: always an error, so a closure around a limiter settles
    /// nothing.
    ///
    /// [`Memory`]: crate::limiter::Memory
    /// [`Redis`]: crate::redis::Redis
    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        let _ = actual;
        Err(reservation)
    }

    /// Renews the hold of a reservation: its units count as charged now. For admissions that
    /// last longer than the [`max_hold`](crate::algorithm::Concurrency::max_hold) of a
    /// [`Concurrency`](crate::algorithm::Concurrency) or a
    /// [`Budget`](crate::algorithm::Budget).
    ///
    /// The [`Renewal`] is a future of true if the units were still held. False if their time was
    /// over, the key was reset, or the store lost them: nothing is held any more. Await it before
    /// you settle the reservation, or renew it again.
    ///
    /// A [`Hold`](crate::limiter::Hold) renews itself.
    ///
    /// `None` if nothing of this reservation can be renewed: it belongs to another limiter, or
    /// holds nothing. That is the default.
    fn renew(&self, reservation: &mut Reservation) -> Option<Renewal> {
        let _ = reservation;
        None
    }

    /// The number of keys that each charge must have. `None`: it depends, or is not known.
    #[doc(hidden)]
    fn keys(&self) -> Option<usize> {
        None
    }

    /// Runs an operation on a key: see [`LimiterExt::estimate`], [`LimiterExt::penalize`],
    /// [`LimiterExt::grant`], [`LimiterExt::reset`], [`LimiterExt::block`] and
    /// [`LimiterExt::pause`]. Returns `None` if this limiter cannot run it, which is the default.
    ///
    /// An estimate answers like a check, and changes nothing; the others answer with the state of
    /// the key afterwards.
    ///
    /// [`LimiterExt::block`]: crate::limiter::LimiterExt::block
    /// [`LimiterExt::estimate`]: crate::limiter::LimiterExt::estimate
    /// [`LimiterExt::grant`]: crate::limiter::LimiterExt::grant
    /// [`LimiterExt::pause`]: crate::limiter::LimiterExt::pause
    /// [`LimiterExt::penalize`]: crate::limiter::LimiterExt::penalize
    /// [`LimiterExt::reset`]: crate::limiter::LimiterExt::reset
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

    pass_on!((**self), of self: check, check_owned, check_keyless, settle, renew, keys, operate);
}
