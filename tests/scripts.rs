//! The contract of `scripts/README.md`, spoken to a real server without the crate in between.

#![cfg(feature = "redis")]

mod support;

use redis::{Value, cmd};
use support::algorithms::{Visit, each_algorithm};
use support::script::*;
use support::{Server, expires};
use tower_sluice::Quota;
use tower_sluice::algorithm::InLua;

/// The scripts that stand in the support file are those that the crate has.
#[test]
fn every_algorithm_is_spoken_to() {
    struct Names(Vec<(&'static str, usize)>);
    impl Visit for Names {
        fn visit<A: InLua>(&mut self, algorithm: A) {
            let rule = algorithm.rule(algorithm.quota()).expect("a rule");
            self.0.push((A::NAME, A::arguments(&rule).len()));
        }
    }
    let mut names = Names(Vec::new());
    each_algorithm(Quota::per_second(5), &mut names);
    assert_eq!(names.0, ALGORITHMS.map(|(name, _, rule)| (name, rule.len())));
}

#[tokio::test]
async fn one_call_answers_each_charge_on_its_own() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let call = Call::bucket(Some(NOW), &["a", "b", "a", "a", "b"]);
    let call = call.check(1, 0).check(6, 0).check(4, 0).check(1, 500_000).check(0, 0);
    let (now, entries) = call.on(&mut connection).await;
    assert_eq!(now, NOW);
    assert_eq!(
        entries,
        [
            Entry::Numbers([0, 0, 4, 200_000, NOW + 200_000, 0, 0, 0]),
            Entry::Numbers([3, 0, 5, 0, 0, 0, 0, 0]),
            Entry::Numbers([0, 0, 0, 1_000_000, NOW + 1_000_000, 0, 0, 0]),
            Entry::Numbers([1, 200_000, 0, 1_200_000, NOW + 1_200_000, 0, 0, 0]),
            Entry::Numbers([0, 0, 5, 0, 0, 0, 0, 0]),
        ]
    );
    assert_eq!(ask::<String>(&mut connection, "GET a").await, (NOW + 1_200_000).to_string());
    assert!(!ask::<bool>(&mut connection, "EXISTS b").await);
    // One read for the call, one more to know an absent key from one of another type; one write.
    assert_eq!(ran(&mut connection, "mget").await, 1);
    assert_eq!(ran(&mut connection, "set").await, 1);
}

#[tokio::test]
async fn reservations_of_one_call_unwind_last_first() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let call = Call::bucket(Some(NOW), &["a", "a"]).check(2, 0).check(3, 0);
    let (_, entries) = call.on(&mut connection).await;
    let mark = |entries: &Entry| match entries {
        Entry::Numbers([_, _, _, _, mark @ ..]) => *mark,
        Entry::Failed(code) => panic!("{code}"),
    };
    let [first, second] = [mark(&entries[0]), mark(&entries[1])];
    let call = Call::bucket(Some(NOW), &["a", "a", "a", "a"]);
    let call = call.refund(2, first).refund(3, second).refund(2, first).refund(2, first);
    let (_, entries) = call.on(&mut connection).await;
    let units: Vec<_> = entries
        .iter()
        .map(|entry| match entry {
            Entry::Numbers([5, units, ..]) => *units,
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
    let (_, entries) = call.check_under(&one, 1, 0).checks(2, 1, 0).on(&mut connection).await;
    assert_eq!(entries[0], Entry::Numbers([0, 0, 0, 1_000_000, NOW + 1_000_000, 0, 0, 0]));
    assert_eq!(entries[1], Entry::Numbers([0, 0, 4, 200_000, NOW + 200_000, 0, 0, 0]));
    assert_eq!(entries[2].outcome(), 2);
}

#[tokio::test]
async fn a_refusal_a_peek_and_an_estimate_write_nothing() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let call = Call::bucket(Some(NOW), &["k"]).check(5, 0);
    call.on(&mut connection).await;
    let before = (
        ask::<String>(&mut connection, "GET k").await,
        expires(&mut connection, "k").await,
        ran(&mut connection, "set").await,
    );
    let call = Call::bucket(Some(NOW + 1), &["k"; 7]);
    let call = call.check(1, 0).check(1, 199_998).check(6, 60_000_000).check(0, 0);
    let call = call.estimate(1, 199_999).estimate(2, 0).estimate(6, 0);
    let (_, entries) = call.on(&mut connection).await;
    let outcomes: Vec<_> = entries.iter().map(Entry::outcome).collect();
    assert_eq!(outcomes, [2, 2, 3, 0, 1, 2, 3]);
    let waits = [&entries[4], &entries[5]].map(|entry| match entry {
        Entry::Numbers([_, wait, remaining, ..]) => (*wait, *remaining),
        Entry::Failed(code) => panic!("{code}"),
    });
    assert_eq!(waits, [(199_999, 0), (399_999, 0)]);
    let after = (
        ask::<String>(&mut connection, "GET k").await,
        expires(&mut connection, "k").await,
        ran(&mut connection, "set").await,
    );
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_reset_forgets_whatever_the_key_holds() {
    let server = Server::start();
    let mut connection = server.connection().await;
    for algorithm in ALGORITHMS {
        for put in ["SET k x", "RPUSH k x", "ZADD k 1 x", "GET k"] {
            ask::<Value>(&mut connection, "DEL k").await;
            ask::<Value>(&mut connection, put).await;
            let call = Call::new(algorithm, Some(NOW), &["k", "k", "k", "k"]);
            let (_, entries) =
                call.reset().check(1, 0).reset().check(0, 0).on(&mut connection).await;
            let outcomes: Vec<_> = entries.iter().map(Entry::outcome).collect();
            assert_eq!(outcomes, [0, 0, 0, 0], "{} {put}", algorithm.0);
            assert!(!ask::<bool>(&mut connection, "EXISTS k").await, "{} {put}", algorithm.0);
            let call = Call::new(algorithm, Some(NOW), &["k", "k"]).reset().check(1, 0);
            call.on(&mut connection).await;
            assert!(ask::<i64>(&mut connection, "PTTL k").await > 0, "{} {put}", algorithm.0);
        }
    }
}

#[tokio::test]
async fn a_penalty_is_owed_and_locks_no_key_for_ever() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let mut retry = async |algorithm, cost: i64| -> i64 {
        let call = Call::new(algorithm, Some(NOW), &["k", "k", "k"]);
        let (_, entries) = call.reset().penalize(cost).check(1, 0).on(&mut connection).await;
        match entries[2] {
            Entry::Numbers([2, wait, ..]) => wait,
            ref other => panic!("{other:?}"),
        }
    };
    let most = 9_007_199_254_740_991;
    // A bucket owes what was taken, up to its horizon; a window is taken whole.
    assert_eq!(retry(TOKEN_BUCKET, 5).await, 200_000);
    assert_eq!(retry(TOKEN_BUCKET, 50).await, 9_200_000);
    assert_eq!(retry(TOKEN_BUCKET, most).await, 60_200_000);
    assert_eq!(retry(FIXED_WINDOW, most).await, 1_000_000);
    assert_eq!(retry(SLIDING_LOG, most).await, 1_000_000);
    assert_eq!(retry(SLIDING_WINDOW, most).await, 1_100_000);
    assert_eq!(retry(SLIDING_COUNTER, most).await, 1_200_000);
    // A pace is owed as though it had been asked for.
    assert_eq!(retry(SMOOTH_BURSTY, 6).await, 200_000);
    assert_eq!(retry(SMOOTH_WARMING_UP, 6).await, 1_700_000);
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
    let (_, entries) = Call::bucket(Some(NOW), &["k"]).check(1, 0).on(&mut connection).await;
    assert_eq!(entries[0].outcome(), 2);
    assert_eq!(ask::<i64>(&mut connection, "GET k").await, NOW + 61_000_000);
}

#[tokio::test]
async fn a_log_is_cut_to_one_member_and_pruned_by_its_share() {
    let server = Server::start();
    let mut connection = server.connection().await;
    put_old_log(&mut connection).await;
    let call = |now, cost| Call::new(SLIDING_LOG, Some(now), &["k"]).check(cost, 0);

    for left in [746, 491] {
        let (_, entries) = call(NOW, 1).on(&mut connection).await;
        assert_eq!(entries[0].outcome(), 0);
        assert_eq!(ask::<i64>(&mut connection, "ZCARD k").await, left);
    }
    let (_, entries) = call(NOW - 3_600_000_000, 1).on(&mut connection).await;
    let cut = NOW - 3_600_000_000;
    assert_eq!(entries[0], Entry::Numbers([2, 1_000_000, 0, 1_000_000, cut, 0, 5, 0]));
    let members: Vec<String> = ask(&mut connection, "ZRANGE k 0 -1 WITHSCORES").await;
    assert_eq!(members, [format!("{:020}:5", 5), cut.to_string()]);
}

#[tokio::test]
async fn totals_of_a_log_go_on_in_a_second_number() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let rule = [60_000_000, 10, 1_000_000];
    for (at, member) in [(2, "00007999999999999990:5"), (1, "00007999999999999995:5")] {
        cmd("ZADD").arg("k").arg(NOW - at).arg(member).exec_async(&mut connection).await.unwrap();
    }
    let call = Call::under(SLIDING_LOG, &rule, Some(NOW), &["k", "k", "k"]);
    let call = call.check(0, 0).check(5, 0).check(5, 999_999);
    let (_, entries) = call.on(&mut connection).await;
    assert_eq!(entries[0].outcome(), 0);
    assert_eq!(
        entries[1],
        Entry::Numbers([2, 999_998, 0, 999_999, NOW - 1, 7, 999_999_999_999_995, 0])
    );
    assert_eq!(entries[2], Entry::Numbers([1, 999_998, 0, 1_999_998, NOW + 999_998, 8, 0, 0]));
    let (_, entries) = Call::under(SLIDING_LOG, &rule, Some(NOW + 999_998), &["k"])
        .check(1, 1)
        .on(&mut connection)
        .await;
    assert_eq!(entries[0].outcome(), 1);
    let newest: Vec<String> = ask(&mut connection, "ZRANGE k -2 -1").await;
    assert_eq!(newest, ["00008000000000000000:5", "00008000000000000001:1"]);
}

