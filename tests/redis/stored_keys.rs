//! Keys as `StoredKey` finds and reads them: their names, and what a peek would see.

use tower_sluice::algorithm::Algorithm;
use tower_sluice::redis::StoredKey;

use super::*;

use support::dice::step;

/// The begin of a day.
const T0: u64 = 1_767_225_600_000_000;

/// Every algorithm, with settings that change what is stored.
fn algorithms(quota: Quota) -> Vec<AnyAlgorithm> {
    let debt = Duration::from_secs(2);
    vec![
        TokenBucket::new(quota).max_debt(debt).into(),
        TokenBucket::new(quota.burst(2)).horizon(Duration::from_millis(900)).into(),
        Budget::new(quota).max_hold(Duration::from_millis(700)).into(),
        Budget::new(quota.burst(3)).horizon(Duration::ZERO).into(),
        Concurrency::of(quota).max_hold(Duration::from_millis(700)).into(),
        FixedWindow::new(quota).into(),
        FixedWindow::new(quota).anchored().into(),
        SlidingLog::new(quota).into(),
        SlidingWindow::new(quota).into(),
        SlidingWindow::new(quota).cells(3).into(),
        SlidingCounter::new(quota).into(),
        SmoothBursty::new(quota).into(),
        SmoothBursty::new(quota).start_empty().wait_for_own_cost().into(),
        SmoothWarmingUp::new(quota, Duration::from_secs(1)).into(),
        SmoothWarmingUp::new(quota, Duration::from_secs(3)).wait_for_own_cost().into(),
    ]
}

/// A peek and an estimate see the same, under the limiter's quota and under another one.
#[tokio::test]
async fn what_is_read_is_what_a_peek_sees() {
    let (_server, pool) = Server::pooled();
    let mut dice = Dice(0x5_70ED);
    let quotas = [(5, 1_000_000), (3, 1_000_000), (7, 2_000_000)];
    let quotas = quotas.map(|(limit, micros)| Quota::new(limit, Duration::from_micros(micros)));
    let mut read = 0;
    for history in 0..4 * times() {
        let (first, second) = (dice.pick(&quotas), dice.pick(&quotas));
        for (number, (algorithm, other)) in
            algorithms(first).into_iter().zip(algorithms(second)).enumerate()
        {
            let clock = Arc::new(AtomicU64::new(T0));
            let name = format!("{history}/{number}");
            let limiter = by_clock(&clock, &pool, &name, algorithm);
            let key = limiter.stored_keys("alice").remove(0);
            let mut taken = Vec::new();
            for _ in 0..40 {
                let forward = step(&mut dice, &algorithm.quota());
                let now = clock.load(Relaxed).saturating_add_signed(forward);
                // Seldom, the clock is set back.
                let now = if dice.below(12) == 0 { now - 1_500_000 } else { now };
                clock.store(now, Relaxed);
                let charge = Charge::new("alice").cost(dice.below(4) as u64 + 1);
                let waiting = charge.clone().max_wait(Duration::from_millis(800));
                let told = match dice.below(12) {
                    0 => limiter.penalize(charge).await.map(drop),
                    1 => limiter.reset("alice").await.map(drop),
                    2 => limiter.block("alice", Duration::from_millis(600)).await.map(drop),
                    3 => limiter.unblock("alice").await.map(drop),
                    4 => limiter.pause("alice", Duration::from_millis(500)).await.map(drop),
                    5 | 6 => match taken.pop() {
                        Some(reservation) => {
                            let used = dice.below(6) as u64;
                            let settled = limiter.settle(reservation, used).expect("its own");
                            settled.await.map(drop)
                        }
                        None => Ok(()),
                    },
                    _ => limiter.check(&waiting).await.map(|mut decision| {
                        taken.extend(decision.take_reservation());
                    }),
                };
                told.unwrap();
                for algorithm in [algorithm, other] {
                    let quota = algorithm.quota().as_slice()[0];
                    let one = Charge::new("alice").quota(quota);
                    let peek = limiter.peek(one.clone()).await.unwrap();
                    let at = Duration::from_micros(now);
                    let own = key.read(&pool, algorithm, at, PATIENT).await.unwrap();
                    let estimate = limiter.estimate(one).await.unwrap();
                    let retry_after = match estimate.outcome() {
                        Outcome::Deny { retry_after } => retry_after,
                        _ => Some(Duration::ZERO),
                    };
                    let burst = peek.quota().expect("a quota").burst_size();
                    let told = (peek.remaining(), peek.reset_after(), retry_after);
                    read += usize::from(own.is_stored());
                    let seen = (Some(own.remaining()), Some(own.reset_after()), own.retry_after());
                    assert_eq!((seen, own.burst()), (told, burst), "{algorithm:?} at {now}");
                }
            }
        }
    }
    println!("{read} states were read");
    assert!(read > 1_000, "only {read} were there");
}

