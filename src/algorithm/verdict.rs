//! What an algorithm is asked about a key, and what it answers, in numbers. Times are in µs.

/// One charge, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// The units asked for; 0 peeks.
    pub cost: i64,
    /// The longest wait that may be reserved, in µs; at most the horizon.
    pub max_wait: i64,
}

/// What a step decided. Waits are in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Fits now.
    Allow,
    /// Taken at a later instant.
    Wait(i64),
    /// Not taken; it would fit then.
    Deny(i64),
    /// Can never fit.
    Never,
}

/// What may be told about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The units that would be admitted right now.
    pub remaining: i64,
    /// The time until the key is as good as new, in µs.
    pub reset_after: i64,
}

/// A verdict, what may be told, and whether the state is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What was decided.
    pub verdict: Verdict,
    /// What may be told.
    pub report: Report,
    /// Whether the state is another than before; if not, the store is left alone.
    pub changed: bool,
    /// The index of the quota that refuses or delays, else of the one that has least left.
    pub quota_index: usize,
}
