//! The future of a decision behind a breaker.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::call::Call;
use super::shared::Shared;
use crate::{Decision, Error};

pin_project! {
    /// The future of [`WithBreaker`](crate::WithBreaker).
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