async fn read(pool: &Pool, key: &StoredKey, algorithm: AnyAlgorithm) -> Result<u64, ErrorKind> {
    let state = key.read(pool, algorithm, Duration::from_micros(T0), PATIENT).await;
    state.map(|state| state.remaining()).map_err(|error| error.kind())
}

/// The texts that no script of an algorithm writes, between bars.
const ODD: [(&str, &str); 8] = [
    (
        "token_bucket",
        "nan|inf|-inf|1e400|0x10| 5 ||-|--1|-01|-1:1|-1+|-1+0/3|-1+1/1|+1|00|01|1+1|1+0/3|1+3/3|\
         1+1/0|1+1/2/3|1+01/3|1 |1\n|\0|1:1|-1:0:0:0|9007199254740992|9223372036854775808",
    ),
    (
        "budget",
        "5|5:5:1|5:5:1:|5:5:1:1:1|05:5:1:1|5:5:01:1|5:-5:1:1|5:5:1:1.5|5+:5:1:1|5+1:5:1:1|\
         5+1/:5:1:1|5+0/3:5:1:1|5+3/3:5:1:1|5+1/03:5:1:1|5 :5:1:1|5:5:1:9007199254740992",
    ),
    ("concurrency", "5|5:1:1:1:1|5:1:1:1:1:|5:1:1:1:1:1:1|5:-1:1:1:1:1|05:1:1:1:1:1|5:1:1:1:1:1.0"),
    ("fixed_window", "5|5:|:5|:|05:1|5:01|-5:1|5:1:1|5:1.0|5:9007199254740993|+5:1"),
    (
        "sliding_window",
        "5:5|5:5,|5:5,1|0:5,1,1|5:5,1,,1|5:5,1,1,|5:5,01,1|5:5,-1,1|5:5,1,nan|5,5,1,1|5:5 ,1,1|\
         99999999:99999999,1,1|5:9007199254740992,1,1|\
         5:5,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,\
         1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1",
    ),
    (
        "sliding_counter",
        "5:1:1|5:1:1:|5:1:1:4|5:1:1:05|5:-1:1:5|5:1:nan:5|5:1:1:5:1|5:1:1:9007199254740992",
    ),
    (
        "smooth_bursty",
        "5|5:5:1/1|-0:5:1/1:5|-2:5:1/1:5|5:5:0/1:5|5:5:1/0:5|05:5:1/1:5|nan:5:1/1:5|\
         5:5:1/1:9007199254740992|--1:5:1/1:5",
    ),
    (
        "smooth_warming_up",
        "5|nan:5:1/1:5|-nan:5:1/1:5|inf:5:1/1:5|1e400:5:1/1:5|0x10:5:1/1:5|-1:5:1/1:5|\
         1.50:5:1/1:5|9007199254740992:5:1/1:5|1:5:0/1:5|+1:5:1/1:5|1e1:5:1/1:5",
    ),
];

