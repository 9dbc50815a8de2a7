//! The known servers of a cluster, and the server that holds each hash slot.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::time::Instant;

use super::super::address::Host;
use super::super::error::{Error, ErrorKind};
use super::super::event::{Event, Listener};
use super::super::greeting::ServerKind;
use super::super::lock::lock;
use super::super::own_pool::OwnPool;
use super::super::server::{Connector, Server};
use super::super::times::KEEP_AFTER_REDIRECT;
use super::slot_map::{HASH_SLOTS, SlotMap, hash_slot};

/// The most servers that are known at a time. Redis recommends at most 1,000 nodes.
const MAX_NODES: usize = 4_096;

/// The number for a slot without a known server.
pub(super) const UNKNOWN: u16 = u16::MAX;

/// A server, and the connections to it.
pub(super) struct Node {
    pub(super) host: Host,
    pub(super) server: Server,
    pub(super) pool: Arc<OwnPool>,
    /// The instant at which a redirect last named it.
    redirected_to: Mutex<Option<Instant>>,
}

impl Node {
    pub(super) fn new(host: &Host, connector: &Connector) -> Self {
        let server = connector.server(host, ServerKind::ClusterNode);
        let pool = Arc::new(OwnPool::new(server.clone().into(), connector));
        Self { host: host.clone(), server, pool, redirected_to: Mutex::default() }
    }
}

/// The servers of a cluster, by number, and the number of each slot's server.
pub(super) struct Nodes {
    slots: Box<[AtomicU16]>,
    known: RwLock<Vec<Option<Arc<Node>>>>,
    listener: Listener,
    /// The number of slots that redirects have moved since the last map. The first was told.
    redirected: AtomicUsize,
}

impl Nodes {
    pub(super) fn new(listener: Listener) -> Self {
        let slots = (0..HASH_SLOTS).map(|_| AtomicU16::new(UNKNOWN)).collect();
        Self { slots, known: RwLock::default(), listener, redirected: AtomicUsize::new(0) }
    }

    /// Returns the number of the server that holds a slot, if it is known.
    pub(super) fn number_of(&self, hash_slot: u16) -> Option<u16> {
        let number = self.slots[usize::from(hash_slot)].load(Relaxed);
        Some(number).filter(|number| *number != UNKNOWN)
    }

    /// Returns the server that holds a slot, and its number.
    pub(super) fn of(&self, hash_slot: u16) -> Option<(u16, Arc<Node>)> {
        let number = self.number_of(hash_slot)?;
        Some((number, self.read().get(usize::from(number))?.clone()?))
    }

    /// Records the server that holds a slot, from a redirect.
    pub(super) fn assign(&self, hash_slot: u16, number: u16) {
        let before = self.slots[usize::from(hash_slot)].swap(number, Relaxed);
        if has_moved(before, number) && self.redirected.fetch_add(1, Relaxed) == 0 {
            self.listener.tell(&Event::SlotsMoved { slots: 1 });
        }
    }

    /// Returns a hash tag for each server that holds slots.
    pub(super) fn first_tags(&self) -> Vec<u32> {
        let mut numbers: HashSet<_> =
            (0..HASH_SLOTS).filter_map(|slot| self.number_of(slot)).collect();
        let count = numbers.len();
        let is_first = |tag: &u32| {
            let number = self.number_of(hash_slot(&tag.to_string()));
            number.is_some_and(|number| numbers.remove(&number))
        };
        // Tags fall on slots at random, so that these meet each slot.
        let tags = 0..32 * u32::from(HASH_SLOTS);
        tags.filter(is_first).take(count).collect()
    }

