//! A connection for commands that are sent one by one: it follows redirects.

use std::sync::Arc;

use redis::{Cmd, Pipeline};
use tokio::time::Instant;

use super::super::connection::{RepliesFuture, ReplyFuture, SharedConnection};
use super::Cluster;
use super::redirect::{Next, ask, cannot_serve};

/// The most redirects of one command.
const MAX_REDIRECTS: usize = 8;

/// A connection to the server that holds a hash slot, even after the slot moves.
pub(in super::super) struct Redirected {
    cluster: Arc<Cluster>,
    hash_slot: u16,
    connection: Arc<dyn SharedConnection>,
}

impl Redirected {
    /// Wraps a connection, so that it follows redirects.
    pub(in super::super) fn over(
        cluster: Arc<Cluster>,
        hash_slot: u16,
        connection: Arc<dyn SharedConnection>,
    ) -> Arc<dyn SharedConnection> {
        Arc::new(Self { cluster, hash_slot, connection })
    }
}

impl SharedConnection for Redirected {
    fn send(&self, command: Cmd) -> ReplyFuture {
        let (cluster, hash_slot) = (Arc::clone(&self.cluster), self.hash_slot);
        let mut connection = Arc::clone(&self.connection);
        Box::pin(async move {
            let mut reply = connection.send(command.clone()).await?.extract_error();
            for _ in 0..MAX_REDIRECTS {
                let Err(error) = &reply else { break };
                match Next::of(error, connection.address()) {
                    Some(Next::Moved(host)) => {
                        // If the new server cannot be reached, the redirect is the outcome.
                        let Ok(()) = cluster.moved(hash_slot, &host) else { break };
                        let Ok(moved) = cluster.connection_for(hash_slot).await else { break };
                        connection = moved;
                        reply = connection.send(command.clone()).await?.extract_error();
                    }
                    Some(Next::Ask(host)) => {
                        let Ok(target) = cluster.connection_to(&host, hash_slot).await else {
                            break;
                        };
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
        self.connection.is_alive()
    }

    fn record_timeout(&self, sent: Instant, is_busy: bool) {
        self.connection.record_timeout(sent, is_busy);
    }

    fn mark_read_only(&self) {
        self.connection.mark_read_only();
    }
}
