//! The promises of the limiter in Redis, on real servers.

use super::*;

fn bucket(server: &Server, quota: Quota) -> Redis<TokenBucket> {
    Redis::new("test", TokenBucket::new(quota), server.pool()).decision_timeout(PATIENT)
}

// Case 70.
#[tokio::test]
async fn the_store_decides() {
    let server = Server::start();
    let limiter = bucket(&server, Quota::new(5, Duration::from_secs(3_600)));
    for left in (0..5).rev() {
        let decision = limiter.check(&Charge::new("alice")).await.unwrap();
        assert_eq!((decision.outcome(), decision.remaining()), (Outcome::Allow, Some(left)));
        assert_eq!((decision.origin(), decision.limiter()), (Origin::Store, Some("test")));
    }
    assert!(limiter.check(&Charge::new("alice")).await.unwrap().retry_after().is_some());
    assert!(limiter.check(&Charge::new("bob")).await.unwrap().is_admitted());
    let waits = Charge::new("alice").max_wait(Duration::from_secs(60));
    assert!(matches!(limiter.check(&waits).await.unwrap().outcome(), Outcome::Deny { .. }));
}

// Case 75.
#[tokio::test]
async fn hostile_keys_are_ordinary_keys() {
    let server = Server::start();
    let limiter = bucket(&server, Quota::new(1, Duration::from_secs(3_600)));
    let long = "x".repeat(64 * 1024);
    let keys =
        ["{", "}", "{}", "}x", "{victim}", "a\0b", "\r\n$3\r\nfoo", "é🦀", "%", long.as_str()];
    for key in keys {
        let charge = Charge::new(String::from(key));
        assert!(limiter.check(&charge).await.unwrap().is_admitted(), "{key:?}");
        assert!(!limiter.check(&charge).await.unwrap().is_admitted(), "{key:?}");
    }
    let mut connection = server.connection().await;
    let names: Vec<String> =
        redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    assert_eq!(names.len(), keys.len());
    assert!(names.iter().all(|name| name.len() <= 200));
}

// Cases 60 and 81.
#[tokio::test]
async fn bad_charges_never_reach_redis() {
    let server = Server::start();
    let limiter = bucket(&server, Quota::per_second(5));
    let mut connection = server.connection().await;
    let bad = [
        Charge::new(""),
        Charge::new("x".repeat(1 << 20)),
        Charge::new("key").cost(u64::MAX),
        Charge::new("key").cost((1 << 53) + 1),
    ];
    for charge in bad {
        assert_eq!(limiter.check(&charge).await.unwrap_err().kind(), ErrorKind::Request);
    }
    let windows = Redis::new("w", FixedWindow::new(Quota::per_second(5)), server.pool());
    let burst = Charge::new("key").quota(Quota::per_second(5).burst(9));
    assert_eq!(windows.check(&burst).await.unwrap_err().kind(), ErrorKind::Configuration);
    assert_eq!(script_calls(&mut connection).await, 0);
}

// Cases 108, 109 and 110.
#[tokio::test]
async fn a_thousand_waiters_ask_once_each() {
    let server = Server::start();
    let quota = Quota::per_second(1_000).burst(1);
    let limiter = Arc::new(bucket(&server, quota));
    let _ = limiter.check(&Charge::new("other")).await.unwrap();
    let mut connection = server.connection().await;
    let before = script_calls(&mut connection).await;
    let mut tasks = JoinSet::new();
    for _ in 0..1_000 {
        let limiter = Arc::clone(&limiter);
        tasks.spawn(async move {
            let begun = Instant::now();
            let decision = limiter.acquire("key").await.expect("admitted");
            let wait = match decision.outcome() {
                Outcome::Wait(wait) => wait,
                _ => Duration::ZERO,
            };
            assert!(begun.elapsed() >= wait, "entered early");
            decision.decided_at().expect("told") + wait
        });
    }
    let mut slots = tasks.join_all().await;
    slots.sort();
    for pair in slots.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(1), "{pair:?}");
    }
    let asked = script_calls(&mut connection).await - before;
    assert!(asked <= 1_100, "{asked}");
    println!("waiters=1000 calls_per_admission={}", asked as f64 / 1_000.0);
}

