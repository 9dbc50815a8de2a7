//! The future of a decision: a refusal that is repeated, or the inner limiter's answer.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::cache::{Cache, Miss};
use crate::{Decision, Error};

pin_project! {
    /// The future of [`DenyCache`](crate::limiter::DenyCache).
    pub struct DenyCacheFuture<C> {
        #[pin]
        state: State<C>,
    }

    impl<C> PinnedDrop for DenyCacheFuture<C> {
        fn drop(this: Pin<&mut Self>) {
            this.cancel();
        }
    }
}

pin_project! {
    #[project = StateProj]
    enum State<C> {
        Repeating { refusal: Option<Decision> },
        Asking {
            #[pin]
            answer: C,
            // What the cache does once the answer is there.
            afterwards: Option<(Arc<Cache>, Afterwards)>,
            is_begun: bool,
        },
        Done,
    }
}

/// The step that the cache takes after an answer.
pub(super) enum Afterwards {
    /// Keeps it, if it is a refusal.
    Learn(Miss),
    /// Forgets the key, which was changed.
    Forget(NonZeroU64),
}

impl Afterwards {
    fn answered(self, cache: &Cache, decision: &mut Decision) {
        match self {
            Self::Learn(miss) => cache.learn(miss, decision),
            Self::Forget(key) => cache.forget(key),
        }
    }

    fn without_answer(self, cache: &Cache) {
        match self {
            Self::Learn(miss) => cache.unanswered(&miss),
            Self::Forget(key) => cache.forget_settling(key),
        }
    }
}

impl<C> DenyCacheFuture<C> {
    pub(super) fn repeating(refusal: Decision) -> Self {
        Self { state: State::Repeating { refusal: Some(refusal) } }
    }

    pub(super) fn asking(answer: C, afterwards: Option<(Arc<Cache>, Afterwards)>) -> Self {
        Self { state: State::Asking { answer, afterwards, is_begun: false } }
    }

    /// Nobody awaits the answer: a charge may be taken and refunded, a reset may be done.
    fn cancel(self: Pin<&mut Self>) {
        let mut state = self.project().state;
        let StateProj::Asking { afterwards, is_begun: true, .. } = state.as_mut().project() else {
            return;
        };
        let Some((cache, afterwards)) = afterwards.take() else { return };
        // The inner limiter refunds first.
        state.set(State::Done);
        afterwards.without_answer(&cache);
    }
}

impl<C> Future for DenyCacheFuture<C>
where
    C: Future<Output = Result<Decision, Error>>,
{
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Repeating { refusal } => {
                Poll::Ready(Ok(refusal.take().expect("polled after it was done")))
            }
            StateProj::Asking { answer, afterwards, is_begun } => {
                *is_begun = true;
                let mut answer = ready!(answer.poll(cx));
                if let Some((cache, afterwards)) = afterwards.take() {
                    match &mut answer {
                        Ok(decision) => afterwards.answered(&cache, decision),
                        Err(_) => afterwards.without_answer(&cache),
                    }
                }
                Poll::Ready(answer)
            }
            StateProj::Done => panic!("polled after it was dropped"),
        }
    }
}

debug_by_name!([C] DenyCacheFuture<C>);
