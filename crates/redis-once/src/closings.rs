//! Recognizes a server that greets, and then closes each connection in place of an answer.
//!
//! A server that is away does not greet, and one that restarts closes a connection once. So if a
//! server greets again and again, it does not want the command: a firewall or a managed service
//! refuses it without words. That is configuration, and not an outage that lasts for ever.
//!
//! A proxy may greet without a server. twemproxy, Envoy and Codis then answer in words, and so does
//! predixy. haproxy does not greet.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use redis::{Arg, Cmd, RedisResult};
use tokio::time::Instant;

use super::error_reply::is_reply;
use super::lock::lock;
use super::times::MIN_REFUSAL;

/// The connections in a row after which the setup may be at fault. A failover may close two: that
/// of the old primary, and that of the new one before its promotion.
const MAX_CLOSINGS: u32 = 3;

/// The connections in a row to one server that ended in place of an answer to the same command.
#[derive(Debug, Default)]
pub(super) struct Closings {
    count: AtomicU32,
    /// The command, and the end of the first connection.
    first: Mutex<Option<(&'static str, Instant)>>,
}

impl Closings {
    /// Returns the count, which a new connection remembers.
    pub(super) fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Records that the server did not greet: it is away.
    pub(super) fn end(&self) {
        self.count.store(0, Relaxed);
    }

    /// Records the outcome of a command over a connection that was begun at `count`. Connections
    /// that end together count once. Replaces the error if the setup is at fault.
    pub(super) fn record<T>(
        &self,
        command: &'static str,
        count: u32,
        outcome: RedisResult<T>,
    ) -> RedisResult<T> {
        let is_closed = outcome.as_ref().is_err_and(redis::RedisError::is_connection_dropped);
        if !is_closed && (self.count() == 0 || !is_reply(&outcome)) {
            return outcome;
        }
        let mut first = lock(&self.first);
        let begun = first.filter(|(at, _)| *at == command && self.count() > 0);
        if !is_closed {
            if begun.is_some() {
                self.end();
            }
            return outcome;
        }
        if self.count() == count {
            self.count.store(if begun.is_some() { count + 1 } else { 1 }, Relaxed);
            *first = begun.or(Some((command, Instant::now())));
        }
        let lasts = begun.is_some_and(|(_, begun)| begun.elapsed() >= MIN_REFUSAL);
        if !lasts || self.count() < MAX_CLOSINGS {
            return outcome;
        }
        let message = format!(
            "the server greets, and then closes the connection at {command}: it, or a firewall \
             or proxy before it, does not allow this command"
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message).into())
    }
}

/// Returns the name of a command, for errors.
pub(super) fn name(command: Option<&Cmd>) -> &'static str {
    const NAMES: [&str; 4] = ["EVALSHA", "EVAL", "CLUSTER", "ASKING"];
    let Some(Arg::Simple(first)) = command.and_then(|command| command.args_iter().next()) else {
        return "its command";
    };
    NAMES.into_iter().find(|name| name.as_bytes() == first).unwrap_or("another command")
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn closed() -> RedisResult<()> {
        Err(io::Error::from(io::ErrorKind::BrokenPipe).into())
    }

    /// Returns true if the setup is at fault.
    fn record(closings: &Closings, command: &'static str, outcome: RedisResult<()>) -> bool {
        let outcome = closings.record(command, closings.count(), outcome);
        outcome.is_err_and(|error| !error.is_connection_dropped())
    }

    #[tokio::test(start_paused = true)]
    async fn the_third_connection_in_a_row_shows_that_the_setup_is_at_fault() {
        let closings = Closings::default();
        let mut all = Vec::new();
        for _ in 0..4 {
            all.push(record(&closings, "EVAL", closed()));
            advance(MIN_REFUSAL / 2).await;
        }
        assert_eq!(all, [false, false, true, true]);
        // Its text is sent only after another answer.
        assert!(!record(&closings, "EVALSHA", Ok(())));
        assert!(record(&closings, "EVAL", closed()));
        assert!(!record(&closings, "EVAL", Ok(())));
        assert!(!record(&closings, "EVAL", closed()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_that_cuts_connections_for_a_moment_is_no_fault_of_the_setup() {
        let closings = Closings::default();
        for _ in 0..10 {
            assert!(!record(&closings, "EVALSHA", closed()));
            advance(MIN_REFUSAL / 11).await;
        }
    }

    #[test]
    fn connections_that_end_together_count_once() {
        let (closings, before) = (Closings::default(), 0);
        for _ in 0..10 {
            let outcome = closings.record("EVALSHA", before, closed());
            assert!(outcome.is_err_and(|error| error.is_connection_dropped()));
        }
        assert_eq!(closings.count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_away_in_between_is_no_fault_of_the_setup() {
        let closings = Closings::default();
        for _ in 0..10 {
            assert!(!record(&closings, "EVALSHA", closed()));
            advance(MIN_REFUSAL).await;
            assert!(!record(&closings, "EVALSHA", closed()));
            closings.end();
        }
    }
}
