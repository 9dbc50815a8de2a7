//! The attempts to get a connection, and the partitions that wait for them.
//!
//! In a cluster each partition has connections of its own. All other partitions share connections,
//! and a library's client of a cluster has as many partitions as hash slots: so they wait for one
//! attempt.

use std::sync::Arc;

use tokio::task::{JoinError, JoinSet};

use super::super::connections::SharedConnection;
use super::super::pool::Pool;
use super::super::slot::Partition;
use crate::Error;

pub(super) type ConnectionResult = Result<Arc<dyn SharedConnection>, Error>;

/// The attempts that are under way.
#[derive(Default)]
pub(super) struct Connecting {
    /// Each with its partition if it is for that alone.
    attempts: JoinSet<(Option<Partition>, ConnectionResult)>,
    /// The partitions that wait for an attempt for all.
    waiting: Vec<Partition>,
}

impl Connecting {
    /// Lets a partition wait for a connection.
    pub(super) fn begin(&mut self, pool: &Pool, partition: Partition, hash_slot: u16) {
        let own = Some(partition).filter(|_| pool.is_routed());
        if own.is_none() {
            self.waiting.push(partition);
        }
        if own.is_some() || self.attempts.is_empty() {
            let connection = pool.connection(hash_slot);
            self.attempts.spawn(async move { (own, connection.await) });
        }
    }

    /// The end of the next attempt. `None`: there is none.
    pub(super) async fn join_next(
        &mut self,
    ) -> Option<Result<(Vec<Partition>, ConnectionResult), JoinError>> {
        let ended = self.attempts.join_next().await?;
        Some(ended.map(|(own, outcome)| match own {
            Some(partition) => (vec![partition], outcome),
            None => (std::mem::take(&mut self.waiting), outcome),
        }))
    }
}
