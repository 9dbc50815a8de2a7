//! What a policy does while its store cannot decide.

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind};

/// What becomes of a request while the store cannot decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum OnError {
    /// It is refused as undecided: over HTTP with 503. The default.
    #[default]
    Deny,
    /// It is admitted where no request can cause the error, as by [`FailOpen`](crate::FailOpen).
    Allow,
    /// This process admits so many units per period for each key.
    Local(u64),
}

impl OnError {
    /// Whether something else decides in place of a store with this error.
    pub(super) fn stands_in(self, error: &Error) -> bool {
        match self {
            Self::Deny => false,
            Self::Allow => error.kind() == ErrorKind::Infrastructure,
            Self::Local(_) => {
                matches!(error.kind(), ErrorKind::Infrastructure | ErrorKind::Saturation)
            }
        }
    }
}
