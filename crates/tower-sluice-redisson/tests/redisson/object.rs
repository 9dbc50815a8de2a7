//! The rest of Redisson's object: configuration, release, life time, clients, clocks, and
//! Memory in its place.

use std::time::SystemTime;

use tower_sluice_redisson::{PermitLog, RateType};

use crate::*;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_configuration_is_returned_as_it_was_set() {
    let mut bench = Bench::new().await;
    assert_eq!(bench.limiter.config().await.unwrap(), None);
    for set in [
        Rate::overall(7, SECOND),
        Rate::per_client((1 << 53) - 1, Duration::from_millis(1)),
        Rate::overall(1, Duration::from_millis(1 << 52)).keep_alive(Duration::from_millis(1 << 52)),
        Rate::overall(9, SECOND).keep_alive(SECOND),
    ] {
        bench.limiter.set_rate(set).await.unwrap();
        assert_eq!(bench.limiter.config().await.unwrap(), Some(set));
    }
    let _: i64 = bench.ask(&["HDEL", "r", "keepAliveTime"]).await;
    assert_eq!(
        bench.limiter.config().await.unwrap(),
        Some(Rate::overall(9, SECOND)),
        "before 3.38"
    );
}

#[tokio::test]
async fn an_invalid_stored_configuration_admits_nothing() {
    let mut bench = Bench::of(10, 1_000).await;
    for (field, text) in [
        ("rate", "0"),
        ("rate", "-5"),
        ("rate", "9.2e+18"),
        ("rate", "9223372036854775807"),
        ("rate", "nan"),
        ("interval", "0"),
        ("interval", "1e3"),
        ("interval", ""),
        ("type", "2"),
        ("keepAliveTime", "-1"),
    ] {
        let before: String = bench.ask(&["HGET", "r", field]).await;
        let _: i64 = bench.ask(&["HSET", "r", field, text]).await;
        let result = message(bench.redisson.check(&Charge::new("r"))).await;
        assert_eq!(result.0, ErrorKind::Configuration, "{field} {text}");
        assert_eq!(message(bench.limiter.config()).await.0, ErrorKind::Configuration);
        let _: i64 = bench.ask(&["HSET", "r", field, &before]).await;
    }
    assert_eq!(bench.ask::<i64>(&["DBSIZE"]).await, 1, "nothing was taken");
    bench.all(&[(1, 0, Granted(9))]).await;
}

#[tokio::test]
async fn a_try_on_an_old_limiter_writes_nothing_and_ends_nothing() {
    let mut bench = Bench::of(10, 1_000).await;
    let kept = rate(10, 1_000).keep_alive(Duration::from_secs(5));
    assert!(!bench.limiter.try_set_rate(kept).await.unwrap());
    assert_eq!(bench.limiter.config().await.unwrap(), Some(rate(10, 1_000)));
    assert_eq!(bench.limiter.remain_time_to_live().await.unwrap(), None);
    // Java 3.37 and before: no keepAliveTime, and it is not added.
    let _: i64 = bench.ask(&["HDEL", "r", "keepAliveTime"]).await;
    assert!(!bench.limiter.try_set_rate(kept).await.unwrap());
    assert_eq!(bench.ask::<i64>(&["HEXISTS", "r", "keepAliveTime"]).await, 0);
}

#[tokio::test]
async fn a_try_mends_a_partial_configuration_and_keeps_what_was_taken() {
    let mut bench = Bench::of(10, 1_000).await;
    bench.all(&[(4, 0, Granted(6))]).await;
    let _: i64 = bench.ask(&["HDEL", "r", "interval"]).await;
    assert!(bench.limiter.try_set_rate(rate(5, 1_000)).await.unwrap());
    assert_eq!(bench.value().await, Some(1));
    bench.all(&[(2, 0, Wait(1_000)), (1, 0, Granted(0))]).await;

    // A value without taken permits is deleted.
    let _: i64 = bench.ask(&["DEL", "r", "{r}:permits"]).await;
    assert!(bench.limiter.try_set_rate(rate(5, 1_000)).await.unwrap());
    assert_eq!(bench.value().await, None);
}

