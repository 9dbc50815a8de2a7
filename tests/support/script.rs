//! A call of a script as `scripts/README.md` has it, without the crate in between.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value, cmd};

pub const HEAD: &str = include_str!("../../scripts/head.lua");
pub const TAIL: &str = include_str!("../../scripts/tail.lua");
pub const SEVERAL: &str = include_str!("../../scripts/several.lua");

/// An algorithm's name, its file, and a rule: 5 a second where it has bursts, cells or a pace
/// of the usual size.
pub type Algorithm = (&'static str, &'static str, &'static [i64]);

const SECOND: i64 = 1_000_000;
const HORIZON: i64 = 60 * SECOND;

pub const TOKEN_BUCKET: Algorithm =
    ("token_bucket", include_str!("../../scripts/token_bucket.lua"), &[HORIZON, 200_000, 1, 5]);
pub const FIXED_WINDOW: Algorithm =
    ("fixed_window", include_str!("../../scripts/fixed_window.lua"), &[HORIZON, 5, SECOND, 0]);
pub const SLIDING_LOG: Algorithm =
    ("sliding_log", include_str!("../../scripts/sliding_log.lua"), &[HORIZON, 5, SECOND]);
pub const SLIDING_WINDOW: Algorithm = (
    "sliding_window",
    include_str!("../../scripts/sliding_window.lua"),
    &[HORIZON, 5, 100_000, 10],
);
pub const SLIDING_COUNTER: Algorithm =
    ("sliding_counter", include_str!("../../scripts/sliding_counter.lua"), &[HORIZON, 5, SECOND]);
pub const SMOOTH_BURSTY: Algorithm = (
    "smooth_bursty",
    include_str!("../../scripts/smooth_bursty.lua"),
    &[HORIZON, 5, SECOND, SECOND, 0, 1],
);
pub const SMOOTH_WARMING_UP: Algorithm = (
    "smooth_warming_up",
    include_str!("../../scripts/smooth_warming_up.lua"),
    &[HORIZON, 5, SECOND, SECOND, 3_000, 0],
);

/// Every algorithm.
pub const ALGORITHMS: [Algorithm; 7] = [
    TOKEN_BUCKET,
    FIXED_WINDOW,
    SLIDING_LOG,
    SLIDING_WINDOW,
    SLIDING_COUNTER,
    SMOOTH_BURSTY,
    SMOOTH_WARMING_UP,
];

pub const NOW: i64 = 1_767_225_600_000_000;

/// The script of one algorithm, or of several as one.
pub fn text_of(algorithms: &[Algorithm]) -> String {
    let mut files: Vec<_> = algorithms.iter().map(|algorithm| algorithm.1).collect();
    files.dedup();
    let names: Vec<_> = algorithms.iter().map(|algorithm| algorithm.0).collect();
    let (files, names) = (files.join("\n"), names.join(", "));
    match algorithms {
        [_] => format!("{HEAD}\n{files}\n{TAIL}\nreturn cmsgpack.unpack(run({names}))"),
        _ => format!(
            "{HEAD}\n{files}\n{TAIL}\n{SEVERAL}\nreturn cmsgpack.unpack(run(all_of({names})))"
        ),
    }
}

/// An element of a reply as a word of a later call.
pub fn word(value: &Value) -> String {
    match value {
        Value::Int(number) => number.to_string(),
        Value::BulkString(text) => String::from_utf8(text.clone()).expect("a text"),
        other => panic!("{other:?}"),
    }
}

/// One call, as the contract has it.
pub struct Call {
    pub command: Cmd,
    keys: usize,
}

impl Call {
    /// Under the rule that stands beside the algorithm.
    pub fn new(algorithm: Algorithm, now: Option<i64>, keys: &[&str]) -> Self {
        Self::under(algorithm, algorithm.2, now, keys)
    }

    pub fn under(
        (name, script, _): Algorithm,
        rule: &[i64],
        now: Option<i64>,
        keys: &[&str],
    ) -> Self {
        let mut command = cmd("EVAL");
        command
            .arg(format!("{HEAD}{script}{TAIL}return cmsgpack.unpack(run({name}))"))
            .arg(keys.len());
        command.arg(keys).arg(now.map_or(String::new(), |now| now.to_string())).arg(rule);
        Self { command, keys: keys.len() }
    }

    pub fn bucket(now: Option<i64>, keys: &[&str]) -> Self {
        Self::new(TOKEN_BUCKET, now, keys)
    }

    pub fn check(mut self, cost: i64, max_wait: i64) -> Self {
        self.command.arg(1).arg(cost).arg(max_wait);
        self
    }

    pub fn refund(mut self, cost: i64, mark: [i64; 4]) -> Self {
        self.command.arg(1).arg("refund").arg(cost).arg(&mark);
        self
    }

    pub fn estimate(mut self, cost: i64, max_wait: i64) -> Self {
        self.command.arg(1).arg("estimate").arg(cost).arg(max_wait);
        self
    }

    pub fn penalize(mut self, cost: i64) -> Self {
        self.command.arg(1).arg("penalize").arg(cost);
        self
    }

    pub fn reset(mut self) -> Self {
        self.command.arg(1).arg("reset");
        self
    }

    pub fn check_under(mut self, rule: &[i64], cost: i64, max_wait: i64) -> Self {
        self.command.arg(1).arg("quota").arg(rule).arg(cost).arg(max_wait);
        self
    }

    /// A run of charges that ask alike.
    pub fn checks(mut self, count: usize, cost: i64, max_wait: i64) -> Self {
        self.command.arg(count).arg(cost).arg(max_wait);
        self
    }

    /// The instant, and the entry of each charge.
    pub async fn on(self, connection: &mut MultiplexedConnection) -> (i64, Vec<Entry>) {
        let reply: Value = self.command.query_async(connection).await.expect("a reply");
        let Value::Array(elements) = reply else { panic!("{reply:?}") };
        let Value::Int(now) = elements[0] else { panic!("{elements:?}") };
        assert_eq!(elements.len(), 1 + 8 * self.keys, "{elements:?}");
        (now, elements[1..].chunks(8).map(Entry::read).collect())
    }
}

#[derive(Debug, PartialEq)]
pub enum Entry {
    Numbers([i64; 8]),
    Failed(String),
}

impl Entry {
    pub fn read(elements: &[Value]) -> Self {
        if let Value::BulkString(text) = &elements[0] {
            // Redis 6.2 puts the line of the script before the error: `@user_script: 30: -OOM ...`.
            let text = String::from_utf8_lossy(text);
            let code = text.split(' ').find(|word| !word.ends_with(':')).unwrap();
            return Entry::Failed(code.trim_start_matches('-').to_owned());
        }
        let number = |value: &Value| match value {
            Value::Int(number) => *number,
            other => panic!("{other:?}"),
        };
        Entry::Numbers(std::array::from_fn(|at| number(&elements[at])))
    }

    pub fn outcome(&self) -> i64 {
        match self {
            Entry::Numbers(numbers) => numbers[0],
            Entry::Failed(code) => panic!("{code}"),
        }
    }
}

/// Puts a thousand members that are old at [`NOW`] into a log of a second, and one that is not.
pub async fn put_old_log(connection: &mut MultiplexedConnection) {
    let mut old = cmd("ZADD");
    old.arg("k");
    for member in 1..=1_000_i64 {
        old.arg(NOW - 1_001_000 + member).arg(format!("{member:020}:1"));
    }
    old.arg(NOW - 1).arg(format!("{:020}:1", 1_001));
    old.exec_async(connection).await.expect("added");
}

pub async fn ask<T: redis::FromRedisValue>(
    connection: &mut MultiplexedConnection,
    words: &str,
) -> T {
    let mut words = words.split(' ');
    let mut command = cmd(words.next().unwrap());
    command.arg(words.collect::<Vec<_>>());
    command.query_async(connection).await.expect("a reply")
}

/// How often each writing or reading command ran, the scripts aside.
pub async fn ran(connection: &mut MultiplexedConnection, command: &str) -> u64 {
    let stats: String = ask(connection, "INFO commandstats").await;
    let line =
        stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}
