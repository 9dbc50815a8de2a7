//! The contract of `scripts/README.md`, spoken to a real server without the crate in between.

mod support;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value, cmd};
use support::Server;

const HEAD: &str = include_str!("../scripts/head.lua");
const TAIL: &str = include_str!("../scripts/tail.lua");
const TOKEN_BUCKET: &str = include_str!("../scripts/token_bucket.lua");
const FIXED_WINDOW: &str = include_str!("../scripts/fixed_window.lua");
const SLIDING_WINDOW: &str = include_str!("../scripts/sliding_window.lua");
const SLIDING_COUNTER: &str = include_str!("../scripts/sliding_counter.lua");
const SMOOTH_BURSTY: &str = include_str!("../scripts/smooth_bursty.lua");
const SMOOTH_WARMING_UP: &str = include_str!("../scripts/smooth_warming_up.lua");

/// Every algorithm, by its file.
const ALGORITHMS: [(&str, &str); 6] = [
    ("token_bucket", TOKEN_BUCKET),
    ("fixed_window", FIXED_WINDOW),
    ("sliding_window", SLIDING_WINDOW),
    ("sliding_counter", SLIDING_COUNTER),
    ("smooth_bursty", SMOOTH_BURSTY),
    ("smooth_warming_up", SMOOTH_WARMING_UP),
];

const NOW: i64 = 1_767_225_600_000_000;
/// Token bucket, 5 per second, burst 5.
const FIVE: [i64; 4] = [60_000_000, 200_000, 1, 5];

/// One call, as the contract has it.
struct Call {
    command: Cmd,
    keys: usize,
}

impl Call {
    fn new(algorithm: &str, name: &str, now: Option<i64>, keys: &[&str], rule: &[i64]) -> Self {
        let mut command = cmd("EVAL");
        command
            .arg(format!("{HEAD}{algorithm}{TAIL}return cmsgpack.unpack(run({name}))"))
            .arg(keys.len());
        command.arg(keys).arg(now.map_or(String::new(), |now| now.to_string())).arg(rule);
        Self { command, keys: keys.len() }
    }

    fn bucket(now: Option<i64>, keys: &[&str]) -> Self {
        Self::new(TOKEN_BUCKET, "token_bucket", now, keys, &FIVE)
    }

    fn check(mut self, cost: i64, patience: i64) -> Self {
        self.command.arg(1).arg(cost).arg(patience);
        self
    }

    fn refund(mut self, cost: i64, left: [i64; 2]) -> Self {
        self.command.arg(1).arg("refund").arg(cost).arg(&left).arg(&[0, 0]);
        self
    }

    fn check_under(mut self, rule: &[i64], cost: i64, patience: i64) -> Self {
        self.command.arg(1).arg("quota").arg(rule).arg(cost).arg(patience);
        self
    }

    /// A run of charges that ask alike.
    fn checks(mut self, count: usize, cost: i64, patience: i64) -> Self {
        self.command.arg(count).arg(cost).arg(patience);
        self
    }

    /// The instant, and what is told of each charge.
    async fn on(self, connection: &mut MultiplexedConnection) -> (i64, Vec<Told>) {
        let reply: Value = self.command.query_async(connection).await.expect("a reply");
        let Value::Array(elements) = reply else { panic!("{reply:?}") };
        let Value::Int(now) = elements[0] else { panic!("{elements:?}") };
        assert_eq!(elements.len(), 1 + 8 * self.keys, "{elements:?}");
        (now, elements[1..].chunks(8).map(Told::read).collect())
    }
}

#[derive(Debug, PartialEq)]
enum Told {
    Numbers([i64; 6]),
    Failed(String),
}

impl Told {
    fn read(told: &[Value]) -> Self {
        if let Value::BulkString(text) = &told[0] {
            return Told::Failed(
                String::from_utf8_lossy(text).split(' ').next().unwrap().to_owned(),
            );
        }
        let number = |value: &Value| match value {
            Value::Int(number) => *number,
            other => panic!("{other:?}"),
        };
        Told::Numbers(std::array::from_fn(|at| number(&told[at])))
    }

    fn outcome(&self) -> i64 {
        match self {
            Told::Numbers(numbers) => numbers[0],
            Told::Failed(code) => panic!("{code}"),
        }
    }
}

