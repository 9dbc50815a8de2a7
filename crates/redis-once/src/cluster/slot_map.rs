//! The hash slots of a cluster. Each key has one slot, and each slot is on one server. The reply to
//! CLUSTER SLOTS names the servers.

use std::collections::HashMap;
use std::ops::Range;

use redis::{Value, from_redis_value_ref};

use super::super::address::Host;
use super::super::error::{Error, ErrorKind};

/// The host of a server that has no name, although the cluster prefers names.
pub(super) const UNKNOWN: &str = "?";

/// The number of hash slots.
pub const HASH_SLOTS: u16 = 16_384;

/// The number of a partition: the slots whose calls share a connection to a cluster.
pub type Partition = usize;

/// Returns the hash slot of the key `name`. If it has braces, only the text in the first braces
/// counts.
pub fn hash_slot(name: &str) -> u16 {
    let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(name);
    let sum = hashed
        .bytes()
        .fold(0_u16, |sum, byte| sum << 8 ^ CRC_16[usize::from(sum >> 8 ^ u16::from(byte))]);
    sum % HASH_SLOTS
}

/// The CRC-16 of each byte, as XMODEM computes it.
const CRC_16: [u16; 256] = {
    let (mut sums, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let (mut sum, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            sum = if sum >> 15 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 };
            bit += 1;
        }
        sums[byte] = sum;
        byte += 1;
    }
    sums
};

/// The master of each range of slots.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlotMap(pub(super) Vec<(Range<usize>, Host)>);

impl SlotMap {
    /// Reads a reply of the server at `asked`. Without a host, the server means the host that was
    /// asked. With `?`, it means a server without a name: its IP address is among the metadata.
    /// Leaves out the slots of a server whose address is not known.
    pub(super) fn read(reply: &Value, asked: &Host) -> Result<Self, Error> {
        let Value::Array(ranges) = reply else { return Err(malformed_map()) };
        let ranges = ranges.iter().map(|range| read_range(range, asked));
        let ranges: Option<Vec<_>> = ranges.collect();
        let known = ranges.ok_or_else(malformed_map)?.into_iter();
        Ok(Self(known.filter_map(|(slots, host)| Some((slots, host?))).collect()))
    }
}

fn malformed_map() -> Error {
    Error::new(ErrorKind::State, "the reply to CLUSTER SLOTS cannot be read")
}

/// Reads one range: first slot, last slot, master, replicas. A master has a host, a port, an id,
/// and since Redis 7.0 metadata. Its address is `None` if the server that was asked does not know
/// it.
fn read_range(range: &Value, asked: &Host) -> Option<(Range<usize>, Option<Host>)> {
    let Value::Array(fields) = range else { return None };
    let [first, last, Value::Array(master), ..] = &fields[..] else { return None };
    let [host, port, more @ ..] = &master[..] else { return None };
    let (first, last) = (number(first)?, number(last)?);
    if first > last || last >= HASH_SLOTS {
        return None;
    }
    let host: Option<String> = from_redis_value_ref(host).ok()?;
    let port = number(port)?;
    let name = match host.filter(|host| !host.is_empty()) {
        None => Some(asked.name.clone()),
        Some(unknown) if unknown == UNKNOWN => more.get(1).and_then(ip),
        known => known,
    };
    let slots = usize::from(first)..usize::from(last) + 1;
    Some((slots, name.filter(|_| port != 0).map(|name| Host { name, port })))
}

/// Returns the IP address in the metadata of a server.
fn ip(metadata: &Value) -> Option<String> {
    let mut fields: HashMap<String, String> = from_redis_value_ref(metadata).ok()?;
    fields.remove("ip").filter(|ip| !ip.is_empty())
}

/// Reads a number if it is in range: the client would cut a larger one.
fn number(value: &Value) -> Option<u16> {
    let Value::Int(number) = value else { return None };
    u16::try_from(*number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Case 36.
    #[test]
    fn slots_are_those_of_a_cluster() {
        // The answers of CLUSTER KEYSLOT.
        assert_eq!(hash_slot("123456789"), 12_739);
        assert_eq!(hash_slot("sluice:api:tb1:{foo}"), 12_182);
        assert_eq!(hash_slot("foo"), 12_182);
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let server = |host, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let (master, replica) = (server(host, port), server(text("replica"), 1));
        Value::Array(vec![Value::Int(first), Value::Int(last), master, replica])
    }

    fn address(host: &str, port: u16) -> Host {
        Host { name: host.into(), port }
    }

    /// Returns a range with metadata of its master.
    fn described(first: i64, last: i64, host: &str, metadata: Value) -> Value {
        let master = vec![text(host), Value::Int(9), text("id"), metadata];
        Value::Array(vec![Value::Int(first), Value::Int(last), Value::Array(master)])
    }

    #[test]
    fn masters_are_read_and_a_missing_host_is_the_asked_one() {
        let asked = address("seed", 1);
        let reply = Value::Array(vec![
            range(0, 99, text("10.0.0.1"), 6379),
            range(100, 200, text(""), 7),
            range(201, 201, Value::Nil, 8),
            // In RESP3 a map, in RESP2 a list.
            described(202, 299, "?", Value::Map(vec![(text("ip"), text("10.0.0.2"))])),
            described(300, 399, "?", Value::Array(vec![text("ip"), text("::3")])),
            described(400, 499, "a", Value::Map(vec![(text("ip"), text("10.0.0.4"))])),
            // As a server writes that has lost the address of another one.
            described(500, 599, "?", Value::Map(Vec::new())),
            described(600, 699, "?", Value::Array(vec![text("ip"), text("")])),
            range(700, 16_383, text("10.0.0.5"), 0),
        ]);
        let map = SlotMap::read(&reply, &asked).unwrap();
        let expected = [
            (0..100, address("10.0.0.1", 6379)),
            (100..201, address("seed", 7)),
            (201..202, address("seed", 8)),
            (202..300, address("10.0.0.2", 9)),
            (300..400, address("::3", 9)),
            (400..500, address("a", 9)),
        ];
        assert_eq!(map, SlotMap(expected.to_vec()));
    }

    #[test]
    fn other_replies_are_errors() {
        let asked = address("seed", 1);
        let malformed = [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(5, 4, text("a"), 1)]),
            Value::Array(vec![range(0, 16_384, text("a"), 1)]),
            Value::Array(vec![range(-1, 1, text("a"), 1)]),
            Value::Array(vec![range(0, 1, text("a"), 70_000)]),
        ];
        for reply in malformed {
            assert!(SlotMap::read(&reply, &asked).is_err(), "{reply:?}");
        }
        assert!(SlotMap::read(&Value::Array(Vec::new()), &asked).unwrap().0.is_empty());
    }
}
