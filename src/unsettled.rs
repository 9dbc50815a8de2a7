//! The charge of a request, which its handler or its response's body settles.

use std::sync::Arc;

use crate::reservation::Reservation;
use crate::settlement::Settlement;
use crate::sync::{Mutex, lock};
use crate::{Error, ErrorKind};

/// A function that settles a reservation like [`Limiter::settle`](crate::Limiter::settle), for a
/// limiter of any type.
pub(crate) type SettleBy =
    Arc<dyn Fn(Reservation, u64) -> Result<Settlement, Reservation> + Send + Sync>;

/// The units that a request took, with the limiter that settles them. It is for a cost that is
/// known only after the response has begun, such as the tokens of a stream.
///
/// It comes from a [`SettleHandle`], and can be moved into another task. If it is dropped, it
/// settles nothing. The charge stays, and a [`Budget`](crate::algorithm::Budget) holds it until its
/// [`max_hold`](crate::algorithm::Budget::max_hold) is over.
///
/// If a caller hangs up, its handler is dropped at the current `await`, or the returned stream is
/// dropped. So if one of these owns it, settle it in a `Drop`:
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use http::{Request, Response};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sluice::algorithm::Budget;
/// use tower_sluice::respond::{SettleHandle, Unsettled};
/// use tower_sluice::{Charge, LimiterExt, Memory, Quota, RateLimitLayer, by_head};
///
/// struct Bill {
///     used: u64,
///     unsettled: Option<Unsettled>,
/// }
///
/// impl Bill {
///     // A method, because a `move` closure with `bill.used += 1` takes a copy of that field only.
///     fn add(&mut self, units: u64) {
///         self.used += units;
///     }
/// }
///
/// impl Drop for Bill {
///     fn drop(&mut self) {
///         if let Some(unsettled) = self.unsettled.take() {
///             unsettled.settle(self.used);
///         }
///     }
/// }
///
/// # let mut builder = tokio::runtime::Builder::new_current_thread();
/// # builder.enable_time().start_paused(true).build().unwrap().block_on(async {
/// let tokens = Memory::new("tokens", Budget::new(Quota::per_day(10_000)));
/// let most = by_head(|head| Some(Charge::new(head.header("x-user")?).cost(1_000)));
/// let layer = RateLimitLayer::new(tokens.clone(), most).settle_in_handler();
/// let service = layer.layer(service_fn(|request: Request<()>| async move {
///     // First of all, before anything is awaited.
///     let handle = request.extensions().get::<SettleHandle>().expect("the layer adds it");
///     let mut bill = Bill { used: 20, unsettled: handle.take() };
///     // The model thinks.
///     tokio::time::sleep(Duration::from_secs(5)).await;
///     bill.add(80);
///     Ok::<_, Infallible>(Response::new(()))
/// }));
///
/// // One caller waits for its answer, and one hangs up.
/// let ask = || Request::builder().header("x-user", "alice").body(()).unwrap();
/// service.clone().oneshot(ask()).await.unwrap();
/// assert_eq!(tokens.peek("alice").await?.remaining(), Some(9_900));
/// let patience = Duration::from_secs(1);
/// assert!(tokio::time::timeout(patience, service.oneshot(ask())).await.is_err());
/// assert_eq!(tokens.peek("alice").await?.remaining(), Some(9_880));
/// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
/// ```
///
/// A spawned task is not dropped, so it needs no such type. Move the `Unsettled` into the task, and
/// settle it at the end.
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

    /// Settles the charge. `actual` is the final cost of the request in units. If it is less than
    /// the [`cost`](Unsettled::cost), the rest is refunded; if it is more, the difference is taken.
    ///
    /// It returns at once, and the [`Settlement`] need not be awaited.
    ///
    /// # Errors
    ///
    /// The settlement returns an error of kind [`Configuration`](ErrorKind::Configuration) if the
    /// limiter cannot settle the charge, as a closure. Or its store needs a tokio runtime, and there
    /// is none.
    pub fn settle(self, actual: u64) -> Settlement {
        (self.settle_by)(self.reservation, actual).unwrap_or_else(|_| {
            let message = "the limiter cannot settle what the request took";
            Settlement::from(Err(Error::new(ErrorKind::Configuration, message)))
        })
    }
}

debug_by_name!([] Unsettled: reservation);

/// A handle on the units that a request took, in the extensions of the request. Its content can be
/// taken once.
///
/// [`RateLimitLayer::settle_in_handler`](crate::RateLimitLayer::settle_in_handler) adds it to each
/// request that passes. With axum it is `Extension<SettleHandle>`; with tonic
/// `request.extensions().get::<SettleHandle>()`. With two layers on one request, it is the handle
/// of the inner layer, unless the request is not limited there: it is exempt, or the limit is off.
///
/// If a handler takes the content, the handler settles it and the layer does not. Take it before
/// the handler awaits anything: if a caller leaves before the response, the layer settles nothing.
/// When the response is returned, the layer takes back what is left in the handle, and settles it
/// as it would without a handle. [`Unsettled`] has an example.
///
/// The default is empty, for tests of handlers.
#[derive(Clone, Default)]
pub struct SettleHandle(Arc<Mutex<Option<Unsettled>>>);

impl SettleHandle {
    /// Takes out the units of the request. `None` if they were already taken out. Also `None` if
    /// the request took nothing, because it is exempt or the limiter failed open.
    #[must_use = "what is dropped stays charged"]
    pub fn take(&self) -> Option<Unsettled> {
        lock(&self.0).take()
    }

    /// A handle on a reservation.
    pub(crate) fn new(reservation: Reservation, settle_by: SettleBy) -> Self {
        Self(Arc::new(Mutex::new(Some(Unsettled { reservation, settle_by }))))
    }

    /// Returns the reservation, if it was not taken.
    pub(crate) fn take_back(&self) -> Option<Reservation> {
        self.take().map(|unsettled| unsettled.reservation)
    }
}

debug_by_name!([] SettleHandle);