async fn ask<T: redis::FromRedisValue>(connection: &mut MultiplexedConnection, words: &str) -> T {
    let mut words = words.split(' ');
    let mut command = cmd(words.next().unwrap());
    command.arg(words.collect::<Vec<_>>());
    command.query_async(connection).await.expect("a reply")
}

/// How often each writing or reading command ran, the scripts aside.
async fn ran(connection: &mut MultiplexedConnection, command: &str) -> u64 {
    let stats: String = ask(connection, "INFO commandstats").await;
    let line =
        stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn one_call_answers_each_charge_on_its_own() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let call = Call::bucket(Some(NOW), &["a", "b", "a", "a", "b"]);
    let call = call.check(1, 0).check(6, 0).check(4, 0).check(1, 500_000).check(0, 0);
    let (now, told) = call.on(&mut connection).await;
    assert_eq!(now, NOW);
    assert_eq!(
        told,
        [
            Told::Numbers([0, 0, 4, 200_000, NOW + 200_000, 0]),
            Told::Numbers([3, 0, 5, 0, 0, 0]),
            Told::Numbers([0, 0, 0, 1_000_000, NOW + 1_000_000, 0]),
            Told::Numbers([1, 200_000, 0, 1_200_000, NOW + 1_200_000, 0]),
            Told::Numbers([0, 0, 5, 0, 0, 0]),
        ]
    );
    assert_eq!(ask::<String>(&mut connection, "GET a").await, (NOW + 1_200_000).to_string());
    assert!(!ask::<bool>(&mut connection, "EXISTS b").await);
    // One read for the call, one more to know an absent key from one of another type; one write.
    assert_eq!(ran(&mut connection, "mget").await, 1);
    assert_eq!(ran(&mut connection, "set").await, 1);
}

#[tokio::test]
async fn bookings_of_one_call_unwind_last_first() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let call = Call::bucket(Some(NOW), &["a", "a"]).check(2, 0).check(3, 0);
    let (_, told) = call.on(&mut connection).await;
    let left = |told: &Told| match told {
        Told::Numbers([.., left, too]) => [*left, *too],
        Told::Failed(code) => panic!("{code}"),
    };
    let [first, second] = [left(&told[0]), left(&told[1])];
    let call = Call::bucket(Some(NOW), &["a", "a", "a", "a"]);
    let call = call.refund(2, first).refund(3, second).refund(2, first).refund(2, first);
    let (_, told) = call.on(&mut connection).await;
    let units: Vec<_> = told
        .iter()
        .map(|told| match told {
            Told::Numbers([5, units, ..]) => *units,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(units, [0, 3, 2, 0]);
}

#[tokio::test]
async fn a_charge_may_bring_its_own_quota() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let one = [60_000_000, 1_000_000, 1, 1];
    let call = Call::bucket(Some(NOW), &["a", "b", "a"]);
    let (_, told) = call.check_under(&one, 1, 0).checks(2, 1, 0).on(&mut connection).await;
    assert_eq!(told[0], Told::Numbers([0, 0, 0, 1_000_000, NOW + 1_000_000, 0]));
    assert_eq!(told[1], Told::Numbers([0, 0, 4, 200_000, NOW + 200_000, 0]));
    assert_eq!(told[2].outcome(), 2);
}

#[tokio::test]
async fn broken_keys_fail_their_own_charges_only() {
    let server = Server::start();
    let mut connection = server.connection().await;
    ask::<()>(&mut connection, "RPUSH list x").await;
    ask::<()>(&mut connection, "SET corrupt 1.5").await;
    ask::<()>(&mut connection, "SET kept 5").await;
    for (cost, patience) in [(1, 0), (0, 0), (6, 0)] {
        let call = Call::bucket(None, &["fine", "list", "corrupt", "list", "fine"]);
        let call = (0..5).fold(call, |call, _| call.check(cost, patience));
        let (_, told) = call.on(&mut connection).await;
        assert_eq!(told[1], Told::Failed(String::from("WRONGTYPE")), "cost {cost}");
        assert_eq!(told[2], Told::Failed(String::from("CORRUPT")), "cost {cost}");
        assert_eq!(told[3], Told::Failed(String::from("WRONGTYPE")), "cost {cost}");
        assert!([0, 3].contains(&told[0].outcome()) && [0, 3].contains(&told[4].outcome()));
    }
    assert_eq!(ask::<String>(&mut connection, "GET corrupt").await, "1.5");
    assert_eq!(ask::<i64>(&mut connection, "LLEN list").await, 1);
}

