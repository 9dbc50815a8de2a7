//! The error of a limiter that could not decide.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use tower::BoxError;

/// The kind of problem that kept a limiter from deciding.
///
/// | kind | `.or_else(FailOpen)` | `.or_else(another limiter)` |
/// |---|---|---|
/// | [`Infrastructure`](ErrorKind::Infrastructure) | admits | asks it |
/// | [`Saturation`](ErrorKind::Saturation) | stays an error | asks it |
/// | [`Capacity`](ErrorKind::Capacity) | stays an error | asks it |
/// | [`Configuration`](ErrorKind::Configuration) | stays an error | asks it |
/// | [`Request`](ErrorKind::Request) | stays an error | stays an error |
/// | [`State`](ErrorKind::State) | stays an error | stays an error |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store is away: refused, reset, silent, loading, read-only. The content of a request
    /// cannot cause it. Load can, if it makes the store silent.
    Infrastructure,
    /// No answer came in time, and no connection is known to be bad: this process sends more than
    /// its connections carry, or the first connection is not ready yet. Load can cause it.
    Saturation,
    /// The store, or the memory of this process, is full.
    Capacity,
    /// The application or the server is set up wrongly: password, permission, quota, cluster. Also
    /// each refusal of a server whose words the crate does not know; the error shows them.
    Configuration,
    /// The charge itself is invalid: an empty or oversized key, a cost out of range.
    Request,
    /// A stored value or a reply was not written by this crate: a wrong type, or corrupt data.
    State,
}

impl ErrorKind {
    /// Returns true if a request may pass without a decision: neither requests nor the load of this
    /// process cause such an error.
    pub(crate) fn may_fail_open(self) -> bool {
        self == Self::Infrastructure
    }

    /// Returns true if another limiter, which keeps a bound, may decide: the content of a request
    /// does not cause such an error.
    pub(crate) fn may_fall_back(self) -> bool {
        !matches!(self, Self::Request | Self::State)
    }
}

/// The error of a limiter that could not decide.
///
/// A refusal is a [`Decision`](crate::Decision), not an error. The [`kind`](Error::kind) determines
/// if a fallback may answer: no request can turn off a limit by its content.
///
/// `{error}` shows what failed. `{error:#}` adds its causes, each once, for logs.
///
/// ```
/// use tower_sluice::{Error, ErrorKind};
///
/// let refused = std::io::Error::other("connection refused");
/// let error = Error::new(ErrorKind::Infrastructure, "no connection").with_source(refused);
/// assert_eq!(error.to_string(), "no connection");
/// assert_eq!(format!("{error:#}"), "no connection: connection refused");
/// ```
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

    /// Makes an error of the parts of another one.
    pub(crate) fn of_parts(
        kind: ErrorKind,
        message: Cow<'static, str>,
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { kind, message, source }
    }

    /// The kind, which determines if a fallback may answer.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns true if the charge is not at fault: every kind except
    /// [`Request`](ErrorKind::Request). The fault is in the store, the connection to it, this
    /// process or its settings.
    ///
    /// Use it as a condition for [`or_else_if`](crate::LimiterExt::or_else_if) with a fallback that
    /// keeps a bound: `or_else_if(Error::is_of_store, share)`. Do not use it for
    /// [`FailOpen`](crate::FailOpen): requests and load cause some of these kinds.
    #[must_use]
    pub fn is_of_store(&self) -> bool {
        self.kind != ErrorKind::Request
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return f.write_str(&self.message);
        }
        let mut text = self.message.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            // Many errors of libraries repeat their cause.
            let added = error.to_string();
            if !text.contains(&added) {
                text.push_str(": ");
                text.push_str(&added);
            }
            cause = error.source();
        }
        f.write_str(&text)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests;
