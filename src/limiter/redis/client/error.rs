//! The errors of Redis: their kinds, and texts without the arguments of the call.
//!
//! Servers have several texts for the same error. Redis 6.2 writes the location in the script
//! before an error, sometimes with another sentence before it. Redis 7 and Valkey write the
//! location at the end. So a reply is first reduced to its code and text. The code alone determines
//! the kind; only the bare `ERR` needs the text.

use std::borrow::Cow;
use std::error::Error as _;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;

use redis::{RedisError, RedisResult};

use crate::{Error, ErrorKind};

/// The longest text of a reply in an error, in bytes.
const MAX_TEXT_LENGTH: usize = 256;

/// The first words of texts with the bare `ERR` that determine a kind.
const KINDS_BY_TEXT: [(&str, ErrorKind); 8] = [
    ("max number of clients", ErrorKind::Infrastructure),
    ("Script killed by user", ErrorKind::Infrastructure),
    // Redis 6.2 and 7.0, then 8 and Valkey.
    ("The user executing the script", ErrorKind::Configuration),
    ("ACL failure in script", ErrorKind::Configuration),
    // A command that the server does not have, or that was renamed, also in a script.
    ("unknown command", ErrorKind::Configuration),
    ("Unknown command called from", ErrorKind::Configuration),
    ("Unknown Redis command called from", ErrorKind::Configuration),
    ("This instance has cluster support disabled", ErrorKind::Configuration),
];

/// The first words of other texts with `ERR` that contain no arguments.
const TEXTS_WITHOUT_ARGUMENTS: [&str; 7] = [
    "AUTH <password> called without any password",
    "DB index is out of range",
    "Error compiling script",
    "Protocol error",
    "Script attempted to access a non local key",
    "Write commands are not allowed from read-only scripts",
    "user_script:",
];

/// The words before the arguments in some texts. An error shows such a text up to these words.
const ARGUMENT_MARKERS: [&str; 2] = [", with args", " access the '"];

/// An error reply without its location in a script.
struct ErrorReply<'a> {
    code: &'a str,
    text: &'a str,
}

impl<'a> ErrorReply<'a> {
    fn read(reply: &'a str) -> Self {
        let mut rest = reply.trim();
        while let Some(inner) = without_script_location(rest) {
            rest = inner;
        }
        rest = rest.strip_prefix('-').unwrap_or(rest);
        let (code, text) = rest.split_once(' ').unwrap_or((rest, ""));
        match is_code(code) {
            true => Self { code, text: text.trim_start() },
            // An error of the Lua interpreter has no code on Redis 6.2.
            false => Self { code: "ERR", text: rest },
        }
    }

    /// Returns the kind, if the reply is known.
    fn known_kind(&self) -> Option<ErrorKind> {
        match self.code {
            "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "NOREPLICAS" | "MISCONF"
            | "READONLY" | "TRYAGAIN" => Some(ErrorKind::Infrastructure),
            "OOM" => Some(ErrorKind::Capacity),
            "NOAUTH" | "WRONGPASS" | "NOPERM" | "CROSSSLOT" | "MOVED" | "ASK" | "NOSCRIPT" => {
                Some(ErrorKind::Configuration)
            }
            "WRONGTYPE" | "CORRUPT" => Some(ErrorKind::State),
            "ERR" => KINDS_BY_TEXT
                .iter()
                .find(|(begin, _)| self.text.starts_with(begin))
                .map(|(_, kind)| *kind),
            _ => None,
        }
    }

    /// Returns the text up to the arguments. `None` if an argument may be anywhere in it.
    fn text_without_arguments(&self) -> Option<String> {
        let is_listed = self.code == "ERR"
            && TEXTS_WITHOUT_ARGUMENTS.iter().any(|begin| self.text.starts_with(begin));
        if self.known_kind().is_none() && !is_listed {
            return None;
        }
        let ends = ARGUMENT_MARKERS.iter().filter_map(|mark| self.text.find(mark));
        let end = ends.min().unwrap_or(self.text.len());
        let end = (0..=end.min(MAX_TEXT_LENGTH)).rev().find(|&end| self.text.is_char_boundary(end));
        Some(self.text[..end.unwrap_or(0)].replace(char::is_control, " "))
    }
}

impl From<ErrorReply<'_>> for Error {
    fn from(reply: ErrorReply<'_>) -> Self {
        let kind = reply.known_kind().unwrap_or(ErrorKind::State);
        let code = reply.code;
        match reply.text_without_arguments() {
            Some(text) => Self::new(kind, format!("redis answered: {code} {text}")),
            None => Self::new(kind, format!("redis answered: {code} (its text may repeat a key)")),
        }
    }
}

/// Returns the text after the location in a script, if a reply begins with one. Redis 6.2 writes
/// `ERR Error running script (call to f_<digest>): ` or `@user_script:<line>: `.
fn without_script_location(reply: &str) -> Option<&str> {
    let raised = reply.strip_prefix("ERR ").unwrap_or(reply);
    if let Some(call) = raised.strip_prefix("Error running script (call to f_") {
        return call.split_once("): ").map(|(_, inner)| inner);
    }
    let (line, inner) = reply.strip_prefix("@user_script:")?.split_once(": ")?;
    line.trim_start().bytes().all(|byte| byte.is_ascii_digit()).then_some(inner)
}