#[tokio::test]
async fn a_failed_write_fails_its_own_charge_only() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let warm = Call::bucket(None, &["known"]).check(1, 0).on(&mut connection).await;
    assert_eq!(warm.1[0].outcome(), 0);
    ask::<()>(&mut connection, "CONFIG SET maxmemory 1").await;
    let call = Call::bucket(None, &["known", "known", "new"]).check(6, 0).check(0, 0).check(1, 0);
    let mut command = call.command;
    let reply: Value = command.query_async(&mut connection).await.expect("a reply");
    ask::<()>(&mut connection, "CONFIG SET maxmemory 0").await;
    let Value::Array(elements) = reply else { panic!("{reply:?}") };
    let told: Vec<_> = elements[1..].chunks(8).map(Told::read).collect();
    assert_eq!((told[0].outcome(), told[1].outcome()), (3, 0));
    assert_eq!(told[2], Told::Failed(String::from("OOM")));
    command = cmd("EXISTS");
    assert!(!command.arg("new").query_async::<bool>(&mut connection).await.unwrap());
}

#[tokio::test]
async fn only_the_form_that_is_written_is_read() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let texts = [
        "nan",
        "inf",
        "-inf",
        "1e400",
        "0x10",
        " 5 ",
        "",
        "-1",
        "9007199254740992",
        "9007199254740993",
        "9223372036854775808",
        "00",
        "01",
        "1+1",
        "1+0/3",
        "1+3/3",
        "1+1/0",
        "1+1/2/3",
        "1 ",
        "1\n",
        "\u{0}",
        "1:1",
        "1+01/3",
    ];
    let long = "1".repeat(1 << 20);
    for text in texts.iter().copied().chain([long.as_str()]) {
        cmd("SET").arg("k").arg(text).exec_async(&mut connection).await.unwrap();
        let (_, told) = Call::bucket(None, &["k"]).check(1, 0).on(&mut connection).await;
        assert_eq!(
            told[0],
            Told::Failed(String::from("CORRUPT")),
            "{:?}",
            &text[..text.len().min(30)]
        );
    }
    for text in ["0", "1", "9007199254740991", "1+1/3", "1767225600333333+2/3"] {
        cmd("SET").arg("k").arg(text).exec_async(&mut connection).await.unwrap();
        let (_, told) = Call::bucket(None, &["k"]).check(0, 0).on(&mut connection).await;
        assert!(matches!(told[0], Told::Numbers(_)), "{text}");
    }

    let window = [60_000_000, 5, 1_000_000, 0];
    let cells = [60_000_000, 5, 100_000, 10];
    let pace = [60_000_000, 5, 1_000_000, 1_000_000, 0, 1];
    let odd: [(&str, &str, &[i64], &[&str]); 5] = [
        (
            "fixed_window",
            FIXED_WINDOW,
            &window,
            &["5", "5:", ":5", "05:1", "5:01", "-5:1", "5:1:1", "5:1.0", "5:9007199254740993"],
        ),
        (
            "sliding_window",
            SLIDING_WINDOW,
            &cells,
            &[
                "5:5",
                "5:5,",
                "5:5,1",
                "0:5,1,1",
                "5:5,1,,1",
                "5:5,1,1,",
                "5:5,01,1",
                "5:5,-1,1",
                "5:5,1,nan",
                "5,5,1,1",
                "99999999:99999999,1,1",
                "5:9007199254740992,1,1",
                "5:5 ,1,1",
            ],
        ),
        (
            "sliding_counter",
            SLIDING_COUNTER,
            &window[..3],
            &[
                "5:1:1",
                "5:1:1:",
                "5:1:1:4",
                "5:1:1:05",
                "5:-1:1:5",
                "5:1:nan:5",
                "5:1:1:5:1",
                "5:1:1:9007199254740992",
            ],
        ),
        (
            "smooth_bursty",
            SMOOTH_BURSTY,
            &pace,
            &[
                "5",
                "5:5:1/1",
                "-0:5:1/1:5",
                "-2:5:1/1:5",
                "5:5:0/1:5",
                "5:5:1/0:5",
                "05:5:1/1:5",
                "nan:5:1/1:5",
                "5:5:1/1:9007199254740992",
                "--1:5:1/1:5",
            ],
        ),
        (
            "smooth_warming_up",
            SMOOTH_WARMING_UP,
            &pace,
            &[
                "5",
                "nan:5:1/1:5",
                "-nan:5:1/1:5",
                "inf:5:1/1:5",
                "1e400:5:1/1:5",
                "0x10:5:1/1:5",
                "-1:5:1/1:5",
                "1.50:5:1/1:5",
                "9007199254740992:5:1/1:5",
                "1:5:0/1:5",
                "+1:5:1/1:5",
                "1e1:5:1/1:5",
            ],
        ),
    ];
    for (name, script, rule, texts) in odd {
        assert!(ALGORITHMS.contains(&(name, script)));
        for text in texts {
            cmd("SET").arg("k").arg(*text).exec_async(&mut connection).await.unwrap();
            let call = Call::new(script, name, None, &["k"], rule);
            let (_, told) = call.check(1, 0).on(&mut connection).await;
            assert_eq!(told[0], Told::Failed(String::from("CORRUPT")), "{name}: {text}");
        }
    }
    let many = [&b"5:5"[..], &b",1".repeat(62)].concat();
    cmd("SET").arg("k").arg(many).exec_async(&mut connection).await.unwrap();
    let call = Call::new(SLIDING_WINDOW, "sliding_window", None, &["k"], &cells);
    let (_, told) = call.check(1, 0).on(&mut connection).await;
    assert_eq!(told[0], Told::Failed(String::from("CORRUPT")));
}

