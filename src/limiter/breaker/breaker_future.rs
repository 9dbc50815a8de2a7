//! The decision of a limiter with a breaker, and its call, which reports its end, however it ends.

use std::fmt;
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
        #[pin]
        state: State<C>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<C> {
        Refusing { shared: Option<Arc<Shared>> },
        Asking { #[pin] answer: C, progress: Progress },
    }
}

/// The progress of a call. It takes nothing before it is polled, not even the place of the probe.
enum Progress {
    Starting(Arc<Shared>),
    Calling(Call),
    Done,
}

impl<C> WithBreakerFuture<C> {
    pub(super) fn refusing(shared: Arc<Shared>) -> Self {
        Self { state: State::Refusing { shared: Some(shared) } }
    }

    pub(super) fn asking(answer: C, shared: Arc<Shared>) -> Self {
        Self { state: State::Asking { answer, progress: Progress::Starting(shared) } }
    }
}

impl<C> Future for WithBreakerFuture<C>
where
    C: Future<Output = Result<Decision, Error>>,
{
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Refusing { shared } => {
                let shared = shared.take().expect("polled after it was done");
                Poll::Ready(Err(shared.refuse()))
            }
            StateProj::Asking { answer, progress } => {
                if let Progress::Starting(shared) = progress {
                    *progress = match shared.admit() {
                        Ok(permit) => Progress::Calling(Call::new(Arc::clone(shared), permit)),
                        Err(error) => {
                            *progress = Progress::Done;
                            return Poll::Ready(Err(error));
                        }
                    };
                }
                let Progress::Calling(call) = progress else { panic!("polled after it was done") };
                let answer = match answer.poll(cx) {
                    Poll::Ready(answer) => answer,
                    Poll::Pending => match call.watch(cx) {
                        Ok(()) => return Poll::Pending,
                        Err(error) => Err(error),
                    },
                };
                if let Progress::Calling(call) = std::mem::replace(progress, Progress::Done) {
                    call.end(&answer);
                }
                Poll::Ready(answer)
            }
        }
    }
}

debug_by_name!([C] WithBreakerFuture<C>);

/// Dropped without an answer, it says nothing of the limiter, unless it was slow already.
#[derive(Debug)]
pub(super) struct Call {
    shared: Arc<Shared>,
    permit: Permit,
    slowness: Option<SlownessWatch>,
    is_over: bool,
}

impl Call {
    pub(super) fn new(shared: Arc<Shared>, permit: Permit) -> Self {
        let slowness = shared.settings.slow_after.map(SlownessWatch::new);
        Self { shared, permit, slowness, is_over: false }
    }

    /// The call has no answer yet.
    ///
    /// # Errors
    ///
    /// If it cannot be watched outside of a runtime.
    pub(super) fn watch(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        self.slowness.as_mut().map_or(Ok(()), |slowness| slowness.poll(cx))
    }

    pub(super) fn end(mut self, answer: &Result<Decision, Error>) {
        let outcome = match what_it_says(answer) {
            Outcome::Failed => Outcome::Failed,
            _ if self.is_slow() => Outcome::Slow,
            outcome => outcome,
        };
        self.is_over = true;
        self.shared.end(self.permit, outcome, answer.as_ref().err());
    }

    fn is_slow(&self) -> bool {
        self.slowness.as_ref().is_some_and(SlownessWatch::is_slow)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_over {
            let outcome = if self.is_slow() { Outcome::Slow } else { Outcome::Unknown };
            self.shared.end(self.permit, outcome, None);
        }
    }
}

/// Returns the outcome of a call by its answer: what that says of the limiter that gave it.
fn what_it_says(answer: &Result<Decision, Error>) -> Outcome {
    match answer {
        Ok(decision) => match decision.origin() {
            Origin::Store | Origin::Local => Outcome::Answered,
            // The store did not decide it.
            _ => Outcome::Unknown,
        },
        Err(error) => match error.kind() {
            ErrorKind::Infrastructure => Outcome::Failed,
            // The store answers. An open breaker would hide that it is full, or set up wrongly, or
            // holds a corrupt value; and a fallback could admit.
            ErrorKind::Capacity | ErrorKind::Configuration | ErrorKind::State => Outcome::Answered,
            // Load of this process and requests say nothing of a store.
            ErrorKind::Saturation => Outcome::Saturated,
            ErrorKind::Request => Outcome::Unknown,
        },
    }
}

/// Watches a call that is under way.
pub(super) struct SlownessWatch {
    // On the heap, since only calls of a breaker that asks for it have one.
    verdict: Pin<Box<dyn Future<Output = Result<bool, Error>> + Send>>,
    is_over: bool,
    is_slow: bool,
}

impl SlownessWatch {
    /// Of a call that begins now, and is slow after this time.
    pub(super) fn new(slow_after: Duration) -> Self {
        let begun = Instant::now();
        let verdict = async move {
            // An instant has an end.
            let Some(deadline) = begun.checked_add(slow_after) else {
                return std::future::pending().await;
            };
            let grace_period = GracePeriod::new(deadline);
            sleep_until(deadline)?.await;
            // A busy process fires timers late, or before it reads the answer.
            grace_period.catch_up().await;
            Ok(!grace_period.is_late())
        };
        Self { verdict: Box::pin(verdict), is_over: false, is_slow: false }
    }

    /// Called when the call has been polled and is still under way.
    ///
    /// # Errors
    ///
    /// Outside of a runtime.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        if !self.is_over
            && let Poll::Ready(is_slow) = self.verdict.as_mut().poll(cx)
        {
            self.is_over = true;
            self.is_slow = is_slow?;
        }
        Ok(())
    }

    pub(super) fn is_slow(&self) -> bool {
        self.is_slow
    }
}

impl fmt::Debug for SlownessWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlownessWatch").field("is_slow", &self.is_slow).finish_non_exhaustive()
    }
}
