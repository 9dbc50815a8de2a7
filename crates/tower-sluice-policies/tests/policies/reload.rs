//! A table is exchanged while requests run: none fails, the next decision is under the new one, and
//! what was taken stays taken.

use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{LimiterExt, Memory, Quota};

use super::over_redis::over;
use super::*;

use support::Server;
use support::swaps::{HOURLY, swap_under_load, table};

/// Nothing has changed for the limiters around them either.
#[tokio::test(start_paused = true)]
async fn a_fallback_counts_on_while_equal_rows_are_loaded() {
    let away = tower_sluice::testing::Scripted::new();
    let away = (0..4).fold(away, |away, _| away.fail(ErrorKind::Infrastructure));
    let share = Memory::new("share", TokenBucket::new(Quota::per_hour(1)));
    let limiter = away.or_else(share);
    let policies = Policies::builder().build(&table(5, "token_bucket")).unwrap();
    let call = request("GET", "/", &[]);
    let is_admitted =
        async || limiter.check(&charge(&policies, &call)).await.unwrap().is_admitted();
    assert!(is_admitted().await);
    policies.load(&table(5, "token_bucket")).unwrap();
    assert!(!is_admitted().await);
    policies.load(&table(6, "token_bucket")).unwrap();
    assert!(is_admitted().await);
    assert!(!is_admitted().await);
}

#[tokio::test(start_paused = true)]
async fn a_changed_limit_keeps_what_was_taken() {
    for algorithm in ["fixed_window", "sliding_log", "sliding_window", "sliding_counter"] {
        let policies = Policies::builder().build(&table(5, algorithm)).unwrap();
        let call = request("GET", "/", &[]);
        assert_eq!(burst(&policies, &call, 3).await, (3, vec![], 0));
        policies.load(&table(10, algorithm)).unwrap();
        assert_eq!(decide(&policies, &call).await.remaining(), Some(6), "{algorithm}");
        // The same rows change nothing, and fewer units are enforced at once.
        policies.load(&table(10, algorithm)).unwrap();
        assert_eq!(decide(&policies, &call).await.remaining(), Some(5), "{algorithm}");
        policies.load(&table(2, algorithm)).unwrap();
        assert!(!decide(&policies, &call).await.is_admitted(), "{algorithm}");
    }
    // A bucket keeps the share that was used.
    let policies = Policies::builder().build(&table(10, "token_bucket")).unwrap();
    let call = request("GET", "/", &[]);
    burst(&policies, &call, 5).await;
    policies.load(&table(20, "token_bucket")).unwrap();
    assert_eq!(decide(&policies, &call).await.remaining(), Some(9));
}

#[tokio::test(start_paused = true)]
async fn rows_come_and_go_and_algorithms_change() {
    let policies = policies("allow_empty = true");
    let call = request("GET", "/", &[]);
    assert!(super::check(&policies, &call).await.is_none());
    policies.load(&table(2, "token_bucket")).unwrap();
    assert_eq!(burst(&policies, &call, 3).await, (2, vec![], 1));
    // Another algorithm has other keys.
    policies.load(&table(2, "fixed_window")).unwrap();
    assert_eq!(burst(&policies, &call, 3).await, (2, vec![], 1));
    policies.load(&Rows::none()).unwrap();
    assert!(super::check(&policies, &call).await.is_none());
    // A row that was turned off keeps what was taken.
    let off = |on: bool| {
        let mut rows = table(2, "token_bucket");
        rows.policy[0] = rows.policy[0].clone().with("enabled", on);
        rows
    };
    policies.load(&off(true)).unwrap();
    assert_eq!(burst(&policies, &call, 3).await, (2, vec![], 1));
    policies.load(&off(false)).unwrap();
    assert!(super::check(&policies, &call).await.is_none());
    policies.load(&off(true)).unwrap();
    assert!(!decide(&policies, &call).await.is_admitted());
}

/// Policies decide together, so they need one time.
#[tokio::test(start_paused = true)]
async fn policies_of_different_ages_have_one_clock() {
    let policies = Policies::builder().build(&table(5, "fixed_window")).unwrap();
    // The time of day goes on while tokio's stands still, as where an operator sets a clock.
    std::thread::sleep(Duration::from_millis(20));
    policies.load(&table(5, "token_bucket")).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let mut rows = table(5, "token_bucket");
    let new = rows.policy[1].clone().with("name", "c").with("match", "/c");
    rows.policy.push(new);
    policies.load(&rows).unwrap();
    let time = async |name: &str| {
        let policy = policies.get(name).unwrap();
        policy.peek(&["global"]).await.unwrap().decided_at().unwrap()
    };
    let (a, b, c) = (time("a").await, time("b").await, time("c").await);
    assert_eq!((a, b), (c, c));
}

/// Nobody is punished by a quota that is not in force any more.
#[tokio::test(start_paused = true)]
async fn a_handle_stands_for_the_policy_of_its_name() {
    let policies = Policies::builder().build(&table(5, "fixed_window")).unwrap();
    let a = policies.get("a").unwrap();
    policies.load(&table(9, "fixed_window")).unwrap();
    assert_eq!(a.peek(&["global"]).await.unwrap().remaining(), Some(9));
    assert_eq!(a.penalize(&["global"], 7).await.unwrap().remaining(), Some(2));
    assert_eq!(decide(&policies, &request("GET", "/", &[])).await.remaining(), Some(1));
    let mut off = table(9, "fixed_window");
    off.policy[0] = off.policy[0].clone().with("enabled", false).with("key", "header:x-user");
    policies.load(&off).unwrap();
    assert_eq!((a.mode(), a.key_parts()), (SwitchMode::Off, 1));
    assert_eq!(a.peek(&["alice"]).await.unwrap().remaining(), Some(9));
    policies.load(&Rows::none()).unwrap();
    assert_eq!(a.mode(), SwitchMode::Off);
    let error = a.reset(&["global"]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_under_the_table_that_charged_it() {
    let slow = "[[policy]]\nname = 'a'\nlimit = 1\nperiod = '1s'\nmax_wait = '1s'";
    let policies = policies(slow);
    let call = request("GET", "/", &[]);
    let _ = decide(&policies, &call).await;
    let mut waiting = decide(&policies, &call).await;
    assert!(matches!(waiting.outcome(), Outcome::Wait(_)));
    policies.load(&rows(&slow.replace("limit = 1", "limit = 2"))).unwrap();
    policies.load(&Rows::none()).unwrap();
    policies.refund(waiting.take_reservation().unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_tables_are_exchanged() {
    let policies = Policies::builder().build(&table(HOURLY, "fixed_window")).unwrap();
    swap_under_load(policies, 8, 10, Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_tables_over_redis_are_exchanged() {
    let server = Server::start();
    let policies = over(&server).build(&table(HOURLY, "fixed_window")).unwrap();
    swap_under_load(policies, 8, 10, Duration::ZERO).await;
}
