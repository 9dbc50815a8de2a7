//! The values that may be found in Redis: those that the scripts write are read, anything else is
//! an error and never an admission.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tower_sluice::Quota;
use tower_sluice::algorithm::{InLua, SlidingLog, SlidingWindow};

use support::script::*;
use support::{Server, for_each_script};

#[tokio::test]
async fn broken_keys_fail_their_own_charges_only() {
    let (_server, mut connection) = Server::connected().await;
    ask::<()>(&mut connection, "RPUSH list x").await;
    ask::<()>(&mut connection, "SET corrupt 1.5").await;
    ask::<()>(&mut connection, "SET kept 5").await;
    for (cost, max_wait) in [(1, 0), (0, 0), (6, 0)] {
        let call = Call::bucket(None, &["fine", "list", "corrupt", "list", "fine"]);
        let call = (0..5).fold(call, |call, _| call.check(cost, max_wait));
        let (_, entries) = call.on(&mut connection).await;
        assert_eq!(entries[1], Entry::failed("WRONGTYPE"), "cost {cost}");
        assert_eq!(entries[2], Entry::failed("CORRUPT"), "cost {cost}");
        assert_eq!(entries[3], Entry::failed("WRONGTYPE"), "cost {cost}");
        assert!([0, 3].contains(&entries[0].outcome()) && [0, 3].contains(&entries[4].outcome()));
    }
    assert_eq!(ask::<String>(&mut connection, "GET corrupt").await, "1.5");
    assert_eq!(ask::<i64>(&mut connection, "LLEN list").await, 1);
}

#[tokio::test]
async fn a_failed_write_fails_its_own_charge_only() {
    let (_server, mut connection) = Server::connected().await;
    let warm = Call::bucket(None, &["known"]).check(1, 0).on(&mut connection).await;
    assert_eq!(warm.1[0].outcome(), 0);
    ask::<()>(&mut connection, "CONFIG SET maxmemory 1").await;
    let call = Call::bucket(None, &["known", "known", "new"]).check(6, 0).check(0, 0).check(1, 0);
    let (_, entries) = call.on(&mut connection).await;
    ask::<()>(&mut connection, "CONFIG SET maxmemory 0").await;
    assert_eq!((entries[0].outcome(), entries[1].outcome()), (3, 0));
    assert_eq!(entries[2], Entry::failed("OOM"));
    assert!(!ask::<bool>(&mut connection, "EXISTS new").await);
}

/// States that the scripts write, but no clock or quota of these can have led to: they end, and
/// admit nothing beyond.
// Cases 50 and 72.
#[tokio::test]
async fn extreme_states_are_answered_all_the_same() {
    let (_server, mut connection) = Server::connected().await;
    let most = "9007199254740991";
    let cells = format!("1:{most},{most},{most},{most}");
    let counter = format!("{most}:{most}:{most}:{most}");
    let most_once = "9007199254740991:9007199254740991";
    let two_cells = "100:17672256000001,9007199254740991,9007199254740991";
    async fn deny(connection: &mut MultiplexedConnection, algorithm: impl InLua, text: &str) {
        cmd("SET").arg("k").arg(text).exec_async(connection).await.unwrap();
        let call = Call::new(algorithm.clone(), Some(NOW), &["k"]).check(1, 0);
        let (_, entries) = call.on(connection).await;
        assert_eq!(entries[0].outcome(), 2, "{algorithm:?}: {entries:?}");
    }
    let tiny = SlidingWindow::new(Quota::new(5, Duration::from_micros(60))).cells(60);
    deny(&mut connection, SLIDING_WINDOW, &cells).await;
    deny(&mut connection, tiny, two_cells).await;
    deny(&mut connection, SLIDING_COUNTER, &counter).await;
    deny(&mut connection, BUDGET, &format!("{most}:{NOW}:{most}:{most}")).await;
    deny(&mut connection, BUDGET, &format!("0:{most}:{most}:{most}")).await;
    deny(&mut connection, FIXED_WINDOW.anchored(), most_once).await;
}

