//! Checks if the servers of a pool can decide, before the first charge depends on them.

use redis::Value;
use redis_once::Script;
use redis_once::calls::Deadline;
use tokio::time::Instant;

use super::Pool;
use super::decision_times::READY_WITHIN;
use super::key_names::{hash_tagged, safe_prefix};
use crate::core::{Error, ErrorKind};

/// Reads the clock, as each decision does that has no clock of its own.
const WITH_CLOCK: &str = "return #redis.call('TIME')";

/// The same for a pool that decides by the caller's clock.
const WITHOUT_CLOCK: &str = "return 2";

/// The result of both.
const RESULT: Value = Value::Int(2);

impl Pool {
    /// Waits until each server can decide, at most for a second: the server of the address, each
    /// master of a cluster, or the primary that sentinels name. Call it if the application must not
    /// start without Redis, or if its first request should find a connection.
    ///
    /// It runs a script on each server that reads the clock and writes nothing. It names the key
    /// `<prefix>:ready:{0}`. Other commands of the limiters' scripts are not tried.
    ///
    /// # Errors
    ///
    /// - There is no connection within a second. The error names the server, and its source has the
    ///   reason, if known.
    /// - A server does not run the script: [`Configuration`](ErrorKind::Configuration), in the
    ///   server's words. If only its clock is refused, the error names
    ///   [`caller_clock`](Self::caller_clock).
    /// - The script has another result, as where the server is not Redis: [`State`](ErrorKind::State).
    /// - Several servers share the keys, and [`several_servers`](Self::several_servers) is not set.
    ///   It notices that only with the right to run `INFO`.
    /// - The server takes only keys of one slot in a call, though it is no cluster: the same setting.
    /// - It is called outside of a tokio runtime.
    pub async fn ready(&self) -> Result<(), Error> {
        crate::limiter::runtime::current()?;
        let end = Instant::now() + READY_WITHIN;
        // In a cluster any slot works: this waits for the slot map first.
        self.client.connection_by(Deadline::new(end, 0)).await?;
        for tag in self.client.first_tags() {
            let key = hash_tagged(&tag.to_string());
            let reads_clock = !self.has_caller_clock();
            let probe = if reads_clock { WITH_CLOCK } else { WITHOUT_CLOCK };
            let Err(error) = self.try_script(probe, &key, end).await else { continue };
            if reads_clock
                && error.kind() == ErrorKind::Configuration
                && self.try_script(WITHOUT_CLOCK, &key, end).await.is_ok()
            {
                let message = "scripts may not read the clock of redis: set `Pool::caller_clock`, \
                    or add clock=caller to the address";
                return Err(Error::new(ErrorKind::Configuration, message).with_source(error));
            }
            return Err(error);
        }
        self.expect_one_server(&safe_prefix(self.key_prefix()), end).await
    }

    /// Runs a script for the key that ends with `key`, until `end`. The first run sends the text,
    /// and the second one the digest.
    async fn try_script(&self, text: &str, key: &str, end: Instant) -> Result<(), Error> {
        let script = Script::new(text);
        let key = format!("{}:ready:{key}", safe_prefix(self.key_prefix()));
        for _ in 0..2 {
            let run = self.client.run(&script, &[&key], &[""; 0], end).await;
            if run.map_err(redis_once::Error::from)? != RESULT {
                let message = "redis answered a script with another result";
                return Err(Error::new(ErrorKind::State, message));
            }
        }
        Ok(())
    }
}
