//! What a request costs in the end, known once it is answered.

use std::time::Duration;

use crate::{Decision, Refusal, Respond};

/// A responder, and what its requests cost in the end.
///
/// Some costs are known only afterwards: a 304 that should not count, a login that counts only if
/// it failed, the bytes of a body, the tokens of a language model. Made by
/// [`HttpResponder::settle`](crate::HttpResponder::settle) and
/// [`refund_if`](crate::HttpResponder::refund_if); [`Settle::new`] wraps a responder of your own.
///
/// ```
/// use http::{Response, StatusCode};
/// use tower_sluice::algorithm::{FixedWindow, TokenBucket};
/// use tower_sluice::{Decision, HttpResponder, Memory, Quota, RateLimitLayer, by_head};
///
/// // Five failed logins an hour.
/// let logins = Memory::new("logins", FixedWindow::new(Quota::per_hour(5)));
/// let succeeded = |_: &Decision, response: &Response<String>| {
///     response.status() != StatusCode::UNAUTHORIZED
/// };
/// let layer = RateLimitLayer::new(logins, by_head(|head| head.header("x-user")))
///     .respond(HttpResponder::new().refund_if(succeeded));
///
/// // A million bytes a minute. A request is charged one, and the rest once the response is there.
/// let bytes = Memory::new("bytes", TokenBucket::new(Quota::per_minute(1_000_000)));
/// let sent = |_: &Decision, response: &Response<String>| response.body().len() as u64;
/// let layer = RateLimitLayer::new(bytes, by_head(|head| head.header("x-user")))
///     .respond(HttpResponder::new().settle(sent));
/// # let _ = layer;
/// ```
///
/// Inside axum's `.layer(..)` the body's type is inferred:
/// `|_: &Decision, response: &Response<_>|`.
///
/// The response is not delayed. The limiter that decided settles, also where that was the fallback
/// of an `or_else`. A peek and [`FailOpen`](crate::FailOpen) took nothing, so nothing is settled. A
/// body that streams has no length yet: take the [`Reservation`](crate::Reservation) in
/// [`Respond::annotate`], and settle it where the body ends.
///
/// # What an algorithm can refund, and take
///
/// | | refund | take more |
/// |---|---|---|
/// | windows and counters | exactly, while the window it was counted in lasts | up to the limit at a time; a window's end forgives |
/// | log | only the newest charge's | up to the limit at a time |
/// | token bucket | only if no other was decided since | all of it, owed up to the horizon |
/// | smooth limiters | only if no other was decided since | all of it: the next caller waits for it |
/// | tuples | what each can; a wait on which no other was decided since, wholly | what each can |
///
/// A part is refunded where all of it could be; a reserved slot itself stays where it is. To refund
/// more would break the bound. Where a refund must never be lost on a busy key, count in
/// a window. For bytes and tokens a bucket suits best, since it remembers debt.
#[derive(Clone, Copy, Debug)]
pub struct Settle<R, F> {
    respond: R,
    cost: F,
}

impl<R, F> Settle<R, F> {
    /// Answers as `respond` does. `cost` is a closure over `&Decision` and the response. It returns
    /// the units that the request cost in the end, or `None` to keep what was charged.
    ///
    /// The closure may return more than was charged, and not every limiter can take more: closures
    /// and Redisson's cannot. Before such a limiter every request is refused as undecided, with an
    /// error of kind [`Configuration`](crate::ErrorKind::Configuration). Use
    /// [`refund_if`](Settle::refund_if) where nothing more is taken.
    #[must_use]
    pub const fn new(respond: R, cost: F) -> Self {
        Self { respond, cost }
    }
}

impl<R, F> Settle<R, RefundIf<F>> {
    /// Answers as `respond` does, and refunds a request if `condition` holds, a closure over
    /// `&Decision` and the response.
    #[must_use]
    pub const fn refund_if(respond: R, condition: F) -> Self {
        Self { respond, cost: RefundIf(condition) }
    }
}

/// Refunds on a condition, and never takes more: see [`Settle::refund_if`].
#[derive(Clone, Copy, Debug)]
pub struct RefundIf<F>(F);

/// What a [`Settle`] asks for a cost: a closure that returns `u64` or `Option<u64>`, or a
/// [`RefundIf`]. Sealed.
pub trait ActualCost<Res>: sealed::Sealed<Res> {
    #[doc(hidden)]
    const TAKES_MORE: bool;

    #[doc(hidden)]
    fn actual_cost(&self, decision: &Decision, response: &Res) -> Option<u64>;
}

mod sealed {
    pub trait Sealed<Res> {}
}

impl<F, Res, C> sealed::Sealed<Res> for F where F: Fn(&Decision, &Res) -> C {}
impl<F, Res, C> ActualCost<Res> for F
where
    F: Fn(&Decision, &Res) -> C,
    C: Into<Option<u64>>,
{
    const TAKES_MORE: bool = true;

    fn actual_cost(&self, decision: &Decision, response: &Res) -> Option<u64> {
        self(decision, response).into()
    }
}

impl<F: Fn(&Decision, &Res) -> bool, Res> sealed::Sealed<Res> for RefundIf<F> {}
impl<F: Fn(&Decision, &Res) -> bool, Res> ActualCost<Res> for RefundIf<F> {
    const TAKES_MORE: bool = false;

    fn actual_cost(&self, decision: &Decision, response: &Res) -> Option<u64> {
        (self.0)(decision, response).then_some(0)
    }
}

impl<R, F, Req, Res, E> Respond<Req, Res, E> for Settle<R, F>
where
    R: Respond<Req, Res, E>,
    F: ActualCost<Res>,
{
    type Error = R::Error;

    fn reject(&self, request: Req, refusal: Refusal) -> Result<Res, R::Error> {
        self.respond.reject(request, refusal)
    }

    fn max_wait(&self, request: &Req) -> Option<Duration> {
        self.respond.max_wait(request)
    }

    fn takes_more(&self) -> bool {
        F::TAKES_MORE
    }

    fn actual_cost(&self, decision: &Decision, response: &Res) -> Option<u64> {
        self.cost.actual_cost(decision, response)
    }

    fn annotate(&self, decision: &mut Decision, response: &mut Res) {
        self.respond.annotate(decision, response);
    }
}