#[test]
fn building_needs_neither_a_server_nor_a_runtime() {
    for url in ["", "redis//", "http://127.0.0.1", "redis://:pa$$word@:x/1"] {
        let error = Pool::connect(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(!format!("{error} {error:?}").contains("pa$$word"));
    }
    let pool = Pool::connect("redis://127.0.0.1:1").unwrap();
    let limiter = Redis::new("test", TokenBucket::new(Quota::per_second(5)), pool);
    assert!(format!("{limiter:?}").contains("TokenBucket"));
}

// Case 149.
#[test]
fn no_limiter_is_built_with_a_quota_that_its_algorithm_cannot_follow() {
    let pool = Pool::connect("redis://127.0.0.1:1").unwrap();
    let day = Quota::per_day(200_000);
    let refused = Redis::try_new("test", SlidingCounter::new(day), pool.clone()).unwrap_err();
    assert!(refused.to_string().contains("limit * period"));
    assert!(Redis::try_new("test", TokenBucket::new(day), pool).is_ok());
}

#[tokio::test]
async fn no_timeout_is_too_long() {
    let server = Server::start();
    let pool =
        Pool::builder(&server.url()).unwrap().response_timeout(Duration::MAX).build().unwrap();
    let limiter = Redis::new("test", TokenBucket::new(Quota::per_day(5)), pool)
        .decision_timeout(Duration::MAX)
        .clock(|| Duration::ZERO)
        .timeout(Duration::MAX);
    let charge = Charge::new("key").max_wait(Duration::MAX);
    assert!(limiter.check(&charge).await.unwrap().is_admitted());
    assert!(limiter.acquire(charge).await.unwrap().is_admitted());
}

// Cases 54 and 82.
#[tokio::test]
async fn limiters_share_connections_and_never_state() {
    let server = Server::start();
    let pool = server.pool();
    let mut tasks = JoinSet::new();
    for name in ["a", "a:b", "b"] {
        for _ in 0..20 {
            let limiter = Redis::new(name, FixedWindow::new(Quota::per_day(20)), pool.clone());
            let limiter = limiter.decision_timeout(PATIENT);
            tasks.spawn(async move {
                assert!(limiter.check(&Charge::new("b:c")).await.unwrap().is_admitted());
            });
        }
    }
    tasks.join_all().await;
    let mut connection = server.connection().await;
    let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut connection).await.unwrap();
    assert!(list.lines().count() <= 2 + 1, "{list}");
}

#[tokio::test]
async fn an_estimate_tells_the_wait_and_takes_nothing() {
    let server = Server::start();
    let bucket = TokenBucket::new(Quota::per_hour(5));
    let pair = (bucket, TokenBucket::new(Quota::per_hour(50)));
    let pool = server.pool();
    let redis = |name| Redis::new(name, bucket, pool.clone()).decision_timeout(PATIENT);
    let two_quotas = Redis::new("two", pair, pool.clone()).decision_timeout(PATIENT);
    let keys = |charge: &Charge| [charge.clone(), Charge::new("all")];
    let limiters = [
        ("Redis", redis("one").boxed()),
        ("Memory", Memory::new("one", bucket).boxed()),
        ("Redis, two quotas", two_quotas.boxed()),
        ("Memory, two quotas", Memory::new("two", pair).boxed()),
        ("AllAtOnce", AllAtOnce::new((redis("a"), redis("b")), keys).boxed()),
        ("AllInTurn", AllInTurn::new([redis("c").boxed(), redis("d").boxed()], keys).boxed()),
    ];
    for (name, limiter) in limiters {
        let charge = |cost| Charge::new("x").cost(cost);
        assert!(limiter.check(&charge(4)).await.unwrap().is_admitted(), "{name}");
        let mut fits = limiter.estimate(charge(1)).await.unwrap();
        assert_eq!((fits.outcome(), fits.remaining()), (Outcome::Allow, Some(1)), "{name}");
        assert!(fits.take_reservation().is_none(), "{name}");
        // Two units more, at 720 s each, but for the time that the test takes.
        let waits = limiter.estimate(charge(3)).await.unwrap();
        let wait = waits.retry_after().unwrap().as_secs_f64();
        assert!((1_380.0..=1_440.0).contains(&wait), "{name}: {wait} s");
        assert_eq!(waits.remaining(), Some(1), "{name}");
        let never = limiter.estimate(charge(6)).await.unwrap();
        assert_eq!(never.outcome(), Outcome::Deny { retry_after: None }, "{name}");
        assert_eq!(limiter.peek("x").await.unwrap().remaining(), Some(1), "{name}");
    }
}
