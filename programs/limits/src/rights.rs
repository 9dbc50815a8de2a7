//! The reasons for which a command ends. A right that the user lacks is one sentence.

use std::fmt;

use tower_sluice::{Error, ErrorKind};

#[derive(Debug)]
pub(crate) enum Stop {
    /// The command line is wrong.
    Asked(String),
    /// The file of policies is wrong.
    Config(String),
    /// The user of the address lacks this right.
    Lacks(String),
    /// Nothing is stored under this name, so there is nothing to change.
    Nothing(String),
    Failed(Error),
    /// Standard output was closed.
    Unread,
}

impl Stop {
    /// Reads the words of a server that refuses a command or a key.
    pub(crate) fn of(error: Error) -> Self {
        let text = format!("{error:#}");
        let Some((_, refusal)) = text.split_once("NOPERM") else { return Self::Failed(error) };
        let command = refusal.split_once("run the '").and_then(|(_, rest)| rest.split_once('\''));
        match command {
            Some((command, _)) => Self::Lacks(format!("+{command}")),
            None if refusal.contains("access") => Self::Lacks(String::from("~ to this key")),
            None => Self::Failed(error),
        }
    }

    /// Returns how the program ends. Who closes standard output has read enough.
    pub(crate) fn ends(self) -> Result<(), command::Stop> {
        Err(match self {
            Self::Unread => return Ok(()),
            Self::Asked(reason) => command::Stop::Asked(reason),
            Self::Config(reason) => command::Stop::Config(reason),
            failed => failed.to_string().into(),
        })
    }

    /// Returns true if it may end without a change of the command line or of the server's setup.
    pub(crate) fn may_end(&self) -> bool {
        let kinds = [ErrorKind::Infrastructure, ErrorKind::Saturation, ErrorKind::Capacity];
        matches!(self, Self::Failed(error) if kinds.contains(&error.kind()))
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(reason) | Self::Config(reason) => f.write_str(reason),
            Self::Lacks(right) => {
                write!(f, "this user lacks the right {right} (`ACL SETUSER` gives it)")
            }
            Self::Nothing(name) => write!(
                f,
                "nothing is stored under {name}, so nothing was changed: write the limiter, its \
                 algorithm and the key as the application does"
            ),
            Self::Failed(error) => write!(f, "{error:#}"),
            Self::Unread => f.write_str("nobody reads on"),
        }
    }
}