fn is_code(word: &str) -> bool {
    (2..=16).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Makes the error for an error reply.
pub(crate) fn from_error_reply(text: &str) -> Error {
    ErrorReply::read(text).into()
}

/// Returns the priority of an error: among the errors of several servers, callers see the one with
/// the highest. Configuration comes before load, and load before a server that is away.
pub(super) fn weight(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::Configuration => 2,
        ErrorKind::Saturation => 1,
        _ => 0,
    }
}

/// Returns true if the server replied, even with an error. A broken connection is not a reply.
pub(crate) fn is_reply<T>(outcome: &RedisResult<T>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(error) => {
            matches!(error.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension)
        }
    }
}

/// Returns true if an error reply says that the server is read-only.
pub(crate) fn is_read_only(text: &str) -> bool {
    ErrorReply::read(text).code == "READONLY"
}

/// Returns the error reply of the server, if the call failed with one.
fn error_reply(error: &RedisError) -> Option<String> {
    Some(format!("{} {}", error.code()?, error.detail().unwrap_or_default()))
}

/// Returns true if a call failed because the server is read-only.
pub(crate) fn met_read_only(error: &RedisError) -> bool {
    error_reply(error).is_some_and(|text| is_read_only(&text))
}

/// Makes the error for a failed call. If the server sent an error reply, the error has no source,
/// since the reply may contain arguments of the call.
pub(crate) fn from_redis_error(error: RedisError) -> Error {
    if let Some(text) = error_reply(&error) {
        return from_error_reply(&text);
    }
    let kind = match error.kind() {
        redis::ErrorKind::Parse if ends_within_reply(&error) => {
            let message = "the connection to redis ended within a reply";
            return Error::new(ErrorKind::Infrastructure, message);
        }
        // Callers that open many sockets must not make a fallback admit them.
        redis::ErrorKind::Io if is_out_of_files(&error) => ErrorKind::Saturation,
        redis::ErrorKind::Io
        | redis::ErrorKind::NoValidReplicasFoundBySentinel
        | redis::ErrorKind::ClusterConnectionNotFound => ErrorKind::Infrastructure,
        redis::ErrorKind::AuthenticationFailed
        | redis::ErrorKind::InvalidClientConfig
        | redis::ErrorKind::MasterNameNotFoundBySentinel
        | redis::ErrorKind::EmptySentinelList
        | redis::ErrorKind::RESP3NotSupported => ErrorKind::Configuration,
        redis::ErrorKind::Client => ErrorKind::State,
        _ => {
            return Error::new(
                ErrorKind::State,
                format!("redis did not decide: {}", error.category()),
            );
        }
    };
    Error::new(kind, UNDECIDED).with_source(error)
}

/// Makes the error of a step that failed before the decision was requested.
pub(super) fn before_asking(message: impl Into<Cow<'static, str>>, cause: Error) -> Error {
    if cause.to_string() == UNDECIDED {
        return cause.with_message(message);
    }
    Error::new(cause.kind(), message).with_source(cause)
}

/// The message of a call that failed in the client. Its source says why.
const UNDECIDED: &str = "redis did not decide";

/// Returns true if the connection ended within a reply. The client reports that as a parse error.
/// While a connection is open, the client waits for the rest of a reply. So malformed bytes never
/// cause the line that is searched here.
fn ends_within_reply(error: &RedisError) -> bool {
    error.detail().is_some_and(|text| text.lines().any(|line| line == "Unexpected end of input"))
}

/// Makes the error for a failed script call. A client of the application has its own timer. A busy
/// process may fire it before it reads the reply, so it does not show the state of the server.
pub(crate) fn from_failed_call(error: RedisError) -> Error {
    match is_client_timeout(&error) {
        true => Error::new(ErrorKind::Saturation, "the client's own timer ended the call")
            .with_source(error),
        false => from_redis_error(error),
    }
}

/// Returns true if a timer of the client ended the call, and not the operating system.
fn is_client_timeout(error: &RedisError) -> bool {
    error.is_timeout() && has_cause(error, |cause| cause.raw_os_error().is_none())
}

/// Returns true if this process, or its system, may open no more files or sockets.
fn is_out_of_files(error: &RedisError) -> bool {
    let codes = if cfg!(windows) { [WSAEMFILE, WSAENOBUFS] } else { [EMFILE, ENFILE] };
    let is_out = |error: &io::Error| error.raw_os_error().is_some_and(|code| codes.contains(&code));
    cause(error).and_then(|cause| cause.downcast_ref()).is_some_and(|error| {
        match is_look_up(error) {
            // The resolver needs files, and says without them that the name is unknown.
            true => UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).is_err_and(|error| is_out(&error)),
            false => is_out(error),
        }
    })
}

/// Returns true if the system's resolver found no address. Such an error has no code.
fn is_look_up(error: &io::Error) -> bool {
    error.raw_os_error().is_none() && error.to_string().starts_with("failed to lookup address")
}

// The same numbers on every Unix.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const WSAEMFILE: i32 = 10_024;
const WSAENOBUFS: i32 = 10_055;

/// Returns true if an error has a cause that fits, or a cause that is not an [`io::Error`].
pub(super) fn has_cause(error: &RedisError, fits: impl Fn(&io::Error) -> bool) -> bool {
    cause(error).is_some_and(|cause| cause.downcast_ref().is_none_or(fits))
}

/// Returns the cause of an error, which the client shares.
fn cause(error: &RedisError) -> Option<&(dyn std::error::Error + 'static)> {
    type SharedError = Arc<dyn std::error::Error + Send + Sync>;
    let cause = error.source()?;
    Some(cause.downcast_ref::<SharedError>().map_or(cause, |shared| &**shared))
}

#[cfg(test)]
mod tests;
