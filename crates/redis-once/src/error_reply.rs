//! The errors of a call: their kinds, and texts without the arguments. [`from_redis_error`] also
//! finds the kind of a connection that was refused, closed or reset. `fault.rs` finds that of an
//! answer which is missing.
//!
//! Servers have several texts for the same error. Redis 6.2 writes the location in the script
//! before an error, sometimes with another sentence before it. Redis 7 and Valkey write the
//! location at the end. So a reply is first reduced to its code and text.
//!
//! [`KINDS`] alone says which replies are an outage, a full server, or foreign data. Every other
//! error reply is a refusal: a server that is set up in another way than the crate needs. Its words
//! are shown, since only the arguments of a call may contain a key or a password.

use std::borrow::Cow;
use std::error::Error as _;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;

use redis::{RedisError, RedisResult};

use super::error::{Error, ErrorKind};

/// The longest text of a reply in an error, in bytes.
const MAX_TEXT_LENGTH: usize = 256;

/// The kinds of error replies, by code and text, each row from one source. `ERR` is also the code
/// of replies without one, and `…` stands for any text.
///
/// A request must not choose the kind. So a reply of kind infrastructure has a code that only
/// servers write, or its whole text is here, or it begins with several words.
const KINDS: [(ErrorKind, &[&str]); 19] = {
    use ErrorKind::{Capacity, Infrastructure, State};
    [
        // Redis, Valkey, KeyDB, Dragonfly and kvrocks.
        (Infrastructure, &["LOADING …", "BUSY …", "MASTERDOWN …", "MISCONF …", "READONLY …"]),
        (Infrastructure, &["CLUSTERDOWN …", "NOREPLICAS …", "TRYAGAIN …"]),
        (Capacity, &["OOM …"]),
        (State, &["WRONGTYPE …", "CORRUPT …", "ERR value is not…"]),
        (Infrastructure, &NOT_RUN),
        // An error of Lua in our script, which foreign data causes.
        (State, &["ERR user_script:…"]),
        // Envoy: command_splitter_impl.h.
        (Infrastructure, &["ERR upstream failure", "ERR no upstream host"]),
        (Infrastructure, &["ERR upstream protocol error"]),
        // twemproxy: nc_message.c writes strerror of its connection to the server. The last two
        // rows are of musl.
        (Infrastructure, &["ERR Connection refused", "ERR Connection reset by peer"]),
        (Infrastructure, &["ERR Connection timed out", "ERR No route to host", "ERR unknown"]),
        (Infrastructure, &["ERR Broken pipe", "ERR Network is unreachable", "ERR Host is down"]),
        (Infrastructure, &["ERR Operation timed out", "ERR Host is unreachable"]),
        (Infrastructure, &["ERR Network unreachable"]),
        // predixy: Response.cpp, whose spelling this is.
        (Infrastructure, &["ERR no server avaliable", "ERR no server connection avaliable"]),
        (Infrastructure, &["ERR server connection close"]),
        // Codis: backend.go.
        (Infrastructure, &["ERR handle response, backend conn reset"]),
        // Dragonfly: facade.cc.
        (Capacity, &["ERR Out of memory"]),
        // Upstash and Vercel KV: upstash.com/docs/redis/troubleshooting.
        (Capacity, &["ERR max requests limit…", "ERR max daily request limit…"]),
        (Capacity, &["ERR max concurrent connections…", "ERR DB capacity quota…"]),
    ]
};

/// Outages in words of the server itself, which has not run the call: networking.c and script.c of
/// Redis. Some clusters count other connections, too.
const NOT_RUN: [&str; 2] = ["ERR max number of clients…", "ERR Script killed by user…"];

/// Replies that Valkey 9.1 writes after `ERR` if a command of a script gets them: script_lua.c.
/// Each has several words, as above.
const AFTER_ERR: [&str; 8] = [
    "OOM command not allowed",
    "READONLY You can't write",
    "NOREPLICAS Not enough good replicas",
    "MASTERDOWN Link with MASTER is down",
    "MISCONF Redis is configured to",
    "MISCONF Valkey is configured to",
    "MISCONF Errors writing to the AOF file",
    "WRONGTYPE Operation against a key",
];

