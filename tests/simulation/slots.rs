//! A node's view of its cluster: who holds which hash slot, and which slots are on the move.

use std::collections::{BTreeMap, BTreeSet};

use super::keyspace::Keyspace;
use super::resp::{Reply, Word};
use super::server::Address;

/// The number of hash slots.
pub const COUNT: u16 = 16_384;

/// Which node holds which slot, as one node sees it.
#[derive(Debug)]
pub struct Slots {
    /// The node whose view this is, or the primary that it follows.
    pub own: Address,
    /// By slot. `None`: nobody holds it.
    pub owners: Vec<Option<Address>>,
    /// Slots that leave this node, and where to.
    pub migrating: BTreeMap<u16, Address>,
    /// Slots that come to this node.
    pub importing: BTreeSet<u16>,
    /// Every request for a key is answered with CLUSTERDOWN.
    pub is_down: bool,
}

impl Slots {
    /// Slots that several masters share evenly, in ranges.
    pub fn shared(own: Address, masters: &[Address]) -> Self {
        let place = |slot: u16| usize::from(slot) * masters.len() / usize::from(COUNT);
        let owners = (0..COUNT).map(|slot| Some(masters[place(slot)].clone())).collect();
        Self { own, owners, migrating: BTreeMap::new(), importing: BTreeSet::new(), is_down: false }
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
        let owner = self.owners[usize::from(slot)].as_ref();
        let owner = owner.ok_or("CLUSTERDOWN Hash slot not served")?;
        if keys.iter().any(|key| slot_of(key) != slot) {
            return Err("CROSSSLOT Keys in request don't hash to the same slot".into());
        }
        if self.is_down {
            return Err("CLUSTERDOWN The cluster is down".into());
        }
        let missing = keys.iter().filter(|key| data.get(key).is_none()).count();
        let try_again = "TRYAGAIN Multiple keys request during rehashing of slot";
        if let Some((host, port)) = self.migrating.get(&slot)
            && missing > 0
        {
            return match missing < keys.len() {
                true => Err(try_again.into()),
                false => Err(Reply::Error(format!("ASK {slot} {host}:{port}"))),
            };
        }
        if self.importing.contains(&slot) && is_asking {
            return if missing > 0 && keys.len() > 1 { Err(try_again.into()) } else { Ok(()) };
        }
        if *owner == self.own || reads_of == Some(owner) {
            return Ok(());
        }
        Err(Reply::Error(format!("MOVED {slot} {}:{}", owner.0, owner.1)))
    }

    /// The reply to `CLUSTER SLOTS`.
    pub(super) fn reply(&self) -> Reply {
        let slots: Vec<_> = (0..COUNT).zip(&self.owners).collect();
        let ranges = slots.chunk_by(|(_, one), (_, next)| one == next);
        let range = |range: &[(u16, &Option<Address>)]| {
            let [(first, owner), .., (last, _)] = *range else {
                let (slot, owner) = range[0];
                return of_range(slot, slot, owner.as_ref()?);
            };
            of_range(first, last, owner.as_ref()?)
        };
        Reply::List(ranges.filter_map(range).collect())
    }
}

fn of_range(first: u16, last: u16, (host, port): &Address) -> Option<Reply> {
    let id = Reply::text(format!("{host}:{port}"));
    let node = vec![Reply::text(host), Reply::Integer((*port).into()), id];
    let ends = [first, last].map(|slot| Reply::Integer(slot.into()));
    Some(Reply::List([ends.to_vec(), vec![Reply::List(node)]].concat()))
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
