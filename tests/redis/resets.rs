//! A settlement of a charge from before a reset does nothing. The twins play random histories that
//! have resets, so Redis settles as memory does.

use tower_sluice::limiter::Reservation;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
/// Well into a minute, a cell and an hour.
const T0: u64 = 1_767_225_600_000_000 + 1_842_123_456;

type Clock = Arc<AtomicU64>;

const QUOTA: Quota = Quota::new(6, Duration::from_secs(600));

/// Six units in ten minutes, by every algorithm.
fn algorithms() -> [AnyAlgorithm; 11] {
    let quota = QUOTA;
    [
        TokenBucket::new(quota).horizon(60 * MINUTE).into(),
        Budget::new(quota).max_hold(60 * MINUTE).horizon(60 * MINUTE).into(),
        FixedWindow::new(quota).horizon(60 * MINUTE).into(),
        FixedWindow::new(quota).horizon(60 * MINUTE).anchored().into(),
        SlidingLog::new(quota).horizon(60 * MINUTE).into(),
        SlidingWindow::new(quota).horizon(60 * MINUTE).into(),
        SlidingCounter::new(quota).horizon(60 * MINUTE).into(),
        SmoothBursty::new(quota).max_burst(10 * MINUTE).horizon(60 * MINUTE).into(),
        SmoothBursty::new(quota)
            .max_burst(10 * MINUTE)
            .wait_for_own_cost()
            .horizon(60 * MINUTE)
            .into(),
        SmoothWarmingUp::new(quota, MINUTE).horizon(60 * MINUTE).into(),
        SmoothWarmingUp::new(quota, MINUTE).wait_for_own_cost().horizon(60 * MINUTE).into(),
    ]
}

async fn take(limiter: &Boxed, key: &str, cost: u64) -> Reservation {
    let charge = Charge::new(key.to_owned()).cost(cost).max_wait(50 * MINUTE);
    let decision = limiter.check(&charge).await.unwrap();
    assert!(decision.is_admitted(), "{decision:?}");
    decision.into_reservation().unwrap()
}

async fn settle(limiter: &Boxed, reservation: Reservation, used: u64) -> u64 {
    limiter.settle(reservation, used).unwrap().await.unwrap().given_back
}

/// What a caller sees of a key.
async fn seen(limiter: &Boxed, key: &str) -> impl PartialEq + std::fmt::Debug + use<> {
    let decision: Decision = limiter.peek(key.to_owned()).await.unwrap();
    (decision.outcome(), decision.remaining(), decision.reset_after())
}

/// Each key has a twin, which is used alike, but for the settlements of before the reset. In the
/// first round, everything happens in one microsecond.
#[tokio::test]
async fn a_settlement_of_before_a_reset_does_nothing() {
    let clock = Clock::default();
    let own = |algorithm: Vec<AnyAlgorithm>| {
        Memory::new("resets", algorithm).clock(support::clock_at(&clock)).boxed()
    };
    let each = algorithms().map(|one| (format!("{one:?}"), own(vec![one])));
    let three = vec![
        FixedWindow::new(QUOTA).into(),
        TokenBucket::new(QUOTA).into(),
        SlidingLog::new(QUOTA).into(),
    ];
    for (name, limiter) in each.into_iter().chain([("three".to_owned(), own(three))]) {
        for (round, step) in [0, 1, 1_000_000, 200_000_000].into_iter().enumerate() {
            for used in [0, 1, 3, 9] {
                clock.store(T0, Relaxed);
                let place = format!("{name}, {step} µs, {used} used");
                let [key, twin] = ["key", "twin"].map(|one| format!("{one}-{round}-{used}"));
                let mut old = Vec::new();
                let on = || _ = clock.fetch_add(step, Relaxed);
                // Twice: the second reset finds a key that was reset.
                for _ in 0..2 {
                    old.push(take(&limiter, &key, 3).await);
                    old.push(take(&limiter, &key, 3).await);
                    drop(take(&limiter, &twin, 3).await);
                    on();
                    for one in [&key, &twin] {
                        limiter.reset(one.clone()).await.unwrap();
                    }
                    on();
                }
                let new = [take(&limiter, &key, 3).await, take(&limiter, &twin, 3).await];
                let other = [take(&limiter, &key, 3).await, take(&limiter, &twin, 3).await];
                assert_eq!(seen(&limiter, &key).await, seen(&limiter, &twin).await, "{place}");
                for reservation in old {
                    assert_eq!(settle(&limiter, reservation, used).await, 0, "{place}");
                    assert_eq!(seen(&limiter, &key).await, seen(&limiter, &twin).await, "{place}");
                }
                // What was charged since is settled as in any key, the latest first.
                let [mut units, mut others] = [Vec::new(), Vec::new()];
                for (reservation, other) in new.into_iter().zip(other) {
                    others.push(settle(&limiter, other, used).await);
                    units.push(settle(&limiter, reservation, used).await);
                }
                assert_eq!((units[0], others[0]), (units[1], others[1]), "{place}");
                assert!(used > 0 || others[0] == 3, "{place}: {others:?}");
                assert_eq!(seen(&limiter, &key).await, seen(&limiter, &twin).await, "{place}");
            }
        }
    }
}

