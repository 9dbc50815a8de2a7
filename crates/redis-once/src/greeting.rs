//! The answer to `HELLO` at the start of a connection: the kind and the role of a server.
//!
//! `HELLO` needs no permission. Servers answer it even while they load data or run a script. Where
//! it is refused, `ROLE` tells the role, if the user may ask.

use std::collections::HashMap;

use redis::aio::ConnectionLike;
use redis::{ProtocolVersion, RedisResult, Value, cmd, from_redis_value};

use super::error::{Error, ErrorKind};

/// The text in the error of a server without `HELLO`, or with `HELLO` renamed.
const UNKNOWN: &str = "unknown command";

/// The name of Envoy's proxy in its own answer to `HELLO`.
const ENVOY: &str = "envoy-redis-proxy";

/// The kind of server that an address asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerKind {
    Plain,
    ClusterNode,
    /// The primary that sentinels name. The caller checks [`Greeting::is_primary`].
    Primary,
    Sentinel,
}

/// The parts of the answer to `HELLO` that the pool needs.
#[derive(Debug)]
pub(super) struct Greeting {
    pub(super) protocol: ProtocolVersion,
    /// The program, such as `redis`.
    server: Option<String>,
    /// `standalone`, `cluster` or `sentinel`.
    mode: Option<String>,
    /// `master` or `replica`, which `ROLE` calls `slave`.
    role: Option<String>,
    /// True if the server refused to answer, for a temporary reason.
    was_refused: bool,
}

impl Default for Greeting {
    fn default() -> Self {
        let protocol = ProtocolVersion::RESP3;
        Self { protocol, server: None, mode: None, role: None, was_refused: false }
    }
}

impl Greeting {
    /// Asks the server. An answer with another form makes a greeting without kind and role.
    pub(super) async fn of(connection: &mut impl ConnectionLike) -> RedisResult<Self> {
        let reply = connection.req_packed_command(&cmd("HELLO")).await;
        match reply.and_then(Value::extract_error) {
            Ok(reply) => Ok(Self::read(reply)),
            Err(error) if error.code().is_some() => {
                let was_refused = !error.detail().is_some_and(|text| text.contains(UNKNOWN));
                Ok(Self { was_refused, ..Self::default() })
            }
            Err(error) => Err(error),
        }
    }

    /// Asks a server whose answer to `HELLO` has no role. It may not know `ROLE`, or refuse it.
    pub(super) async fn ask_role(
        &mut self,
        connection: &mut impl ConnectionLike,
    ) -> RedisResult<()> {
        let reply = connection.req_packed_command(&cmd("ROLE")).await;
        match reply.and_then(Value::extract_error) {
            Err(error) if error.code().is_none() => return Err(error),
            Err(_) => {}
            Ok(reply) => {
                let words: Vec<Value> = from_redis_value(reply).unwrap_or_default();
                self.role = words.into_iter().next().and_then(|word| from_redis_value(word).ok());
            }
        }
        Ok(())
    }

    fn read(reply: Value) -> Self {
        let mut fields: HashMap<String, Value> = from_redis_value(reply).unwrap_or_default();
        let mut text = |name: &str| from_redis_value(fields.remove(name)?).ok();
        let (server, mode, role) = (text("server"), text("mode"), text("role"));
        Self { server, mode, role, ..Self::default() }
    }