/// Texts that only look like a reset, a block or a pause.
const ODD_MARKS: &str = "reset:5|reset:x:|blocked:|blocked:5|blocked::|blocked:x:|blocked:01:5|\
    blocked:5:x|blocked:5:none|blocked:5:reset:|blocked:9007199254740992:|paused:5|paused:05:|\
    paused:5:blocked:5:|reset:5:paused:5:";

/// The score and the member of a log that no script writes.
const ODD_LOGS: [(&str, &str); 14] = [
    ("5", "5:1"),
    ("5", "0000000000000000000a:1"),
    ("5", "000000000000000000001:1"),
    ("5", "00000000000000000005"),
    ("5", "00000000000000000005:"),
    ("5", "00000000000000000005:0"),
    ("5", "00000000000000000005:01"),
    ("5", "00000000000000000005:-1"),
    ("5", "00000000000000000005:9007199254740992"),
    ("5", "00000000000000000005:1:1"),
    ("-5", "00000000000000000005:1"),
    ("5.5", "00000000000000000005:1"),
    ("inf", "00000000000000000005:1"),
    ("9007199254740992", "00000000000000000005:1"),
];

/// Values of others are errors, for who reads them and for who decides by them. A reset mends the
/// key. But no state stands for a whole quota.
// Case 53.
#[tokio::test]
async fn a_value_that_no_script_writes_is_an_error() {
    let (server, pool) = Server::pooled();
    let mut connection = server.connection().await;
    let quota = Quota::per_second(5);
    let long = "1".repeat(1 << 20);
    for algorithm in algorithms(quota).into_iter().filter(|one| one.rule(quota).is_ok()) {
        let limiter = Redis::new("odd", algorithm, pool.clone()).decision_timeout(PATIENT);
        let key = limiter.stored_keys("alice").remove(0);
        let new = read(&pool, &key, algorithm).await;
        assert!(new.is_ok(), "{algorithm:?}: {new:?}");
        let mut odd = vec![vec!["RPUSH", key.name(), "x"]];
        match ODD.iter().find(|(name, _)| *name == key.algorithm()) {
            Some((_, texts)) => {
                let texts = texts.split('|').chain(ODD_MARKS.split('|'));
                odd.extend(texts.chain([long.as_str()]).map(|text| vec!["SET", key.name(), text]));
            }
            None => odd.extend(ODD_LOGS.map(|(at, member)| vec!["ZADD", key.name(), at, member])),
        }
        for words in odd {
            run(&mut connection, &["DEL", key.name()]).await;
            run(&mut connection, &words).await;
            let place = format!("{algorithm:?}: {:?}", &words[2][..words[2].len().min(30)]);
            let seen = read(&pool, &key, algorithm).await;
            assert_eq!(seen, Err(ErrorKind::State), "{place}");
            for answer in [
                limiter.check(&Charge::new("alice")).await.err(),
                limiter.block("alice", HOUR).await.err(),
                limiter.unblock("alice").await.err(),
            ] {
                assert_eq!(answer.map(|error| error.kind()), Some(ErrorKind::State), "{place}");
            }
            assert!(limiter.reset("alice").await.unwrap().is_admitted(), "{place}");
        }
        run(&mut connection, &["DEL", key.name()]).await;
        if key.algorithm() == "sliding_log" {
            run(&mut connection, &["ZADD", key.name(), "0", "00000000000000000000:1"]).await;
            assert_eq!(read(&pool, &key, algorithm).await, new);
            run(&mut connection, &["DEL", key.name()]).await;
            continue;
        }
        for text in ["none", "reset:5:", "blocked:5:", "paused:5:", "blocked:5:paused:5:reset:5:"] {
            run(&mut connection, &["SET", key.name(), text]).await;
            assert_eq!(read(&pool, &key, algorithm).await, new, "{algorithm:?}: {text}");
        }
        let future = format!("blocked:{}:", T0 + 1);
        run(&mut connection, &["SET", key.name(), &future]).await;
        assert_eq!(read(&pool, &key, algorithm).await, Ok(0), "{algorithm:?}");
        run(&mut connection, &["DEL", key.name()]).await;
    }
    let bucket = Redis::new("odd", TokenBucket::new(quota), pool.clone()).stored_keys("alice");
    let window = FixedWindow::new(quota).into();
    assert_eq!(read(&pool, &bucket[0], window).await, Err(ErrorKind::Configuration));
}

