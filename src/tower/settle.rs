//! The settlement of a request: what becomes of the units that it took, once it is answered.

use std::sync::Arc;
use std::time::Duration;

use crate::core::Decision;
use crate::core::reservation::Reservation;
use crate::core::settlement::{Renewal, Settlement};
use crate::core::sync::{Mutex, lock};
use crate::limiter::Hold;
use crate::limiter::hold::{self, SettleBy};

/// The settlement of the units that a request took. The closure of
/// [`RateLimitLayer::settle`](crate::RateLimitLayer::settle) returns it.
///
/// ```
/// use axum::Router;
/// use tower_sluice::algorithm::{Budget, FixedWindow};
/// use tower_sluice::{Charge, Memory, Quota, RateLimitLayer, Settle, by_head};
///
/// // Five failed logins an hour.
/// let logins = Memory::new("logins", FixedWindow::new(Quota::per_hour(5)));
/// let logins = RateLimitLayer::new(logins, by_head(|head| head.header("x-user")))
///     .settle(|answer| match answer.status() {
///         Some(401) => Settle::Keep,
///         _ => Settle::Refund,
///     });
///
/// // A million bytes a minute. A request is charged the most, and refunded the rest.
/// let bytes = Memory::new("bytes", Budget::new(Quota::per_minute(1_000_000)));
/// let most = by_head(|head| Some(Charge::new(head.header("x-user")?).cost(50_000)));
/// let bytes = RateLimitLayer::new(bytes, most).settle(|answer| {
///     let response = answer.response();
///     let length = response.and_then(|response| response.headers().get("content-length"));
///     match length.and_then(|length| length.to_str().ok()?.parse().ok()) {
///         Some(length) => Settle::Cost(length),
///         None => Settle::Keep,
///     }
/// });
/// let app: Router = Router::new().layer((logins, bytes));
/// ```
///
/// The response is not delayed, except by a reset or a pause. With Redis, a charge of another
/// process may come before the refund: for the same key, a bucket or a log then refunds nothing.
///
/// The limiter that decided settles, even if it is the fallback of an `or_else`. A
/// [`Reset`](Settle::Reset) and a [`Pause`](Settle::Pause) go to the inner limiter of an `or_else`.
/// A peek and [`FailOpen`](crate::FailOpen) take nothing, so nothing is settled.
///
/// **If the caller leaves before the response, nothing is settled: what was charged stays.** Only
/// units of a [`Concurrency`](crate::algorithm::Concurrency) are released. So charge the most that
/// a request may use, or let the handler settle: see [`SettleHandle`].
///
/// [This table](crate::algorithm#what-an-algorithm-refunds) says what an algorithm can refund and
/// take. A key that owes is refused until its debt has refilled: see
/// [`max_debt`](crate::algorithm::TokenBucket::max_debt). Units that a limit cannot take are
/// reported by [`Settled`](crate::future::Settled), by
/// [metrics](crate::limiter::MetricsExt::metrics) and [events](crate::limiter::TraceExt::trace).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle {
    /// Keeps what was charged.
    Keep,
    /// Refunds all that was charged.
    Refund,
    /// Sets the final cost in units. If that is less than the charge, the rest is refunded; if it
    /// is more, the difference is taken, even if it does not fit.
    Cost(u64),
    /// Takes this number of units more than was charged, even if they do not fit.
    Add(u64),
    /// Resets the key, as [`LimiterExt::reset`](crate::LimiterExt::reset) does with the charge of
    /// the request.
    ///
    /// The request's own units are forgotten too. A charge of several keys resets all of them:
    /// limit an address and a user by separate layers.
    ///
    /// The response waits for the reset, and passes even if the store fails. A limiter without
    /// resets refunds the request instead. So do the policies of `tower-sluice-policies`: your
    /// handler resets the right one with `PolicyHandle::reset`.
    Reset,
    /// Pauses the key of the request for this time, as
    /// [`LimiterExt::pause`](crate::LimiterExt::pause) does: for an upstream that says stop. It
    /// keeps what was charged, or leaves it to the body as [`Later`](Settle::Later) does.
    /// [`obey_upstream`](crate::RateLimitLayer::obey_upstream) reads the time from the response.
    ///
    /// The response waits for the pause, and passes even if the store fails.
    Pause(Duration),
    /// Leaves it to the response's body, if
    /// [`settle_later`](crate::RateLimitLayer::settle_later) counts bodies. Otherwise, and if the
    /// inner service failed, it is the same as `Keep`.
    Later,
}

/// The answer of the inner service to a request, and the decision about the request.
///
/// Of a service that answers with an [`http::Response`], it has a [`status`](Answer::status) and a
/// [`response`](Answer::response). A closure that reads another [`result`](Answer::result) states
/// its type: `|answer: Answer<u64, io::Error>| ..`.
pub struct Answer<'a, Res, E> {
    pub(crate) decision: &'a Decision,
    pub(crate) result: &'a Result<Res, E>,
}

