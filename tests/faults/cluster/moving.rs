//! Slots that move: every charge and refund is decided, and counted once.

use super::*;

// Case 38.
#[tokio::test]
async fn keys_of_a_moving_slot_are_decided_wherever_they_are() {
    let cluster = Cluster::start().await;
    let limiter = patient(pool(&cluster));
    let keys: Vec<_> = keys_in(9_000..=9_000).take(6).collect();
    // Some are there before, some have moved already, and some are new.
    charge_all(&limiter, &keys[..4]).await;
    let from = cluster.begin_move(9_000, 2).await;
    let mut connection = cluster.connection(from).await;
    let stored: Vec<String> = {
        let mut ask = cmd("CLUSTER");
        ask.arg("GETKEYSINSLOT").arg(9_000).arg(10).query_async(&mut connection).await.unwrap()
    };
    assert_eq!(stored.len(), 4);
    cluster.move_key(&mut connection, 2, &stored[..2]).await;
    for _ in 0..5 {
        charge_all(&limiter, &keys).await;
    }
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(taken(&limiter, key).await, if number < 4 { 6 } else { 5 }, "{key}");
    }
    cluster.move_keys(9_000, from, 2).await;
    cluster.end_move(9_000, from, 2).await;
    charge_all(&limiter, &keys).await;
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(taken(&limiter, key).await, if number < 4 { 7 } else { 6 }, "{key}");
    }
}

// Case 147.
#[tokio::test]
async fn a_new_key_of_a_tuple_in_a_moving_slot_is_decided() {
    let cluster = Cluster::start().await;
    let quota = || FixedWindow::new(Quota::new(MILLION, YEAR));
    let log = SlidingLog::new(Quota::new(MILLION, YEAR)).max_limit(MILLION);
    let bucket = TokenBucket::new(Quota::per_hour(MILLION).burst(2 * MILLION));
    let limiter =
        Redis::new("tuple", (quota(), log, bucket), pool(&cluster)).decision_timeout(LONG);
    let keys: Vec<_> = keys_in(3..=3).take(3).collect();
    let from = cluster.begin_move(3, 1).await;
    for _ in 0..3 {
        charge_all(&limiter, &keys).await;
    }
    for key in &keys {
        assert_eq!(taken(&limiter, key).await, 3, "{key}");
    }
    cluster.move_keys(3, from, 1).await;
    cluster.end_move(3, from, 1).await;
    for key in &keys {
        assert_eq!(taken(&limiter, key).await, 3, "{key}");
        let settled = limiter.settle(reserve(&limiter, key).await, 0).expect("its own").await;
        assert_eq!(settled.unwrap().given_back, 1);
        assert_eq!(taken(&limiter, key).await, 3, "{key}");
    }
}

// Cases 39 and 151.
#[tokio::test]
async fn a_tuple_whose_keys_are_split_waits_for_those_that_still_move() {
    let cluster = Cluster::start().await;
    let minute = FixedWindow::new(Quota::new(MILLION, YEAR));
    let limiter = Redis::new("pair", (minute, minute), pool(&cluster)).decision_timeout(LONG);
    let key = keys_in(4..=4).next().unwrap();
    charge_all(&limiter, from_ref(&key)).await;
    let mut connection = cluster.connection(0).await;
    let stored: Vec<String> = {
        let mut ask = cmd("CLUSTER");
        ask.arg("GETKEYSINSLOT").arg(4).arg(10).query_async(&mut connection).await.unwrap()
    };
    // One of the two has expired, as the key of a short quota does.
    cmd("UNLINK").arg(&stored[0]).exec_async(&mut connection).await.unwrap();
    let from = cluster.begin_move(4, 1).await;
    let asked = tokio::spawn(limiter.check(&Charge::new(key.as_str())));
    let hasty = limiter.clone().decision_timeout(Duration::from_millis(100));
    let error = trouble(&hasty, &Charge::new(key.as_str())).await;
    assert_eq!(error.kind(), ErrorKind::Infrastructure, "{error:?}");
    assert!(error.to_string().contains("moving"), "{error:?}");
    assert!(!asked.is_finished(), "no server has both keys");
    cluster.move_keys(4, from, 1).await;
    assert!(asked.await.unwrap().expect("a decision").is_admitted());
    cluster.end_move(4, from, 1).await;
    charge_all(&limiter, from_ref(&key)).await;
}

/// Held units are renewed and released where their slot is.
#[tokio::test]
async fn units_stay_held_while_their_slot_moves() {
    let cluster = Cluster::start().await;
    let limiter = Redis::new("at once", Concurrency::new(2), pool(&cluster));
    let limiter = limiter.decision_timeout(LONG);
    let key = keys_in(33..=33).next().unwrap();
    let left = async || limiter.peek(key.as_str()).await.expect("a decision").remaining();
    let mut first = reserve(&limiter, &key).await;
    let from = cluster.begin_move(33, 1).await;
    assert!(limiter.renew(&mut first).expect("its own").await.expect("an answer"));
    let second = reserve(&limiter, &key).await;
    cluster.move_keys(33, from, 1).await;
    assert!(limiter.renew(&mut first).expect("its own").await.expect("an answer"));
    assert_eq!(left().await, Some(0));
    cluster.end_move(33, from, 1).await;
    for (reservation, free) in [(first, 1), (second, 2)] {
        limiter.settle(reservation, 0).expect("its own").await.expect("an answer");
        assert_eq!(left().await, Some(free));
    }
}

/// The right is needed while a slot moves, and at no other time.
#[tokio::test]
async fn a_missing_right_to_ask_is_configuration() {
    let cluster = Cluster::start().await;
    let limiter = patient(pool(&cluster));
    let [known, new] = [0, 1].map(|index| keys_in(7..=7).nth(index).unwrap());
    charge_all(&limiter, from_ref(&known)).await;
    for node in 0..3 {
        cluster.ask::<()>(node, cmd("ACL").arg("SETUSER").arg("default").arg("-asking")).await;
    }
    cluster.begin_move(7, 1).await;
    charge_all(&limiter, from_ref(&known)).await;
    let begun = Instant::now();
    let error = limiter.check(&Charge::new(new.as_str())).await.expect_err("no right");
    assert_eq!(error.kind(), ErrorKind::Configuration, "{error:?}");
    assert!(error.to_string().contains("NOPERM"), "{error:?}");
    assert!(begun.elapsed() < LONG, "at once");
}
