//! What is written down of each call: rows of fixed size, little-endian.

use std::fs;
use std::path::Path;

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Allowed,
    Waited,
    Denied,
    Never,
    /// Units were asked back.
    Refunded,
    Failed,
}

/// One call. Times are microseconds; `sent` and `received` by this host's clock, which is the server's too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub outcome: Outcome,
    /// Test key, process and task that asked.
    pub key: i64,
    pub task: i64,
    /// Units asked for; of a refund, units given back.
    pub cost: i64,
    pub patience: i64,
    /// From the reply. Of a refund: the `now` and the place of the decision that is given back.
    pub wait: i64,
    pub now: i64,
    pub place: i64,
    pub remaining: i64,
    pub reset_after: i64,
    pub sent: i64,
    pub received: i64,
}

const FIELDS: usize = 12;

const OUTCOMES: [Outcome; 6] = [
    Outcome::Allowed,
    Outcome::Waited,
    Outcome::Denied,
    Outcome::Never,
    Outcome::Refunded,
    Outcome::Failed,
];

impl Row {
    fn fields(&self) -> [i64; FIELDS] {
        let outcome = OUTCOMES.iter().position(|outcome| *outcome == self.outcome);
        [
            outcome.expect("one of six") as i64,
            self.key,
            self.task,
            self.cost,
            self.patience,
            self.wait,
            self.now,
            self.place,
            self.remaining,
            self.reset_after,
            self.sent,
            self.received,
        ]
    }
}

pub fn write(path: &Path, rows: &[Row]) {
    let bytes: Vec<u8> = rows.iter().flat_map(Row::fields).flat_map(i64::to_le_bytes).collect();
    fs::write(path, bytes).expect("a trace");
}

/// Reads a trace, and removes its file.
pub fn read(path: &Path) -> Vec<Row> {
    let bytes = fs::read(path).expect("a trace");
    fs::remove_file(path).expect("removed");
    let row = |bytes: &[u8]| {
        let mut fields = bytes
            .chunks_exact(8)
            .map(|field| i64::from_le_bytes(field.try_into().expect("eight bytes")));
        let mut next = || fields.next().expect("a field");
        Row {
            outcome: OUTCOMES[next() as usize],
            key: next(),
            task: next(),
            cost: next(),
            patience: next(),
            wait: next(),
            now: next(),
            place: next(),
            remaining: next(),
            reset_after: next(),
            sent: next(),
            received: next(),
        }
    };
    bytes.chunks_exact(8 * FIELDS).map(row).collect()
}
