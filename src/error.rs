//! Why there is no decision.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use tower::BoxError;

/// What kind of trouble kept a limiter from deciding.
///
/// | kind | `.or_else(FailOpen)` | `.or_else(another limiter)` |
/// |---|---|---|
/// | [`Infrastructure`](ErrorKind::Infrastructure) | admits | asks it |
/// | [`Saturation`](ErrorKind::Saturation) | stays an error | asks it |
/// | every other | stays an error | stays an error |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store is away: refused, reset, silent, loading, read-only. No request can cause it.
    Infrastructure,
    /// This process sends more than its connections carry, a timer of its own ended the wait, or
    /// its first connection is not ready yet. Load can cause it.
    Saturation,
    /// The store, or the memory of this process, is full.
    Capacity,
    /// The application or the server is set up wrongly: password, permission, quota, cluster.
    Configuration,
    /// The charge itself is invalid: an empty or oversized key, a cost out of range.
    Request,
    /// A stored value or a reply is not one that this crate writes: a wrong type, or corrupt.
    State,
}

/// A limiter could not decide.
///
/// A refusal is a [`Decision`](crate::Decision) and no error. The [`kind`](Error::kind) says
/// whether a fallback may answer: only trouble that no request can cause may admit without a
/// decision. So an attacker cannot turn a limit off by breaking it.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: Cow<'static, str>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind`, for limiters of your own. The message is lower-case,
    /// without a full stop.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into().into());
        self
    }

    /// The kind, which says whether a fallback may answer.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
