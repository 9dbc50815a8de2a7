//! What a server says of itself when a connection begins.
//!
//! `HELLO` needs no right of its own, and every server answers it, also while it loads or runs a
//! script.

use std::collections::HashMap;

use redis::aio::ConnectionLike;
use redis::{RedisResult, Value, cmd, from_redis_value};

use crate::{Error, ErrorKind};

/// The answer to `HELLO`, as far as it is needed.
#[derive(Debug, Default)]
pub(super) struct Greeting {
    /// `standalone`, `cluster` or `sentinel`.
    mode: Option<String>,
}

impl Greeting {
    /// Asks for it. A server that answers with something else says nothing of itself.
    pub(super) async fn of(connection: &mut impl ConnectionLike) -> RedisResult<Self> {
        match connection.req_packed_command(&cmd("HELLO")).await {
            Ok(reply) => Ok(Self::read(reply)),
            Err(error) if error.code().is_some() => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    fn read(reply: Value) -> Self {
        let mut fields: HashMap<String, Value> = from_redis_value(reply).unwrap_or_default();
        let mut text = |name: &str| from_redis_value(fields.remove(name)?).ok();
        Self { mode: text("mode") }
    }

    /// Fails if a plain address has led to a sentinel or to a node of a cluster.
    pub(super) fn expect_plain_server(&self) -> Result<(), Error> {
        let message = match self.mode.as_deref() {
            Some("sentinel") => {
                "this server is a sentinel: write \
                 redis-sentinel://<host>:<port>?sentinelServiceName=<name>"
            }
            Some("cluster") => {
                "this server is a node of a cluster: write redis-cluster://<host>:<port>"
            }
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::Configuration, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(fields: &[(&str, &str)]) -> Greeting {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        Greeting::read(Value::Map(
            fields.iter().map(|(name, value)| (text(name), text(value))).collect(),
        ))
    }

    #[test]
    fn a_plain_address_leads_to_a_plain_server() {
        assert!(
            greeting(&[("server", "redis"), ("mode", "standalone")]).expect_plain_server().is_ok()
        );
        // Whatever stands before a server may answer less.
        assert!(greeting(&[("proto", "3")]).expect_plain_server().is_ok());
        assert!(Greeting::read(Value::Okay).expect_plain_server().is_ok());
        for (mode, address) in [("sentinel", "redis-sentinel://"), ("cluster", "redis-cluster://")]
        {
            let error = greeting(&[("mode", mode)]).expect_plain_server().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Configuration);
            assert!(error.to_string().contains(address), "{error}");
        }
    }
}