/// States that the scripts write, but no clock or quota of these can have led to: they end, and admit nothing beyond.
#[tokio::test]
async fn extreme_states_are_answered_all_the_same() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let most = "9007199254740991";
    let cells = format!("1:{most},{most},{most},{most}");
    let counter = format!("{most}:{most}:{most}:{most}");
    let cases: [(&str, &str, &[i64], &str); 4] = [
        ("sliding_window", SLIDING_WINDOW, &[60_000_000, 5, 100_000, 10], &cells),
        (
            "sliding_window",
            SLIDING_WINDOW,
            &[60_000_000, 5, 1, 60],
            "100:17672256000001,9007199254740991,9007199254740991",
        ),
        ("sliding_counter", SLIDING_COUNTER, &[60_000_000, 5, 1_000_000], &counter),
        (
            "fixed_window",
            FIXED_WINDOW,
            &[60_000_000, 5, 1_000_000, 1],
            "9007199254740991:9007199254740991",
        ),
    ];
    for (name, script, rule, text) in cases {
        cmd("SET").arg("k").arg(text).exec_async(&mut connection).await.unwrap();
        let call = Call::new(script, name, Some(NOW), &["k"], rule);
        let (_, told) = call.check(1, 0).on(&mut connection).await;
        assert_eq!(told[0].outcome(), 2, "{name}: {told:?}");
    }
}

#[tokio::test]
async fn a_refusal_and_a_peek_write_nothing() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let call = Call::bucket(Some(NOW), &["k"]).check(5, 0);
    call.on(&mut connection).await;
    let before = (
        ask::<String>(&mut connection, "GET k").await,
        ask::<i64>(&mut connection, "PEXPIRETIME k").await,
        ran(&mut connection, "set").await,
    );
    let call = Call::bucket(Some(NOW + 1), &["k", "k", "k", "k"]);
    let call = call.check(1, 0).check(1, 199_998).check(6, 60_000_000).check(0, 0);
    let (_, told) = call.on(&mut connection).await;
    let outcomes: Vec<_> = told.iter().map(Told::outcome).collect();
    assert_eq!(outcomes, [2, 2, 3, 0]);
    let after = (
        ask::<String>(&mut connection, "GET k").await,
        ask::<i64>(&mut connection, "PEXPIRETIME k").await,
        ran(&mut connection, "set").await,
    );
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_refusal_writes_a_state_that_had_to_be_cut() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let far = NOW + 3_600_000_000;
    cmd("SET").arg("k").arg(far).exec_async(&mut connection).await.unwrap();
    let peek = Call::bucket(Some(NOW), &["k", "k"]).check(0, 0).check(6, 0);
    peek.on(&mut connection).await;
    assert_eq!(ask::<i64>(&mut connection, "GET k").await, far);
    let (_, told) = Call::bucket(Some(NOW), &["k"]).check(1, 0).on(&mut connection).await;
    assert_eq!(told[0].outcome(), 2);
    assert_eq!(ask::<i64>(&mut connection, "GET k").await, NOW + 61_000_000);
}

