//! Redisson's limiter, step by step: what each call answers, and what it leaves in Redis. Times are
//! in ms from one base.
//!
//! Where Java does something here, its keys are written as its scripts leave them;
//! `interop/redisson` runs it for real.

use crate::*;

// Scenarios, numbered as where the format is described.

// Scenario 1.
#[tokio::test]
async fn permits_are_counted() {
    let mut bench = Bench::of(10, 1_000).await;
    bench.all(&[(3, 0, Granted(7)), (8, 100, Wait(900)), (7, 100, Granted(0))]).await;
    assert_eq!(bench.members().await, [(3, 0), (7, 100)]);
}

// Scenario 2.
#[tokio::test]
async fn a_permit_is_free_exactly_an_interval_later() {
    let bench = Bench::of(1, 1_000).await;
    bench.all(&[(1, 0, Granted(0)), (1, 999, Wait(1)), (1, 1_000, Granted(0))]).await;
}

// Scenario 3.
#[tokio::test]
async fn a_wait_covers_as_many_as_are_needed() {
    let bench = Bench::of(3, 1_000).await;
    bench.all(&[(1, 0, Granted(2)), (1, 400, Granted(1)), (1, 800, Granted(0))]).await;
    bench.all(&[(1, 900, Wait(100)), (2, 900, Wait(500)), (3, 900, Wait(900))]).await;
    bench.all(&[(3, 1_799, Wait(1)), (3, 1_800, Granted(0))]).await;
}

// Scenario 4.
#[tokio::test]
async fn more_than_the_rate_is_an_error_and_creates_nothing() {
    let mut bench = Bench::of(10, 1_000).await;
    assert_eq!(bench.take(11, 0).await, Exceeds);
    let result = message(bench.limiter.try_acquire(11)).await;
    let exceeds = "Requested permits amount cannot exceed defined rate";
    assert_eq!(result, (ErrorKind::Request, exceeds.into()));
    assert_eq!(message(bench.limiter.acquire(11)).await.1, exceeds);
    let keys: Vec<String> = bench.ask(&["KEYS", "*"]).await;
    assert_eq!(keys, ["r"]);
}

// Scenario 5.
#[tokio::test]
async fn a_limiter_without_configuration_says_so() {
    let mut bench = Bench::new().await;
    let result = (ErrorKind::Configuration, String::from("RateLimiter is not initialized"));
    assert_eq!(message(bench.redisson.check(&Charge::new("r"))).await, result);
    assert_eq!(message(bench.limiter.available_permits()).await, result);
    assert_eq!(message(bench.limiter.release(1)).await, result);
    let _: i64 = bench.ask(&["HSET", "r", "rate", "5", "interval", "1000"]).await;
    assert_eq!(
        message(bench.limiter.try_acquire(1)).await,
        result,
        "a partial configuration is none"
    );
    assert_eq!(bench.limiter.config().await.unwrap(), None);
}

// Scenario 7.
#[tokio::test]
async fn a_lost_value_is_what_the_members_leave() {
    let mut bench = Bench::of(10, 1_000).await;
    bench.put(&[0; 17], 4, 0).await;
    bench.all(&[(7, 500, Wait(500))]).await;
    assert_eq!(bench.value().await, Some(6));
}

// Scenario 8.
#[tokio::test]
async fn lost_members_leave_no_value_behind() {
    let mut bench = Bench::of(10, 1_000).await;
    bench.all(&[(10, 0, Granted(0))]).await;
    let _: i64 = bench.ask(&["DEL", "{r}:permits"]).await;
    bench.all(&[(1, 5_000, Granted(9))]).await;
}

// Scenario 9.
#[tokio::test]
async fn what_was_subtracted_twice_is_given_back() {
    let mut bench = Bench::of(10, 1_000).await;
    bench.all(&[(1, 0, Granted(9))]).await;
    let _: () = bench.ask(&["SET", "{r}:value", "8"]).await;
    bench.all(&[(9, 100, Granted(0))]).await;
}

