//! A decision: the request that a charge becomes, and the future that reads the answer.

use std::cmp::Ordering;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::client::times::{LATE_REPLY_TIMEOUT, MAX_TIMEOUT};
use super::script::{Op, ReplyEntry, Request, malformed_reply};
use super::send::{Batcher, CompletedRequest, Pending, QueuedRequest};
use crate::algorithm::{Check, InLua};
use crate::charge::Key;
use crate::decision::Origin;
use crate::limiter::charge_numbers::{one_key, units};
use crate::limiter::configured::{ConfiguredAlgorithm, Provenance, ReservationPayload};
use crate::limiter::line::{Reclaim, ResetsSeen};
use crate::limiter::timeout;
use crate::mark::Mark;
use crate::quota::Quotas;
use crate::settlement::Settlement;
use crate::{Charge, Decision, Error};

/// The state that clones of a limiter share.
#[derive(Clone)]
pub(super) struct Inner<A: InLua> {
    pub(super) named: ConfiguredAlgorithm<A>,
    /// The longest time for a decision.
    pub(super) decision_timeout: Duration,
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

    /// Asks like `ask`, but about keys whose names end with `key`.
    pub(super) fn ask_keys(
        self: &Arc<Self>,
        key: String,
        charge: &Charge,
        op: impl Fn(Check) -> Op,
    ) -> RedisFuture<A> {
        RedisFuture::new(self, charge, self.request_for_keys(key, charge, op))
    }

    /// The request that a charge becomes, and the quota that its answer is read with.
    pub(super) fn request(
        &self,
        charge: &Charge,
        op: impl Fn(Check) -> Op,
    ) -> Result<(Request, Quotas), Error> {
        // A key that is too long is refused before it is digested.
        let key = one_key(charge)?;
        let suffix = self.batcher.config().buckets[0].suffix(key);
        self.request_for_keys(suffix, charge, op)
    }

    fn request_for_keys(
        &self,
        key: String,
        charge: &Charge,
        op: impl Fn(Check) -> Op,
    ) -> Result<(Request, Quotas), Error> {
        let parsed = self.named.read(charge)?;
        let request = Request {
            key,
            quota: charge.own_quota().cloned(),
            rule: charge.own_quota().map(|_| A::arguments(&parsed.rule)),
            op: op(parsed.check),
        };
        Ok((request, parsed.quota.unwrap_or_else(|| self.named.quota().clone())))
    }

    /// The longest time that a caller waits for an answer.
    pub(super) fn reply_timeout(&self) -> Duration {
        self.batcher.config().pool.reply_timeout(self.decision_timeout)
    }

    /// Returns the future of a request's answer. `deadline` is the charge's own.
    pub(super) fn send(&self, request: Request, deadline: Instant) -> Pending {
        let pool = &self.batcher.config().pool;
        let queued = QueuedRequest::without_receiver(pool, request, deadline);
        Pending::new(Arc::clone(&self.batcher), queued, self.reply_timeout())
    }

    /// Sends the request that settles a reservation.
    ///
    /// # Errors
    ///
    /// If the rule of its quota cannot be made, or the request cannot be sent.
    pub(super) fn settle(
        &self,
        payload: &ReservationPayload,
        cost: u64,
        actual: u64,
    ) -> Result<Settlement, Error> {
        let ReservationPayload { key, quota, mark } = payload;
        let rule = self.named.rule(quota)?;
        let (cost, actual) = (units(cost), units(actual));
        let op = match actual.cmp(&cost) {
            Ordering::Equal if !A::holds(&rule) => return Ok(Settlement::gave_back(0)),
            Ordering::Greater if !A::holds(&rule) => Op::Penalize { cost: actual - cost },
            _ => Op::Refund { units: cost - actual, cost, mark: mark.clone() },
        };
        let rule = Some(A::arguments(&rule)).filter(|rule| *rule != self.batcher.config().rule);
        let quota = rule.as_ref().map(|_| quota.clone());
        let request = Request { key: key.as_str().to_owned(), quota, rule, op };
        let (settler, settlement) = Settlement::begin();
        let patience = self.decision_timeout.max(LATE_REPLY_TIMEOUT);
        self.batcher.settle(request, Instant::now() + patience, settler)?;
        Ok(settlement)
    }