/// The key is gone when it is reset, since its state was old.
#[tokio::test]
async fn the_reset_of_a_key_that_has_expired_counts_too() {
    let (server, pool) = Server::pooled();
    let mut connection = server.connection().await;
    let clock = Clock::new(T0.into());
    for algorithm in algorithms() {
        let name = format!("{algorithm:?}");
        let limiter = by_clock(&clock, &pool, "expired", algorithm).boxed();
        for used in [0, 1, 9] {
            redis::cmd("FLUSHALL").exec_async(&mut connection).await.unwrap();
            let old = take(&limiter, "key", 3).await;
            redis::cmd("FLUSHALL").exec_async(&mut connection).await.unwrap();
            limiter.reset("key").await.unwrap();
            for key in ["key", "twin"] {
                drop(take(&limiter, key, 3).await);
            }
            assert_eq!(settle(&limiter, old, used).await, 0, "{name}, {used} used");
            assert_eq!(seen(&limiter, "key").await, seen(&limiter, "twin").await, "{name}, {used}");
        }
    }
}

/// What was used beyond the charge is taken, also of a key that has expired, and also if it was
/// reset before the charge.
#[tokio::test]
async fn an_expired_key_is_not_a_reset_one() {
    let (server, pool) = Server::pooled();
    let mut connection = server.connection().await;
    let (ten, more) = (TokenBucket::new(Quota::per_hour(10)), Quota::per_hour(20));
    let patient = Duration::from_secs(30);
    let limiters = [
        Redis::new("bucket", ten, pool.clone()).decision_timeout(patient).boxed(),
        Redis::new("two", (ten, TokenBucket::new(more)), pool.clone())
            .decision_timeout(patient)
            .boxed(),
        Redis::new("held", (ten, Budget::new(more)), pool).decision_timeout(patient).boxed(),
    ];
    for (number, bucket) in limiters.iter().enumerate() {
        for was_reset in [false, true] {
            if was_reset {
                bucket.reset("key").await.unwrap();
            }
            let old = take(bucket, "key", 1).await;
            redis::cmd("FLUSHALL").exec_async(&mut connection).await.unwrap();
            settle(bucket, old, 5).await;
            let left = bucket.peek("key").await.unwrap().remaining();
            assert_eq!(left, Some(6), "{number}, {was_reset}");
            redis::cmd("FLUSHALL").exec_async(&mut connection).await.unwrap();
        }
    }
}

/// The same in memory, where the reset is forgotten after ten minutes.
#[tokio::test(start_paused = true)]
async fn an_expired_key_in_memory_is_not_a_reset_one() {
    let (ten, more) = (TokenBucket::new(Quota::per_hour(10)), Quota::per_hour(20));
    let limiters = [
        Memory::new("bucket", ten).boxed(),
        Memory::new("two", (ten, TokenBucket::new(more))).boxed(),
        Memory::new("held", (ten, Budget::new(more))).boxed(),
    ];
    for (number, bucket) in limiters.iter().enumerate() {
        bucket.reset("key").await.unwrap();
        let old = take(bucket, "key", 1).await;
        tokio::time::sleep(24 * 60 * MINUTE).await;
        settle(bucket, old, 5).await;
        assert_eq!(bucket.peek("key").await.unwrap().remaining(), Some(6), "{number}");
    }
}

