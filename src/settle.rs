//! The final cost of a request, which is known after its response.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::reservation::Reservation;
use crate::responder::{GivePlace, Respond};
use crate::{Decision, Refusal};

/// A responder with a source of the requests' final costs.
///
/// Some costs are known only afterwards: a 304 that should not count, a login that counts only if
/// it failed, the bytes of a body, the tokens of a language model. These setters of a layer wrap
/// its responder in this type:
///
/// | setter | after the response |
/// |---|---|
/// | [`refund_if`](crate::RateLimitLayer::refund_if) | refunds all or nothing |
/// | [`refund_unused`](crate::RateLimitLayer::refund_unused) | refunds the unused units |
/// | [`actual_cost`](crate::RateLimitLayer::actual_cost) | refunds, or takes more |
/// | [`penalize_if`](crate::RateLimitLayer::penalize_if) | takes a number of units more |
/// | [`reset_if`](crate::RateLimitLayer::reset_if) | resets the key |
/// | [`refund_on_error`](crate::RateLimitLayer::refund_on_error) | refunds all on an inner error |
///
/// With several setters, the last one applies first. The one before it applies only if the last one
/// keeps what was charged. A reset comes before all of them.
///
/// ```
/// use http::{Response, StatusCode};
/// use tower_sluice::algorithm::{Budget, FixedWindow, TokenBucket};
/// use tower_sluice::{Charge, Decision, Memory, Quota, RateLimitLayer, by_head};
///
/// // Five failed logins an hour.
/// let logins = Memory::new("logins", FixedWindow::new(Quota::per_hour(5)));
/// let succeeded = |_: &Decision, response: &Response<String>| {
///     response.status() != StatusCode::UNAUTHORIZED
/// };
/// let layer = RateLimitLayer::new(logins, by_head(|head| head.header("x-user")))
///     .refund_if(succeeded);
///
/// // 100,000 tokens an hour. A request is charged the most that it may use, and refunded the rest.
/// let tokens = Memory::new("tokens", Budget::new(Quota::per_hour(100_000)));
/// let most = by_head(|head| Some(Charge::new(head.header("x-user")?).cost(4_000)));
/// let used = |_: &Decision, response: &Response<String>| response.body().len() as u64 / 4;
/// let layer = RateLimitLayer::new(tokens, most).refund_unused(used);
///
/// // A million bytes a minute. A request is charged one, and the rest once the response is there.
/// let bytes = Memory::new("bytes", TokenBucket::new(Quota::per_minute(1_000_000)));
/// let sent = |_: &Decision, response: &Response<String>| response.body().len() as u64;
/// let layer = RateLimitLayer::new(bytes, by_head(|head| head.header("x-user"))).actual_cost(sent);
/// # let _ = layer;
/// ```
///
/// Inside axum's `.layer(..)` the body's type is inferred:
/// `|_: &Decision, response: &Response<_>|`.
///
/// The response is not delayed. With Redis, the refund is sent at the time of the response, before
/// later charges of this process. A charge of another process may still come first. For the same
/// key, a bucket or a log then refunds nothing, and that charge is refused if no unit was left.
///
/// The limiter that decided settles, even if it is the fallback of an `or_else`. A peek and
/// [`FailOpen`](crate::FailOpen) take nothing, so nothing is settled.
///
/// These setters read the head of a response. The cost of a stream is known at its end.
/// [`count_body`](crate::RateLimitLayer::count_body) counts its frames.
/// [`settle_in_handler`](crate::RateLimitLayer::settle_in_handler) lets the handler state the cost,
/// even from another task.
///
/// **If the caller leaves before the response, nothing is settled: what was charged stays.** A
/// caller that is charged 1 and hangs up just before a response of 5,000 units pays 1. If that
/// matters, charge the most that a request may use, and refund the rest with `refund_unused`, as
/// above. A handler that has taken the units out of its handle settles them, even if its caller
/// left.
///
/// If the inner service returns an error, the charge stays too, unless `refund_on_error` refunds
/// it.
///
/// # What an algorithm can refund, and take
///
/// | | refund | take more |
/// |---|---|---|
/// | windows and counters | exactly, while its window lasts | up to the limit at a time |
/// | log | only the newest charge | up to the limit at a time |
/// | budget | always, until its time is over | all of it, owed for up to `max_debt` |
/// | token bucket | only if no other was decided since | all of it, owed for up to `max_debt` |
/// | smooth limiters | only if no other was decided since | all of it, owed for up to `max_debt` |
/// | tuples | each member as above | each member as above |
///
/// A key that owes is refused until its debt has refilled, or waits for that if its `max_wait` is as
/// long. The longest debt, [`max_debt`](crate::algorithm::TokenBucket::max_debt), is 365 days unless
/// set. Units beyond it are not taken: [`Settled`](crate::future::Settled) tells them. The end of a
/// window cancels a debt. A tuple refunds a wait completely if no other charge was
/// decided since.
///
/// A part can be refunded when the whole charge could be; a reserved slot itself does not move. A
/// larger refund would break the bound. If most of a charge is usually refunded, take a
/// [`Budget`](crate::algorithm::Budget) or a window: on a busy key a bucket refunds almost nothing.
/// If requests are charged little at first and the rest afterwards, take a bucket, since it
/// remembers debt.
///
/// A budget holds the charged units until they are settled. So a layer settles each request that
/// was answered, even if the inner service failed. It uses the full cost if no setter states
/// another one. A charge that is never settled counts as spent when its time is over.
pub struct WithActualCost<R, F> {
    respond: Arc<R>,
    cost: Arc<F>,
}