impl<'a, Res, E> Answer<'a, Res, E> {
    /// The decision about the request, whose [`reservation`](Decision::reservation) has the units
    /// charged.
    pub fn decision(&self) -> &'a Decision {
        self.decision
    }

    /// The response, or the error of the inner service.
    pub fn result(&self) -> Result<&'a Res, &'a E> {
        self.result.as_ref()
    }
}

debug_by_name!(['a, Res, E] Answer<'a, Res, E>: decision);

/// A hook that is not set yet: `()`. So a second [`settle`](crate::RateLimitLayer::settle) does not
/// replace the first without a word.
#[diagnostic::on_unimplemented(
    message = "a second `settle` or `settle_later` would replace the first",
    label = "already set on this layer",
    note = "one closure of `settle` handles all answers; match on `answer.status()` or `answer.result()`"
)]
pub trait NotSet {}

impl NotSet for () {}

/// Says how an answered request is settled: a closure over its [`Answer`]. `()` leaves it to the
/// body.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not settle requests that end in a `Result<{Res}, {E}>`",
    note = "the closure of `settle` takes an `Answer`, and returns a `Settle`"
)]
pub trait SettleAnswered<Res, E> {
    /// True if it may return [`Settle::Reset`] or [`Settle::Pause`], which need the charge.
    const NEEDS_CHARGE: bool;
    /// True if requests that waited ask again if their key was paused meanwhile.
    const LOOKS_AGAIN: bool = false;

    /// Called once, if the request took units.
    fn settle(&self, answer: Answer<'_, Res, E>) -> Settle;
}

impl<Res, E> SettleAnswered<Res, E> for () {
    const NEEDS_CHARGE: bool = false;

    #[inline]
    fn settle(&self, _: Answer<'_, Res, E>) -> Settle {
        Settle::Later
    }
}

#[diagnostic::do_not_recommend]
impl<F, Res, E> SettleAnswered<Res, E> for F
where
    F: Fn(Answer<'_, Res, E>) -> Settle,
{
    const NEEDS_CHARGE: bool = true;

    #[inline]
    fn settle(&self, answer: Answer<'_, Res, E>) -> Settle {
        self(answer)
    }
}

/// Lets another part of the application settle a request: its handler, or the body of its response.
/// `()`: nobody.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot settle a `{Req}` that is answered by a `{Res}`",
    note = "a handler and a body settle only an `http::Request` that is answered by an `http::Response`",
    note = "a closure states the type of its frames: `|frame: &Frame<Bytes>| ..`, and returns a `u64`"
)]
pub trait SettleLater<Req, Res> {
    /// The response of the limited service.
    type Response;

    /// Gives the request a handle on the units that it took.
    fn hand_out(&self, decision: &mut Decision, request: &mut Req) -> Option<SettleHandle>;

    /// Makes the response. The decision has the units that the body may settle, if there are any.
    fn respond(&self, response: Res, decision: Option<&mut Decision>) -> Self::Response;
}

impl<Req, Res> SettleLater<Req, Res> for () {
    type Response = Res;

    #[inline]
    fn hand_out(&self, _: &mut Decision, _: &mut Req) -> Option<SettleHandle> {
        None
    }

    #[inline]
    fn respond(&self, response: Res, _: Option<&mut Decision>) -> Res {
        response
    }
}

/// A handler or a body that settles requests, with the limiter that they settle with. Made by
/// [`RateLimitLayer::settle_later`](crate::RateLimitLayer::settle_later).
pub struct Later<W> {
    pub(crate) by: Arc<W>,
    pub(crate) settle_by: Arc<dyn SettleBy>,
}

impl<W> Later<W> {
    pub(crate) fn take(&self, decision: &mut Decision) -> Option<Unsettled> {
        let reservation = decision.take_reservation()?;
        Some(Unsettled { reservation, settle_by: Arc::clone(&self.settle_by) })
    }
}

impl<W> Clone for Later<W> {
    fn clone(&self) -> Self {
        Self { by: Arc::clone(&self.by), settle_by: Arc::clone(&self.settle_by) }
    }
}

debug_by_name!([W] Later<W>);

/// The units that a request took, with the limiter that settles them. It is for a cost that is
/// known only after the response has begun, such as the tokens of a stream.
///
/// It comes from a [`SettleHandle`], and can be moved into another task. If it is dropped, it
/// settles nothing: the charge stays. A handler or a stream whose caller hangs up is dropped, so
/// put it into a [`SettleGuard`] there. A spawned task needs no guard.
pub struct Unsettled {
    pub(crate) reservation: Reservation,
    settle_by: Arc<dyn SettleBy>,
}