    /// Fails if the server is not of the kind that its address asks for, or cannot have the
    /// database.
    pub(super) fn expect_kind(&self, expected: ServerKind, database: i64) -> Result<(), Error> {
        let says_role = self.role.is_some() || self.was_refused;
        let message = match (self.mode.as_deref(), expected) {
            _ if self.server.as_deref() == Some(ENVOY) && database != 0 => {
                "Envoy shares its connections, so SELECT would change the database of all its \
                 clients: write an address without a database"
            }
            (_, ServerKind::Primary) if !says_role => {
                "the server that the sentinels name does not say in its answer to HELLO whether it \
                 is a primary"
            }
            (Some("sentinel"), ServerKind::Plain | ServerKind::ClusterNode) => {
                "this server is a sentinel: write \
                 redis-sentinel://<host>:<port>?sentinelServiceName=<name>"
            }
            (Some("cluster"), ServerKind::Plain) => {
                "this server is a node of a cluster: write redis-cluster://<host>:<port>"
            }
            (Some("standalone"), ServerKind::ClusterNode) => {
                "this server is not a node of a cluster: write redis://<host>:<port>"
            }
            (Some("standalone" | "cluster"), ServerKind::Sentinel) => {
                "this server is not a sentinel: an address that begins with redis-sentinel:// must \
                 name sentinels"
            }
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::Configuration, message))
    }

    pub(super) fn has_role(&self) -> bool {
        self.role.is_some()
    }

    /// Returns true if the server says that it is a replica outside of a cluster.
    pub(super) fn is_replica(&self) -> bool {
        self.mode.as_deref() != Some("cluster")
            && matches!(self.role.as_deref(), Some("replica" | "slave"))
    }

    /// Returns true if the server is a primary outside of a cluster.
    pub(super) fn is_primary(&self) -> bool {
        self.mode.as_deref() != Some("cluster") && self.role.as_deref() == Some("master")
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use redis::{Cmd, Pipeline, RedisFuture, parse_redis_value};

    use super::*;

    fn greeting(fields: &[(&str, &str)]) -> Greeting {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        Greeting::read(Value::Map(
            fields.iter().map(|(name, value)| (text(name), text(value))).collect(),
        ))
    }

    #[test]
    fn an_address_leads_to_a_server_of_its_kind() {
        let table = [
            ("standalone", ServerKind::Plain, None),
            ("standalone", ServerKind::ClusterNode, Some("redis://")),
            ("cluster", ServerKind::ClusterNode, None),
            ("cluster", ServerKind::Plain, Some("redis-cluster://")),
            ("sentinel", ServerKind::Plain, Some("redis-sentinel://")),
            ("sentinel", ServerKind::ClusterNode, Some("redis-sentinel://")),
            ("sentinel", ServerKind::Sentinel, None),
            ("standalone", ServerKind::Sentinel, Some("not a sentinel")),
            ("cluster", ServerKind::Sentinel, Some("not a sentinel")),
        ];
        for (mode, expected, address) in table {
            let outcome = greeting(&[("mode", mode)]).expect_kind(expected, 0);
            let Some(address) = address else {
                assert!(outcome.is_ok(), "{mode} {expected:?}");
                continue;
            };
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Configuration);
            assert!(error.to_string().contains(address), "{error}");
        }
        // A server without a role is rejected, since waiting does not help.
        for silent in [greeting(&[("mode", "standalone")]), Greeting::default()] {
            let error = silent.expect_kind(ServerKind::Primary, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Configuration);
        }
        let busy = Greeting { was_refused: true, ..Greeting::default() };
        assert!(busy.expect_kind(ServerKind::Primary, 0).is_ok());
        // A proxy in front of a server may answer less.
        assert!(greeting(&[("proto", "3")]).expect_kind(ServerKind::Plain, 0).is_ok());
        assert!(Greeting::read(Value::Okay).expect_kind(ServerKind::ClusterNode, 0).is_ok());
    }

    /// A connection that answers each command with the same reply.
    struct Fixed(&'static str);

    impl ConnectionLike for Fixed {
        fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
            Box::pin(ready(parse_redis_value(self.0.as_bytes())))
        }

        fn req_packed_commands<'a>(
            &'a mut self,
            _: &'a Pipeline,
            _: usize,
            _: usize,
        ) -> RedisFuture<'a, Vec<Value>> {
            unreachable!("one command is sent")
        }

        fn get_db(&self) -> i64 {
            0
        }
    }

    #[tokio::test]
    async fn a_refusal_that_may_pass_is_no_answer_without_a_role() {
        for (reply, was_refused) in [
            ("-BUSY Redis is busy running a script\r\n", true),
            ("-ERR unknown command 'HELLO'\r\n", false),
            ("+OK\r\n", false),
        ] {
            let greeting = Greeting::of(&mut Fixed(reply)).await.expect("an answer");
            assert_eq!(greeting.was_refused, was_refused, "{reply}");
        }
    }

    /// Envoy answers with a list of the replies of its servers.
    #[tokio::test]
    async fn a_role_is_read_where_a_server_says_it() {
        for (reply, is_primary, is_replica) in [
            ("*3\r\n+master\r\n:0\r\n*0\r\n", true, false),
            ("*2\r\n+slave\r\n+h\r\n", false, true),
            ("*2\r\n+sentinel\r\n*0\r\n", false, false),
            ("*1\r\n*1\r\n+slave\r\n", false, false),
            ("*0\r\n", false, false),
            (":7\r\n", false, false),
            ("-NOPERM User app has no permissions to run the 'role' command\r\n", false, false),
        ] {
            let mut greeting = Greeting::default();
            greeting.ask_role(&mut Fixed(reply)).await.expect("an answer");
            let said = (greeting.is_primary(), greeting.is_replica());
            assert_eq!(said, (is_primary, is_replica), "{reply}");
        }
    }

    #[test]
    fn only_a_server_that_says_so_is_a_primary() {
        assert!(greeting(&[("mode", "standalone"), ("role", "master")]).is_primary());
        assert!(!greeting(&[("mode", "standalone"), ("role", "replica")]).is_primary());
        assert!(!greeting(&[("mode", "sentinel")]).is_primary());
        assert!(!greeting(&[]).is_primary());
    }
}
