//! Replies of servers that did not run a call, and the next step of that call.

use redis::{ConnectionAddr, RedisError, RedisResult, ServerErrorKind, Value};

use super::super::address::Host;
use super::slot_map::UNKNOWN;

/// The next step of a call that a server did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Next {
    /// The same server, with the text of the script, which the server does not know.
    WithText,
    /// The server that holds the slot from now on. `None`: the server does not know its address, so
    /// the map must be read.
    Moved(Option<Host>),
    /// The server that the slot is moving to, for this attempt only.
    Ask(Host),
    /// A later attempt, since the keys are on two servers now, or on one without a known address.
    Again,
    /// The server names its own address: that may lead to its successor by now.
    Renamed,
}

impl Next {
    /// Reads the step from an error of the server at `asked`. `None`: the call may have run, or it
    /// failed.
    pub(in super::super) fn of(error: &RedisError, asked: Option<&ConnectionAddr>) -> Option<Self> {
        let asked = asked.and_then(Host::of);
        let redirect = || read_address(error.redirect_node()?.0, asked.as_ref());
        let is_asked = |host: &Option<Host>| host.is_some() && *host == asked;
        match error.kind() {
            redis::ErrorKind::Server(ServerErrorKind::NoScript) => Some(Self::WithText),
            redis::ErrorKind::Server(ServerErrorKind::Moved) => match redirect()? {
                own if is_asked(&own) => Some(Self::Renamed),
                other => Some(Self::Moved(other)),
            },
            redis::ErrorKind::Server(ServerErrorKind::Ask) => {
                let host = redirect().filter(|host| !is_asked(host))?;
                Some(host.map_or(Self::Again, Self::Ask))
            }
            redis::ErrorKind::Server(ServerErrorKind::TryAgain) => Some(Self::Again),
            _ => None,
        }
    }
}

/// Returns true if a server says that it cannot serve its slots. Another server may hold them now.
/// A redirect is one that has no next step.
pub(in super::super) fn cannot_serve(error: &RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, Moved, ReadOnly};
    let redis::ErrorKind::Server(kind) = error.kind() else { return false };
    matches!(kind, BusyLoading | ClusterDown | MasterDown | Moved | ReadOnly)
}

/// Returns the next reply; an error reply becomes an error. Each command has one reply. An error
/// within a list stays there: the command has run, and did something else for other elements.
pub(in super::super) fn next_reply(
    replies: &mut impl Iterator<Item = Value>,
) -> RedisResult<Value> {
    let mut reply = replies.next().unwrap_or(Value::Nil);
    while let Value::Attribute { data, .. } = reply {
        reply = *data;
    }
    match reply {
        Value::ServerError(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

/// Returns the reply to a command after ASKING. If ASKING itself fails, the server redirects the
/// command back: then the error of ASKING is the outcome.
pub(in super::super) fn reply_after_asking(
    replies: &mut impl Iterator<Item = Value>,
) -> RedisResult<Value> {
    let (asking, reply) = (next_reply(replies), next_reply(replies));
    match (asking, reply) {
        (Err(refused), Err(_)) => Err(refused),
        // After a refused ASKING, a command runs only if the slot has moved in the meantime.
        (_, reply) => reply,
    }
}

/// Reads `host:port`. Without a host, the server means the host that was asked. With `?`, the
/// server does not know the host: `Some(None)`.
fn read_address(address: &str, asked: Option<&Host>) -> Option<Option<Host>> {
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    match host {
        UNKNOWN => Some(None),
        "" => Some(Some(Host { port, ..asked?.clone() })),
        _ => Some(Some(Host { name: host.to_owned(), port })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_serve_is_told_from_one_that_errs() {
        let table = [
            (ServerErrorKind::BusyLoading, true),
            (ServerErrorKind::ClusterDown, true),
            (ServerErrorKind::MasterDown, true),
            (ServerErrorKind::ReadOnly, true),
            (ServerErrorKind::Moved, true),
            (ServerErrorKind::NoPerm, false),
            (ServerErrorKind::ResponseError, false),
        ];
        for (kind, expected) in table {
            let error = RedisError::from((redis::ErrorKind::Server(kind), "why"));
            assert_eq!(cannot_serve(&error), expected, "{kind:?}");
        }
        let lost = RedisError::from((redis::ErrorKind::Io, "broken pipe"));
        assert!(!cannot_serve(&lost));
    }

    #[test]
    fn a_refused_asking_is_the_outcome_unless_the_command_ran() {
        let error = |line: &str| redis::parse_redis_value(line.as_bytes()).expect("a value");
        let table = [
            (Value::Okay, Value::Int(1), None),
            (Value::Okay, error("-MOVED 1 a:1\r\n"), Some("MOVED")),
            (error("-NOPERM no asking\r\n"), error("-MOVED 1 a:1\r\n"), Some("NOPERM")),
            (error("-NOPERM no asking\r\n"), Value::Int(1), None),
        ];
        for (asking, reply, expected) in table {
            let outcome = reply_after_asking(&mut [asking, reply, Value::Nil].into_iter());
            assert_eq!(outcome.as_ref().err().and_then(RedisError::code), expected, "{outcome:?}");
        }
    }

    /// `TS.MADD` answers so, and a script that returns the errors of its commands. Sent again, it
    /// would run twice.
    #[test]
    fn an_error_within_a_reply_is_a_part_of_it() {
        let reply = |text: &str| {
            let value = redis::parse_redis_value(text.as_bytes()).expect("a value");
            next_reply(&mut [value].into_iter())
        };
        let list = reply("*2\r\n:1\r\n-TRYAGAIN later\r\n").expect("a list");
        let Value::Array(each) = list else { panic!("{list:?}") };
        assert!(matches!(each[..], [Value::Int(1), Value::ServerError(_)]), "{each:?}");
        assert!(reply("-TRYAGAIN later\r\n").is_err());
        assert!(reply("|1\r\n+ttl\r\n:3\r\n-TRYAGAIN later\r\n").is_err());
    }

    #[test]
    fn an_address_may_lack_its_host() {
        let seed = ConnectionAddr::Tcp("seed".into(), 1);
        let moved = |host: &str, port| Next::Moved(Some(Host { name: String::from(host), port }));
        let table = [
            ("-MOVED 1 10.0.0.1:6379\r\n", Some(moved("10.0.0.1", 6379))),
            ("-MOVED 1 ::1:6379\r\n", Some(moved("::1", 6379))),
            ("-MOVED 1 :7\r\n", Some(moved("seed", 7))),
            // A server without a name is none that is known.
            ("-MOVED 1 ?:1\r\n", Some(Next::Moved(None))),
            ("-ASK 1 ?:1\r\n", Some(Next::Again)),
            // The server that was asked, or its successor.
            ("-MOVED 1 seed:1\r\n", Some(Next::Renamed)),
            ("-MOVED 1 :1\r\n", Some(Next::Renamed)),
            ("-ASK 1 seed:1\r\n", None),
            ("-MOVED 1 host:0\r\n", None),
            ("-MOVED 1 host\r\n", None),
            ("-MOVED 1 host:x\r\n", None),
        ];
        let error = |reply: &str| {
            let value = redis::parse_redis_value(reply.as_bytes()).expect("a value");
            value.extract_error().expect_err("a redirect")
        };
        for (reply, expected) in table {
            assert_eq!(Next::of(&error(reply), Some(&seed)), expected, "{reply}");
        }
        assert_eq!(Next::of(&error("-MOVED 1 :7\r\n"), None), None);
    }
}
