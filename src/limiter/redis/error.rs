//! What Redis answers when it does not decide: its kind, and a text that repeats
//! nothing of the call.
//!
//! Servers word one error in several ways. Redis 6.2 puts the place in the script before what
//! was caught there, and a sentence more before what was raised; Redis 7 and Valkey put the
//! place behind. So a reply is first reduced to its code and text. The code alone decides, but
//! for the bare `ERR`.

use redis::RedisError;

use crate::{Error, ErrorKind};

/// The longest text of a reply that is passed on, in bytes.
const LONGEST: usize = 256;

/// Texts under the bare `ERR` that have a kind of their own.
const OF_KIND: [(&str, ErrorKind); 4] = [
    ("max number of clients", ErrorKind::Infrastructure),
    ("Script killed by user", ErrorKind::Infrastructure),
    // Redis 6.2 and 7.0, then 8 and Valkey.
    ("The user executing the script", ErrorKind::Configuration),
    ("ACL failure in script", ErrorKind::Configuration),
];

/// Further texts under `ERR` into which no server writes an argument.
const HARMLESS: [&str; 11] = [
    "AUTH <password> called without any password",
    "DB index is out of range",
    "Error compiling script",
    "Protocol error",
    "Script attempted to access a non local key",
    "This instance has cluster support disabled",
    "Unknown command called from",
    "Unknown Redis command called from",
    "Write commands are not allowed from read-only scripts",
    "unknown command",
    "user_script:",
];

/// What stands before an argument in texts that are otherwise passed on.
const BEFORE_ARGUMENTS: [&str; 2] = [", with args", " access the '"];

/// An error reply, without what a server says about the place in a script.
struct ErrorReply<'a> {
    code: &'a str,
    text: &'a str,
}

impl<'a> ErrorReply<'a> {
    fn read(reply: &'a str) -> Self {
        let mut rest = reply.trim();
        while let Some(inner) = inside_script(rest) {
            rest = inner;
        }
        rest = rest.strip_prefix('-').unwrap_or(rest);
        let (code, text) = rest.split_once(' ').unwrap_or((rest, ""));
        match is_code(code) {
            true => Self { code, text: text.trim_start() },
            // What a script's own interpreter raises has no code on Redis 6.2.
            false => Self { code: "ERR", text: rest },
        }
    }

    /// The kind, if the reply is a known one.
    fn known(&self) -> Option<ErrorKind> {
        match self.code {
            "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "NOREPLICAS" | "MISCONF"
            | "READONLY" | "TRYAGAIN" => Some(ErrorKind::Infrastructure),
            "OOM" => Some(ErrorKind::Capacity),
            "NOAUTH" | "WRONGPASS" | "NOPERM" | "CROSSSLOT" | "MOVED" | "ASK" | "NOSCRIPT" => {
                Some(ErrorKind::Configuration)
            }
            "WRONGTYPE" | "CORRUPT" => Some(ErrorKind::State),
            "ERR" => OF_KIND
                .iter()
                .find(|(begin, _)| self.text.starts_with(begin))
                .map(|(_, kind)| *kind),
            _ => None,
        }
    }

    /// Its text, as far as no server writes an argument of the call into it.
    fn harmless(&self) -> Option<String> {
        let listed =
            self.code == "ERR" && HARMLESS.iter().any(|begin| self.text.starts_with(begin));
        if self.known().is_none() && !listed {
            return None;
        }
        let ends = BEFORE_ARGUMENTS.iter().filter_map(|mark| self.text.find(mark));
        let end = ends.min().unwrap_or(self.text.len());
        let end = (0..=end.min(LONGEST)).rev().find(|&end| self.text.is_char_boundary(end));
        Some(self.text[..end.unwrap_or(0)].replace(char::is_control, " "))
    }
}

impl From<ErrorReply<'_>> for Error {
    fn from(reply: ErrorReply<'_>) -> Self {
        let kind = reply.known().unwrap_or(ErrorKind::State);
        let code = reply.code;
        match reply.harmless() {
            Some(text) => Self::new(kind, format!("redis answered: {code} {text}")),
            None => Self::new(kind, format!("redis answered: {code} (its text may repeat a key)")),
        }
    }
}

/// What follows the place in a script, if a reply begins with one as Redis 6.2 gives it:
/// `ERR Error running script (call to f_<digest>): ` or `@user_script:<line>: `.
fn inside_script(reply: &str) -> Option<&str> {
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

/// The error that an error reply stands for.
pub(super) fn reply(text: &str) -> Error {
    ErrorReply::read(text).into()
}

/// Whether an error reply says that the server takes no writes.
pub(super) fn is_read_only(text: &str) -> bool {
    ErrorReply::read(text).code == "READONLY"
}

/// An error reply as the server sent it, where a call failed with one.
fn sent(error: &RedisError) -> Option<String> {
    Some(format!("{} {}", error.code()?, error.detail().unwrap_or_default()))
}

/// Whether a call failed since the server takes no writes.
pub(crate) fn met_read_only(error: &RedisError) -> bool {
    sent(error).is_some_and(|text| is_read_only(&text))
}

/// The error that a failed call stands for. Its cause is kept only where the server sent nothing:
/// what it sent may repeat arguments of the call.
pub(crate) fn call(error: RedisError) -> Error {
    if let Some(text) = sent(&error) {
        return reply(&text);
    }
    let kind = match error.kind() {
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
    Error::new(kind, "redis did not decide").with_source(error)
}

#[cfg(test)]
mod tests;