#[tokio::test]
async fn scripts_never_format_numbers_by_accident() {
    for (name, text) in [("head", HEAD), ("tail", TAIL)]
        .into_iter()
        .chain(ALGORITHMS.map(|(name, text, _)| (name, text)))
    {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("--").next().unwrap().replace("...", "");
            assert!(!code.contains(".."), "{name}.lua:{}: {line}", number + 1);
            assert!(!code.contains("tostring"), "{name}.lua:{}: {line}", number + 1);
            assert!(!line.starts_with("#!"), "{name}.lua:{}: {line}", number + 1);
        }
    }
}

// Case 34.
#[test]
fn there_is_one_place_that_writes_and_nothing_after_it_can_fail_half_way() {
    let calls = |text: &str| -> Vec<_> {
        let calls = text.split("redis.").skip(1);
        calls.map(|call| call.split([',', ')']).next().unwrap_or_default().to_owned()).collect()
    };
    for (name, text, _) in ALGORITHMS.iter().filter(|algorithm| **algorithm != SLIDING_LOG) {
        assert_eq!(calls(text), [""; 0], "{name}.lua talks to redis");
    }
    let known = [
        "call('TIME'",
        "pcall(...",
        "pcall('SET'",
        "pcall('SET'",
        "call('PEXPIRE'",
        "call('PEXPIREAT'",
        "call('MGET'",
    ];
    assert_eq!(calls(&format!("{HEAD}{TAIL}")), known);
    // A log's pieces: what may fail for want of memory comes first, and what is called
    // after it cannot.
    let known = [
        "call('ZRANGE'",
        "call('ZRANGE'",
        "call('ZCARD'",
        "pcall('ZRANGE'",
        "call('ZCOUNT'",
        "call('ZREMRANGEBYRANK'",
    ];
    assert_eq!(calls(SLIDING_LOG.1), known);
}
