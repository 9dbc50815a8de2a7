//! The state and the counts of a breaker, as callers see them.

/// The state of a [`Breaker`](crate::Breaker).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// Every call is made.
    Closed,
    /// Calls are refused.
    Open,
    /// A probe is under way, or the next call is one. All others are refused.
    HalfOpen,
}

/// The counts of what a [`Breaker`](crate::Breaker) has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerCounts {
    /// The number of times that it opened. A probe that fails does not open it again.
    pub opened: u64,
    /// Calls that it refused.
    pub refused: u64,
    /// Probes that it let through.
    pub probes: u64,
}
