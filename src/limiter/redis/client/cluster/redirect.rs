//! Replies of servers that did not run a call, and the next step of that call.

use redis::{Cmd, ConnectionAddr, Pipeline, RedisError, RedisResult, ServerErrorKind, Value, cmd};

use super::super::address::Host;
use super::super::connection::SharedConnection;

/// The next step of a call that a server did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The same server, with the text of the script, which the server does not know.
    WithText,
    /// The server that holds the slot from now on.
    Moved(Host),
    /// The server that the slot is moving to, for this attempt only.
    Ask(Host),
    /// A later attempt, since the keys are on two servers now.
    Again,
}

impl Next {
    /// Reads the step from an error of the server at `asked`. `None`: the call may have run, or it
    /// failed.
    pub(crate) fn of(error: &RedisError, asked: Option<&ConnectionAddr>) -> Option<Self> {
        let redirect = || {
            let (address, _) = error.redirect_node()?;
            read_address(address, asked)
        };
        match error.kind() {
            redis::ErrorKind::Server(ServerErrorKind::NoScript) => Some(Self::WithText),
            redis::ErrorKind::Server(ServerErrorKind::Moved) => redirect().map(Self::Moved),
            redis::ErrorKind::Server(ServerErrorKind::Ask) => redirect().map(Self::Ask),
            redis::ErrorKind::Server(ServerErrorKind::TryAgain) => Some(Self::Again),
            _ => None,
        }
    }
}

/// Returns true if a server says that it cannot serve its slots. Another server may hold them now.
pub(crate) fn cannot_serve(error: &RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly};
    let redis::ErrorKind::Server(kind) = error.kind() else { return false };
    matches!(kind, BusyLoading | ClusterDown | MasterDown | ReadOnly)
}

/// Returns the next reply; an error reply becomes an error. Each command has one reply.
pub(crate) fn next_reply(replies: &mut impl Iterator<Item = Value>) -> RedisResult<Value> {
    replies.next().unwrap_or(Value::Nil).extract_error()
}

/// Returns the reply to a command after ASKING. If ASKING itself fails, the server redirects the
/// command back: then the error of ASKING is the outcome.
pub(crate) fn reply_after_asking(replies: &mut impl Iterator<Item = Value>) -> RedisResult<Value> {
    let (asking, reply) = (next_reply(replies), next_reply(replies));
    match (asking, reply) {
        (Err(refused), Err(_)) => Err(refused),
        // After a refused ASKING, a command runs only if the slot has moved in the meantime.
        (_, reply) => reply,
    }
}

/// Sends a command to the server that its slot is moving to.
pub(crate) async fn ask(connection: &dyn SharedConnection, command: Cmd) -> RedisResult<Value> {
    let mut commands = Pipeline::with_capacity(2);
    commands.add_command(cmd("ASKING")).add_command(command);
    reply_after_asking(&mut connection.send_all(commands).await?.into_iter())
}

/// Reads `host:port`. Without a host, or with `?`, the server means the host that was asked.
fn read_address(address: &str, asked: Option<&ConnectionAddr>) -> Option<Host> {
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    match host {
        "" | "?" => Some(Host { port, ..Host::of(asked?)? }),
        _ => Some(Host { name: host.to_owned(), port }),
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
            (ServerErrorKind::Moved, false),
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

    #[test]
    fn an_address_may_lack_its_host() {
        let asked = ConnectionAddr::Tcp("seed".into(), 1);
        let table = [
            ("10.0.0.1:6379", Some(("10.0.0.1", 6379))),
            ("::1:6379", Some(("::1", 6379))),
            (":7", Some(("seed", 7))),
            ("?:7", Some(("seed", 7))),
            ("host:0", None),
            ("host", None),
            ("host:x", None),
        ];
        for (text, expected) in table {
            let expected = expected.map(|(host, port)| Host { name: String::from(host), port });
            assert_eq!(read_address(text, Some(&asked)), expected, "{text}");
        }
        assert_eq!(read_address(":7", None), None);
    }
}
