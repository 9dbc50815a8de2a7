//! Operations on a key other than checks, for support and admin endpoints.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use crate::{Decision, Error, ErrorKind};

/// An operation on a key other than a check: see [`LimiterExt::estimate`],
/// [`LimiterExt::penalize`], [`LimiterExt::reset`] and [`LimiterExt::block`].
///
/// [`LimiterExt::block`]: crate::LimiterExt::block
/// [`LimiterExt::estimate`]: crate::LimiterExt::estimate
/// [`LimiterExt::penalize`]: crate::LimiterExt::penalize
/// [`LimiterExt::reset`]: crate::LimiterExt::reset
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Answers like a check, and takes nothing.
    Estimate,
    /// Takes the charge's units, even if they do not fit.
    Penalize,
    /// Forgets the taken units. Settlements of charges from before then do nothing.
    Reset,
    /// Refuses charges of the key for this time.
    Block(Duration),
    /// Ends a block.
    Unblock,
}

pin_project! {
    /// The future of an [`Operation`].
    #[derive(Debug)]
    #[must_use = "nothing is done until it is awaited"]
    pub struct OperationFuture<F> {
        #[pin]
        answer: Option<F>,
    }
}

impl<F> OperationFuture<F> {
    pub(super) fn new(answer: Option<F>) -> Self {
        Self { answer }
    }
}

impl<F> Future for OperationFuture<F>
where
    F: Future<Output = Result<Decision, Error>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().answer.as_pin_mut() {
            Some(answer) => answer.poll(cx),
            None => {
                let error =
                    Error::new(ErrorKind::Configuration, "the limiter has no such operation");
                Poll::Ready(Err(error))
            }
        }
    }
}
