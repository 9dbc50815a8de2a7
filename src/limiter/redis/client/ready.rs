//! A pool that waits for its connections.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::Instant;

use super::address::Host;
use super::connection::ConnectionFuture;
use super::fault::Deadline;
use super::pool::Pool;
use super::times::{MAX_CONNECTION_WAIT, READY_WITHIN};
use crate::{Error, ErrorKind};

impl Pool {
    /// Waits until there is a connection, for a second at most. In a cluster, it waits for one to
    /// each master. Call it in an application that must not start without Redis, or whose first
    /// request should find a connection.
    ///
    /// # Errors
    ///
    /// Fails if there is no connection within a second. The error names the server, and its source
    /// says why, if that is known. Fails outside of a tokio runtime.
    pub async fn ready(&self) -> Result<(), Error> {
        crate::limiter::runtime::current()?;
        let end = Instant::now() + READY_WITHIN;
        // In a cluster any slot will do: this waits for the slot map first.
        self.ready_for(0, end).await?;
        if let Some(cluster) = &self.cluster {
            for hash_slot in cluster.first_slots() {
                self.ready_for(hash_slot, end).await?;
            }
        }
        Ok(())
    }

    /// Waits for a connection to the server that a cluster names for a slot that moves, or to the
    /// one that holds the slot.
    pub(crate) fn connection_to(&self, asked: Option<&Host>, hash_slot: u16) -> ConnectionFuture {
        let (pool, asked) = (self.clone(), asked.cloned());
        Box::pin(async move {
            let mut connecting = match (&asked, &pool.cluster) {
                (Some(host), Some(cluster)) => cluster.connection_to(host, hash_slot)?,
                _ => Arc::clone(&pool.connections).connection(hash_slot),
            };
            loop {
                let end = Deadline::new(Instant::now() + MAX_CONNECTION_WAIT, hash_slot);
                if let Some(connected) = end.wait_for(&pool, connecting.as_mut()).await {
                    return connected;
                }
                let facts = match (&asked, &pool.cluster) {
                    (Some(host), Some(cluster)) => cluster.facts_at(host)?,
                    _ => pool.facts(hash_slot),
                };
                let error = end.missed_connection(&pool, &facts);
                if error.kind() != ErrorKind::Saturation || !end.is_late() {
                    return Err(error);
                }
                // This process was paused, so wait again. Callers have deadlines of their own.
            }
        })
    }

    /// Waits until `end` for a connection to the server that holds a hash slot.
    async fn ready_for(&self, hash_slot: u16, end: Instant) -> Result<(), Error> {
        let deadline = Deadline::new(end, hash_slot);
        let connected = deadline.wait_for(self, pin!(self.connection(hash_slot))).await;
        connected
            .unwrap_or_else(|| Err(deadline.missed_connection(self, &self.facts(hash_slot))))
            .map(drop)
    }
}
