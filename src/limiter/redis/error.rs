//! What Redis answers when it does not decide: its class, and a text that repeats nothing of the call.
//!
//! Servers word one error in several ways. Redis 6.2 puts the place in the script before what was caught there, and a
//! sentence more before what was raised; Redis 7 and Valkey put the place behind. So a reply is first reduced to its
//! code and text. The code alone decides, but for the bare `ERR`.

use redis::{ErrorKind, RedisError};

use crate::{Class, Error};

/// The longest text of a reply that is passed on, in bytes.
const LONGEST: usize = 256;

/// Texts under the bare `ERR` that have a class of their own.
const CLASSED: [(&str, Class); 4] = [
    ("max number of clients", Class::Infrastructure),
    ("Script killed by user", Class::Infrastructure),
    // Redis 6.2 and 7.0, then 8 and Valkey.
    ("The user executing the script", Class::Configuration),
    ("ACL failure in script", Class::Configuration),
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

    /// The class, if the reply is a known one.
    fn known(&self) -> Option<Class> {
        match self.code {
            "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "NOREPLICAS" | "MISCONF"
            | "READONLY" | "TRYAGAIN" => Some(Class::Infrastructure),
            "OOM" => Some(Class::Capacity),
            "NOAUTH" | "WRONGPASS" | "NOPERM" | "CROSSSLOT" | "MOVED" | "ASK" | "NOSCRIPT" => {
                Some(Class::Configuration)
            }
            "WRONGTYPE" | "CORRUPT" => Some(Class::State),
            "ERR" => CLASSED
                .iter()
                .find(|(begin, _)| self.text.starts_with(begin))
                .map(|(_, class)| *class),
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
        let class = reply.known().unwrap_or(Class::State);
        let code = reply.code;
        match reply.harmless() {
            Some(text) => Self::new(class, format!("redis answered: {code} {text}")),
            None => Self::new(class, format!("redis answered: {code} (its text may repeat a key)")),
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
pub(super) fn met_read_only(error: &RedisError) -> bool {
    sent(error).is_some_and(|text| is_read_only(&text))
}

/// The error that a failed call stands for. Its cause is kept only where the server sent nothing: what it sent may repeat
/// arguments of the call.
pub(super) fn call(error: RedisError) -> Error {
    if let Some(text) = sent(&error) {
        return reply(&text);
    }
    let class = match error.kind() {
        ErrorKind::Io
        | ErrorKind::NoValidReplicasFoundBySentinel
        | ErrorKind::ClusterConnectionNotFound => Class::Infrastructure,
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::MasterNameNotFoundBySentinel
        | ErrorKind::EmptySentinelList
        | ErrorKind::RESP3NotSupported => Class::Configuration,
        ErrorKind::Client => Class::State,
        _ => {
            return Error::new(Class::State, format!("redis did not decide: {}", error.category()));
        }
    };
    Error::new(class, "redis did not decide").because(error)
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

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
            ("ERR ACL failure in script: No permissions to access a key", Configuration),
            ("MOVED 15495 127.0.0.1:7313", Configuration),
            ("ASK 449 127.0.0.1:7312", Configuration),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Infrastructure),
            ("CROSSSLOT Keys in request don't hash to the same slot", Configuration),
            ("CLUSTERDOWN The cluster is down", Infrastructure),
            ("ERR Script attempted to access a non local key in a cluster node", State),
            ("CORRUPT the stored value is not one that this limiter writes", State),
            ("OOM", Capacity),
            ("FOO bar", State),
            ("ERR unknown command 'EVALSHA'", State),
            ("", State),
        ];
        for (text, class) in table {
            assert_eq!(reply(text).class(), class, "{text}");
            // As Redis 6.2 words what a script catches, and what it raises.
            let caught = format!("@user_script: 104: -{text}\r\n");
            let raised =
                format!("ERR Error running script (call to f_0a9f): @user_script:7: {text}");
            let both =
                format!("ERR Error running script (call to f_0a9f): @user_script:7: {caught}");
            // As Redis 7 and later word both.
            let behind = format!("{text} script: 0a9f, on @user_script:265.");
            for worded in [caught, raised, both, behind] {
                let error = reply(&worded);
                assert_eq!(error.class(), class, "{worded}");
                let shown = error.to_string();
                assert!(!shown.contains(char::is_control), "{shown:?}");
                assert!(!shown.contains("Error running script"), "{shown}");
                assert!(!shown.contains("@user_script: "), "{shown}");
            }
        }
    }

    #[test]
    fn only_the_code_tells_a_read_only_server() {
        let sentence = "You can't write against a read only replica.";
        assert!(is_read_only(&format!("READONLY {sentence}")));
        assert!(is_read_only(&format!("@user_script: 104: -READONLY {sentence}\r\n")));
        for text in ["ERR READONLY", "READONLYX", "@user_script: READONLY", "FOO READONLY"] {
            assert!(!is_read_only(text), "{text}");
        }
    }

    /// An error with all that can be printed of it.
    fn printed(error: &Error) -> String {
        let mut printed = format!("{error} {error:?} {error:#?}");
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            printed.push_str(&format!(" {cause} {cause:?}"));
            source = cause.source();
        }
        printed
    }

    #[test]
    fn no_argument_of_a_call_is_printed() {
        let table = [
            "ERR unknown command 'EVALSHA', with args beginning with: '0a9f' '1' 'sk_live_1' ",
            "ERR unknown command `EVALSHA`, with args beginning with: `0a9f`, `1`, `sk_live_1`, ",
            "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'app' 'sk_live_1' ",
            "ERR value of 'sk_live_1' is out of range",
            "ERR sk_live_1",
            "FOO sk_live_1",
            "sk_live_1 is not understood",
            "sk_live_1",
            "@user_script: 1: sk_live_1",
            "ERR Error running script (call to f_0a9f): @user_script:7: sk_live_1",
            "NOPERM User app has no permissions to access the 'sk_live_1' key",
            "ERR ACL failure in script: User app has no permissions to access the 'sk_live_1' key",
        ];
        for text in table {
            let sent = format!("-{text}\r\n");
            let failed = parse_redis_value(sent.as_bytes()).unwrap().extract_error().unwrap_err();
            for error in [reply(text), call(failed)] {
                let printed = printed(&error);
                assert!(!printed.contains("sk_live_1"), "{printed}");
                assert!(printed.contains("redis answered"), "{printed}");
            }
        }
        let odd = RedisError::from((ErrorKind::UnexpectedReturnType, "odd", "sk_live_1".into()));
        assert!(!printed(&call(odd)).contains("sk_live_1"));
    }

    #[test]
    fn long_replies_are_cut() {
        let error = reply(&format!("OOM {}", "é".repeat(40_000)));
        assert!(error.to_string().len() < 300);
    }
}
