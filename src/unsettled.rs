//! The charge of a request, in the hands of its handler or of its response's body.

use std::sync::Arc;

use crate::reservation::Reservation;
use crate::settlement::Settlement;
use crate::sync::{Mutex, lock};
use crate::{Error, ErrorKind};

/// Settles a reservation as [`Limiter::settle`](crate::Limiter::settle) does, by whichever limiter.
pub(crate) type SettleBy =
    Arc<dyn Fn(Reservation, u64) -> Result<Settlement, Reservation> + Send + Sync>;

/// Units that a request took, with the limiter that settles them: for a cost that is known only
/// after the response has begun, such as the tokens of a stream.
///
/// A [`SettleHandle`] hands it out. It can be moved into another task. Dropped, it settles nothing:
/// what was charged stays, and a [`Budget`](crate::algorithm::Budget) holds it until its
/// [`max_hold`](crate::algorithm::Budget::max_hold) is over.
///
/// A caller that hangs up drops the handler at its current `await`, and the stream that the handler
/// has returned. So where one of these owns it, settle it in a `Drop`:
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
/// A task of its own is not dropped, so it needs no such type: it moves the `Unsettled` in, and
/// settles it at its end.
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

debug_by_name!([] Unsettled: reservation);

/// Hands out what a request took, once: a handler finds it in the extensions of the request.
///
/// [`RateLimitLayer::settle_in_handler`](crate::RateLimitLayer::settle_in_handler) adds it to each
/// request that passes. With axum it is `Extension<SettleHandle>`; with tonic
/// `request.extensions().get::<SettleHandle>()`. Of two layers on one request it is that of the
/// inner one.
///
/// A handler that takes what is in it settles it, and the layer does not. Take it first of all,
/// before the handler awaits anything: where a caller leaves before the response, the layer settles
/// nothing. When the response is returned, the layer takes back what is left in the handle, and
/// settles that as it would without a handle. [`Unsettled`] has an example.
///
/// The default is empty, for tests of handlers.
#[derive(Clone, Default)]
pub struct SettleHandle(Arc<Mutex<Option<Unsettled>>>);

impl SettleHandle {
    /// Takes out what the request took. `None` if it took nothing, such as where it is exempt or
    /// the limiter failed open; and if it was taken out before.
    #[must_use = "what is dropped stays charged"]
    pub fn take(&self) -> Option<Unsettled> {
        lock(&self.0).take()
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

debug_by_name!([] SettleHandle);
