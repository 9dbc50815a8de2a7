//! The trace: one fixed-size little-endian row per call, and the order in which the
//! calls were decided.
//!
//! `sent` and `received` are `SystemTime`, not the monotonic clock: the standard library's
//! `Instant` means nothing to another process, and the server's `TIME` is this very clock of this
//! very host, so that every `now` can be checked to lie between the two.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Admitted at once; of a peek: it would be.
    Allowed,
    /// Reserved for later.
    Waited,
    /// Refused, with the wait after which it would be admitted.
    Denied,
    /// Refused: it can never fit.
    Never,
    /// No decision.
    Error,
    /// A reservation given back before its slot came.
    Cancelled,
    /// A reservation given back after its slot came.
    Refunded,
    /// No answer: the network lost it, and the call may have counted.
    Lost,
}

impl Event {
    const ALL: [Self; 8] = [
        Self::Allowed,
        Self::Waited,
        Self::Denied,
        Self::Never,
        Self::Error,
        Self::Cancelled,
        Self::Refunded,
        Self::Lost,
    ];

    /// Returns true if it gives a reservation back, which is answered without a `now`.
    pub fn returns(self) -> bool {
        matches!(self, Self::Cancelled | Self::Refunded)
    }
}

/// One call. A field without a value is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub key: u32,
    pub cost: u32,
    pub process: u16,
    pub task: u16,
    /// The number of this call among those of its task.
    pub number: u32,
    pub event: Event,
    /// Its place among the decisions of one call to the server.
    pub place: u16,
    pub patience: i64,
    pub wait: i64,
    pub now: i64,
    pub remaining: i64,
    pub reset: i64,
    /// The number of the call whose reservation is given back, and the units that were.
    pub of: u32,
    pub units: u32,
    /// Nanoseconds since the Unix epoch.
    pub sent: u64,
    pub received: u64,
}

impl Row {
    pub const SIZE: usize = 83;

    pub fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.key.to_le_bytes());
        bytes.extend(self.cost.to_le_bytes());
        bytes.extend(self.process.to_le_bytes());
        bytes.extend(self.task.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.push(self.event as u8);
        bytes.extend(self.place.to_le_bytes());
        for number in [self.patience, self.wait, self.now, self.remaining, self.reset] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.of.to_le_bytes());
        bytes.extend(self.units.to_le_bytes());
        bytes.extend(self.sent.to_le_bytes());
        bytes.extend(self.received.to_le_bytes());
    }

    pub fn read(bytes: &[u8; Self::SIZE]) -> Self {
        let mut rest = &bytes[..];
        let rest = &mut rest;
        Self {
            key: u32::from_le_bytes(next(rest)),
            cost: u32::from_le_bytes(next(rest)),
            process: u16::from_le_bytes(next(rest)),
            task: u16::from_le_bytes(next(rest)),
            number: u32::from_le_bytes(next(rest)),
            event: Event::ALL[usize::from(u8::from_le_bytes(next(rest)))],
            place: u16::from_le_bytes(next(rest)),
            patience: i64::from_le_bytes(next(rest)),
            wait: i64::from_le_bytes(next(rest)),
            now: i64::from_le_bytes(next(rest)),
            remaining: i64::from_le_bytes(next(rest)),
            reset: i64::from_le_bytes(next(rest)),
            of: u32::from_le_bytes(next(rest)),
            units: u32::from_le_bytes(next(rest)),
            sent: u64::from_le_bytes(next(rest)),
            received: u64::from_le_bytes(next(rest)),
        }
    }
}

fn next<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (first, others) = rest.split_first_chunk().expect("a row is long enough");
    *rest = others;
    *first
}

/// The clock of `sent` and `received`.
pub fn nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_nanos()).expect("before 2554")
}

/// The rows of each key.
pub fn by_key(rows: &[Row]) -> BTreeMap<u32, Vec<Row>> {
    let mut keys: BTreeMap<u32, Vec<Row>> = BTreeMap::new();
    for row in rows {
        keys.entry(row.key).or_default().push(*row);
    }
    keys
}

/// Puts the rows of one key into the order in which they were decided, or says why that is unknown.
///
/// Decisions are ordered by the server's `now`. A refund is answered without one, so a key on which
/// there are any belongs to one task, whose calls follow one another: its own
/// numbers are the order.
pub fn order(rows: &mut [Row]) -> Result<(), String> {
    let Some(first) = rows.first().copied() else { return Ok(()) };
    let key = first.key;
    if rows.iter().any(|row| row.event.returns()) {
        if rows.iter().any(|row| (row.process, row.task) != (first.process, first.task)) {
            return Err(format!("key {key}: a refund on a key of many tasks has no order"));
        }
        rows.sort_by_key(|row| row.number);
        let decided: Vec<_> = rows.iter().filter(|row| !row.event.returns()).collect();
        if decided.windows(2).any(|pair| instant(pair[0]) >= instant(pair[1])) {
            return Err(format!("key {key}: the task's order is not the server's"));
        }
        return Ok(());
    }
    rows.sort_by_key(instant);
    match rows.windows(2).find(|pair| instant(&pair[0]) == instant(&pair[1])) {
        Some(pair) => Err(format!("key {key}: two decisions at {:?}", instant(&pair[0]))),
        None => Ok(()),
    }
}

fn instant(row: &Row) -> (i64, u16) {
    (row.now, row.place)
}