/// The words before the arguments in some texts. An error shows such a text up to these words.
const ARGUMENT_MARKERS: [&str; 2] = [", with args", " access the '"];

/// The characters of a key that may also end a part of a sentence.
const STOPS: [char; 3] = ['.', ':', '-'];

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
        if let Some(inner) = rest.strip_prefix("ERR ")
            && AFTER_ERR.iter().any(|begin| inner.starts_with(begin))
        {
            rest = inner;
        }
        let (code, text) = rest.split_once(' ').unwrap_or((rest, ""));
        match is_code(code) {
            true => Self { code, text: text.trim_start() },
            // Errors of the Lua interpreter of Redis 6.2 and of proxies have no code.
            false => Self { code: "ERR", text: rest },
        }
    }

    fn kind(&self) -> ErrorKind {
        let row = KINDS.iter().find(|(_, patterns)| self.is_one_of(patterns));
        row.map_or(ErrorKind::Configuration, |(kind, _)| *kind)
    }

    fn is_one_of(&self, patterns: &[&str]) -> bool {
        let text = self.text.split(" script: ").next().unwrap_or_default();
        let reply = format!("{} {text}", self.code);
        patterns.iter().any(|pattern| match pattern.strip_suffix('…') {
            Some(begin) => reply.starts_with(begin),
            None => reply == *pattern,
        })
    }

    /// Returns true if a proxy answers for a server that it has lost. That server may have run the
    /// call.
    fn is_of_lost_server(&self) -> bool {
        let is_outage = self.kind() == ErrorKind::Infrastructure;
        is_outage && self.code == "ERR" && !self.is_one_of(&NOT_RUN)
    }

    /// Makes the error, which shows no part of `secrets`.
    fn into_error<'s>(self, secrets: impl IntoIterator<Item = &'s str>) -> Error {
        let Self { code, text } = self;
        let ends = ARGUMENT_MARKERS.iter().filter_map(|mark| text.find(mark));
        let text = &text[..ends.min().unwrap_or(text.len())];
        let secrets: Vec<_> = secrets.into_iter().flat_map(words).map(comparable).collect();
        let code = if secrets.contains(&comparable(code)) { "…" } else { code };
        let shown = format!("{code} {}", without_secrets(text, &secrets));
        Error::new(self.kind(), format!("redis answered: {}", shown.trim_end()))
    }
}

/// Returns a text in one line, at most [`MAX_TEXT_LENGTH`] long. `…` replaces each word that may be
/// a part of a secret, and each quotation other than a command.
fn without_secrets(text: &str, secrets: &[String]) -> String {
    let (mut shown, mut rest) = (String::new(), text);
    // A server may send megabytes.
    while let Some(begin) = rest.chars().next().filter(|_| shown.len() < MAX_TEXT_LENGTH) {
        let before = shown.chars().next_back().is_none_or(|last| !last.is_alphanumeric());
        let quoted = Some(begin).filter(|quote| before && matches!(quote, '\'' | '"' | '`'));
        let end = quoted.and_then(|quote| Some(1 + rest[1..].find(quote)?));
        let length = match end {
            Some(end) if !is_command(&rest[1..end]) || is_secret(&rest[1..end], secrets) => {
                shown.extend([begin, '…', begin]);
                end + 1
            }
            _ if is_of_word(begin) => {
                let word = words(rest).next().unwrap_or_default();
                let bare = word.trim_end_matches(STOPS);
                shown.push_str(if is_secret(bare, secrets) { "…" } else { bare });
                shown.push_str(&word[bare.len()..]);
                word.len()
            }
            _ => {
                shown.push(if begin.is_control() { ' ' } else { begin });
                begin.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    let cut = (0..=MAX_TEXT_LENGTH.min(shown.len())).rev().find(|at| shown.is_char_boundary(*at));
    shown.truncate(cut.unwrap_or(0));
    shown
}

/// Returns true if a word may hold a secret, or a part of one. A short word of letters is no such
/// part: `user` is in many keys and in many sentences.
fn is_secret(word: &str, secrets: &[String]) -> bool {
    let word = comparable(word);
    let shortest_part = if word.chars().all(char::is_alphabetic) { 7 } else { 3 };
    secrets.iter().any(|secret| {
        *secret == word
            || secret.len() > 3 && word.contains(secret)
            || word.len() > shortest_part && secret.contains(&word)
    })
}

/// Returns the words of a text. A key that is not a digest is one word.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char| !is_of_word(char)).filter(|word| !word.is_empty())
}

/// Returns a word in the form in which words are compared: without the full stop of its sentence.
fn comparable(word: &str) -> String {
    word.trim_matches(STOPS).to_lowercase()
}

fn is_of_word(char: char) -> bool {
    char.is_alphanumeric() || "._~@:/-".contains(char)
}

/// Returns true for the name of a command or a setting, such as `client|setinfo`.
fn is_command(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'|' | b'-'))
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

/// Makes the error for an error reply to a call with these secret arguments.
pub fn from_error_reply<'a>(text: &str, secrets: impl IntoIterator<Item = &'a str>) -> Error {
    ErrorReply::read(text).into_error(secrets)
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
pub(super) fn is_reply<T>(outcome: &RedisResult<T>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(error) => {
            matches!(error.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension)
        }
    }
}

