//! The servers of a Redis Cluster, and the server of each hash slot.
//!
//! `nodes.rs` has the servers with the crate's own connections, and the server of each slot.
//! `slot_map.rs` parses the map of slots, and `refresh.rs` reads it again. `redirect.rs` finds the
//! next step of a call that a server did not run.
//!
//! The crate sends a call again only if a reply proves that it has not run: MOVED, ASK, TRYAGAIN,
//! NOSCRIPT. It asks only masters.

mod nodes;
pub(super) mod redirect;
mod refresh;
pub(super) mod slot_map;

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use tokio::select;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout_at};

use self::nodes::{Node, Nodes};
use self::refresh::Refreshes;
use self::slot_map::Partition;
use super::address::Host;
use super::connection::{ConnectionFuture, Connections, SharedConnection};
use super::error::{Error, ErrorKind};
use super::error_reply::before_asking;
use super::fault::{Facts, Failed};
use super::server::Connector;
use super::times::REFRESH_CHECK;

/// Connections to the servers of a cluster.
pub(super) struct Cluster {
    connector: Connector,
    /// The servers at the addresses with which the pool was built.
    seeds: Vec<Arc<Node>>,
    nodes: Nodes,
    refreshes: Refreshes,
    /// Notified when the slot map changes, and when an attempt to read it ends.
    changed: Notify,
    /// The tasks that read the slot map. They end with the cluster.
    attempts: Mutex<JoinSet<()>>,
}

impl Cluster {
    /// Makes the cluster without connecting yet. `seeds` has at least one address.
    pub(super) fn new(connector: Connector, seeds: &[Host]) -> Self {
        let seeds = seeds.iter().map(|host| Arc::new(Node::new(host, &connector))).collect();
        let nodes = Nodes::new(connector.listener.clone());
        let (refreshes, changed, attempts) =
            (Refreshes::default(), Notify::new(), Mutex::default());
        Self { connector, seeds, nodes, refreshes, changed, attempts }
    }

    /// Returns the partition of a slot. Each connection has one, so that calls of a slot keep their
    /// order.
    pub(super) fn partition(&self, hash_slot: u16) -> Partition {
        self.nodes.number_of(hash_slot).map_or(Partition::MAX, |node| {
            Partition::from(node) * self.connector.size + self.place(hash_slot)
        })
    }

    /// Waits until a slot is no longer in this partition, or until the first map shows where the
    /// others are.
    pub(super) async fn left(&self, partition: Partition, hash_slot: u16) {
        let was_read = self.refreshes.state().was_read;
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.partition(hash_slot) != partition || self.refreshes.state().was_read != was_read
            {
                return;
            }
            changed.await;
        }
    }

    /// Returns the place of a slot's connection among those of its server.
    fn place(&self, hash_slot: u16) -> usize {
        usize::from(hash_slot) % self.connector.size
    }

    /// Waits for a connection to the server that a slot is moving to.
    pub(super) fn connection_to(
        &self,
        host: &Host,
        hash_slot: u16,
    ) -> Result<ConnectionFuture, Error> {
        let (_, node) = self.nodes.redirected_to(host, &self.connector)?;
        Ok(Arc::clone(&node.pool).connection_at(Some(self.place(hash_slot))))
    }

    /// Returns the known facts about such a server.
    pub(super) fn facts_at(&self, host: &Host) -> Result<Facts, Error> {
        Ok(self.nodes.redirected_to(host, &self.connector)?.1.pool.facts())
    }

    /// Records the server of a slot, from a redirect. `None`: its address is not known, so the
    /// calls of the slot wait for the map, which is read soon.
    pub(super) fn moved(
        self: &Arc<Self>,
        hash_slot: u16,
        host: Option<&Host>,
    ) -> Result<(), Error> {
        match host {
            Some(host) => {
                let (number, _) = self.nodes.redirected_to(host, &self.connector)?;
                self.nodes.assign(hash_slot, number);
            }
            None => {
                self.nodes.assign(hash_slot, nodes::UNKNOWN);
                self.refreshes.hurry();
            }
        }
        self.changed.notify_waiters();
        // Other slots have probably moved too.
        self.refresh();
        Ok(())
    }

    /// Returns a hash tag for each master, whose slot it holds.
    pub(super) fn first_tags(&self) -> Vec<u32> {
        self.nodes.first_tags()
    }

    /// Waits for a connection to a server, as long as it holds the slot. `None`: the slot moved.
    async fn connection_of(
        self: &Arc<Self>,
        number: u16,
        node: &Node,
        hash_slot: u16,
    ) -> Option<Result<Arc<dyn SharedConnection>, Error>> {
        let mut connecting = Arc::clone(&node.pool).connection_at(Some(self.place(hash_slot)));
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.nodes.number_of(hash_slot) != Some(number) {
                return None;
            }
            if node.pool.facts().failure.is_some() {
                self.refresh();
            }
            select! {
                biased;
                outcome = &mut connecting => return Some(outcome),
                () = changed => {}
                () = sleep(REFRESH_CHECK) => {}
            }
        }
    }

    /// Makes the error for a slot without a known server.
    fn no_node_error(&self, cause: Option<&Error>) -> Error {
        let message = format!("no server of the cluster at {} holds the key", self.seeds[0].host);
        match cause {
            Some(cause) => before_asking(message, cause.clone()),
            None => Error::new(ErrorKind::Infrastructure, message),
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds: Vec<_> = self.seeds.iter().map(|node| &node.host).collect();
        f.debug_struct("Cluster").field("seeds", &seeds).finish_non_exhaustive()
    }
}

impl Connections for Cluster {
    fn ready_connection(self: Arc<Self>, hash_slot: u16) -> Option<Arc<dyn SharedConnection>> {
        let (_, node) = self.nodes.of(hash_slot)?;
        node.pool.ready_at(Some(self.place(hash_slot)))
    }

    fn connection(self: Arc<Self>, hash_slot: u16) -> ConnectionFuture {
        Box::pin(async move {
            loop {
                let mut changed = pin!(self.changed.notified());
                changed.as_mut().enable();
                if let Some((number, node)) = self.nodes.of(hash_slot) {
                    match self.connection_of(number, &node, hash_slot).await {
                        Some(outcome) => return outcome,
                        None => continue,
                    }
                }
                let _ = timeout_at(self.refresh(), changed).await;
            }
        })
    }

    fn facts(&self, hash_slot: u16) -> Facts {
        if let Some((_, node)) = self.nodes.of(hash_slot) {
            return node.pool.facts();
        }
        let refreshes = self.refreshes.state();
        let failed = |cause: Option<&Error>, at| Failed { error: self.no_node_error(cause), at };
        let failure = match &refreshes.backoff.last_error {
            Some(last) => Some(failed(Some(&last.error), last.at)),
            // While masters change, a server may know no master of a slot for a moment. A busy
            // process reads the next map late, so this counts only in one that is on time.
            None => refreshes.was_read.then(|| failed(None, None)),
        };
        Facts { failure, ..Facts::default() }
    }
}