/// As a cluster's client writes it while a slot moves. A window may hold the epoch's begin.
// Case 162.
#[tokio::test]
async fn a_log_that_stands_for_no_state_is_none_at_any_instant() {
    let (_server, mut connection) = Server::connected().await;
    for (now, cost) in [(0, 1), (0, 2), (1, 1), (999_999, 5), (1_000_000, 1), (NOW, 3)] {
        ask::<()>(&mut connection, "ZADD k 0 00000000000000000000:1").await;
        let call = Call::new(SLIDING_LOG, Some(now), &["k", "k"]).check(0, 0).check(cost, 0);
        let (_, entries) = call.on(&mut connection).await;
        let told = [&entries[0], &entries[1]].map(Entry::numbers);
        assert_eq!(told, [[0, 0, 5, 0], [0, 0, 5 - cost, 1_000_000]], "{now}");
        let kept: Vec<String> = ask(&mut connection, "ZRANGE k 0 -1").await;
        assert_eq!(kept, [format!("{cost:020}:{cost}")], "{now}");
        ask::<()>(&mut connection, "DEL k").await;
    }
}

/// A broken member inside a log is found only by a decision that reads it. Even a log that no
/// script could have written comes to an end.
#[tokio::test]
async fn a_log_that_is_broken_inside_admits_nothing_beyond() {
    let (_server, mut connection) = Server::connected().await;
    let add = async |connection: &mut MultiplexedConnection, at: i64, member: String| {
        cmd("ZADD").arg("k").arg(at).arg(member).exec_async(connection).await.unwrap();
    };
    for total in 1..=100 {
        // Totals that fall, in a window that holds them all.
        add(&mut connection, NOW + total, format!("{:020}:1", 1_000 - total)).await;
    }
    let call = Call::new(SLIDING_LOG, Some(NOW + 100), &["k", "k"]).check(1, 0).check(5, 0);
    let (_, entries) = call.on(&mut connection).await;
    assert_eq!([entries[0].outcome(), entries[1].outcome()], [2, 2]);
    ask::<()>(&mut connection, "DEL k").await;
    for total in 1..=100 {
        let member = if total == 96 { String::from("x") } else { format!("{total:020}:1") };
        add(&mut connection, NOW + total, member).await;
    }
    let call = Call::new(SLIDING_LOG, Some(NOW + 100), &["k"]).check(1, 0);
    let (_, entries) = call.on(&mut connection).await;
    assert_eq!(entries[0], Entry::failed("CORRUPT"));
    // Even a cost that would fit.
    ask::<()>(&mut connection, "DEL k").await;
    add(&mut connection, NOW + 1, String::from("x")).await;
    add(&mut connection, NOW + 2, format!("{:020}:2", 2)).await;
    let call = Call::new(SLIDING_LOG, Some(NOW + 100), &["k"]).check(3, 0);
    let (_, entries) = call.on(&mut connection).await;
    assert_eq!(entries[0], Entry::failed("CORRUPT"));
    assert_eq!(ask::<i64>(&mut connection, "ZCARD k").await, 2);
    ask::<()>(&mut connection, "DEL k").await;
    ask::<()>(&mut connection, "SET k 5").await;
    let (_, entries) = Call::new(SLIDING_LOG, None, &["k"]).check(1, 0).on(&mut connection).await;
    assert_eq!(entries[0], Entry::failed("WRONGTYPE"));
}

// Case 29.
#[tokio::test]
async fn pruning_slips_nothing_past_a_full_memory() {
    let (_server, mut connection) = Server::connected().await;
    put_old_log(&mut connection).await;
    ask::<()>(&mut connection, "CONFIG SET maxmemory 1").await;
    for _ in 0..100 {
        let call = Call::new(SLIDING_LOG, Some(NOW), &["k", "new"]).checks(2, 1, 0);
        let (_, entries) = call.on(&mut connection).await;
        assert_eq!(entries, ["OOM"; 2].map(Entry::failed));
    }
    ask::<()>(&mut connection, "CONFIG SET maxmemory 0").await;
    assert_eq!(ask::<i64>(&mut connection, "ZCARD k").await, 1_001);
    assert!(!ask::<bool>(&mut connection, "EXISTS new").await);
}