/// Returns true if the error says that the server did not run the call, or stopped it.
pub(super) fn is_answer(error: &RedisError) -> bool {
    let is_of_lost_server = |text: String| ErrorReply::read(&text).is_of_lost_server();
    is_reply::<()>(&Err(error.clone())) && !error_reply(error).is_some_and(is_of_lost_server)
}

/// Returns true if an error reply says that the server is read-only.
pub fn is_read_only(text: &str) -> bool {
    ErrorReply::read(text).code == "READONLY"
}

/// Returns the error reply of the server, if the call failed with one.
fn error_reply(error: &RedisError) -> Option<String> {
    Some(format!("{} {}", error.code()?, error.detail().unwrap_or_default()))
}

/// Returns true if a call failed because the server is read-only.
pub(super) fn met_read_only(error: &RedisError) -> bool {
    error_reply(error).is_some_and(|text| is_read_only(&text))
}

/// Makes the error for a failed call with these secret arguments. If the server sent an error
/// reply, the error has no source, since the reply may contain arguments of the call.
pub(super) fn from_redis_error<'a>(
    error: RedisError,
    secrets: impl IntoIterator<Item = &'a str>,
) -> Error {
    if let Some(text) = error_reply(&error) {
        return from_error_reply(&text, secrets);
    }
    let kind = match error.kind() {
        redis::ErrorKind::Parse if ends_within_reply(&error) => {
            let message = "the connection to redis ended within a reply";
            return Error::new(ErrorKind::Infrastructure, message);
        }
        // Callers that open many sockets must not make a fallback admit them.
        redis::ErrorKind::Io if is_out_of_files(&error) => ErrorKind::Saturation,
        redis::ErrorKind::Io => match io_error(&error).map(io::Error::kind) {
            // This process has no right to the socket, or `Closings` found that the server refuses
            // a command.
            Some(io::ErrorKind::PermissionDenied) => ErrorKind::Configuration,
            // A reply was larger than the bound in `wire.rs`.
            Some(io::ErrorKind::FileTooLarge) => ErrorKind::State,
            _ => ErrorKind::Infrastructure,
        },
        redis::ErrorKind::NoValidReplicasFoundBySentinel
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
pub(super) fn from_failed_call<'a>(
    error: RedisError,
    secrets: impl IntoIterator<Item = &'a str>,
) -> Error {
    match is_client_timeout(&error) {
        true => Error::new(ErrorKind::Saturation, "the client's own timer ended the call")
            .with_source(error),
        false => from_redis_error(error, secrets),
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
    io_error(error).is_some_and(|error| {
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

/// Returns the cause of an error, if it is one of the system.
fn io_error(error: &RedisError) -> Option<&io::Error> {
    cause(error)?.downcast_ref()
}

/// Returns the cause of an error, which the client shares.
fn cause(error: &RedisError) -> Option<&(dyn std::error::Error + 'static)> {
    type SharedError = Arc<dyn std::error::Error + Send + Sync>;
    let cause = error.source()?;
    Some(cause.downcast_ref::<SharedError>().map_or(cause, |shared| &**shared))
}

#[cfg(test)]
mod tests;
