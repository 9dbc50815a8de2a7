//! A node's view of its cluster: who holds which hash slot, and which slots are on the move.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::keyspace::Keyspace;
use super::resp::{Reply, Word};
use super::server::Address;

/// The number of hash slots.
pub const COUNT: u16 = 16_384;

/// The node that holds each slot, as one node sees it. Nodes go by their numbers.
#[derive(Clone, Debug)]
pub struct Slots {
    /// The node whose view this is.
    pub own: u8,
    pub nodes: Rc<[Address]>,
    /// By slot. `None`: nobody holds it.
    pub owners: Vec<Option<u8>>,
    /// Replicas by their masters.
    pub replicas: BTreeMap<u8, u8>,
    /// Slots that leave this node, and where to.
    pub migrating: BTreeMap<u16, u8>,
    /// Slots that come to this node.
    pub importing: BTreeSet<u16>,
    /// Every request for a key is answered with CLUSTERDOWN.
    pub is_down: bool,
    /// `CLUSTER SLOTS` names these owners in place of the true ones.
    pub named: Option<Vec<Option<u8>>>,
}

impl Slots {
    /// Slots that the first nodes share evenly, in ranges.
    pub fn shared(own: u8, nodes: Rc<[Address]>, masters: u8) -> Self {
        let place = |slot: u16| usize::from(slot) * usize::from(masters) / usize::from(COUNT);
        Self {
            own,
            nodes,
            owners: (0..COUNT).map(|slot| Some(place(slot) as u8)).collect(),
            replicas: BTreeMap::new(),
            migrating: BTreeMap::new(),
            importing: BTreeSet::new(),
            is_down: false,
            named: None,
        }
    }

    /// Refuses a request whose keys are not here, as Redis does.
    pub(super) fn admit(
        &self,
        keys: &[Word],
        is_asking: bool,
        reads_of: Option<&Address>,
        data: &mut Keyspace,
    ) -> Result<(), Reply> {
        let Some(first) = keys.first() else { return Ok(()) };
        let slot = slot_of(first);
        let owner = self.owners[usize::from(slot)];
        let owner = owner.ok_or("CLUSTERDOWN Hash slot not served")?;
        if keys.iter().any(|key| slot_of(key) != slot) {
            return Err("CROSSSLOT Keys in request don't hash to the same slot".into());
        }
        if self.is_down {
            return Err("CLUSTERDOWN The cluster is down".into());
        }
        let missing = keys.iter().filter(|key| data.get(key).is_none()).count();
        let try_again = "TRYAGAIN Multiple keys request during rehashing of slot";
        let redirect = |code: &str, node: u8| {
            let (host, port) = &self.nodes[usize::from(node)];
            Err(Reply::Error(format!("{code} {slot} {host}:{port}")))
        };
        if let Some(target) = self.migrating.get(&slot)
            && missing > 0
        {
            return match missing < keys.len() {
                true => Err(try_again.into()),
                false => redirect("ASK", *target),
            };
        }
        if self.importing.contains(&slot) && is_asking {
            return if missing > 0 && keys.len() > 1 { Err(try_again.into()) } else { Ok(()) };
        }
        if owner == self.own || reads_of == Some(&self.nodes[usize::from(owner)]) {
            return Ok(());
        }
        redirect("MOVED", owner)
    }

    /// The reply to `CLUSTER SLOTS`.
    pub(super) fn reply(&self) -> Reply {
        let owners = self.named.as_ref().unwrap_or(&self.owners);
        let mut ranges = Vec::new();
        let mut first = 0;
        for range in owners.chunk_by(|one, next| one == next) {
            let last = first + range.len() as i64 - 1;
            if let Some(master) = range[0] {
                let replica = self.replicas.get(&master);
                let nodes = [Some(&master), replica].into_iter().flatten();
                let ends = [first, last].map(Reply::Integer);
                let nodes = nodes.map(|node| self.named_node(*node)).collect();
                ranges.push(Reply::List([ends.to_vec(), nodes].concat()));
            }
            first = last + 1;
        }
        Reply::List(ranges)
    }

    /// The hosts that this reply names as masters.
    pub(super) fn masters(&self) -> Vec<String> {
        let owners: BTreeSet<u8> =
            self.named.as_ref().unwrap_or(&self.owners).iter().flatten().copied().collect();
        owners.into_iter().map(|node| self.nodes[usize::from(node)].0.clone()).collect()
    }

    fn named_node(&self, node: u8) -> Reply {
        let (host, port) = &self.nodes[usize::from(node)];
        let id = Reply::text(format!("{host}:{port}"));
        let metadata = Reply::List(Vec::new());
        Reply::List(vec![Reply::text(host), Reply::Integer((*port).into()), id, metadata])
    }
}

/// The hash slot of a key: CRC16 of what stands between the first braces, or of all of it.
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|byte| *byte == b'{')?;
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        Some(&rest[..close]).filter(|tag| !tag.is_empty())
    };
    let hashed = tag().unwrap_or(key);
    let crc = hashed.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    });
    crc % COUNT
}
