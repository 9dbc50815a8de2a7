//! What support and admin endpoints do to a key, besides checks.
//!
//! ```
//! use tower_sluice::{Charge, Limiter, LimiterExt, Memory, Outcome, Quota, algorithm::TokenBucket};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
//! # runtime.block_on(async {
//! let limiter = Memory::new("login", TokenBucket::new(Quota::per_minute(5)));
//! let estimate = limiter.estimate(Charge::new("mallory").cost(5)).await?;
//! assert_eq!((estimate.outcome(), estimate.remaining()), (Outcome::Allow, Some(5)));
//! let owing = limiter.penalize("mallory").await?;
//! assert_eq!(owing.remaining(), Some(4));
//! assert_eq!(limiter.peek("mallory").await?.remaining(), Some(4));
//! assert_eq!(limiter.reset("mallory").await?.remaining(), Some(5));
//! # Ok::<(), tower_sluice::Error>(()) }).unwrap();
//! ```

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::{Decision, Error, ErrorKind};

/// What can be asked of a key besides admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Answers as a check would, and takes nothing.
    Estimate,
    /// Takes the charge's units, whether or not they fit.
    Penalize,
    /// Forgets what was taken.
    Reset,
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