// Scenario 10.
#[tokio::test]
async fn every_historic_member_is_read_and_the_newest_written() {
    let float = 1.0_f32.to_ne_bytes();
    let long = [8_u64.to_ne_bytes(), [7; 8]].concat();
    let short = [[8].as_slice(), &[7; 8]].concat();
    for head in [float.as_slice(), &long, &short] {
        let mut bench = Bench::of(10, 1_000).await;
        bench.put(head, 4, 0).await;
        let _: () = bench.ask(&["SET", "{r}:value", "6"]).await;
        bench.all(&[(7, 500, Wait(500)), (7, 1_000, Granted(3))]).await;
        let members: Vec<Vec<u8>> = bench.ask(&["ZRANGE", "{r}:permits", "0", "-1"]).await;
        assert_eq!((members.len(), members[0].len(), members[0][0]), (1, 21, 16));
        assert_eq!(members[0][17..], 7_u32.to_ne_bytes());
    }
}

// Scenario 11.
#[tokio::test]
async fn released_permits_are_not_credited_again_when_they_expire() {
    let bench = Bench::of(10, 1_000).await;
    bench.all(&[(10, 0, Granted(0))]).await;
    assert_eq!(bench.limiter.release(10).await.unwrap(), 10);
    bench.all(&[(10, 500, Granted(0)), (10, 1_001, Wait(499)), (10, 1_500, Granted(0))]).await;

    // Java's grant, and Java's release, which leaves the members where they are.
    let mut bench = Bench::of(10, 1_000).await;
    bench.java("acquire", 10, 0).await;
    bench.java("release", 10, 0).await;
    bench.all(&[(10, 500, Granted(0)), (10, 1_001, Wait(499)), (10, 1_500, Granted(0))]).await;
}

// Scenario 12.
#[tokio::test]
async fn a_release_takes_the_oldest_and_splits_the_last() {
    let mut bench = Bench::of(10, 1_000).await;
    bench.all(&[(5, 0, Granted(5)), (5, 300, Granted(0))]).await;
    assert_eq!(bench.limiter.release(7).await.unwrap(), 7);
    assert_eq!((bench.members().await, bench.value().await), (vec![(3, 300)], Some(7)));
    bench
        .all(&[
            (7, 400, Granted(0)),
            (1, 400, Wait(900)),
            (4, 1_300, Wait(100)),
            (3, 1_300, Granted(0)),
        ])
        .await;
}

// Scenario 13.
#[tokio::test]
async fn a_release_credits_no_more_than_was_taken() {
    let bench = Bench::of(10, 1_000).await;
    bench.all(&[(3, 0, Granted(7))]).await;
    assert_eq!(bench.limiter.release(99).await.unwrap(), 3);
    bench.all(&[(10, 10, Granted(0)), (1, 10, Wait(1_000))]).await;
}

// Scenario 14.
#[tokio::test]
async fn a_lower_rate_waits_for_what_is_in_use() {
    let mut bench = Bench::of(10, 1_000).await;
    bench.all(&[(4, 0, Granted(6)), (4, 500, Granted(2))]).await;
    bench.at(600);
    assert!(bench.limiter.update_rate_keeping_state(rate(5, 1_000)).await.unwrap());
    assert_eq!(bench.value().await, Some(-3));
    bench.all(&[(1, 600, Wait(400))]).await;
    assert_eq!(bench.available(600).await, 0);
    bench
        .all(&[
            (1, 1_000, Granted(0)),
            (1, 1_000, Wait(500)),
            (5, 1_500, Wait(500)),
            (4, 1_500, Granted(0)),
        ])
        .await;
}

// Scenario 14.
#[tokio::test]
async fn java_lives_with_a_value_below_0() {
    let bench = &mut Bench::of(10, 1_000).await;
    bench.all(&[(4, 0, Granted(6)), (4, 500, Granted(2))]).await;
    bench.at(600);
    assert!(bench.limiter.update_rate_keeping_state(rate(5, 1_000)).await.unwrap());
    for (permits, millis, result) in [
        (1, 600, "403"),
        (1, 1_000, "nil"),
        (1, 1_000, "503"),
        (5, 1_500, "503"),
        (4, 1_500, "nil"),
    ] {
        assert_eq!(bench.java("acquire", permits, millis).await, result, "{permits} at {millis}");
    }
}

// Scenario 15.
#[tokio::test]
async fn a_higher_rate_keeps_or_forgets_what_is_taken() {
    let mut bench = Bench::of(10, 1_000).await;
    bench.all(&[(8, 0, Granted(2))]).await;
    bench.at(100);
    assert!(bench.limiter.update_rate_keeping_state(rate(20, 1_000)).await.unwrap());
    assert_eq!(bench.value().await, Some(12));
    bench.all(&[(13, 200, Wait(800)), (12, 200, Granted(0))]).await;
    assert!(bench.limiter.update_rate(rate(20, 1_000)).await.unwrap());
    bench.all(&[(20, 200, Granted(0))]).await;
}

