//! The error of a command, of a script or of an attempt to connect.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The kind of an error: who is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The server is away: refused, reset, silent, loading, read-only. The content of a command
    /// cannot cause it. Load can, if it makes the server silent.
    Infrastructure,
    /// No answer came in time, and no connection is known to be bad: this process sends more than
    /// its connections carry, or the first connection is not ready yet. Load can cause it.
    Saturation,
    /// The server is full.
    Capacity,
    /// The application or the server is set up wrongly: password, permission, cluster. Also each
    /// refusal of a server whose words are not known here; the error shows them.
    Configuration,
    /// A stored value or a reply is not what the command expects: a wrong type, or corrupt data.
    State,
}

/// The error of a command, of a script or of an attempt to connect.
///
/// `{error}` shows what failed. `{error:#}` adds its causes, each once. Write the long form into
/// logs, since the last cause is often the one to fix. No error shows a password, or an argument of
/// a command.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: Cow<'static, str>,
    source: Option<Cause>,
}

/// The cause of an error, which its clones share.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

impl Error {
    /// Makes an error. The message is lower-case, without a full stop.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into().into()), ..self }
    }

    /// The same error, with the same cause and another message.
    pub(super) fn with_message(self, message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), ..self }
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns kind, message and cause, for an application that has an error type of its own.
    #[must_use]
    pub fn into_parts(self) -> (ErrorKind, Cow<'static, str>, Option<Cause>) {
        (self.kind, self.message, self.source)
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
mod tests {
    use super::*;

    #[test]
    fn the_long_form_shows_each_cause_once() {
        let new = |message: &'static str| Error::new(ErrorKind::Infrastructure, message);
        let broken = new("no reply")
            .with_source(new("broken pipe").with_source(new("broken pipe").with_source(new(""))));
        assert_eq!(broken.to_string(), "no reply");
        assert_eq!(format!("{broken:#}"), "no reply: broken pipe");
    }
}