#[tokio::test]
async fn a_keep_alive_that_ends_keeps_the_keys() {
    let mut bench = Bench::new().await;
    let kept = rate(10, 1_000).keep_alive(Duration::from_secs(50));
    bench.limiter.set_rate(kept).await.unwrap();
    bench.all(&[(3, 0, Granted(7))]).await;
    assert!(bench.limiter.remain_time_to_live().await.unwrap().is_some());
    assert!(bench.limiter.update_rate_keeping_state(rate(10, 1_000)).await.unwrap());
    for key in ["r", "{r}:value", "{r}:permits"] {
        assert_eq!(bench.ask::<i64>(&["PTTL", key]).await, -1, "{key}");
    }
    bench.all(&[(8, 0, Wait(1_000)), (7, 0, Granted(0))]).await;
}

#[tokio::test]
async fn a_change_of_type_forgets_shared_and_own_permits() {
    let mut bench = Bench::of(10, 1_000).await;
    bench.all(&[(4, 0, Granted(6))]).await;
    bench.limiter.set_rate_keeping_state(Rate::per_client(10, SECOND)).await.unwrap();
    assert_eq!((bench.value().await, bench.members().await.len()), (None, 0));
    bench.all(&[(10, 0, Granted(0))]).await;
    bench.limiter.set_rate(rate(10, 1_000)).await.unwrap();
    assert_eq!(bench.ask::<Vec<String>>(&["KEYS", "*"]).await, ["r"]);
    assert_eq!(bench.limiter.config().await.unwrap().unwrap().rate_type(), RateType::Overall);
}

#[tokio::test]
async fn permits_are_released_once_from_their_own_grant() {
    let mut bench = Bench::of(10, 1_000).await;
    bench.at(0);
    let mut held = bench.limiter.try_acquire(5).await.unwrap().expect("permits");
    bench.all(&[(5, 300, Granted(0))]).await;
    assert_eq!((held.release(0).await.unwrap(), held.count()), (0, 5));
    assert_eq!(held.release(2).await.unwrap(), 2);
    assert_eq!((held.count(), bench.value().await), (3, Some(2)));
    assert_eq!(bench.members().await, [(3, 0), (5, 300)]);
    // The permits that are left expire when they would have.
    bench.all(&[(3, 400, Wait(600)), (2, 400, Granted(0)), (3, 1_000, Granted(0))]).await;
    assert_eq!(held.release(3).await.unwrap(), 0, "they expired");
    assert_eq!((held.count(), bench.value().await), (0, Some(0)));

    let bench = Bench::of(10, 1_000).await;
    bench.at(0);
    let mut held = bench.limiter.try_acquire(5).await.unwrap().expect("permits");
    assert_eq!(bench.limiter.release(5).await.unwrap(), 5);
    assert_eq!(held.release(5).await.unwrap(), 0, "another's release took them");
    assert_eq!(bench.available(0).await, 10);
}

#[tokio::test]
async fn reservations_are_given_back_once_and_to_their_own_limiter() {
    let mut bench = Bench::of(10, 1_000).await;
    let (result, reservation) = bench.check(&bench.redisson, 4).await;
    assert_eq!(result, Granted(6));
    let reservation = reservation.expect("taken");
    let other = client(&bench.server, &bench.clock, "A");
    let reservation = other.refund(reservation).expect_err("another's comes back");
    assert!(bench.redisson.clone().refund(reservation).is_ok());
    eventually("what was refunded", async || bench.value().await == Some(10)).await;
    let (_, reservation) = bench.check(&bench.redisson, 4).await;
    assert_eq!(
        bench.redisson.settle(reservation.unwrap(), 0).expect("its own").await.unwrap().given_back,
        4
    );
    assert!(bench.members().await.is_empty());

    // The format has no room for a debt.
    let (_, reservation) = bench.check(&bench.redisson, 4).await;
    let settled = bench.redisson.settle(reservation.unwrap(), 7).expect("its own").await.unwrap();
    assert_eq!((settled.given_back, settled.not_taken), (0, 3));
    assert_eq!(bench.value().await, Some(6));
}