#[tokio::test]
async fn every_key_outlives_its_effect_and_none_is_kept_for_ever() {
    let server = Server::start();
    let mut connection = server.connection().await;
    for limit in [1, 3, 5, 1_000, 1_000_000] {
        let rule = [60_000_000, 1_000_000, limit, 1];
        for step in 0..20 {
            let key = format!("{limit} {step}");
            let call = Call::new(TOKEN_BUCKET, "token_bucket", None, &[&key], &rule);
            let (now, told) = call.check(1, 0).on(&mut connection).await;
            let Told::Numbers([0, _, _, reset_after, ..]) = told[0] else { panic!("{told:?}") };
            let expires: i64 =
                cmd("PEXPIRETIME").arg(&key).query_async(&mut connection).await.unwrap();
            if expires == -2 {
                // Gone by the time of asking, which may be no sooner than its effect.
                let (seconds, micros): (i64, i64) =
                    cmd("TIME").query_async(&mut connection).await.unwrap();
                assert!(
                    seconds * 1_000_000 + micros >= now + reset_after,
                    "{key} is gone too soon"
                );
                continue;
            }
            assert!(expires * 1_000 >= now + reset_after, "{key}: {expires}");
            assert!(expires * 1_000 <= now + reset_after + 10_002_000, "{key}: {expires}");
        }
    }
    // Where the caller gives the time, the server's clock says nothing: an hour more.
    let (_, told) = Call::bucket(Some(5), &["given"]).check(5, 0).on(&mut connection).await;
    assert_eq!(told[0].outcome(), 0);
    let left: i64 = ask(&mut connection, "PTTL given").await;
    assert!((3_600_000..=3_602_000).contains(&left), "{left}");
}

/// What one step of the diet must keep: no key expires before its state is old.
#[tokio::test]
async fn an_expiry_that_is_left_alone_still_outlives_its_effect() {
    const SPARE: i64 = 10_000_000;
    let server = Server::start();
    let mut connection = server.connection().await;
    let mut left_alone = 0;
    // From both edges of a stretch, under quotas whose steps stay in it, touch its end, or cross many.
    for limit in [1_000_000, 1_000, 50, 1] {
        for (case, offset) in [0, 1, SPARE / 2, SPARE - 2, SPARE - 1].into_iter().enumerate() {
            let key = format!("{limit} {case}");
            let (seconds, _): (i64, i64) = ask(&mut connection, "TIME").await;
            let begin = (seconds * 1_000_000 / SPARE + 2) * SPARE;
            let full = begin + offset;
            let mut set = cmd("SET");
            set.arg(&key).arg(full).arg("PXAT").arg((full + SPARE + 999) / 1_000);
            set.exec_async(&mut connection).await.unwrap();
            for step in 0..30 {
                // Changing quotas, and a clock that steps: none, all, or a part of the charges bring their own.
                let own = [60_000_000, 1_000_000, [limit, 7, 1_000][step % 3], 1_000_000];
                let rule = [60_000_000, 1_000_000, limit, 1_000_000];
                let before: i64 =
                    cmd("PEXPIRETIME").arg(&key).query_async(&mut connection).await.unwrap();
                let call = Call::new(TOKEN_BUCKET, "token_bucket", None, &[&key, &key], &rule);
                let (_, told) = call
                    .check(1, 60_000_000)
                    .check_under(&own, 1, 60_000_000)
                    .on(&mut connection)
                    .await;
                let text: String = cmd("GET").arg(&key).query_async(&mut connection).await.unwrap();
                let expires: i64 =
                    cmd("PEXPIRETIME").arg(&key).query_async(&mut connection).await.unwrap();
                let (whole, part) = text.split_once('+').unwrap_or((&text, ""));
                let old = whole.parse::<i64>().unwrap() + i64::from(!part.is_empty());
                assert!(
                    expires * 1_000 >= old,
                    "{key}, step {step}: {text} expires at {expires}, {told:?}"
                );
                left_alone += u32::from(expires == before);
            }
        }
    }
    assert!(left_alone > 100, "{left_alone}");
    assert!(ran(&mut connection, "incrby").await > 100);
}

