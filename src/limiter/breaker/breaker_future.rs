//! The decision of a limiter with a breaker, and its call, which always reports its end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::circuit::{Outcome, Permit};
use super::shared_circuit::Shared;
use crate::decision::Origin;
use crate::limiter::on_time::GracePeriod;
use crate::limiter::runtime::sleep_until;
use crate::{Decision, Error, ErrorKind};

pin_project! {
    /// The future of [`WithBreaker`](crate::limiter::WithBreaker).
    pub struct WithBreakerFuture<C> {
        // `None`: the breaker was open, so the limiter is not asked.
        #[pin]
        answer: Option<C>,
        shared: Arc<Shared>,
        // Begun by the first poll. Before that, nothing is taken, not even the place of the probe.
        call: Option<Call>,
    }
}

impl<C> WithBreakerFuture<C> {
    pub(super) fn new(answer: Option<C>, shared: Arc<Shared>) -> Self {
        Self { answer, shared, call: None }
    }
}

impl<C> Future for WithBreakerFuture<C>
where
    C: Future<Output = Result<Decision, Error>>,
{
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(answer) = this.answer.as_pin_mut() else {
            return Poll::Ready(Err(this.shared.refuse()));
        };
        let call = match this.call {
            Some(call) => call,
            None => this.call.insert(Call::new(Arc::clone(this.shared), this.shared.admit()?)),
        };
        let answer = match answer.poll(cx) {
            Poll::Ready(answer) => answer,
            Poll::Pending => match call.watch(cx) {
                Ok(()) => return Poll::Pending,
                Err(error) => Err(error),
            },
        };
        if let Some(call) = this.call.take() {
            call.end(&answer);
        }
        Poll::Ready(answer)
    }
}

debug_by_name!([C] WithBreakerFuture<C>);

type Slowness = Pin<Box<dyn Future<Output = Result<bool, Error>> + Send>>;

/// A call to the limiter. If it is dropped without an answer, it does not count, unless it was
/// already slow.
struct Call {
    shared: Arc<Shared>,
    permit: Permit,
    /// Watches if the call is slow. On the heap, since only breakers with `slow_after` need it.
    slowness: Option<Slowness>,
    is_slow: bool,
    is_over: bool,
}

impl Call {
    fn new(shared: Arc<Shared>, permit: Permit) -> Self {
        let slow_after = shared.settings.slow_after;
        let slowness = slow_after.map(|time| -> Slowness { Box::pin(is_slow_after(time)) });
        Self { shared, permit, slowness, is_slow: false, is_over: false }
    }

    /// Watches a call without an answer.
    ///
    /// # Errors
    ///
    /// If there is no runtime to watch it.
    fn watch(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        if let Some(slowness) = &mut self.slowness
            && let Poll::Ready(is_slow) = slowness.as_mut().poll(cx)
        {
            self.slowness = None;
            self.is_slow = is_slow?;
        }
        Ok(())
    }

    fn end(mut self, answer: &Result<Decision, Error>) {
        let outcome = match what_it_says(answer) {
            Outcome::Failed => Outcome::Failed,
            _ if self.is_slow => Outcome::Slow,
            outcome => outcome,
        };
        self.is_over = true;
        self.shared.end(self.permit, outcome, answer.as_ref().err());
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_over {
            let outcome = if self.is_slow { Outcome::Slow } else { Outcome::Unknown };
            self.shared.end(self.permit, outcome, None);
        }
    }
}

/// Returns the outcome that an answer has for the breaker.
fn what_it_says(answer: &Result<Decision, Error>) -> Outcome {
    match answer {
        Ok(decision) => match decision.origin() {
            Origin::Store | Origin::Local => Outcome::Answered,
            // The store did not decide it.
            _ => Outcome::Unknown,
        },
        Err(error) => match error.kind() {
            ErrorKind::Infrastructure => Outcome::Failed,
            // The store answers. An open breaker would hide that the store is full, is set up
            // wrongly, or has a corrupt value, and a fallback could admit.
            ErrorKind::Capacity | ErrorKind::Configuration | ErrorKind::State => Outcome::Answered,
            // The load of this process, and invalid requests, say nothing about a store.
            ErrorKind::Saturation => Outcome::Saturated,
            ErrorKind::Request => Outcome::Unknown,
        },
    }
}

/// Returns true if a call that begins now has no answer after this time, and this process is not
/// late.
fn is_slow_after(slow_after: Duration) -> impl Future<Output = Result<bool, Error>> + Send {
    let begun = Instant::now();
    async move {
        // The deadline is beyond the range of an instant.
        let Some(deadline) = begun.checked_add(slow_after) else {
            return std::future::pending().await;
        };
        let grace_period = GracePeriod::new(deadline);
        sleep_until(deadline)?.await;
        // In a busy process, timers fire late, or before the answer is read.
        grace_period.catch_up().await;
        Ok(!grace_period.is_late())
    }
}
