//! What Redis answers when it does not decide, in classes: by code first, by text only under the bare `ERR`.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::{Class, Error};

/// The longest text of a reply that is passed on, in bytes.
const LONGEST: usize = 256;

/// The class of an error reply.
fn class_of(code: &str, text: &str) -> Class {
    match code {
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "NOREPLICAS" | "MISCONF"
        | "READONLY" | "TRYAGAIN" => Class::Infrastructure,
        "OOM" => Class::Capacity,
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "CROSSSLOT" | "MOVED" | "ASK" | "NOSCRIPT" => {
            Class::Configuration
        }
        "ERR" if text.starts_with("max number of clients") => Class::Infrastructure,
        "ERR" if text.starts_with("Script killed by user") => Class::Infrastructure,
        "ERR" if text.starts_with("The user executing the script") => Class::Configuration,
        _ => Class::State,
    }
}

/// The error that an error reply stands for: its code, then its text.
pub(super) fn reply(text: &str) -> Error {
    let (code, rest) = text.split_once(' ').unwrap_or((text, ""));
    let end = (0..=LONGEST.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    let shown = &text[..end.unwrap_or(0)];
    Error::new(class_of(code, rest), format!("redis answered: {shown}"))
}

/// The error that a failed call stands for.
pub(super) fn call(error: RedisError) -> Error {
    if let Some(code) = error.code() {
        return reply(&format!("{code} {}", error.detail().unwrap_or_default()));
    }
    let class = match error.kind() {
        ErrorKind::Io
        | ErrorKind::NoValidReplicasFoundBySentinel
        | ErrorKind::ClusterConnectionNotFound => Class::Infrastructure,
        ErrorKind::Server(kind) => server_class(kind),
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::MasterNameNotFoundBySentinel
        | ErrorKind::EmptySentinelList
        | ErrorKind::RESP3NotSupported => Class::Configuration,
        _ => Class::State,
    };
    Error::new(class, "redis did not decide").because(error)
}

/// The class of a server error whose code the client library keeps to itself.
fn server_class(kind: ServerErrorKind) -> Class {
    match kind {
        ServerErrorKind::BusyLoading
        | ServerErrorKind::ClusterDown
        | ServerErrorKind::MasterDown
        | ServerErrorKind::ReadOnly
        | ServerErrorKind::TryAgain => Class::Infrastructure,
        ServerErrorKind::NoPerm
        | ServerErrorKind::CrossSlot
        | ServerErrorKind::Moved
        | ServerErrorKind::Ask
        | ServerErrorKind::NoScript => Class::Configuration,
        _ => Class::State,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_reply_lands_in_its_class() {
        use Class::{Capacity, Configuration, Infrastructure, State};
        let table = [
            ("NOSCRIPT No matching script. Please use EVAL.", Configuration),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", State),
            ("READONLY You can't write against a read only replica.", Infrastructure),
            ("MASTERDOWN Link with MASTER is down", Infrastructure),
            ("MISCONF Redis is configured to save RDB snapshots, but", Infrastructure),
            ("LOADING Redis is loading the dataset in memory", Infrastructure),
            ("BUSY Redis is busy running a script.", Infrastructure),
            ("NOREPLICAS Not enough good replicas to write.", Infrastructure),
            ("OOM command not allowed when used memory > 'maxmemory'.", Capacity),
            ("ERR Script killed by user with SCRIPT KILL...", Infrastructure),
            ("ERR max number of clients reached", Infrastructure),
            ("NOAUTH Authentication required.", Configuration),
            ("WRONGPASS invalid username-password pair or user is disabled.", Configuration),
            ("NOPERM this user has no permissions to run the 'ping' command", Configuration),
            ("ERR The user executing the script can't run this command", Configuration),
            ("MOVED 15495 127.0.0.1:7313", Configuration),
            ("ASK 449 127.0.0.1:7312", Configuration),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Infrastructure),
            ("CROSSSLOT Keys in request don't hash to the same slot", Configuration),
            ("CLUSTERDOWN The cluster is down", Infrastructure),
            ("ERR Script attempted to access a non local key in a cluster node", State),
            ("CORRUPT the stored value is not one that this limiter writes", State),
            ("FOO bar", State),
            ("", State),
        ];
        for (text, class) in table {
            assert_eq!(reply(text).class(), class, "{text}");
        }
    }

    #[test]
    fn long_replies_are_cut() {
        let error = reply(&format!("ERR {}", "é".repeat(40_000)));
        assert!(error.to_string().len() < 300);
    }
}
