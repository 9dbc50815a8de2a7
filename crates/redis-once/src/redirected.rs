//! A connection for single commands, which sends a command again while servers say that they did
//! not run it.

use std::future::pending;
use std::sync::{Arc, Mutex};

use redis::{Cmd, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::time::{Instant, sleep};

use super::cluster::redirect::{Next, ask, cannot_serve};
use super::connection::{RepliesFuture, ReplyFuture, SharedConnection};
use super::fault::{Deadline, Stage};
use super::lock::lock;
use super::pool::Pool;
use super::times::RETRY_PAUSE;

/// The most redirects of one command without a pause.
const MAX_REDIRECTS: usize = 8;

/// A connection to the server that holds a hash slot, even after the slot moves.
#[derive(Clone)]
struct Redirected {
    pool: Pool,
    hash_slot: u16,
    /// Later, a command is not sent again: its caller has given up.
    until: Instant,
    connection: Arc<dyn SharedConnection>,
    last: Arc<Mutex<Last>>,
}

/// The last step of a command.
struct Last {
    /// The connection over which it was sent: its server owes the answer.
    connection: Arc<dyn SharedConnection>,
    stage: Stage,
}

impl Pool {
    /// Returns a connection that sends a command again while servers say that they did not run it,
    /// until the deadline, over a connection to the server that holds the hash slot.
    pub fn redirecting(
        &self,
        connection: Arc<dyn SharedConnection>,
        deadline: Deadline,
    ) -> Arc<dyn SharedConnection> {
        let last = Last { connection: Arc::clone(&connection), stage: Stage::Waiting };
        let last = Arc::new(Mutex::new(last));
        let Deadline { at, hash_slot, .. } = deadline;
        Arc::new(Redirected { pool: self.clone(), hash_slot, until: at, connection, last })
    }
}

impl Redirected {
    fn last(&self) -> Arc<dyn SharedConnection> {
        Arc::clone(&lock(&self.last).connection)
    }

    fn record(&self, connection: &Arc<dyn SharedConnection>, stage: Stage) {
        *lock(&self.last) = Last { connection: Arc::clone(connection), stage };
    }

    /// Sends a command until a server runs it.
    async fn send_until_run(mut self, command: Cmd) -> RedisResult<Value> {
        let mut turned_away = None;
        loop {
            let reply = self.follow(&command, &mut turned_away).await;
            if !reply.as_ref().is_err_and(|error| self.is_moving(error)) {
                return reply;
            }
            self.turned_away(&mut turned_away);
            loop {
                sleep(RETRY_PAUSE).await;
                if Instant::now() >= self.until {
                    // The caller has given up, or does so now.
                    return pending().await;
                }
                if let Ok(()) = self.connect().await {
                    break;
                }
            }
        }
    }

    /// Sends a command, and follows redirects. A redirect is the error if its server cannot be
    /// reached, or redirects back.
    async fn follow(
        &mut self,
        command: &Cmd,
        turned_away: &mut Option<Instant>,
    ) -> RedisResult<Value> {
        let mut reply = self.send_once(command).await;
        for _ in 0..MAX_REDIRECTS {
            let (Err(error), Some(cluster)) = (&reply, self.pool.cluster().cloned()) else { break };
            match Next::of(error, self.connection.address()) {
                Some(Next::Moved(host)) => {
                    self.turned_away(turned_away);
                    let Ok(()) = cluster.moved(self.hash_slot, host.as_ref()) else { break };
                    let Ok(()) = self.connect().await else { break };
                    reply = self.send_once(command).await;
                }
                Some(Next::Ask(host)) => {
                    self.turned_away(turned_away);
                    let connecting = self.pool.connection_to(Some(&host), self.hash_slot);
                    let Ok(target) = connecting.await else { break };
                    self.record(&target, Stage::Waiting);
                    return ask(&*target, command.clone()).await;
                }
                None if cannot_serve(error) => {
                    cluster.doubt(self.connection.address());
                    break;
                }
                Some(Next::Again | Next::WithText) | None => break,
            }
        }
        reply
    }

    async fn send_once(&self, command: &Cmd) -> RedisResult<Value> {
        self.record(&self.connection, Stage::Waiting);
        self.connection.send(command.clone()).await.and_then(Value::extract_error)
    }

    async fn connect(&mut self) -> Result<(), super::error::Error> {
        self.connection = self.pool.connection(self.hash_slot).await?;
        Ok(())
    }

    /// Records that a server did not run the command.
    fn turned_away(&self, first: &mut Option<Instant>) {
        let since = *first.get_or_insert_with(Instant::now);
        lock(&self.last).stage = Stage::TurnedAway(since);
    }

    /// Returns true if servers are moving the keys, and ran nothing.
    fn is_moving(&self, error: &RedisError) -> bool {
        use ServerErrorKind::{Ask, Moved, TryAgain};
        let moving = if self.pool.is_routed() { &[TryAgain, Moved, Ask][..] } else { &[TryAgain] };
        moving.iter().any(|kind| error.kind() == redis::ErrorKind::Server(*kind))
    }
}

impl SharedConnection for Redirected {
    fn send(&self, command: Cmd) -> ReplyFuture {
        Box::pin(self.clone().send_until_run(command))
    }

    fn send_all(&self, commands: Pipeline) -> RepliesFuture {
        self.connection.send_all(commands)
    }

    fn stage(&self) -> Stage {
        lock(&self.last).stage.clone()
    }

    fn is_alive(&self) -> bool {
        self.last().is_alive()
    }

    fn record_timeout(&self) {
        self.last().record_timeout();
    }

    fn mark_read_only(&self) {
        self.last().mark_read_only();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io;
    use std::task::Poll;
    use std::time::Duration;

    use redis::cmd;
    use tokio::io::DuplexStream;
    use tokio::time::{advance, sleep};

    use super::super::address::Host;
    use super::super::cluster::{Cluster, NodeSettings};
    use super::super::dialer::Dialer;
    use super::super::simulated;
    use super::super::times::{MAX_CONNECTION_WAIT, MAX_SILENCE};
    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    /// Greets a client. The server at port 1 redirects to the server at port 2, which does not
    /// answer.
    fn reply(port: u16, word: &str) -> &'static str {
        match word {
            "HELLO" => "%1\r\n+mode\r\n+cluster\r\n",
            "CLUSTER" if port == 1 => "-ERR no map\r\n",
            "GET" if port == 1 => "-MOVED 0 127.0.0.1:2\r\n",
            _ => "",
        }
    }

    /// Makes a pool for a cluster, and two of its servers.
    fn cluster(dialer: Dialer) -> (Pool, [Host; 2]) {
        let connector = simulated::connector(Duration::from_secs(1), dialer);
        let hosts = [1, 2].map(simulated::host);
        let settings = NodeSettings { connector, size: 1 };
        let cluster = Cluster::new(settings, vec![hosts[0].clone()]).expect("an address");
        (Pool::of_cluster(cluster, None), hosts)
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_answer_is_of_the_server_that_was_asked_last() {
        let (pool, [one, two]) = cluster(Dialer::new(|_, port| async move {
            Ok(simulated::served(move |word| reply(port, word)))
        }));
        let first = pool.connection_to(Some(&one), 0).await.expect("a connection");
        let second = pool.connection_to(Some(&two), 0).await.expect("a connection");

        let redirected =
            pool.redirecting(Arc::clone(&first), Deadline::new(Instant::now() + LONG, 0));
        let mut reply = redirected.send(cmd("GET").arg("a").take());
        for _ in 0..5 {
            let polled = poll_fn(|cx| Poll::Ready(reply.as_mut().poll(cx))).await;
            assert!(polled.is_pending(), "{polled:?}");
            sleep(Duration::from_millis(1)).await;
        }
        assert!(pool.facts(0).failure.is_none());
        redirected.record_timeout();
        assert!(redirected.is_alive());
        advance(MAX_SILENCE).await;
        redirected.record_timeout();
        assert_eq!((first.is_alive(), second.is_alive()), (true, false));
        assert!(!redirected.is_alive());
        // Charges of the slot, which the server now holds, know it too.
        assert!(pool.facts(0).failure.is_some());
    }

    /// This is known even in a busy process.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_refuses_connections_while_a_slot_moves_to_it_is_at_fault() {
        let refused =
            || std::future::ready(Err::<DuplexStream, _>(io::ErrorKind::ConnectionRefused.into()));
        let (pool, [_, two]) = cluster(Dialer::new(move |_, _| refused()));
        let busy = async {
            for _ in 0..5 {
                sleep(Duration::from_millis(1)).await;
                advance(MAX_CONNECTION_WAIT / 6).await;
            }
        };
        let (connected, ()) = tokio::join!(pool.connection_to(Some(&two), 0), busy);
        let error = connected.err().expect("no connection");
        assert_eq!(error.kind(), super::super::error::ErrorKind::Infrastructure, "{error}");
        assert!(error.to_string().contains("127.0.0.1:2"), "{error}");
    }
}
