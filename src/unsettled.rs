//! The charge of a request, in the hands of its handler or of its response's body.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::settlement::Settlement;
use crate::{Error, ErrorKind, Reservation};

/// Settles a reservation as [`Limiter::settle`](crate::Limiter::settle) does, by whichever limiter.
pub(crate) type SettleBy =
    Arc<dyn Fn(Reservation, u64) -> Result<Settlement, Reservation> + Send + Sync>;

/// Units that a request took, with the limiter that settles them: for a cost that is known only
/// after the response has begun, such as the tokens of a stream.
///
/// A [`SettleHandle`] hands it out. It can be moved into another task. Dropped, it changes nothing:
/// what was charged stays.
///
/// ```
/// use tower_sluice::{SettleHandle, Unsettled};
///
/// /// Answers at once, and settles what a task has used in the end.
/// fn answer(handle: &SettleHandle) {
///     let unsettled: Option<Unsettled> = handle.take();
///     tokio::spawn(async move {
///         let used = 120;
///         if let Some(unsettled) = unsettled {
///             unsettled.settle(used);
///         }
///     });
/// }
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async { answer(&SettleHandle::default()) });
/// ```
pub struct Unsettled {
    reservation: Reservation,
    settle_by: SettleBy,
}

impl Unsettled {
    /// The units that were charged.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.reservation.cost()
    }

    /// Settles it: `actual` is what the request cost in the end, in units. Less than the
    /// [`cost`](Unsettled::cost) refunds the rest, more takes the difference.
    ///
    /// It returns at once, and the [`Settlement`] need not be awaited.
    ///
    /// # Errors
    ///
    /// The settlement is an error of kind [`Configuration`](ErrorKind::Configuration) if the
    /// limiter cannot settle it: `actual` is more and it cannot take more, or a store is asked
    /// outside of a tokio runtime.
    pub fn settle(self, actual: u64) -> Settlement {
        (self.settle_by)(self.reservation, actual).unwrap_or_else(|_| {
            let message = "the limiter cannot settle what the request took";
            Settlement::from(Err(Error::new(ErrorKind::Configuration, message)))
        })
    }
}

impl fmt::Debug for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unsettled").field("reservation", &self.reservation).finish_non_exhaustive()
    }
}

/// Hands out what a request took, once: a handler finds it in the extensions of the request.
///
/// [`RateLimitLayer::settle_in_handler`](crate::RateLimitLayer::settle_in_handler) adds it to each
/// request that passes. With axum it is `Extension<SettleHandle>`; with tonic
/// `request.extensions().get::<SettleHandle>()`. Of two layers on one request it is that of the
/// inner one.
///
/// A handler that takes what is in it settles it, and the layer does not. Take it before the
/// response is returned: then the layer takes back what is left in it, and settles that as it would
/// without a handle.
///
/// The default is empty, for tests of handlers.
#[derive(Clone, Default)]
pub struct SettleHandle(Arc<Mutex<Option<Unsettled>>>);

impl SettleHandle {
    /// Takes out what the request took. `None` if it took nothing, such as where it is exempt or
    /// the limiter failed open; and if it was taken out before.
    #[must_use = "what is dropped stays charged"]
    pub fn take(&self) -> Option<Unsettled> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A handle on a reservation.
    pub(crate) fn new(reservation: Reservation, settle_by: SettleBy) -> Self {
        Self(Arc::new(Mutex::new(Some(Unsettled { reservation, settle_by }))))
    }

    /// The reservation, if nobody has taken it.
    pub(crate) fn take_back(&self) -> Option<Reservation> {
        self.take().map(|unsettled| unsettled.reservation)
    }
}

impl fmt::Debug for SettleHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SettleHandle").finish_non_exhaustive()
    }
}
