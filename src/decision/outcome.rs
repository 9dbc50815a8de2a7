//! What was decided, and where.

use std::time::Duration;

/// What a limiter decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Go now.
    Allow,
    /// A slot is reserved: sleep this long, then go, and do not ask again. In the answer to an
    /// [`estimate`](crate::LimiterExt::estimate) it is what a check would reserve.
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
    /// The time after which a refused charge would be admitted at once.
    pub(super) fn retry_after(self) -> Option<Duration> {
        match self {
            Outcome::Deny { retry_after } => retry_after,
            Outcome::Retry(pause) => Some(pause),
            _ => None,
        }
    }
}

/// Where a decision was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The shared store.
    Store,
    /// This process.
    Local,
    /// Earlier, by the limiter inside of a [`DenyCache`](crate::DenyCache), which repeats the
    /// refusal.
    Cache,
    /// Nowhere: [`FailOpen`](crate::FailOpen) admitted because the store was away.
    FailOpen,
    /// Nowhere: a [`Shadow`](crate::Shadow) admitted because its limiter could not decide.
    Shadow,
    /// Nowhere: a [`Switch`](crate::Switch) is off.
    Off,
    /// Nowhere: the request is not limited, since its key is [`Exempt`](crate::Exempt) or no policy
    /// takes it.
    Exempt,
}