/// What removes members may run on a full server, and Redis checks nothing after it.
// Case 29.
#[tokio::test]
async fn a_log_that_begins_again_or_gives_back_slips_nothing_past_a_full_memory() {
    let (_server, mut connection) = Server::connected().await;
    let call = Call::new(SLIDING_LOG, Some(NOW), &["old", "taken"]).checks(2, 1, 0);
    let (_, entries) = call.on(&mut connection).await;
    let mark = entries[1].mark();
    ask::<()>(&mut connection, "CONFIG SET maxmemory 1").await;
    let later = Some(NOW + 10_000_000);
    for call in [
        Call::new(SLIDING_LOG, later, &["old", "new"]).checks(2, 1, 0),
        Call::new(SLIDING_LOG, Some(NOW), &["taken", "new"])
            .ask(Form::refund(1, &mark))
            .check(1, 0),
    ] {
        let (_, entries) = call.on(&mut connection).await;
        assert_eq!(entries, ["OOM"; 2].map(Entry::failed));
    }
    ask::<()>(&mut connection, "CONFIG SET maxmemory 0").await;
    assert!(!ask::<bool>(&mut connection, "EXISTS new").await);
    assert_eq!(ask::<i64>(&mut connection, "ZCARD taken").await, 1);
}

/// A call removes as many expired members as it adds, however many these are.
#[tokio::test]
async fn a_log_stays_bounded_under_the_largest_batches() {
    let (_server, mut connection) = Server::connected().await;
    let log = SlidingLog::new(Quota::per_second(10_000));
    for tenth in 0..30 {
        let keys = ["k"; 1_000];
        let call = Call::new(log, Some(NOW + tenth * 100_000), &keys).checks(1_000, 1, 0);
        let (_, entries) = call.on(&mut connection).await;
        assert!(entries.iter().all(|entry| entry.outcome() == 0));
    }
    let members = ask::<i64>(&mut connection, "ZCARD k").await;
    assert!((10_000..=11_000).contains(&members), "{members}");
}

/// Of several keys, one may hold what no script writes. Another charge of the call writes the
/// other key.
#[tokio::test]
async fn a_block_of_several_keys_blocks_none_if_one_is_broken() {
    let (_server, mut connection) = Server::connected().await;
    ask::<()>(&mut connection, "SET broken garbage").await;
    let pair = (TOKEN_BUCKET, FIXED_WINDOW);
    let keys = |first: &str| vec![first.to_owned(), String::from("all")];
    let block = Form::new(&[&"block", &60_000_000]);
    let call = Call::several(pair, Some(NOW), vec![keys("fine"), keys("broken")]);
    let (_, entries) = call.check(1, 0).ask(block).on_complete(&mut connection).await;
    assert_eq!(entries[0].outcome(), 0);
    assert_eq!(entries[1], Entry::failed("CORRUPT"));
    let call = Call::several(pair, Some(NOW), vec![keys("fine")]).check(1, 0);
    let (_, entries) = call.on_complete(&mut connection).await;
    assert_eq!(entries[0].outcome(), 0, "nobody is blocked");
}

/// A charge that brings another period forgets nothing of a log that it leaves as it is.
#[tokio::test]
async fn only_a_charge_that_is_taken_prunes_a_log_and_by_its_own_period() {
    let (_server, mut connection) = Server::connected().await;
    let short = Quota::new(5, Duration::from_millis(100));
    let later = Some(NOW + 500_000);
    let refused = |(_, entries): (i64, Vec<Entry>)| entries[0].outcome() == 2;

    let call = Call::new(SLIDING_LOG, Some(NOW), &["k"; 4]).checks(4, 1, 0);
    call.on(&mut connection).await;
    for peek in [0, 6] {
        let call = Call::new(SLIDING_LOG, later, &["k", "k"]).check(1, 0);
        call.check_under(short, peek, 0).on(&mut connection).await;
        let call = Call::new(SLIDING_LOG, later, &["k"]).check(1, 0);
        assert!(refused(call.on(&mut connection).await), "peek {peek}");
    }

    let pair = (SLIDING_LOG, TOKEN_BUCKET);
    let keys = |who: &str| vec![format!("log {who}"), format!("bucket {who}")];
    let call = Call::several(pair, Some(NOW), vec![keys("alice"); 4]).checks(4, 1, 0);
    call.on(&mut connection).await;
    let call = Call::several(pair, later, vec![keys("alice"), keys("bob")]).check(1, 0);
    call.check_under((short, short), 1, 0).on(&mut connection).await;
    let call = Call::several(pair, later, vec![keys("alice")]).check(1, 0);
    assert!(refused(call.on(&mut connection).await), "bob's period is not alice's");
}