impl<R, F> WithActualCost<R, F> {
    /// Answers as `respond` does. `cost` is the layer's closure, in a type that says how to use it.
    pub(crate) fn new(respond: Arc<R>, cost: F) -> Self {
        Self { respond, cost: Arc::new(cost) }
    }
}

impl<R: GivePlace<T>, F, T> GivePlace<T> for WithActualCost<R, F> {
    type Changed = WithActualCost<R::Changed, F>;

    fn give_place(&self, respond: T) -> Self::Changed {
        let respond = Arc::new(self.respond.give_place(respond));
        WithActualCost { respond, cost: Arc::clone(&self.cost) }
    }
}

/// Refunds all on a condition: see [`RateLimitLayer::refund_if`](crate::RateLimitLayer::refund_if).
#[derive(Clone, Copy, Debug)]
pub struct RefundIf<F>(pub(crate) F);

/// Refunds what a request did not use, and never takes more: see
/// [`RateLimitLayer::refund_unused`](crate::RateLimitLayer::refund_unused).
#[derive(Clone, Copy, Debug)]
pub struct RefundUnused<F>(pub(crate) F);

/// Takes more on a condition: see
/// [`RateLimitLayer::penalize_if`](crate::RateLimitLayer::penalize_if).
#[derive(Clone, Copy, Debug)]
pub struct PenalizeIf<F> {
    pub(crate) units: u64,
    pub(crate) condition: F,
}

/// Resets the key on a condition: see
/// [`RateLimitLayer::reset_if`](crate::RateLimitLayer::reset_if).
#[derive(Clone, Copy, Debug)]
pub struct ResetIf<F>(pub(crate) F);

/// Refunds all if the inner service failed: see
/// [`RateLimitLayer::refund_on_error`](crate::RateLimitLayer::refund_on_error).
#[derive(Clone, Copy, Debug)]
pub struct RefundOnError<F>(pub(crate) F);

/// The source of the cost in a [`WithActualCost`]: a closure that returns `u64` or `Option<u64>`,
/// or one of the types above.
pub trait ActualCost<Req, Res, E> {
    /// Returns true if it may take more than was charged.
    fn takes_more(&self) -> bool {
        false
    }

    fn may_reset(&self) -> bool {
        false
    }

    fn resets(&self, decision: &Decision, result: Result<&Res, &E>) -> bool {
        let _ = (decision, result);
        false
    }

    fn actual_cost(&self, decision: &Decision, result: Result<&Res, &E>) -> Option<u64> {
        let _ = (decision, result);
        None
    }

    /// Sees a refused request before the responder.
    fn refuse(&self, request: &mut Req) {
        let _ = request;
    }

    /// Sees an admitted request after the responder.
    fn admit(&self, decision: &mut Decision, request: &mut Req) {
        let _ = (decision, request);
    }