/// The whole minute in which the charges before the reset were counted, and the wait for the next.
#[tokio::test]
async fn a_reset_is_remembered_as_long_as_the_units_before_it_could_count() {
    let (server, pool) = Server::pooled();
    let mut connection = server.connection().await;
    let hour = Quota::new(3, 60 * MINUTE);
    let window: AnyAlgorithm = FixedWindow::new(hour).horizon(60 * MINUTE).into();
    let log = SlidingLog::new(hour).horizon(60 * MINUTE).into();
    for (name, algorithm) in [("window", window), ("log", log)] {
        let limiter = Redis::new(name, algorithm, pool.clone());
        let limiter = limiter.decision_timeout(Duration::from_secs(30)).boxed();
        drop(take(&limiter, "key", 3).await);
        let charge = Charge::new("key").max_wait(61 * MINUTE);
        let booked = limiter.check(&charge).await.unwrap().into_reservation().unwrap();
        let keys = async |connection: &mut _| -> Vec<String> {
            redis::cmd("KEYS").arg("*key*").query_async(connection).await.unwrap()
        };
        let key = keys(&mut connection).await.remove(0);
        let mut lasts = async |key: &str| -> i64 {
            redis::cmd("PTTL").arg(key).query_async(&mut connection).await.unwrap()
        };
        let before = lasts(&key).await;
        limiter.reset("key").await.unwrap();
        assert!(lasts(&key).await > before - 60_000, "{name}");
        // A shorter state does not shorten it.
        let short = Charge::new("key").quota(Quota::new(3, Duration::from_millis(1)));
        drop(limiter.check(&short).await.unwrap().into_reservation());
        assert!(lasts(&key).await > before - 60_000, "{name}");
        assert_eq!(settle(&limiter, booked, 0).await, 0, "{name}");
        limiter.reset("other").await.unwrap();
        let other = key.replace("key", "other");
        assert!((600_000..=610_001).contains(&lasts(&other).await), "{name}");
        redis::cmd("FLUSHALL").exec_async(&mut connection).await.unwrap();
    }
}

/// Of several limiters that decide in one call, one is reset.
#[tokio::test]
async fn a_member_that_was_reset_settles_nothing() {
    let (_server, pool) = Server::pooled();
    let quota = Quota::new(100, 60 * MINUTE);
    let patient = Duration::from_secs(30);
    let user = Redis::new("user", FixedWindow::new(quota), pool.clone()).decision_timeout(patient);
    let all = Redis::new("all", SlidingWindow::new(quota), pool).decision_timeout(patient);
    let left = async || {
        let [user, all] = [user.peek("u").await.unwrap(), all.peek("a").await.unwrap()];
        [user.remaining().unwrap(), all.remaining().unwrap()]
    };
    let both = AllAtOnce::of_parts((user.clone(), all.clone()));
    let parts = || [Charge::new("u"), Charge::new("a")];
    let [user_part, other_part] = parts();
    let at_own_costs = Charge::several([Some(user_part.cost(10)), Some(other_part.cost(20))]);
    let together = || Charge::several(parts().map(Some)).cost(10);
    for (charge, used, after) in [
        (together(), 0, [99, 100]),
        (together(), 4, [99, 96]),
        (together(), 30, [99, 70]),
        (at_own_costs, 0, [99, 100]),
    ] {
        let taken = both.check(&charge).await.unwrap().into_reservation().unwrap();
        user.reset("u").await.unwrap();
        drop(user.check(&Charge::new("u")).await.unwrap());
        both.settle(taken, used).unwrap().await.unwrap();
        assert_eq!(left().await, after, "{charge:?} {used}");
        for (name, limiter) in [("u", user.clone().boxed()), ("a", all.clone().boxed())] {
            limiter.reset(name).await.unwrap();
        }
    }
}