#[tokio::test]
async fn a_release_of_many_takes_as_many_calls_as_it_needs() {
    let mut bench = Bench::of(20_000, 1_000).await;
    let mut add = cmd("ZADD");
    add.arg("{r}:permits");
    for number in 0..10_000_u128 {
        let member = [[16].as_slice(), &number.to_ne_bytes(), &2_u32.to_ne_bytes()].concat();
        add.arg(BASE + number as u64 / 1_000).arg(member);
    }
    let _: i64 = add.query_async(&mut bench.connection).await.unwrap();
    let _: () = bench.ask(&["SET", "{r}:value", "0"]).await;
    bench.at(10);
    assert_eq!(bench.limiter.release(19_001).await.unwrap(), 19_001);
    assert_eq!((bench.value().await, bench.members().await.len()), (Some(19_001), 500));
    assert_eq!(bench.limiter.release(u64::MAX).await.unwrap(), 999);
    assert_eq!(bench.limiter.release(0).await.unwrap(), 0);
}

#[tokio::test]
async fn a_limiter_is_deleted_whole_and_expires_when_set() {
    let mut bench = Bench::of(10, 1_000).await;
    assert!(bench.limiter.exists().await.unwrap());
    bench.all(&[(1, 0, Granted(9))]).await;
    assert!(!bench.limiter.clear_expire().await.unwrap());
    assert!(bench.limiter.expire(Duration::from_secs(100)).await.unwrap());
    let rest = bench.limiter.remain_time_to_live().await.unwrap().expect("an end");
    assert!((Duration::from_secs(50)..=Duration::from_secs(100)).contains(&rest));
    for key in ["{r}:value", "{r}:permits"] {
        assert!(bench.ask::<i64>(&["PTTL", key]).await > 0, "{key}");
    }
    assert!(bench.limiter.clear_expire().await.unwrap());
    assert_eq!(bench.limiter.remain_time_to_live().await.unwrap(), None);
    let at = SystemTime::now() + Duration::from_secs(100);
    assert!(bench.limiter.expire_at(at).await.unwrap());
    assert!(bench.limiter.remain_time_to_live().await.unwrap().is_some());
    assert!(bench.limiter.delete().await.unwrap());
    assert!(!bench.limiter.delete().await.unwrap());
    assert!(!bench.limiter.exists().await.unwrap());
    assert!(!bench.limiter.expire(SECOND).await.unwrap());
    assert_eq!(bench.ask::<i64>(&["DBSIZE"]).await, 0);
    // Only the state is left.
    let _: () = bench.ask(&["SET", "{r}:value:A", "1"]).await;
    assert!(bench.limiter.expire(SECOND).await.unwrap());
    assert!(bench.limiter.delete().await.unwrap());
}

#[tokio::test]
async fn a_reset_forgets_what_was_taken_and_keeps_the_rate() {
    let mut bench = Bench::of(10, 1_000).await;
    bench.all(&[(4, 0, Granted(6))]).await;
    assert_eq!(bench.redisson.reset("r").await.unwrap().remaining(), Some(10));
    assert_eq!(bench.ask::<Vec<String>>(&["KEYS", "*"]).await, ["r"]);
}

/// In Redis and in memory.
#[tokio::test]
async fn a_settlement_of_before_a_reset_does_nothing() {
    let bench = Bench::of(10, 3_600_000).await;
    let memory = PermitLog::new(Rate::overall(10, 3_600 * SECOND)).unwrap();
    for limiter in [bench.redisson.clone().boxed(), memory.boxed()] {
        for used in [0, 1, 9] {
            let take = async || {
                let decision = limiter.check(&Charge::new("r").cost(4)).await.unwrap();
                decision.into_reservation().unwrap()
            };
            let settle = async |reservation, used| {
                limiter.settle(reservation, used).unwrap().await.unwrap().given_back
            };
            let old = take().await;
            limiter.reset("r").await.unwrap();
            let new = take().await;
            assert_eq!(settle(old, used).await, 0, "{limiter:?}");
            assert_eq!(limiter.peek("r").await.unwrap().remaining(), Some(6), "{limiter:?}");
            assert_eq!(settle(new, 0).await, 4, "{limiter:?}");
        }
    }
}

