//! Operations on a key other than checks, for support and admin endpoints.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use crate::core::decision::Done;
use crate::core::{Decision, Error, ErrorKind};

/// An operation on a key other than a check: see [`LimiterExt::estimate`],
/// [`LimiterExt::penalize`], [`LimiterExt::grant`], [`LimiterExt::reset`], [`LimiterExt::block`]
/// and [`LimiterExt::pause`].
///
/// [`LimiterExt::block`]: crate::LimiterExt::block
/// [`LimiterExt::estimate`]: crate::LimiterExt::estimate
/// [`LimiterExt::grant`]: crate::LimiterExt::grant
/// [`LimiterExt::pause`]: crate::LimiterExt::pause
/// [`LimiterExt::penalize`]: crate::LimiterExt::penalize
/// [`LimiterExt::reset`]: crate::LimiterExt::reset
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Answers like a check, and takes nothing.
    Estimate,
    /// Takes the charge's units, even if they do not fit.
    Penalize,
    /// Gives back as many taken units as the charge has, whoever took them.
    Grant,
    /// Forgets the taken units. Settlements of charges from before then do nothing.
    Reset,
    /// Refuses charges of the key for this time.
    Block(Duration),
    /// Lets charges of the key fit only when this time is over.
    Pause(Duration),
    /// Ends a block and a pause.
    Unblock,
}

/// The source of the error of a grant under an algorithm whose units are all held by somebody.
#[derive(Debug)]
pub(crate) struct AllHeld;

impl AllHeld {
    pub(crate) fn is_source_of(error: &Error) -> bool {
        std::error::Error::source(error).is_some_and(|source| source.is::<Self>())
    }
}

impl fmt::Display for AllHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the algorithm counts what is held at the same time")
    }
}

impl std::error::Error for AllHeld {}

pin_project! {
    /// The future of an [`Operation`]: of a [`Done`], or of the [`Decision`] of an estimate.
    #[derive(Debug)]
    #[must_use = "nothing is done until it is awaited"]
    pub struct OperationFuture<F, D = Done> {
        #[pin]
        answer: Option<F>,
        of: fn(Decision) -> D,
    }
}

impl<F, D> OperationFuture<F, D> {
    pub(super) fn new(answer: Option<F>, of: fn(Decision) -> D) -> Self {
        Self { answer, of }
    }
}

impl<F, D> Future for OperationFuture<F, D>
where
    F: Future<Output = Result<Decision, Error>>,
{
    type Output = Result<D, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.answer.as_pin_mut() {
            Some(answer) => answer.poll(cx).map_ok(*this.of),
            None => {
                let error =
                    Error::new(ErrorKind::Configuration, "the limiter has no such operation");
                Poll::Ready(Err(error))
            }
        }
    }
}
