//! The reason why a request does not pass.

use std::fmt;
use std::time::Duration;

use crate::core::{Decision, Error, ErrorKind};

/// The reason why a request does not pass. Responders receive it. [`Raise`](crate::respond::Raise)
/// and [`acquire`](crate::LimiterExt::acquire) return it as their error.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "made once for a refused request, which a box would not make cheaper"
)]
#[non_exhaustive]
pub enum Refusal {
    /// The limiter refused: 429.
    Denied(Decision),
    /// The limiter could not decide: 503, or 400 if its error is of kind
    /// [`Request`](ErrorKind::Request).
    Undecided(Error),
    /// The key extractor found no key: 400. The error says why.
    NoKey(Error),
}

impl Refusal {
    /// The time after which the charge would be admitted at once. `None` if the charge can never
    /// fit, or if nothing was decided.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Refusal::Denied(decision) => decision.retry_after(),
            _ => None,
        }
    }

    /// Returns the text that the caller may read: the fault of its request, without details of the
    /// store.
    pub(crate) fn for_caller(&self) -> &dyn fmt::Display {
        match self {
            Refusal::Undecided(error) | Refusal::NoKey(error)
                if error.kind() == ErrorKind::Request =>
            {
                error
            }
            Refusal::NoKey(_) => &"request has no key to limit by",
            refusal => refusal,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Denied(_) => f.write_str("rate limit exceeded"),
            Refusal::Undecided(error) if f.alternate() => {
                write!(f, "rate limit could not be decided: {error:#}")
            }
            Refusal::Undecided(_) => f.write_str("rate limit could not be decided"),
            Refusal::NoKey(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Refusal::Undecided(error) => Some(error),
            Refusal::NoKey(error) => error.source(),
            Refusal::Denied(_) => None,
        }
    }
}
