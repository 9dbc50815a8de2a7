//! The contract of `scripts/README.md`, spoken to a real server without the crate in between.

use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};
use tower_sluice::Quota;
use tower_sluice::algorithm::{InLua, SlidingLog};

use support::for_each_script;
use support::script::*;
use support::stats;
use support::{Server, expires};

#[tokio::test]
async fn one_call_answers_each_charge_on_its_own() {
    let (_server, mut connection) = Server::connected().await;
    let call = Call::bucket(Some(NOW), &["a", "b", "a", "a", "b"]);
    let call = call.check(1, 0).check(6, 0).check(4, 0).check(1, 500_000).check(0, 0);
    let (now, entries) = call.on(&mut connection).await;
    assert_eq!(now, NOW);
    let numbers: Vec<_> = entries.iter().map(Entry::numbers).collect();
    assert_eq!(
        numbers,
        [
            [0, 0, 4, 200_000],
            [3, 0, 5, 0],
            [0, 0, 0, 1_000_000],
            [1, 200_000, 0, 1_200_000],
            [0, 0, 5, 0],
        ]
    );
    assert_eq!(ask::<String>(&mut connection, "GET a").await, (NOW + 1_200_000).to_string());
    assert!(!ask::<bool>(&mut connection, "EXISTS b").await);
    // One read for the call, one more to know an absent key from one of another type; one write.
    assert_eq!(stats::calls(&mut connection, "mget").await, 1);
    assert_eq!(stats::calls(&mut connection, "set").await, 1);
}

#[tokio::test]
async fn reservations_of_one_call_unwind_last_first() {
    let (_server, mut connection) = Server::connected().await;
    let call = Call::bucket(Some(NOW), &["a", "a"]).check(2, 0).check(3, 0);
    let (_, entries) = call.on(&mut connection).await;
    let [first, second] =
        [(2, &entries[0]), (3, &entries[1])].map(|(cost, one)| Form::refund(cost, &one.mark()));
    let call = Call::bucket(Some(NOW), &["a", "a", "a", "a"]);
    let call = call.ask(first.clone()).ask(second).ask(first.clone()).ask(first);
    let (_, entries) = call.on(&mut connection).await;
    let units: Vec<_> = entries.iter().map(|entry| entry.numbers()[1]).collect();
    assert_eq!(units, [0, 3, 2, 0]);
}

// Cases 65 and 66.
#[tokio::test]
async fn a_charge_may_bring_its_own_quota() {
    let (_server, mut connection) = Server::connected().await;
    let one = Quota::per_second(1);
    let call = Call::bucket(Some(NOW), &["a", "b", "a"]);
    let (_, entries) = call.check_under(one, 1, 0).checks(2, 1, 0).on(&mut connection).await;
    assert_eq!(entries[0].numbers(), [0, 0, 0, 1_000_000]);
    assert_eq!(entries[1].numbers(), [0, 0, 4, 200_000]);
    assert_eq!(entries[2].outcome(), 2);
}