    /// Takes a spare slot of this process if the request may have one, and returns its decision.
    fn take_spare(self: &Arc<Self>, request: &Request, quota: &Quotas) -> Option<Decision> {
        let Op::Check { cost, max_wait } = request.op else { return None };
        let (line, key) = (|| request.key.clone(), || Key::Owned(request.key.clone()));
        let check = Check { cost, max_wait };
        let store = || Arc::clone(self) as Arc<dyn Reclaim>;
        self.named.take_spare((line, key), Some(quota), check, store)
    }

    /// Converts an answer to a decision.
    fn decision(
        self: &Arc<Self>,
        (quota, known): (Quotas, ResetsSeen),
        completed: CompletedRequest,
    ) -> Result<Decision, Error> {
        let CompletedRequest { queued, entry, now, batch_position } = completed;
        let ReplyEntry::Decided(answer) = entry else { return Err(malformed_reply()) };
        let Request { key, op, .. } = queued.request;
        let cost = if let Op::Check { cost, .. } = op { cost } else { 0 };
        let from = Provenance { now, batch_position, origin: Origin::Store };
        if matches!(op, Op::Reset | Op::Block { .. }) {
            self.named.forget(&key, op == Op::Reset);
        }
        let decision = self.named.decision(Some(quota), cost, answer, from, Key::Owned(key));
        let store = || Arc::clone(self) as Arc<dyn Reclaim>;
        Ok(self.named.line_up(decision, known, |key| key.as_str().to_owned(), store))
    }
}

impl<A: InLua> Reclaim for Inner<A> {
    fn reclaim(&self, key: &str, quota: &Quotas, cost: u64, mark: Mark) -> Settlement {
        let key = Key::Owned(key.to_owned());
        let payload = ReservationPayload { key, quota: quota.clone(), mark };
        self.settle(&payload, cost, 0).unwrap_or_else(|error| Settlement::from(Err(error)))
    }
}

pin_project! {
    /// The future of a decision in Redis.
    ///
    /// If it is dropped while its charge is on the way, the charge may still be taken. It is then
    /// refunded where that is safe.
    #[must_use = "nothing is decided until it is awaited"]
    pub struct RedisFuture<A: InLua> {
        inner: Arc<Inner<A>>,
        #[pin]
        state: State,
    }
}

pin_project! {
    #[project = StateProj]
    enum State {
        Asking { #[pin] pending: Pending, quota: Option<Quotas>, known: ResetsSeen },
        Failed { error: Option<Error> },
    }
}

impl<A: InLua> RedisFuture<A> {
    fn new(
        inner: &Arc<Inner<A>>,
        charge: &Charge,
        request: Result<(Request, Quotas), Error>,
    ) -> Self {
        match request {
            Ok((request, quota)) => {
                let deadline = timeout::deadline(charge, MAX_TIMEOUT);
                let known = inner.named.known();
                let (pending, quota) = (inner.send(request, deadline), Some(quota));
                Self { inner: Arc::clone(inner), state: State::Asking { pending, quota, known } }
            }
            Err(error) => Self::failed(inner, error),
        }
    }

    fn failed(inner: &Arc<Inner<A>>, error: Error) -> Self {
        Self { inner: Arc::clone(inner), state: State::Failed { error: Some(error) } }
    }
}

impl<A: InLua> Future for RedisFuture<A> {
    type Output = Result<Decision, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(match this.state.project() {
            StateProj::Asking { pending, quota, known } => {
                if let Some(request) = pending.unsent()
                    && let Some(quotas) = quota.as_ref()
                    && let Some(decision) = this.inner.take_spare(request, quotas)
                {
                    return Poll::Ready(Ok(decision));
                }
                let completed = ready!(pending.poll(cx))?;
                let quota = quota.take().expect("polled after it was done");
                this.inner.decision((quota, *known), completed)
            }
            StateProj::Failed { error } => Err(error.take().expect("polled after it was done")),
        })
    }
}

debug_by_name!([A: InLua] RedisFuture<A>);