/// A name is taken apart as it was put together, and a name of others is not taken.
#[tokio::test]
async fn names_are_taken_apart() {
    let pool = Pool::connect("redis://127.0.0.1").expect("an address");
    let bucket = TokenBucket::new(Quota::per_second(5));
    let long = "x".repeat(65);
    for prefix in ["sluice", "prod:eu", "100%", "{x}"] {
        let pool = pool.clone().prefix(prefix);
        for limiter in ["api", "eu:my api", "100%/{é}", "a*?[b]", "1tb1", &long] {
            for (key, is_kept) in [("alice", true), ("a@b:1/2", true), ("é", false), (&long, false)]
            {
                for buckets in [0, 7] {
                    let one = Redis::new(limiter, bucket, pool.clone());
                    let one = if buckets > 0 { one.buckets(buckets) } else { one };
                    let [own] = &one.stored_keys(key)[..] else { panic!("{limiter} {key}") };
                    assert_eq!(own.limiter() == limiter, limiter.len() < 65, "{own:?}");
                    assert_eq!((own.algorithm(), own.quota()), ("token_bucket", None));
                    assert_eq!((own.key() == key, own.is_digest()), (is_kept, !is_kept));
                    assert_eq!(StoredKey::parse(&pool, own.name()), Some(own.clone()));
                    let others = pool.clone().prefix("other");
                    assert_eq!(StoredKey::parse(&others, own.name()), None);
                }
            }
        }
    }
    let pair = Redis::new("api", (bucket, FixedWindow::new(Quota::per_day(9))), pool.clone());
    let shown: Vec<_> =
        pair.stored_keys("alice").iter().map(|key| (key.to_string(), key.algorithm())).collect();
    assert_eq!(
        shown,
        [("alice (quota 1)".into(), "token_bucket"), ("alice (quota 2)".into(), "fixed_window")]
    );
    for name in [
        "sluice:ready:{0}",
        "sluice:api:tb1:alice",
        "sluice:api:tb2:{alice}",
        "sluice:api:tb1:{alice",
        "sluice:api:tb1:{1}alice",
        "sluice:x:api:tb1:{alice}",
        "sluice:a%ZZ:tb1:{alice}",
        "sluice",
        "",
    ] {
        assert_eq!(StoredKey::parse(&pool, name), None, "{name}");
    }
}

/// The pattern finds the keys of its limiter, and no key of another.
#[tokio::test]
async fn a_pattern_finds_the_keys_of_a_limiter() {
    let (server, pool) = Server::pooled();
    let mut connection = server.connection().await;
    let names = ["api", "api2", "a*", "a[pq]i", "eu:api", "my api"];
    for name in names {
        let limiter = Redis::new(name, TokenBucket::new(Quota::per_second(5)), pool.clone());
        let _ = limiter.decision_timeout(PATIENT).check(&Charge::new("alice")).await.unwrap();
    }
    for (limiter, found) in [(None, 6), (Some("api"), 1), (Some("a*"), 1), (Some("my api"), 1)] {
        let pattern = StoredKey::pattern(&pool, limiter);
        let keys: Vec<String> =
            redis::cmd("KEYS").arg(&pattern).query_async(&mut connection).await.unwrap();
        assert_eq!(keys.len(), found, "{pattern}");
        let parsed = keys.iter().map(|name| StoredKey::parse(&pool, name).expect("a key"));
        assert!(parsed.into_iter().all(|key| limiter.is_none_or(|own| key.limiter() == own)));
    }
}