    /// Returns all servers.
    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        self.read().iter().flatten().cloned().collect()
    }

    /// Returns the server at an address from a redirect, and its number.
    pub(super) fn redirected_to(
        &self,
        address: &Host,
        connector: &Connector,
    ) -> Result<(u16, Arc<Node>), Error> {
        let mut known = self.write();
        let (number, node) = find_or_add(&mut known, address, connector)?;
        *lock(&node.redirected_to) = Some(Instant::now());
        Ok((number, node))
    }

    /// Records the server of every slot from `map`. Removes servers without slots, except those
    /// that a redirect named a short time ago and that are not away.
    pub(super) fn replace(&self, map: &SlotMap, connector: &Connector) -> Result<(), Error> {
        let away: Vec<_> = self.all().into_iter().filter(|node| node.pool.is_away()).collect();
        let mut known = self.write();
        let mut numbers = vec![UNKNOWN; usize::from(HASH_SLOTS)];
        for (slots, address) in &map.0 {
            let (number, _) = find_or_add(&mut known, address, connector)?;
            numbers[slots.clone()].fill(number);
        }
        let mut moved = self.redirected.swap(0, Relaxed).saturating_sub(1);
        for (slot, number) in self.slots.iter().zip(&numbers) {
            moved += usize::from(has_moved(slot.swap(*number, Relaxed), *number));
        }
        let now = Instant::now();
        for (entry, number) in known.iter_mut().zip(0..) {
            let Some(node) = entry.as_ref().filter(|_| !numbers.contains(&number)) else {
                continue;
            };
            // A server that is away was replaced by a promoted one, so its later answers are
            // useless. A live server that lost its slots still answers earlier calls.
            let is_away = away.iter().any(|one| Arc::ptr_eq(one, node));
            if is_away {
                node.server.health.leave();
            }
            let redirected_to = *lock(&node.redirected_to);
            if is_away || redirected_to.is_none_or(|at| now >= at + KEEP_AFTER_REDIRECT) {
                *entry = None;
            }
        }
        // A subscriber may use the cluster, so the lock ends first.
        drop(known);
        if moved > 0 {
            self.listener.tell(&Event::SlotsMoved { slots: moved });
        }
        Ok(())
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Option<Arc<Node>>>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Option<Arc<Node>>>> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if a slot has left the server that held it.
fn has_moved(before: u16, number: u16) -> bool {
    before != UNKNOWN && before != number
}

/// Returns the server at an address, and its number. Adds the server if it is not known.
fn find_or_add(
    known: &mut Vec<Option<Arc<Node>>>,
    address: &Host,
    connector: &Connector,
) -> Result<(u16, Arc<Node>), Error> {
    let is_there = |one: &Option<Arc<Node>>| one.as_ref().is_some_and(|node| node.host == *address);
    if let Some(number) = known.iter().position(is_there)
        && let Some(node) = &known[number]
    {
        return Ok((number as u16, Arc::clone(node)));
    }
    let number = known.iter().position(Option::is_none).unwrap_or(known.len());
    if number >= MAX_NODES {
        return Err(Error::new(ErrorKind::State, "the cluster names too many servers"));
    }
    let node = Arc::new(Node::new(address, connector));
    known.resize(known.len().max(number + 1), None);
    known[number] = Some(Arc::clone(&node));
    Ok((number as u16, node))
}

#[cfg(test)]
mod tests {
    use super::super::super::pool::Pool;
    use super::*;

    /// A redirect keeps a live server for a while: it still answers earlier calls.
    #[tokio::test]
    async fn a_replaced_master_is_left_even_if_a_redirect_named_it() {
        let pool = Pool::connect("redis-cluster://127.0.0.1:1").expect("an address");
        let cluster = pool.cluster().expect("a cluster");
        let host = |port| Host { name: "127.0.0.1".into(), port };
        let [(_, replaced), _] = [1, 2].map(|port| {
            cluster.nodes.redirected_to(&host(port), &cluster.connector).expect("a server")
        });
        let connecting = Arc::clone(&replaced.pool).connection_at(None);
        tokio::select! {
            outcome = connecting => assert!(outcome.is_err(), "nothing listens there"),
            () = async { while !replaced.pool.is_away() { tokio::task::yield_now().await } } => {}
        }
        let map = SlotMap(vec![(0..usize::from(HASH_SLOTS), host(3))]);
        cluster.nodes.replace(&map, &cluster.connector).expect("a map");
        let mut ports: Vec<_> = cluster.nodes.all().iter().map(|node| node.host.port).collect();
        ports.sort_unstable();
        assert_eq!(ports, [2, 3]);
    }

    /// Numbers of servers would run out, and memory with them.
    #[tokio::test]
    async fn redirects_to_ever_more_servers_are_an_error() {
        let pool = Pool::connect("redis-cluster://127.0.0.1:1").expect("an address");
        let cluster = pool.cluster().expect("a cluster");
        let redirect = |port| {
            let host = Host { name: "127.0.0.1".into(), port };
            cluster.nodes.redirected_to(&host, &cluster.connector).map(|(number, _)| number)
        };
        let most = MAX_NODES as u16;
        for port in 1..=most {
            assert_eq!(redirect(port).expect("a server"), port - 1);
        }
        assert_eq!(redirect(most + 1).expect_err("too many").kind(), ErrorKind::State);
        assert_eq!(redirect(7).expect("a known server"), 6);
    }
}
