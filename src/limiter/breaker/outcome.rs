//! The outcome of a call.

/// The outcome of a call, by what its end says of the limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    /// It decides, or its store answers.
    Answered,
    /// It failed as a store that is away does.
    Failed,
    /// It took too long, in a process that is not busy.
    Slow,
    /// This process has more to send than it can, or is too busy to hear. That says nothing of the
    /// limiter.
    Saturated,
    /// Its end says nothing.
    Unknown,
}