// Case 91.
#[tokio::test]
async fn a_refusal_a_peek_and_an_estimate_write_nothing() {
    let (_server, mut connection) = Server::connected().await;
    let call = Call::bucket(Some(NOW), &["k"]).check(5, 0);
    call.on(&mut connection).await;
    let before = (
        ask::<String>(&mut connection, "GET k").await,
        expires(&mut connection, "k").await,
        stats::calls(&mut connection, "set").await,
    );
    let call = Call::bucket(Some(NOW + 1), &["k"; 7]);
    let call = call.check(1, 0).check(1, 199_998).check(6, 60_000_000).check(0, 0);
    let call = call.estimate(1, 199_999).estimate(2, 0).estimate(6, 0);
    let (_, entries) = call.on(&mut connection).await;
    let outcomes: Vec<_> = entries.iter().map(Entry::outcome).collect();
    assert_eq!(outcomes, [2, 2, 3, 0, 1, 2, 3]);
    let waits = [&entries[4], &entries[5]].map(|entry| (entry.numbers()[1], entry.numbers()[2]));
    assert_eq!(waits, [(199_999, 0), (399_999, 0)]);
    let after = (
        ask::<String>(&mut connection, "GET k").await,
        expires(&mut connection, "k").await,
        stats::calls(&mut connection, "set").await,
    );
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_reset_forgets_whatever_the_key_holds() {
    let (_server, mut connection) = Server::connected().await;
    for_each_script!(|algorithm| {
        for put in ["SET k x", "RPUSH k x", "ZADD k 1 x", "GET k"] {
            ask::<Value>(&mut connection, "DEL k").await;
            ask::<Value>(&mut connection, put).await;
            let call = Call::new(algorithm, Some(NOW), &["k", "k", "k", "k"]);
            let (_, entries) =
                call.reset().check(1, 0).reset().check(0, 0).on(&mut connection).await;
            let outcomes: Vec<_> = entries.iter().map(Entry::outcome).collect();
            assert_eq!(outcomes, [0, 0, 0, 0], "{algorithm:?} {put}");
            // Only the birth is left.
            let held = match ask::<String>(&mut connection, "TYPE k").await.as_str() {
                "zset" => ask::<Vec<String>>(&mut connection, "ZRANGE k 0 -1").await.concat(),
                _ => ask::<String>(&mut connection, "GET k").await,
            };
            let birth = held.strip_prefix("reset:").map(|birth| birth.trim_end_matches(':'));
            let second = (NOW + 1).to_string();
            assert_eq!(birth, Some(second.as_str()), "{algorithm:?} {put}");
            assert!(ask::<i64>(&mut connection, "PTTL k").await > 0, "{algorithm:?} {put}");
            let call = Call::new(algorithm, Some(NOW), &["k", "k"]).reset().check(1, 0);
            call.on(&mut connection).await;
            assert!(ask::<i64>(&mut connection, "PTTL k").await > 0, "{algorithm:?} {put}");
        }
    });
}

/// A block and its end in one call leave a key of another type as it is.
#[tokio::test]
async fn a_block_that_ends_in_its_call_deletes_no_foreign_key() {
    let (_server, mut connection) = Server::connected().await;
    for_each_script!(|algorithm| {
        for put in ["RPUSH k x", "HSET k x y"] {
            ask::<Value>(&mut connection, "DEL k").await;
            ask::<Value>(&mut connection, put).await;
            let call = Call::new(algorithm, Some(NOW), &["k", "k"]);
            let call = call.ask(Form::new(&[&"block", &1_000])).ask(Form::new(&[&"unblock"]));
            let (_, entries) = call.on(&mut connection).await;
            for entry in &entries {
                let is_wrong = matches!(entry, Entry::Failed(why) if why.starts_with("WRONGTYPE"));
                assert!(is_wrong, "{algorithm:?} {put}: {entries:?}");
            }
            assert!(ask::<bool>(&mut connection, "EXISTS k").await, "{algorithm:?} {put}");
        }
    });
}

#[tokio::test]
async fn a_penalty_is_owed_and_locks_no_key_for_ever() {
    let (_server, mut connection) = Server::connected().await;
    async fn retry(
        connection: &mut MultiplexedConnection,
        algorithm: impl InLua,
        cost: i64,
    ) -> i64 {
        let call = Call::new(algorithm, Some(NOW), &["k", "k", "k"]);
        let (_, entries) = call.reset().penalize(cost).check(1, 0).on(connection).await;
        assert_eq!(entries[2].outcome(), 2);
        entries[2].numbers()[1]
    }
    let most = 9_007_199_254_740_991;
    // A bucket owes what was taken, for a year at most; a window is taken whole.
    assert_eq!(retry(&mut connection, TOKEN_BUCKET, 5).await, 200_000);
    assert_eq!(retry(&mut connection, TOKEN_BUCKET, 50).await, 9_200_000);
    assert_eq!(retry(&mut connection, TOKEN_BUCKET, most).await, 31_536_000_200_000);
    assert_eq!(retry(&mut connection, FIXED_WINDOW, most).await, 1_000_000);
    assert_eq!(retry(&mut connection, SLIDING_LOG, most).await, 1_000_000);
    assert_eq!(retry(&mut connection, SLIDING_WINDOW, most).await, 1_100_000);
    assert_eq!(retry(&mut connection, SLIDING_COUNTER, most).await, 1_200_000);
    // A pace is owed as though it had been asked for.
    assert_eq!(retry(&mut connection, SMOOTH_BURSTY, 6).await, 200_000);
    assert_eq!(retry(&mut connection, SMOOTH_WARMING_UP, 6).await, 1_700_000);
}

// Case 67.
#[tokio::test]
async fn a_refusal_writes_a_state_that_had_to_be_cut() {
    let (_server, mut connection) = Server::connected().await;
    let far = NOW + 3_600_000_000;
    cmd("SET").arg("k").arg(far).exec_async(&mut connection).await.unwrap();
    let peek = Call::bucket(Some(NOW), &["k", "k"]).check(0, 0).check(6, 0);
    peek.on(&mut connection).await;
    assert_eq!(ask::<i64>(&mut connection, "GET k").await, far);
    let (_, entries) = Call::bucket(Some(NOW), &["k"]).check(1, 0).on(&mut connection).await;
    assert_eq!(entries[0].outcome(), 2);
    assert_eq!(ask::<i64>(&mut connection, "GET k").await, NOW + 61_000_000);
}

// Case 35.
#[tokio::test]
async fn a_log_is_cut_to_one_member_and_pruned_by_its_share() {
    let (_server, mut connection) = Server::connected().await;
    put_old_log(&mut connection).await;
    let call = |now, cost| Call::new(SLIDING_LOG, Some(now), &["k"]).check(cost, 0);

    for left in [746, 491] {
        let (_, entries) = call(NOW, 1).on(&mut connection).await;
        assert_eq!(entries[0].outcome(), 0);
        assert_eq!(ask::<i64>(&mut connection, "ZCARD k").await, left);
    }
    let (_, entries) = call(NOW - 3_600_000_000, 1).on(&mut connection).await;
    let cut = NOW - 3_600_000_000;
    assert_eq!(entries[0].numbers(), [2, 1_000_000, 0, 1_000_000]);
    let members: Vec<String> = ask(&mut connection, "ZRANGE k 0 -1 WITHSCORES").await;
    assert_eq!(members, [format!("{:020}:5", 5), cut.to_string()]);
}

// Case 93.
#[tokio::test]
async fn totals_of_a_log_go_on_in_a_second_number() {
    let (_server, mut connection) = Server::connected().await;
    let log = SlidingLog::new(Quota::per_second(10));
    for (at, member) in [(2, "00007999999999999990:5"), (1, "00007999999999999995:5")] {
        cmd("ZADD").arg("k").arg(NOW - at).arg(member).exec_async(&mut connection).await.unwrap();
    }
    let call = Call::new(log, Some(NOW), &["k", "k", "k"]);
    let call = call.check(0, 0).check(5, 0).check(5, 999_999);
    let (_, entries) = call.on(&mut connection).await;
    assert_eq!(entries[0].outcome(), 0);
    assert_eq!(entries[1].numbers(), [2, 999_998, 0, 999_999]);
    assert_eq!(entries[2].numbers(), [1, 999_998, 0, 1_999_998]);
    assert_eq!(entries[2].mark(), [(NOW + 999_998).to_string().as_str(), "8", "0", "0"]);
    let (_, entries) =
        Call::new(log, Some(NOW + 999_998), &["k"]).check(1, 1).on(&mut connection).await;
    assert_eq!(entries[0].outcome(), 1);
    let newest: Vec<String> = ask(&mut connection, "ZRANGE k -2 -1").await;
    assert_eq!(newest, ["00008000000000000000:5", "00008000000000000001:1"]);
}

/// The files of the folder, but for the scripts of Redisson.
fn files() -> Vec<(String, String)> {
    let folder = support::repository().join("scripts");
    let entries = std::fs::read_dir(folder).expect("the folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let name = |path: &std::path::Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let is_ours = |name: &str| name.ends_with(".lua") && !name.starts_with("redisson");
    paths
        .map(|path| (name(&path), path))
        .filter(|(name, _)| is_ours(name))
        .map(|(name, path)| (name, std::fs::read_to_string(path).expect("a text")))
        .collect()
}

#[test]
fn scripts_never_format_numbers_by_accident() {
    for (name, text) in files() {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("--").next().unwrap().replace("...", "");
            // A list is a text already.
            let code = code.replace("newest) .. list", "");
            assert!(!code.contains(".."), "{name}:{}: {line}", number + 1);
            assert!(!code.contains("tostring"), "{name}:{}: {line}", number + 1);
            assert!(!line.starts_with("#!"), "{name}:{}: {line}", number + 1);
        }
    }
}

/// The commands of a text that talk to Redis, in order.
fn calls(text: &str) -> Vec<&str> {
    let calls = text.match_indices("call('").chain(text.match_indices("failure('"));
    let mut calls: Vec<_> = calls.collect();
    calls.sort_unstable();
    calls.iter().map(|(at, _)| text[*at..].split('\'').nth(1).expect("a command")).collect()
}

// Case 34.
#[test]
fn there_is_one_place_that_writes_and_nothing_after_it_can_fail_half_way() {
    let known = |name: &str| -> &[&str] {
        match name {
            "head.lua" => &["TIME"],
            "single.lua" | "several.lua" => &["MGET"],
            "write.lua" => {
                &["PTTL", "UNLINK", "INCRBY", "SET", "SET", "PEXPIRE", "PEXPIREAT", "GET"]
            }
            // A log's pieces: what may fail for want of memory comes first, and what is called
            // after it cannot.
            "sliding_log.lua" => &[
                "ZRANGE",
                "ZRANGE",
                "ZCARD",
                // This asks for memory, and adds nothing.
                "ZADD",
                "UNLINK",
                "ZREMRANGEBYRANK",
                "ZADD",
                "ZCOUNT",
                "ZREMRANGEBYRANK",
                "ZRANGE",
                "ZRANGE",
                "ZADD",
                "ZADD",
                "ZADD",
                // A grant reads the number of members.
                "ZCARD",
            ],
            _ => &[],
        }
    };
    for (name, text) in files() {
        assert_eq!(calls(&text), known(&name), "{name}");
    }
}

/// Lua has room for 200 local variables.
#[tokio::test]
async fn eight_quotas_of_any_algorithm_are_one_script() {
    let (_server, mut connection) = Server::connected().await;
    for_each_script!(|one| {
        let eight = (one, one, one, one, one, one, one, one);
        let keys = (0..8).map(|key| format!("{one:?} {key}")).collect();
        let call = Call::several(eight, Some(NOW), vec![keys]).check(1, 0);
        let (_, entries) = call.on_complete(&mut connection).await;
        assert_eq!(entries[0].outcome(), 0, "{one:?}");
    });
}

/// A script for checks alone answers as the complete one does, and writes the same.
#[tokio::test]
async fn both_scripts_of_a_limiter_agree() {
    let (_server, mut connection) = Server::connected().await;
    let mut dice = fastrand::Rng::with_seed(3);
    for_each_script!(|algorithm| {
        for history in 0..20 {
            let keys = ["a", "b", "c"].map(|key| format!("{history} {key}"));
            let mut now = NOW;
            for _ in 0..6 {
                now += [0, 1, 200_000, 1_000_000, -200_000][dice.usize(..5)];
                let charges = [dice.usize(1..4), dice.usize(1..20)][dice.usize(..2)];
                let asked: Vec<_> = (0..charges)
                    .map(|_| (dice.usize(..3), dice.i64(0..=6), [0, 90_000_000][dice.usize(..2)]))
                    .collect();
                let call = |kind: &str| {
                    let keys: Vec<_> =
                        asked.iter().map(|(key, ..)| format!("{kind} {}", keys[*key])).collect();
                    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
                    let call = Call::new(algorithm, Some(now), &keys);
                    asked.iter().fold(call, |call, (_, cost, wait)| call.check(*cost, *wait))
                };
                let lean = call("lean").on(&mut connection).await;
                let complete = call("complete").on_complete(&mut connection).await;
                assert_eq!(lean, complete, "{algorithm:?} {history}");
            }
        }
    });
}