/// A caller of `block` need not know the quota under which others pay.
#[tokio::test]
async fn a_block_keeps_the_state_of_another_quota() {
    let (server, mut connection) = Server::connected().await;
    let (block, unblock) = (Form::new(&[&"block", &1_000_000]), Form::new(&[&"unblock"]));
    let day = Quota::per_day(100);
    for now in [None, Some(NOW)] {
        for_each_script!(|one| {
            ask::<()>(&mut connection, "FLUSHALL").await;
            let pair = (one, one);
            let keys = || vec![vec![String::from("a"), String::from("b")]];
            let call = Call::new(one, now, &["k"]).check_under(day, 100, 0);
            assert_eq!(call.on(&mut connection).await.1[0].outcome(), 0, "{one:?}");
            let call = Call::several(pair, now, keys()).check_under((day, day), 100, 0);
            assert_eq!(call.on(&mut connection).await.1[0].outcome(), 0, "{one:?}");
            let mut lasts = async || {
                let mut all = Vec::new();
                for key in ["k", "a", "b"] {
                    all.push(ask::<i64>(&mut connection, &format!("PTTL {key}")).await);
                }
                all
            };
            let before = lasts().await;
            for change in [&block, &block, &unblock] {
                let mut own = server.connection().await;
                Call::new(one, now, &["k"]).ask(change.clone()).on(&mut own).await;
                Call::several(pair, now, keys()).ask(change.clone()).on(&mut own).await;
                for (before, after) in before.iter().zip(lasts().await) {
                    assert!(after > before - 20_000, "{one:?} {now:?}: {before} {after}");
                }
            }
            let mut own = server.connection().await;
            let call = Call::new(one, now, &["k"]).check_under(day, 100, 0);
            assert_eq!(call.on(&mut own).await.1[0].outcome(), 2, "{one:?} {now:?}");
            let call = Call::several(pair, now, keys()).check_under((day, day), 100, 0);
            assert_eq!(call.on(&mut own).await.1[0].outcome(), 2, "{one:?} {now:?}");
        });
    }
}

/// The remedy for a broken key may share a call with charges of it.
#[tokio::test]
async fn a_reset_leaves_the_errors_of_the_charges_before_it() {
    let (_server, mut connection) = Server::connected().await;
    let block = Form::new(&[&"block", &60_000_000]);
    let has_failed = |entry: &Entry| matches!(entry, Entry::Failed(_));
    for_each_script!(|one| {
        ask::<()>(&mut connection, "FLUSHALL").await;
        ask::<()>(&mut connection, "SET k garbage").await;
        let call = Call::new(one, Some(NOW), &["k"; 4]).check(1, 0).ask(block.clone()).reset();
        let (_, entries) = call.check(1, 0).on(&mut connection).await;
        let failed: Vec<_> = entries.iter().map(has_failed).collect();
        assert_eq!(failed, [true, true, false, false], "{one:?}: {entries:?}");

        ask::<()>(&mut connection, "FLUSHALL").await;
        ask::<()>(&mut connection, "SET k garbage").await;
        let keys = |other: &str| vec![String::from("k"), other.to_owned()];
        let all = vec![keys("a"), keys("b"), keys("c"), keys("b")];
        let call = Call::several((one, one), Some(NOW), all).check(1, 0).ask(block.clone());
        let (_, entries) = call.reset().check(1, 0).on(&mut connection).await;
        let failed: Vec<_> = entries.iter().map(has_failed).collect();
        assert_eq!(failed, [true, true, false, false], "{one:?}: {entries:?}");
        assert!(!ask::<bool>(&mut connection, "EXISTS a").await, "{one:?}");
    });
}
