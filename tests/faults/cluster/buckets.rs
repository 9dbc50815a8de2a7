//! Keys that are gathered into buckets.

use super::*;

#[tokio::test]
async fn keys_in_buckets_share_slots_and_calls() {
    let cluster = Cluster::start().await;
    let limiter = patient(pool(&cluster)).buckets(6);
    let keys: Vec<_> = keys_in(0..=SLOTS - 1).take(200).collect();
    // The scripts are known, and the connections are there.
    charge_all(&limiter, &keys).await;
    for node in 0..3 {
        cluster.ask::<()>(node, cmd("CONFIG").arg("RESETSTAT")).await;
    }
    charge_all(&limiter, &keys).await;
    let (mut calls, mut stored) = (0, 0);
    for node in 0..3 {
        let mut connection = cluster.connection(node).await;
        calls += script_calls(&mut connection).await;
        let names: Vec<String> = cluster.ask(node, cmd("KEYS").arg("*")).await;
        assert!(names.iter().all(|name| name.starts_with("sluice:cluster:fw1:{")), "{names:?}");
        let slots: HashSet<_> = names.iter().map(|name| name.split('}').next()).collect();
        assert_eq!(slots.len(), 2, "of six buckets each master has two");
        stored += names.len();
    }
    assert_eq!(stored, keys.len());
    assert!(calls <= 60, "{calls} calls for 200 charges");
    for key in &keys {
        assert_eq!(taken(&limiter, key).await, 2, "{key}");
    }
    // Keys of one slot that moves are decided one by one.
    let (key, from) = (&keys[0], 0);
    let bucket: Vec<String> = cluster.ask(from, cmd("KEYS").arg("*")).await;
    let tag = bucket[0].split(['{', '}']).nth(1).expect("a bucket").to_owned();
    let slot = slot_of(&tag);
    cluster.begin_move(slot, 1).await;
    charge_all(&limiter, &keys).await;
    cluster.move_keys(slot, from, 1).await;
    charge_all(&limiter, &keys).await;
    cluster.end_move(slot, from, 1).await;
    assert_eq!(taken(&limiter, key).await, 4);
}

// Case 158.
#[tokio::test]
async fn parts_in_one_bucket_are_asked_in_one_call_whichever_are_exempt() {
    let cluster = Cluster::start().await;
    let pool = pool(&cluster);
    let member = |name: &str, buckets| {
        let quota = Quota::new(MILLION, YEAR);
        Redis::new(name, FixedWindow::new(quota), pool.clone())
            .decision_timeout(LONG)
            .buckets(buckets)
    };
    let calls = async || {
        let mut calls = 0;
        for node in 0..3 {
            calls += script_calls(&mut cluster.connection(node).await).await;
        }
        calls
    };
    // In one bucket, and in slots of their own: two peeks before two charges.
    for (buckets, expected) in [(1, 1), (SLOTS, 4)] {
        let [a, b, c] = ["a", "b", "c"].map(|name| member(&format!("{name}{buckets}"), buckets));
        let all = AllAtOnce::of_parts((a.clone(), b, c.clone()));
        let [alice, login] = ["alice", "login"].map(Charge::new);
        let charge = Charge::several([Some(alice), None, Some(login)]);
        assert!(all.check(&charge).await.expect("a decision").is_admitted());
        let before = calls().await;
        for _ in 0..5 {
            assert!(all.check(&charge).await.expect("a decision").is_admitted());
        }
        let calls = calls().await - before;
        assert_eq!(calls, 5 * expected, "{buckets}");
        assert_eq!((taken(&a, "alice").await, taken(&c, "login").await), (6, 6));
    }
}
