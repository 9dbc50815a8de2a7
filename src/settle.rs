//! What a request is to have cost, once it is answered.
//!
//! Some costs are known only afterwards: a 304 that should not count, a login that counts only if it failed, the bytes
//! of a body, the tokens of a language model. [`Settle`] goes around any responder and says so, from the decision and
//! the response; what follows happens off the path, so the response is not delayed.
//!
//! ```
//! use http::{Response, StatusCode};
//! use tower_sluice::algorithm::{FixedWindow, TokenBucket};
//! use tower_sluice::{
//!     Charge, Decision, HttpResponder, Memory, Quota, RateLimitLayer, Settlement, by_head,
//! };
//!
//! let logins = Memory::new("logins", FixedWindow::new(Quota::per_hour(5)));
//! let right = |_: &Decision, response: &Response<String>| {
//!     response.status() != StatusCode::UNAUTHORIZED
//! };
//! let layer = RateLimitLayer::new(logins, by_head(|head| head.header("x-user")))
//!     .respond(HttpResponder::new().refund_if(right));
//!
//! let bytes = Memory::new("bytes", TokenBucket::new(Quota::per_minute(1_000_000)));
//! let sent = |_: &Decision, response: &Response<String>| {
//!     Settlement::Take(response.body().len() as u64)
//! };
//! let peek = by_head(|head| Some(Charge::new(head.header("x-user")?).peek()));
//! let layer = RateLimitLayer::new(bytes, peek)
//!     .respond(HttpResponder::new().settle(sent));
//! # let _ = layer;
//! ```
//!
//! Inside axum's `.layer(..)` the body is found out: `|_: &Decision, response: &Response<_>|` will do. A body that
//! streams has no length yet: take what it cost in the end with [`Limiter::owe`](crate::Limiter::owe), from a charge that is
//! [`settling`](crate::Charge::settling) the decision.
//!
//! Units go back to the limiter that decided, and are taken from it, also where that was the fallback of an `or_else`.
//! Where [`FailOpen`](crate::FailOpen) admitted unasked, nothing is counted.
//!
//! # What an algorithm can give back, and take
//!
//! | | refund | take more |
//! |---|---|---|
//! | windows and counters | exactly, while the window it was counted in lasts | up to the limit at a time; a window's end forgives |
//! | log | only the newest charge's | up to the limit at a time |
//! | token bucket | only if no other was decided since | all of it, owed up to the horizon |
//! | smooth limiters | only if no other was decided since | all of it: whoever comes next pays |
//! | tuples | what each can; a wait on which no other was decided since, wholly | what each can |
//!
//! Safety comes first: to give back more would break the bound. So where a refund must never be lost on a busy key,
//! count in a window; or admit by a peek ([`Charge::peek`](crate::Charge::peek)) and take afterwards what it was, of which several that
//! run at once may take a little more than there is. For bytes and tokens a bucket suits best, since it remembers debt.

use std::time::Duration;

use crate::{Decision, Refusal, Respond};

/// What an answered request is to have cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// What it was charged.
    Keep,
    /// Nothing, as far as its algorithm can give it back.
    Refund,
    /// This many units more, whether or not they fit. 0 takes nothing. Not every limiter can: see [`Settle::new`].
    Take(u64),
}

/// A responder, and what its requests cost in the end.
#[derive(Clone, Copy, Debug)]
pub struct Settle<R, F> {
    respond: R,
    settle: F,
}

impl<R, F> Settle<R, F> {
    /// Answers as `respond` does, and settles by `settle`, a closure over `&Decision` and the response.
    ///
    /// The closure may take more, and a limiter that cannot take would lose that. Before such a limiter, every request is
    /// refused as undecided, with an error of kind [`Configuration`](crate::ErrorKind::Configuration): closures and
    /// [`Redisson`](crate::redisson::Redisson) cannot take. Use [`refund_if`](Settle::refund_if) where nothing more is taken.
    #[must_use]
    pub const fn new(respond: R, settle: F) -> Self {
        Self { respond, settle }
    }
}

impl<R, F> Settle<R, RefundIf<F>> {
    /// Answers as `respond` does, and gives back what a request took, if `condition`, a closure over `&Decision` and the
    /// response, says so.
    #[must_use]
    pub const fn refund_if(respond: R, condition: F) -> Self {
        Self { respond, settle: RefundIf(condition) }
    }
}

/// Gives back on a condition, and never takes: see [`Settle::refund_if`].
#[derive(Clone, Copy, Debug)]
pub struct RefundIf<F>(F);

/// What a [`Settle`] settles by: a closure that returns a [`Settlement`], or a [`RefundIf`]. Sealed.
pub trait SettleBy<Res>: sealed::Sealed<Res> {
    #[doc(hidden)]
    const TAKES: bool;

    #[doc(hidden)]
    fn settlement(&self, decision: &Decision, response: &Res) -> Settlement;
}

mod sealed {
    pub trait Sealed<Res> {}
}

impl<F: Fn(&Decision, &Res) -> Settlement, Res> sealed::Sealed<Res> for F {}
impl<F: Fn(&Decision, &Res) -> Settlement, Res> SettleBy<Res> for F {
    const TAKES: bool = true;

    fn settlement(&self, decision: &Decision, response: &Res) -> Settlement {
        self(decision, response)
    }
}

impl<F: Fn(&Decision, &Res) -> bool, Res> sealed::Sealed<Res> for RefundIf<F> {}
impl<F: Fn(&Decision, &Res) -> bool, Res> SettleBy<Res> for RefundIf<F> {
    const TAKES: bool = false;

    fn settlement(&self, decision: &Decision, response: &Res) -> Settlement {
        if (self.0)(decision, response) { Settlement::Refund } else { Settlement::Keep }
    }
}

impl<R, F, Req, Res, E> Respond<Req, Res, E> for Settle<R, F>
where
    R: Respond<Req, Res, E>,
    F: SettleBy<Res>,
{
    type Error = R::Error;

    fn reject(&self, request: Req, refusal: Refusal) -> Result<Res, R::Error> {
        self.respond.reject(request, refusal)
    }

    fn max_wait(&self, request: &Req) -> Option<Duration> {
        self.respond.max_wait(request)
    }

    fn settles(&self) -> bool {
        true
    }

    fn takes(&self) -> bool {
        F::TAKES
    }

    fn settle(&self, decision: &Decision, response: &Res) -> Settlement {
        self.settle.settlement(decision, response)
    }

    fn annotate(&self, decision: &Decision, response: &mut Res) {
        self.respond.annotate(decision, response);
    }
}
