//! The outcome of a decision, and its source.

use std::time::Duration;

/// The outcome of a charge: it goes now, waits, asks again, or is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Go now.
    Allow,
    /// A slot is reserved: sleep this long, then go, and do not ask again. In the answer to an
    /// [`estimate`](crate::LimiterExt::estimate), it is the wait that a check would reserve.
    Wait(Duration),
    /// Nothing is taken, and nothing can be reserved: ask again after this long.
    Retry(Duration),
    /// Nothing is taken.
    Deny {
        /// The time after which the charge would be admitted at once; `None` if it can never fit.
        retry_after: Option<Duration>,
    },
}

impl Outcome {
    /// Returns true if a charge goes through, at once or after a reserved wait.
    #[must_use]
    #[inline]
    pub fn is_admitted(self) -> bool {
        matches!(self, Self::Allow | Self::Wait(_))
    }

    /// The time after which a refused charge would be admitted at once.
    pub(super) fn retry_after(self) -> Option<Duration> {
        match self {
            Outcome::Deny { retry_after } => retry_after,
            Outcome::Retry(pause) => Some(pause),
            _ => None,
        }
    }
}

/// The source of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The shared store.
    Store,
    /// This process.
    Local,
    /// An earlier decision: a [`DenyCache`](crate::limiter::DenyCache) repeats the refusal of its
    /// inner limiter.
    Cache,
    /// No decision: [`FailOpen`](crate::FailOpen) admitted because the store was away.
    FailOpen,
    /// No decision: a [`Shadow`](crate::limiter::Shadow) admitted because its limiter could not
    /// decide.
    Shadow,
    /// No decision: a [`Switch`](crate::limiter::Switch) is off.
    Off,
    /// No decision: the request is not limited, since its key is [`Exempt`](crate::Exempt) or no
    /// policy takes it.
    Exempt,
}
