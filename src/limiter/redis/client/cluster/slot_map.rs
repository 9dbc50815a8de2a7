//! The map from hash slots to servers: the reply to CLUSTER SLOTS.

use std::ops::Range;

use redis::{Value, from_redis_value_ref};

use super::super::address::Host;
use super::super::slot::HASH_SLOTS;
use crate::{Error, ErrorKind};

/// The master of each range of slots.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlotMap(Vec<(Range<usize>, Host)>);

impl SlotMap {
    /// Reads a reply of the server at `asked`. Without a host, or with `?`, the server means the
    /// host that was asked.
    pub(super) fn read(reply: &Value, asked: &Host) -> Result<Self, Error> {
        let Value::Array(ranges) = reply else { return Err(malformed_map()) };
        let read = |range| read_range(range, asked).ok_or_else(malformed_map);
        ranges.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn ranges(&self) -> impl Iterator<Item = (Range<usize>, &Host)> {
        self.0.iter().map(|(slots, address)| (slots.clone(), address))
    }

    /// Returns whether no server holds any slot.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn malformed_map() -> Error {
    Error::new(ErrorKind::State, "the reply to CLUSTER SLOTS cannot be read")
}

/// Reads one range: first slot, last slot, master, replicas.
fn read_range(range: &Value, asked: &Host) -> Option<(Range<usize>, Host)> {
    let Value::Array(fields) = range else { return None };
    let [first, last, Value::Array(master), ..] = &fields[..] else { return None };
    let [host, port, ..] = &master[..] else { return None };
    let (first, last) = (number(first)?, number(last)?);
    if first > last || last >= HASH_SLOTS {
        return None;
    }
    let host: Option<String> = from_redis_value_ref(host).ok()?;
    let host = host.filter(|host| !host.is_empty() && host != "?");
    let port = number(port).filter(|port| *port != 0)?;
    let address = Host { name: host.unwrap_or_else(|| asked.name.clone()), port };
    Some((usize::from(first)..usize::from(last) + 1, address))
}

/// Reads a number that fits: the client would cut a larger one.
fn number(value: &Value) -> Option<u16> {
    let Value::Int(number) = value else { return None };
    u16::try_from(*number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn masters_are_read_and_a_missing_host_is_the_asked_one() {
        let asked = address("seed", 1);
        let reply = Value::Array(vec![
            range(0, 99, text("10.0.0.1"), 6379),
            range(100, 200, text(""), 7),
            range(201, 201, Value::Nil, 8),
            range(202, 16_383, text("?"), 9),
        ]);
        let map = SlotMap::read(&reply, &asked).unwrap();
        let expected = [
            (0..100, address("10.0.0.1", 6379)),
            (100..201, address("seed", 7)),
            (201..202, address("seed", 8)),
            (202..16_384, address("seed", 9)),
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
            Value::Array(vec![range(0, 1, text("a"), 0)]),
            Value::Array(vec![range(0, 1, text("a"), 70_000)]),
        ];
        for reply in malformed {
            assert!(SlotMap::read(&reply, &asked).is_err(), "{reply:?}");
        }
        assert!(SlotMap::read(&Value::Array(Vec::new()), &asked).unwrap().is_empty());
    }
}
