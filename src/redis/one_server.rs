//! Notices if several servers share the keys behind one address.

use std::collections::BTreeSet;

use redis::{Pipeline, Value, from_redis_value};
use redis_once::calls::Deadline;
use tokio::time::{Instant, timeout_at};

use super::Pool;
use crate::core::{Error, ErrorKind};

/// The number of keys for which each connection asks. Two equal servers have all of them with a
/// probability of 2 to the power of -31.
const KEYS: usize = 32;

/// Returns facts about the server of a key, with the identity of its process.
const TEXT: &str = "return redis.call('INFO', 'server')";

impl Pool {
    /// Fails if calls for several keys would count on several servers, or would be refused.
    /// `prefix` is without braces, so that the keys have many hash tags. This is no proof: where the
    /// user has no right to run `INFO`, it says nothing.
    pub(super) async fn expect_one_server(&self, prefix: &str, end: Instant) -> Result<(), Error> {
        if self.client.is_routed() {
            return Ok(());
        }
        let mut run_ids = BTreeSet::new();
        for _ in 0..self.client.size() {
            let connection = self.client.connection_by(Deadline::new(end, 0)).await?;
            if self.client.keys_apart_over(&*connection) {
                return Ok(());
            }
            let key = |tag: u64| format!("{prefix}:servers:{{{tag}}}");
            let mut commands = Pipeline::with_capacity(KEYS);
            for _ in 0..KEYS {
                commands.cmd("EVAL").arg(TEXT).arg(1).arg(key(fastrand::u64(..)));
            }
            if let Ok(Ok(replies)) = timeout_at(end, connection.send_all(commands)).await {
                run_ids.extend(replies.into_iter().filter_map(run_id));
            }
            // The tags 0 and 1 are of two slots.
            let mut both = Pipeline::with_capacity(1);
            both.cmd("EVAL").arg("return 0").arg(2).arg(key(0)).arg(key(1));
            if let Ok(Ok(replies)) = timeout_at(end, connection.send_all(both)).await
                && let Some(Value::ServerError(error)) = replies.first()
                && error.code() == "CROSSSLOT"
            {
                return Err(keys_apart("this server takes only keys of one slot in a call"));
            }
        }
        match run_ids.len() {
            ..2 => Ok(()),
            _ => Err(keys_apart(
                "keys of one call lie on several servers behind this proxy: limits would count \
                    twice",
            )),
        }
    }
}

fn keys_apart(why: &str) -> Error {
    let message = format!("{why}; set several_servers(true) or write servers=several");
    Error::new(ErrorKind::Configuration, message)
}

fn run_id(reply: Value) -> Option<String> {
    let text: String = from_redis_value(reply.extract_error().ok()?).ok()?;
    text.lines().find_map(|line| line.strip_prefix("run_id:").map(str::to_owned))
}
