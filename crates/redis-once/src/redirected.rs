//! A connection for single commands, which follows redirects.

use std::sync::{Arc, Mutex};

use redis::{Cmd, Pipeline};
use tokio::time::Instant;

use super::cluster::Cluster;
use super::cluster::redirect::{Next, ask, cannot_serve};
use super::connection::{RepliesFuture, ReplyFuture, SharedConnection};
use super::lock::lock;
use super::pool::Pool;

/// The most redirects of one command.
const MAX_REDIRECTS: usize = 8;

/// A connection to the server that holds a hash slot, even after the slot moves.
struct Redirected {
    pool: Pool,
    cluster: Arc<Cluster>,
    hash_slot: u16,
    connection: Arc<dyn SharedConnection>,
    /// The connection over which the last command was sent: its server owes the answer.
    last: Arc<Mutex<Arc<dyn SharedConnection>>>,
}

impl Pool {
    /// Returns a connection that follows redirects in a cluster, over a connection to the server
    /// that holds the hash slot.
    pub fn redirecting(
        &self,
        connection: Arc<dyn SharedConnection>,
        hash_slot: u16,
    ) -> Arc<dyn SharedConnection> {
        let Some(cluster) = self.cluster().cloned() else { return connection };
        let (pool, last) = (self.clone(), Arc::new(Mutex::new(Arc::clone(&connection))));
        Arc::new(Redirected { pool, cluster, hash_slot, connection, last })
    }
}

impl Redirected {
    fn last(&self) -> Arc<dyn SharedConnection> {
        Arc::clone(&lock(&self.last))
    }
}

impl SharedConnection for Redirected {
    fn send(&self, command: Cmd) -> ReplyFuture {
        let (pool, hash_slot) = (self.pool.clone(), self.hash_slot);
        let cluster = Arc::clone(&self.cluster);
        let (mut connection, last) = (Arc::clone(&self.connection), Arc::clone(&self.last));
        Box::pin(async move {
            *lock(&last) = Arc::clone(&connection);
            let mut reply = connection.send(command.clone()).await?.extract_error();
            for _ in 0..MAX_REDIRECTS {
                let Err(error) = &reply else { break };
                match Next::of(error, connection.address()) {
                    Some(Next::Moved(host)) => {
                        // If the new server cannot be reached, the redirect is the outcome.
                        let Ok(()) = cluster.moved(hash_slot, host.as_ref()) else { break };
                        let Ok(moved) = pool.connection(hash_slot).await else { break };
                        connection = moved;
                        *lock(&last) = Arc::clone(&connection);
                        reply = connection.send(command.clone()).await?.extract_error();
                    }
                    Some(Next::Ask(host)) => {
                        let connecting = pool.connection_to(Some(&host), hash_slot);
                        let Ok(target) = connecting.await else { break };
                        *lock(&last) = Arc::clone(&target);
                        reply = ask(&*target, command.clone()).await;
                        break;
                    }
                    None if cannot_serve(error) => {
                        cluster.doubt(connection.address());
                        break;
                    }
                    Some(Next::Again | Next::WithText) | None => break,
                }
            }
            reply
        })
    }

    fn send_all(&self, commands: Pipeline) -> RepliesFuture {
        self.connection.send_all(commands)
    }

    fn is_alive(&self) -> bool {
        self.last().is_alive()
    }

    fn record_timeout(&self, sent: Instant, is_busy: bool) {
        self.last().record_timeout(sent, is_busy);
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
    use super::super::cluster::NodeSettings;
    use super::super::dialer::Dialer;
    use super::super::simulated;
    use super::super::times::{MAX_CONNECTION_WAIT, MAX_SILENCE};
    use super::*;

    /// Greets a client. The server at port 1 redirects to the server at port 2, which does not
    /// answer.
    fn reply(port: u16, word: &str) -> &'static str {
        match word {
            "HELLO" => "%1\r\n+mode\r\n+cluster\r\n",
            "CLUSTER" => "-ERR no map\r\n",
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

        let redirected = pool.redirecting(Arc::clone(&first), 0);
        let mut reply = redirected.send(cmd("GET").arg("a").take());
        assert!(poll_fn(|cx| Poll::Ready(reply.as_mut().poll(cx).is_pending())).await);
        sleep(Duration::from_millis(10)).await;
        assert!(poll_fn(|cx| Poll::Ready(reply.as_mut().poll(cx).is_pending())).await);
        assert!(!pool.facts(0).is_silent);
        let step = MAX_SILENCE / 10;
        for _ in 0..11 {
            let sent = tokio::time::Instant::now();
            advance(step).await;
            redirected.record_timeout(sent, false);
        }
        assert_eq!((first.is_alive(), second.is_alive()), (true, false));
        assert!(!redirected.is_alive());
        // Charges of the slot, which the server now holds, know it too.
        assert!(pool.facts(0).is_silent);
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
