//! A decision: the request that a charge becomes, and the future that reads the answer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::batcher::Batcher;
use super::key;
use super::pending::Pending;
use super::queue::Answered;
use super::reply::{Entry, malformed_reply};
use super::request::{Op, Request};
use crate::algorithm::{Check, InLua};
use crate::charge::Key;
use crate::limiter::named::{NamedAlgorithm, Provenance, check_key};
use crate::limiter::timeout;
use crate::{Charge, Decision, Error, Origin, Quotas, Reservation};

/// What the clones of a limiter share.
#[derive(Clone)]
pub(super) struct Inner<A: InLua> {
    pub(super) named: NamedAlgorithm<A>,
    /// How long a decision may take.
    pub(super) deadline: Duration,
    pub(super) batcher: Arc<Batcher>,
}

impl<A: InLua> Inner<A> {
    /// Asks about a charge's own key.
    pub(super) fn ask(
        self: &Arc<Self>,
        charge: &Charge,
        op: impl Fn(Check) -> Op,
    ) -> RedisFuture<A> {
        RedisFuture::new(self, charge, self.request(charge, op))
    }

    /// Asks about keys whose names end with `key`.
    pub(super) fn ask_of(
        self: &Arc<Self>,
        key: String,
        charge: &Charge,
        op: impl Fn(Check) -> Op,
    ) -> RedisFuture<A> {
        RedisFuture::new(self, charge, self.request_of(key, charge, op))
    }

    /// The request that a charge becomes, and the quota that its answer is read with.
    pub(super) fn request(
        &self,
        charge: &Charge,
        op: impl Fn(Check) -> Op,
    ) -> Result<(Request, Quotas), Error> {
        // A key that is too long is refused before it is digested.
        check_key(charge.key())?;
        self.request_of(key::hash_tagged(charge.key()), charge, op)
    }

    fn request_of(
        &self,
        key: String,
        charge: &Charge,
        op: impl Fn(Check) -> Op,
    ) -> Result<(Request, Quotas), Error> {
        let parsed = self.named.read(charge)?;
        let request = Request {
            key,
            rule: charge.get_quota().map(|_| A::arguments(&parsed.rule)),
            op: op(parsed.check),
        };
        Ok((request, parsed.quota))
    }

    pub(super) fn send(&self, request: Request, deadline: Instant) -> Pending {
        let deadline = self.batcher.config().pool.reply_deadline(deadline);
        Pending::new(Arc::clone(&self.batcher), request, deadline)
    }

    /// The request that gives a reservation back.
    pub(super) fn refund(&self, reservation: Reservation) -> Result<Request, Error> {
        let rule = A::arguments(&*self.named.rule(&reservation.quota)?);
        let op = Op::Refund { cost: reservation.cost.cast_signed(), mark: reservation.mark };
        let rule = Some(rule).filter(|rule| *rule != self.batcher.config().rule);
        Ok(Request { key: reservation.key.as_str().to_owned(), rule, op })
    }

    /// The decision that an answer becomes.
    fn decision(&self, quota: Quotas, answered: Answered) -> Result<Decision, Error> {
        let Answered { request, entry, now, place } = answered;
        let Entry::Decided(answer) = entry else { return Err(malformed_reply()) };
        let cost = if let Op::Check { cost, .. } = request.op { cost } else { 0 };
        let from = Provenance { now, place, origin: Origin::Store };
        Ok(self.named.decision(quota, cost, answer, from, Key::Owned(request.key)))
    }
}

pin_project! {
    /// The future of a decision in Redis.
    ///
    /// A charge that is on its way when this is dropped may be taken all the same; what is taken for nobody is given
    /// back where that is safe.
    #[must_use = "nothing is decided until it is awaited"]
    pub struct RedisFuture<A: InLua> {
        shared: Arc<Inner<A>>,
        #[pin]
        state: State,
    }
}

pin_project! {
    #[project = StateProj]
    enum State {
        Asking { #[pin] pending: Pending, quota: Option<Quotas> },
        Refused { error: Option<Error> },
    }
}

impl<A: InLua> RedisFuture<A> {
    fn new(
        shared: &Arc<Inner<A>>,
        charge: &Charge,
        request: Result<(Request, Quotas), Error>,
    ) -> Self {
        match request {
            Ok((request, quota)) => {
                let deadline = timeout::deadline(charge, shared.deadline);
                let (pending, quota) = (shared.send(request, deadline), Some(quota));
                Self { shared: Arc::clone(shared), state: State::Asking { pending, quota } }
            }
            Err(error) => Self::refused(shared, error),
        }
    }

    pub(super) fn refused(shared: &Arc<Inner<A>>, error: Error) -> Self {
        Self { shared: Arc::clone(shared), state: State::Refused { error: Some(error) } }
    }
}

impl<A: InLua> Future for RedisFuture<A> {
    type Output = Result<Decision, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(match this.state.project() {
            StateProj::Asking { pending, quota } => {
                let answered = ready!(pending.poll(cx))?;
                this.shared.decision(quota.take().expect("polled after it was done"), answered)
            }
            StateProj::Refused { error } => Err(error.take().expect("polled after it was done")),
        })
    }
}

impl<A: InLua> fmt::Debug for RedisFuture<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFuture").finish_non_exhaustive()
    }
}