#[tokio::test]
async fn a_penalty_is_a_grant_that_java_sees_and_that_ends_with_its_interval() {
    let mut bench = Bench::of(10, 1_000).await;
    let penalized = bench.redisson.penalize(Charge::new("r").cost(4)).await.unwrap();
    assert_eq!(penalized.remaining(), Some(6));
    bench.all(&[(6, 0, Granted(0))]).await;
    // Whether or not it fits.
    let penalized = bench.redisson.penalize(Charge::new("r").cost(25)).await.unwrap();
    assert_eq!(penalized.remaining(), Some(0));
    assert_eq!(bench.ask::<i64>(&["GET", "{r}:value"]).await, -25);
    assert_eq!(bench.java("acquire", 1, 500).await, "503");
    bench.all(&[(1, 999, Wait(1)), (10, 1_000, Granted(0))]).await;
}

#[tokio::test]
async fn limiters_may_come_with_a_default_rate() {
    let mut bench = Bench::new().await;
    let redisson = bench.redisson.clone().default_rate(rate(3, 1_000));
    assert_eq!(bench.check(&redisson, 1).await.0, Granted(2));
    assert_eq!(bench.limiter.config().await.unwrap(), Some(rate(3, 1_000)));
    let _: i64 = bench.ask(&["HSET", "r", "rate", "5"]).await;
    assert_eq!(bench.check(&redisson, 1).await.0, Granted(1), "a stored configuration stays");
    let peek = redisson.peek("other").await.unwrap();
    assert_eq!((peek.remaining(), peek.quota()), (Some(3), Some(Quota::per_second(3))));
}

/// A refund of the call that found no configuration may be late. It has nothing of the next call.
#[tokio::test]
async fn the_call_after_a_default_rate_is_another_grant() {
    let mut bench = Bench::new().await;
    let redisson = bench.redisson.clone().default_rate(rate(3, 1_000));
    let _ = redisson.peek("warm").await.unwrap();
    let _: () = bench.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]).await;
    assert_eq!(bench.check(&redisson, 1).await.0, Granted(2));
    let log: Vec<Vec<redis::Value>> = bench.ask(&["SLOWLOG", "GET", "100"]).await;
    let arguments = |entry: &Vec<redis::Value>| -> Vec<Vec<u8>> {
        redis::from_redis_value(entry[3].clone()).unwrap()
    };
    let mut calls: Vec<_> = log.iter().map(arguments).collect();
    calls.retain(|arguments| arguments.iter().any(|one| one == b"acquire"));
    let grants: Vec<_> = calls.iter().map(|arguments| arguments.last().unwrap()).collect();
    assert!(matches!(grants[..], [second, first] if second != first), "{grants:?}");
}

/// A name that a request brings may be that of anything.
#[tokio::test]
async fn a_default_rate_leaves_what_is_there_alone() {
    let mut bench = Bench::new().await;
    let redisson = bench.redisson.clone().default_rate(rate(3, 1_000).keep_alive(SECOND));
    for fields in [&["user", "x"][..], &["rate", "3", "interval", "1000"]] {
        let _: i64 = bench.ask(&[&["HSET", "r"], fields].concat()).await;
        for call in [redisson.check(&Charge::new("r")), redisson.peek("r")] {
            assert_eq!(message(call).await.0, ErrorKind::Configuration);
        }
        assert_eq!(bench.ask::<Vec<String>>(&["HGETALL", "r"]).await, fields);
        assert_eq!(bench.ask::<i64>(&["PTTL", "r"]).await, -1);
        let _: i64 = bench.ask(&["DEL", "r"]).await;
    }
    assert!(redisson.check(&Charge::new("r")).await.unwrap().is_admitted());
}