/// The same in the server's own time: `cargo test --test scripts -- --ignored`.
#[tokio::test]
#[ignore = "waits until ten thousand keys have expired"]
async fn ten_thousand_keys_expire_and_none_too_soon() {
    const KEYS: usize = 10_000;
    let server = Server::start();
    let mut connection = server.connection().await;
    let names: Vec<_> = (0..KEYS).map(|key| format!("k{key}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    // From 1 ms to 4 s of debt, half of it added in place.
    let mut old = vec![0; KEYS];
    for round in 0..2 {
        for (chunk, keys) in names.chunks(500).enumerate() {
            let rule = [60_000_000, 1_000, 1, 1_000_000];
            let mut call = Call::new(TOKEN_BUCKET, "token_bucket", None, keys, &rule);
            for key in 0..keys.len() {
                call = call.check(1 + (chunk * 500 + key + round) as i64 % 2_000, 60_000_000);
            }
            let (now, told) = call.on(&mut connection).await;
            for (key, told) in told.iter().enumerate() {
                let Told::Numbers([0, _, _, reset_after, ..]) = told else { panic!("{told:?}") };
                old[chunk * 500 + key] = now + reset_after;
            }
        }
    }
    assert!(ran(&mut connection, "incrby").await > KEYS as u64 / 4);
    let mut gone = vec![false; KEYS];
    while gone.iter().any(|gone| !gone) {
        for (chunk, keys) in names.chunks(500).enumerate() {
            let (values, (seconds, micros)): (Vec<Option<String>>, (i64, i64)) = redis::pipe()
                .cmd("MGET")
                .arg(keys)
                .cmd("TIME")
                .query_async(&mut connection)
                .await
                .unwrap();
            for (key, value) in values.iter().enumerate() {
                let key = chunk * 500 + key;
                if value.is_none() && !gone[key] {
                    assert!(seconds * 1_000_000 + micros >= old[key], "k{key} is gone too soon");
                    gone[key] = true;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_lost_expiry_comes_back_with_the_next_full_write() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let hour = [3_600_000_000, 10_000_000, 1, 5];
    let call = |keys| Call::new(TOKEN_BUCKET, "token_bucket", None, keys, &hour);
    call(&["k"]).check(1, 0).on(&mut connection).await;
    assert!(ask::<bool>(&mut connection, "PERSIST k").await);
    // Ten seconds a unit: every charge crosses a multiple of what is kept to spare.
    call(&["k"]).check(1, 0).on(&mut connection).await;
    assert!(ask::<i64>(&mut connection, "PTTL k").await > 0);
}

#[tokio::test]
async fn scripts_never_format_numbers_by_accident() {
    for (name, text) in [("head", HEAD), ("tail", TAIL)].into_iter().chain(ALGORITHMS) {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("--").next().unwrap().replace("...", "");
            assert!(!code.contains(".."), "{name}.lua:{}: {line}", number + 1);
            assert!(!code.contains("tostring"), "{name}.lua:{}: {line}", number + 1);
            assert!(!line.starts_with("#!"), "{name}.lua:{}: {line}", number + 1);
        }
    }
}

#[test]
fn case_34_there_is_one_place_that_writes_and_nothing_after_it_can_fail_half_way() {
    for (name, text) in ALGORITHMS {
        assert!(!text.contains("redis."), "{name}.lua talks to redis");
    }
    let calls: Vec<_> = format!("{HEAD}{TAIL}")
        .split("redis.")
        .skip(1)
        .map(|call| call.split([',', ')']).next().unwrap_or_default().to_owned())
        .collect();
    let known = [
        "call('TIME'",
        "pcall('GET'",
        "pcall('INCRBY'",
        "pcall('SET'",
        "pcall('SET'",
        "call('MGET'",
    ];
    assert_eq!(calls, known);
}