    /// Sees a response after the responder.
    fn annotate(&self, decision: &mut Decision, response: &mut Res) {
        let _ = (decision, response);
    }
}

impl<F, Req, Res, E, C> ActualCost<Req, Res, E> for F
where
    F: Fn(&Decision, &Res) -> C,
    C: Into<Option<u64>>,
{
    fn takes_more(&self) -> bool {
        true
    }

    fn actual_cost(&self, decision: &Decision, result: Result<&Res, &E>) -> Option<u64> {
        result.ok().and_then(|response| self(decision, response).into())
    }
}

impl<F: Fn(&Decision, &Res) -> bool, Req, Res, E> ActualCost<Req, Res, E> for RefundIf<F> {
    fn actual_cost(&self, decision: &Decision, result: Result<&Res, &E>) -> Option<u64> {
        result.ok().filter(|response| (self.0)(decision, response)).map(|_| 0)
    }
}

impl<F, Req, Res, E, C> ActualCost<Req, Res, E> for RefundUnused<F>
where
    F: Fn(&Decision, &Res) -> C,
    C: Into<Option<u64>>,
{
    fn actual_cost(&self, decision: &Decision, result: Result<&Res, &E>) -> Option<u64> {
        let used = result.ok().and_then(|response| (self.0)(decision, response).into())?;
        Some(used.min(decision.reservation().map_or(0, Reservation::cost)))
    }
}

impl<F: Fn(&Decision, &Res) -> bool, Req, Res, E> ActualCost<Req, Res, E> for PenalizeIf<F> {
    fn takes_more(&self) -> bool {
        true
    }

    fn actual_cost(&self, decision: &Decision, result: Result<&Res, &E>) -> Option<u64> {
        let charged = decision.reservation().map_or(0, Reservation::cost);
        let penalized = result.ok().filter(|response| (self.condition)(decision, response));
        penalized.map(|_| charged.saturating_add(self.units))
    }
}

impl<F: Fn(&Decision, &Res) -> bool, Req, Res, E> ActualCost<Req, Res, E> for ResetIf<F> {
    fn may_reset(&self) -> bool {
        true
    }

    fn resets(&self, decision: &Decision, result: Result<&Res, &E>) -> bool {
        result.is_ok_and(|response| (self.0)(decision, response))
    }
}

impl<F: Fn(&E) -> bool, Req, Res, E> ActualCost<Req, Res, E> for RefundOnError<F> {
    fn actual_cost(&self, _: &Decision, result: Result<&Res, &E>) -> Option<u64> {
        result.err().filter(|error| (self.0)(error)).map(|_| 0)
    }
}

impl<R, F, Req, Res, E> Respond<Req, Res, E> for WithActualCost<R, F>
where
    R: Respond<Req, Res, E>,
    F: ActualCost<Req, Res, E>,
{
    type Error = R::Error;

    fn reject(&self, mut request: Req, refusal: Refusal) -> Result<Res, R::Error> {
        self.cost.refuse(&mut request);
        self.respond.reject(request, refusal)
    }

    fn max_wait(&self, request: &Req) -> Option<Duration> {
        self.respond.max_wait(request)
    }

    fn takes_more(&self) -> bool {
        self.cost.takes_more() || self.respond.takes_more()
    }

    fn may_reset(&self) -> bool {
        self.cost.may_reset() || self.respond.may_reset()
    }

    fn resets(&self, decision: &Decision, result: Result<&Res, &E>) -> bool {
        self.cost.resets(decision, result) || self.respond.resets(decision, result)
    }

    fn actual_cost(&self, decision: &Decision, result: Result<&Res, &E>) -> Option<u64> {
        let actual = self.cost.actual_cost(decision, result);
        actual.or_else(|| self.respond.actual_cost(decision, result))
    }

    fn admit(&self, decision: &mut Decision, request: &mut Req) {
        self.respond.admit(decision, request);
        self.cost.admit(decision, request);
    }

    fn annotate(&self, decision: &mut Decision, response: &mut Res) {
        self.respond.annotate(decision, response);
        self.cost.annotate(decision, response);
    }
}

debug_by_name!([R: fmt::Debug, F] WithActualCost<R, F>: respond);