#[tokio::test]
async fn a_default_rate_out_of_range_is_an_error_of_the_call() {
    let bench = Bench::new().await;
    let redisson = bench.redisson.clone().default_rate(rate(0, 1_000));
    let (kind, text) = message(redisson.check(&Charge::new("r"))).await;
    assert_eq!(
        (kind, &*text),
        (ErrorKind::Configuration, "a rate must be from 1 to 2^53 - 1 permits")
    );
    assert!(!bench.limiter.exists().await.unwrap());
}

#[tokio::test]
async fn the_configuration_is_read_and_state_reset_whatever_is_stored() {
    let mut bench = Bench::of(10, 1_000).await;
    let _: i64 = bench.ask(&["SADD", "{r}:value", "x"]).await;
    let _: i64 = bench.ask(&["SADD", "{r}:permits", "x"]).await;
    assert_eq!(bench.limiter.config().await.unwrap(), Some(rate(10, 1_000)));
    assert_eq!(message(bench.limiter.try_acquire(1)).await.0, ErrorKind::State);
    assert_eq!(bench.redisson.reset("r").await.unwrap().remaining(), Some(10));
    bench.all(&[(1, 0, Granted(9))]).await;
}

#[tokio::test]
async fn the_servers_clock_decides_unless_the_callers_is_asked_for() {
    let mut bench = Bench::of(10, 1_000).await;
    let slow = Duration::from_secs(5);
    let redisson = Redisson::new(bench.server.pool()).decision_timeout(slow);
    let before: (u64, u64) = bench.ask(&["TIME"]).await;
    let decision = redisson.check(&Charge::new("r")).await.unwrap();
    let after: (u64, u64) = bench.ask(&["TIME"]).await;
    let millis = |(seconds, micros): (u64, u64)| seconds * 1_000 + micros / 1_000;
    let at = bench.members().await[0].1 + BASE;
    assert!((millis(before)..=millis(after)).contains(&at));
    assert_eq!(decision.decided_at().unwrap().as_millis() as u64, at);

    let _: i64 = bench.ask(&["DEL", "{r}:value", "{r}:permits"]).await;
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let begun = now();
    assert!(redisson.clone().caller_clock().check(&Charge::new("r")).await.unwrap().is_admitted());
    assert!((begun..=now()).contains(&(bench.members().await[0].1 + BASE)));

    let wrong = redisson.clock(|| Duration::MAX);
    assert_eq!(message(wrong.check(&Charge::new("r"))).await.0, ErrorKind::Configuration);
}

#[tokio::test(start_paused = true)]
async fn memory_stands_in_for_it() {
    let memory = PermitLog::new(Rate::overall(3, SECOND)).unwrap();
    for left in [2, 1, 0] {
        let decision = memory.check(&Charge::new("r")).await.unwrap();
        assert_eq!((decision.outcome(), decision.remaining()), (Outcome::Allow, Some(left)));
    }
    let patient = Charge::new("r").max_wait(Duration::from_secs(5));
    let refused = memory.check(&patient).await.unwrap();
    assert!(matches!(refused.outcome(), Outcome::Retry(wait) if wait <= SECOND), "{refused:?}");
    let begun = tokio::time::Instant::now();
    let mut decision = memory.acquire(patient.cost(2)).await.unwrap();
    let waited = begun.elapsed();
    assert!(Duration::from_millis(999) <= waited && waited <= Duration::from_millis(1_003));
    let settled = memory.settle(decision.take_reservation().unwrap(), 0).unwrap().await;
    assert_eq!(settled.unwrap().given_back, 2);
    assert_eq!(memory.peek("r").await.unwrap().remaining(), Some(3));
    assert!(memory.check(&Charge::new("r").cost(3)).await.unwrap().is_admitted());
    assert_eq!(memory.release("r", 2), 2);
    assert_eq!(memory.peek("r").await.unwrap().remaining(), Some(2));
    assert_eq!(memory.release("nobody", 2), 0);
    let never = memory.check(&Charge::new("r").cost(4)).await.unwrap();
    assert_eq!(never.outcome(), Outcome::Deny { retry_after: None });
}
