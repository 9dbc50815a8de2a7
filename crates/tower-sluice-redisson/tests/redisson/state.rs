//! The keys of Redisson's limiter in Redis, and how long they last: what no scenario of the
//! format's description asks.

use crate::*;

#[tokio::test]
async fn many_members_and_a_release_of_java_admit_no_more_than_java_would() {
    let mut bench = Bench::of(3_000, 1_000).await;
    assert_eq!(bench.java("acquire", 3_000, 0).await, "nil");
    bench.java("release", 3_000, 0).await;
    for left in 1..=10 {
        bench.all(&[(299, 500, Granted(3_000 - 299 * left))]).await;
    }
    // Too many members to be added up for a figure.
    for _ in 0..290 {
        bench.java("acquire", 0, 500).await;
    }
    bench.all(&[(2_701, 1_000, Wait(500))]).await;

    let mut bench = Bench::of(3_000, 1_000).await;
    bench.java("acquire", 3_000, 0).await;
    bench.java("release", 3_000, 0).await;
    for left in 1..=299 {
        bench.all(&[(10, 500, Granted(3_000 - 10 * left))]).await;
    }
    bench.all(&[(2_000, 1_000, Wait(500)), (10, 1_000, Granted(0))]).await;
}

/// Shared state lives as long as the configuration.
#[tokio::test]
async fn state_never_goes_before_a_configuration_that_stays() {
    // Java's unlink deletes the configuration alone.
    for keep in [None, Some(false), Some(true)] {
        let mut bench = Bench::new().await;
        let kept = rate(10, 1_000).keep_alive(Duration::from_secs(5));
        bench.limiter.set_rate(kept).await.unwrap();
        bench.all(&[(1, 0, Granted(9))]).await;
        let _: i64 = bench.ask(&["UNLINK", "r"]).await;
        match keep {
            None => drop(bench.limiter.try_set_rate(rate(10, 1_000)).await.unwrap()),
            Some(true) => bench.limiter.set_rate_keeping_state(rate(10, 1_000)).await.unwrap(),
            Some(false) => bench.limiter.set_rate(rate(10, 1_000)).await.unwrap(),
        }
        for key in ["{r}:value", "{r}:permits"] {
            assert!(bench.ask::<i64>(&["PTTL", key]).await < 0, "{key} {keep:?}");
        }
    }
    // A life that the configuration lost.
    let mut bench = Bench::of(10, 1_000).await;
    let _: i64 = bench.ask(&["PEXPIRE", "r", "700000"]).await;
    bench.all(&[(1, 0, Granted(9))]).await;
    let _: i64 = bench.ask(&["PERSIST", "r"]).await;
    bench.all(&[(9, 0, Granted(0))]).await;
    for key in ["{r}:value", "{r}:permits"] {
        assert_eq!(bench.ask::<i64>(&["PTTL", key]).await, -1, "{key}");
    }
}

#[tokio::test]
async fn a_clients_state_outlives_its_permits_whatever_the_configuration_does() {
    let mut bench = Bench::new().await;
    let each = Rate::per_client(10, Duration::from_secs(100));
    bench.limiter.set_rate(each).await.unwrap();
    let _: i64 = bench.ask(&["PEXPIRE", "r", "50000"]).await;
    assert_eq!(bench.take(10, 0).await, Granted(0));
    for key in ["{r}:value:A", "{r}:permits:A"] {
        assert!(bench.ask::<i64>(&["PTTL", key]).await > 90_000, "{key}");
    }
    // Also of one that was put together again.
    let _: i64 = bench.ask(&["DEL", "r", "{r}:value:A"]).await;
    assert!(bench.limiter.try_set_rate(each).await.unwrap());
    assert!(bench.ask::<i64>(&["PTTL", "{r}:value:A"]).await > 90_000);
}

#[tokio::test]
async fn more_than_the_rate_writes_nothing() {
    let mut bench = Bench::of(10, 1_000).await;
    bench.all(&[(4, 0, Granted(6)), (11, 1_500, Exceeds)]).await;
    assert_eq!((bench.members().await, bench.value().await), (vec![(4, 0)], Some(6)));
    bench.at(1_500);
    let decision = bench.redisson.check(&Charge::new("r").cost(11)).await.unwrap();
    assert_eq!(decision.remaining(), Some(10), "though what has expired is not removed");
    // Nor does it need to, where nothing can be written.
    let _: () = bench.ask(&["SET", "{r}:value", "15"]).await;
    let _: () = bench.ask(&["CONFIG", "SET", "maxmemory", "1"]).await;
    bench.all(&[(11, 100, Exceeds)]).await;
}

/// Four bytes of an old format may be those of another grant.
#[tokio::test]
async fn a_split_takes_no_other_grants_place() {
    let mut bench = Bench::of(10, 1_000).await;
    let head = 1.0_f32.to_ne_bytes();
    bench.put(&head, 4, 0).await;
    bench.put(&head, 3, 100).await;
    let _: () = bench.ask(&["SET", "{r}:value", "3"]).await;
    bench.at(200);
    assert_eq!(bench.limiter.release(1).await.unwrap(), 0);
    assert_eq!(bench.members().await, [(4, 0), (3, 100)]);
    assert_eq!(bench.limiter.release(5).await.unwrap(), 5);
    assert_eq!((bench.members().await, bench.value().await), (vec![(2, 100)], Some(8)));
}

#[tokio::test]
async fn a_change_of_type_leaves_other_clients_alone() {
    let mut bench = Bench::new().await;
    bench.limiter.set_rate(Rate::per_client(10, Duration::from_secs(100))).await.unwrap();
    let other = client(&bench.server, &bench.clock, "B");
    bench.check(&bench.redisson, 4).await;
    bench.check(&other, 4).await;
    bench.limiter.set_rate(rate(10, 1_000)).await.unwrap();
    let mut keys: Vec<String> = bench.ask(&["KEYS", "*"]).await;
    keys.sort();
    assert_eq!(keys, ["r", "{r}:permits:B", "{r}:value:B"]);
}

#[tokio::test]
async fn every_use_keeps_alive_and_a_peek_is_none() {
    let mut bench = Bench::new().await;
    let kept = rate(10, 1_000).keep_alive(Duration::from_secs(5));
    bench.limiter.set_rate(kept).await.unwrap();
    bench.at(0);
    let mut held = bench.limiter.try_acquire(4).await.unwrap().expect("free");
    for number in 0..4 {
        for key in ["r", "{r}:value", "{r}:permits"] {
            let _: i64 = bench.ask(&["PEXPIRE", key, "100000"]).await;
        }
        match number {
            0 => assert_eq!(bench.limiter.release(1).await.unwrap(), 1),
            1 => bench.limiter.set_rate_keeping_state(kept).await.unwrap(),
            2 => drop(bench.limiter.try_acquire(1).await.unwrap()),
            _ => assert_eq!(bench.available(0).await, 6),
        }
        for key in ["r", "{r}:value", "{r}:permits"] {
            let rest: i64 = bench.ask(&["PTTL", key]).await;
            assert_eq!(rest <= 5_000, number < 3, "{key} after {number}: {rest}");
        }
    }
    // Split by another, it is no more the grant that was taken.
    assert_eq!(held.release(1).await.unwrap(), 0);
}