// Scenario 16.
#[tokio::test]
async fn an_update_needs_a_limiter_and_a_try_needs_none() {
    let mut bench = Bench::new().await;
    assert!(!bench.limiter.update_rate(rate(10, 1_000)).await.unwrap());
    assert!(!bench.limiter.update_rate_keeping_state(rate(10, 1_000)).await.unwrap());
    assert_eq!(bench.ask::<i64>(&["DBSIZE"]).await, 0);
    assert!(bench.limiter.try_set_rate(rate(10, 1_000)).await.unwrap());
    let before: Vec<String> = bench.ask(&["HGETALL", "r"]).await;
    assert!(!bench.limiter.try_set_rate(rate(5, 1_000)).await.unwrap());
    assert_eq!(bench.ask::<Vec<String>>(&["HGETALL", "r"]).await, before);
    assert_eq!(before.len(), 8, "all four, or Java's getConfig fails");
}

// Scenario 17.
#[tokio::test]
async fn permits_of_ours_are_missing_for_java() {
    let mut bench = Bench::of(10, 1_000).await;
    bench.all(&[(4, 0, Granted(6))]).await;
    assert_eq!(bench.java("acquire", 6, 100).await, "nil");
    assert_eq!(bench.java("acquire", 1, 200).await, "803");
    bench.all(&[(1, 200, Wait(800))]).await;
    assert_eq!(bench.java("acquire", 4, 1_000).await, "nil");
    bench.all(&[(6, 1_099, Wait(1)), (6, 1_100, Granted(0))]).await;
}

// Scenario 18.
#[tokio::test]
async fn permits_of_java_are_missing_for_ours() {
    let mut bench = Bench::of(10, 1_000).await;
    assert_eq!(bench.java("acquire", 4, 0).await, "nil");
    bench.all(&[(6, 100, Granted(0)), (1, 200, Wait(800))]).await;
    assert_eq!(bench.java("acquire", 1, 200).await, "803");
    bench.all(&[(4, 1_000, Granted(0))]).await;
    assert_eq!(bench.java("acquire", 6, 1_099).await, "4");
    assert_eq!(bench.java("acquire", 6, 1_100).await, "nil");
}

// Scenario 19.
#[tokio::test]
async fn a_peek_creates_nothing_and_counts_nothing_twice() {
    let mut bench = Bench::of(10, 1_000).await;
    assert_eq!(bench.available(0).await, 10);
    assert_eq!(bench.ask::<i64>(&["DBSIZE"]).await, 1);
    bench.all(&[(3, 0, Granted(7))]).await;
    assert_eq!((bench.available(500).await, bench.available(1_000).await), (7, 10));

    let mut bench = Bench::of(10, 1_000).await;
    bench.java("acquire", 5, 0).await;
    bench.java("release", 5, 0).await;
    assert_eq!(bench.available(1_001).await, 10, "Java takes 5, gives them back, and they expire");

    let mut bench = Bench::of(10, 1_000).await;
    bench.java("acquire", 5, 0).await;
    bench.java("release", 5, 0).await;
    assert_eq!(bench.java("available", 0, 1_001).await, "15", "the original");
    bench.all(&[(10, 1_001, Granted(0)), (1, 1_001, Wait(1_000))]).await;
}

// Scenario 20.
#[tokio::test]
async fn keys_live_as_long_as_the_configuration_says() {
    let mut bench = Bench::new().await;
    let kept = rate(10, 1_000).keep_alive(Duration::from_secs(50));
    assert!(bench.limiter.try_set_rate(kept).await.unwrap());
    bench.all(&[(10, 0, Granted(0))]).await;
    for key in ["r", "{r}:value", "{r}:permits"] {
        let _: i64 = bench.ask(&["PEXPIRE", key, "100000"]).await;
    }
    bench.all(&[(1, 0, Wait(1_000))]).await;
    for key in ["r", "{r}:value", "{r}:permits"] {
        let rest: i64 = bench.ask(&["PTTL", key]).await;
        assert!((1..=50_000).contains(&rest), "{key} {rest}");
    }

    let mut bench = Bench::of(10, 1_000).await;
    bench.all(&[(1, 0, Granted(9))]).await;
    for key in ["r", "{r}:value", "{r}:permits"] {
        assert_eq!(bench.ask::<i64>(&["PTTL", key]).await, -1, "{key} must not outlive or precede");
    }
    let _: i64 = bench.ask(&["PEXPIRE", "r", "30000"]).await;
    bench.all(&[(1, 0, Granted(8))]).await;
    for key in ["{r}:value", "{r}:permits"] {
        let rest: i64 = bench.ask(&["PTTL", key]).await;
        assert!((1..=30_000).contains(&rest), "{key} {rest}");
    }
}