/// Counts what a request uses, and settles it when it is dropped: when the handler or the stream
/// that owns it has ended or failed, or when its caller has hung up.
///
/// If nothing was added until then, the charge stays as it is: a caller that hangs up before its
/// cost is known pays the estimate. `add(0)` says that nothing was used.
///
/// ```
/// use axum::Extension;
/// use tower_sluice::respond::{SettleGuard, SettleHandle};
///
/// async fn chat(Extension(handle): Extension<SettleHandle>) -> String {
///     // First of all, before anything is awaited.
///     let mut bill = SettleGuard::new(handle.take());
///     bill.add(20);
///     let answer = ask_the_model().await;
///     bill.add(answer.len() as u64);
///     answer
/// }
/// # async fn ask_the_model() -> String { String::from("hello") }
/// # let _: axum::Router = axum::Router::new().route("/", axum::routing::get(chat));
/// ```
#[must_use = "it settles when it is dropped"]
pub struct SettleGuard {
    /// `None`: nothing was added.
    used: Option<u64>,
    /// Held units are renewed.
    unsettled: Option<Hold>,
}

impl SettleGuard {
    /// A guard of these units, to which nothing was added. `None`: it settles nothing, since the
    /// request took nothing.
    pub fn new(unsettled: Option<Unsettled>) -> Self {
        Self { used: None, unsettled: unsettled.map(Unsettled::hold) }
    }

    /// Adds units that were used.
    pub const fn add(&mut self, units: u64) {
        self.used = Some(self.used().saturating_add(units));
    }

    pub(crate) fn add_cost(&mut self) {
        self.add(self.unsettled.as_ref().map_or(0, Hold::cost));
    }

    /// The units that were added until now.
    #[must_use]
    pub const fn used(&self) -> u64 {
        match self.used {
            Some(used) => used,
            None => 0,
        }
    }
}

impl Drop for SettleGuard {
    fn drop(&mut self) {
        if let Some(unsettled) = self.unsettled.take() {
            let used = self.used.unwrap_or(unsettled.cost());
            drop(unsettled.settle(used));
        }
    }
}

debug_by_name!([] SettleGuard: used, unsettled);

impl Unsettled {
    /// The units that were charged.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.reservation.cost()
    }

    /// The record of the units.
    #[must_use]
    pub fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    /// Settles the charge. `actual` is the final cost of the request in units. If it is less than
    /// the [`cost`](Unsettled::cost), the rest is refunded; if it is more, the difference is taken.
    ///
    /// It returns at once, and the [`Settlement`] need not be awaited.
    ///
    /// # Errors
    ///
    /// The settlement returns an error of kind [`Configuration`](crate::ErrorKind::Configuration)
    /// if the limiter cannot settle the charge, as a closure. Or its store needs a tokio runtime,
    /// and the one in which it was asked has ended.
    pub fn settle(self, actual: u64) -> Settlement {
        hold::settle(&*self.settle_by, self.reservation, actual)
    }

    /// Holds the units until the returned guard is dropped, and renews them while it lives: see
    /// [`Hold`]. It is for what outlasts the response, such as an upgraded connection.
    pub fn hold(self) -> Hold {
        Hold::new(self.settle_by, self.reservation)
    }
}

debug_by_name!([] Unsettled: reservation);

/// A handle on the units that a request took, in the extensions of the request. Its content can be
/// taken once.
///
/// [`RateLimitLayer::settle_later`](crate::RateLimitLayer::settle_later) adds it to each request
/// that passes. With axum it is `Extension<SettleHandle>`; with tonic
/// `request.extensions().get::<SettleHandle>()`. With two layers on one request, it is the handle
/// of the inner layer, unless the request is not limited there.
///
/// If a handler takes the content, the handler settles it and the layer does not. Take it before
/// the handler awaits anything: if a caller leaves before the response, the layer settles nothing.
/// The layer settles what is left in the handle when the response is returned.
///
/// The default is empty, for tests of handlers.
#[derive(Clone, Default)]
pub struct SettleHandle(Arc<Mutex<Option<Unsettled>>>);

impl SettleHandle {
    /// Takes out the units of the request. `None` if they were already taken out, or if the request
    /// took nothing.
    #[must_use = "what is dropped stays charged"]
    pub fn take(&self) -> Option<Unsettled> {
        lock(&self.0).take()
    }

    pub(crate) fn new(unsettled: Unsettled) -> Self {
        Self(Arc::new(Mutex::new(Some(unsettled))))
    }

    /// Begins to renew the units that nobody took out.
    pub(crate) fn renew(&self) -> Option<Renewal> {
        let mut unsettled = lock(&self.0);
        let Unsettled { reservation, settle_by } = unsettled.as_mut()?;
        settle_by.renew(reservation)
    }
}

debug_by_name!([] SettleHandle);