// Scenario 21.
#[tokio::test]
async fn each_client_has_permits_of_its_own_that_go_by_themselves() {
    let mut bench = Bench::new().await;
    let each = Rate::per_client(10, Duration::from_secs(60));
    assert!(bench.limiter.try_set_rate(each).await.unwrap());
    let other = client(&bench.server, &bench.clock, "B");
    assert_eq!(bench.take(10, 0).await, Granted(0));
    assert_eq!(bench.check(&other, 10).await.0, Granted(0));
    assert_eq!(bench.take(1, 30_000).await, Wait(30_000));
    let mut keys: Vec<String> = bench.ask(&["KEYS", "*"]).await;
    keys.sort();
    let own =
        ["r", "{r}:permits:A", "{r}:permits:B", "{r}:value:A", "{r}:value:B"].map(String::from);
    assert_eq!(keys, own);
    for key in &own[1..] {
        let rest: i64 = bench.ask(&["PTTL", key]).await;
        assert!((1..=120_000).contains(&rest), "{key} {rest}");
    }
}

// Scenario 22.
#[tokio::test]
async fn a_clock_that_is_ahead_lengthens_waits() {
    let mut bench = Bench::of(10, 1_000).await;
    bench.java("acquire", 10, 2_000).await;
    bench.all(&[(1, 0, Wait(3_000))]).await;
}

// Scenario 23.
#[tokio::test]
async fn no_call_removes_more_than_4096_members() {
    let mut bench = Bench::of(10_000, 1_000).await;
    let mut add = cmd("ZADD");
    add.arg("{r}:permits");
    for number in 0..10_000_u128 {
        let member = [[16].as_slice(), &number.to_ne_bytes(), &1_u32.to_ne_bytes()].concat();
        add.arg(BASE).arg(member);
    }
    let _: i64 = add.query_async(&mut bench.connection).await.unwrap();
    let _: () = bench.ask(&["SET", "{r}:value", "0"]).await;
    bench.all(&[(5_000, 1_000, Wait(1))]).await;
    assert_eq!(bench.value().await, Some(4_096));
    bench.all(&[(5_000, 1_000, Granted(3_192))]).await;
}

// Scenario 24.
#[tokio::test]
async fn invalid_arguments_are_errors_without_a_command() {
    let mut bench = Bench::of(10, 1_000).await;
    let before = bench.calls("evalsha").await + bench.calls("eval").await;
    for permits in [0, 1 << 32, u64::MAX] {
        assert_eq!(message(bench.limiter.try_acquire(permits)).await.0, ErrorKind::Request);
    }
    let second = Duration::from_secs(1);
    for rate in [
        Rate::overall(0, second),
        Rate::overall(1 << 53, second),
        Rate::overall(1, Duration::ZERO),
        Rate::overall(1, Duration::from_micros(1_500)),
        Rate::per_client(1, Duration::MAX),
        Rate::overall(1, second).keep_alive(Duration::from_millis(500)),
    ] {
        assert_eq!(message(bench.limiter.try_set_rate(rate)).await.0, ErrorKind::Configuration);
        assert_eq!(message(bench.limiter.set_rate(rate)).await.0, ErrorKind::Configuration);
        assert_eq!(message(bench.limiter.update_rate(rate)).await.0, ErrorKind::Configuration);
    }
    let with_quota = Charge::new("r").quota(tower_sluice::Quota::per_second(1));
    assert_eq!(message(bench.redisson.check(&with_quota)).await.0, ErrorKind::Configuration);
    for name in ["", "a{b", "{}x", "a}b"] {
        assert_eq!(bench.redisson.rate_limiter(name).unwrap_err().kind(), ErrorKind::Request);
        let charge = Charge::new(name.to_owned());
        assert_eq!(message(bench.redisson.check(&charge)).await.0, ErrorKind::Request);
    }
    assert_eq!(bench.calls("evalsha").await + bench.calls("eval").await, before);
}
