//! The final cost of a request is settled under each of its policies, in proportion.

use std::sync::atomic::AtomicU64;

use http::Response;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_sluice::Settle;
use tower_sluice::respond::Answer;

use super::over_redis::over;
use super::*;

use support::{Server, eventually};

/// Costs of 1, 3 and the kilobytes of a body.
pub(super) const COSTS: &str =
    "{ name = 'requests', algorithm = 'fixed_window', limit = 1000, period = '10000h' },
     { name = 'triple', limit = 1000, period = '1h', key = 'header:x-user', cost = 3 },
     { name = 'bytes', algorithm = 'sliding_window', limit = 1000, period = '1h', \
       cost = 'content_length_kb' },";

/// Sends one request through a layer that says what it cost.
async fn send(policies: &Policies, call: Request<()>, actual: u64) {
    let inner = service_fn(|_: Request<()>| async { Ok::<_, BoxError>(Response::new("")) });
    let cost = move |_: Answer<Response<&str>, BoxError>| Settle::Cost(actual);
    let layer = policies.layer().settle(cost);
    assert_eq!(layer.layer(inner).oneshot(call).await.expect("a response").status(), 200);
}

/// Sends one request, and waits until so much is left.
async fn settles(policies: &Policies, actual: u64, expected: [u64; 3]) {
    let call = request("POST", "/", &["x-user: alice", "content-length: 2048"]);
    send(policies, call, actual).await;
    let is_settled = async || {
        let requests = left(policies, "requests", "global").await;
        let triple = left(policies, "triple", "alice").await;
        [requests, triple, left(policies, "bytes", "global").await] == expected
    };
    // Over Redis the settlement is on its way.
    eventually(&format!("{expected:?}"), is_settled).await;
}

/// More than was charged, less, and nothing: a unit, three and two are charged.
pub(super) async fn each_policy_settles_its_own_units(policies: &Policies) {
    settles(policies, 7, [993, 979, 986]).await;
    settles(policies, 1, [992, 976, 984]).await;
    settles(policies, 0, [992, 976, 984]).await;
    let call = request("POST", "/", &["x-user: alice", "content-length: 2048"]);
    let _ = decide(policies, &call).await;
    settles(policies, 2, [989, 967, 978]).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cost_more_or_less_does_so_under_every_policy() {
    each_policy_settles_its_own_units(&policies(COSTS)).await;
}

#[tokio::test(start_paused = true)]
async fn one_policy_alone_settles_as_a_limiter_does() {
    let policies = policies("[[policy]]\nname = 'a'\nlimit = 100\nperiod = '1h'\ncost = 10");
    for (actual, expected) in [(25, 75), (4, 71), (0, 71), (10, 61), (500, 0)] {
        send(&policies, request("GET", "/", &[]), actual).await;
        assert_eq!(left(&policies, "a", "global").await, expected, "{actual}");
    }
    // The debt is remembered.
    assert!(!decide(&policies, &request("GET", "/", &[])).await.is_admitted());
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_large_cost_is_given_back_under_every_policy() {
    let policies = policies(
        "{ name = 'tokens', algorithm = 'fixed_window', limit = 100000, period = '1h', \
           cost = 4000 },
         { name = 'requests', algorithm = 'sliding_counter', limit = 10, period = '1h' },",
    );
    send(&policies, request("GET", "/", &[]), 1_000).await;
    assert_eq!(left(&policies, "tokens", "global").await, 99_000);
    // No request is less than one.
    assert_eq!(left(&policies, "requests", "global").await, 9);
}

#[tokio::test(start_paused = true)]
async fn what_is_watched_or_asked_on_its_own_is_settled_too() {
    let policies = policies(&COSTS.replace("cost = 3", "cost = 3, shadow = true"));
    each_policy_settles_its_own_units(&policies).await;
}

#[cfg(feature = "redisson")]
#[tokio::test(start_paused = true)]
async fn javas_limiter_gives_back_and_takes_no_more_than_was_charged() {
    let policies = policies(
        "{ name = 'java', algorithm = 'redisson', limit = 100, period = '1h', cost = 4 },
         { name = 'mine', algorithm = 'fixed_window', limit = 100, period = '1h', cost = 4 },",
    );
    for (actual, java, mine) in [(9, 96, 91), (1, 95, 90), (0, 95, 90)] {
        send(&policies, request("GET", "/", &[]), actual).await;
        assert_eq!(left(&policies, "java", "global").await, java, "{actual}");
        assert_eq!(left(&policies, "mine", "global").await, mine, "{actual}");
    }
}

/// Units that a budget holds are settled when the request was answered, alone and beside others.
#[tokio::test(start_paused = true)]
async fn what_a_policy_holds_is_settled_when_it_was_answered() {
    let budget =
        "[[policy]]\nname = 'a'\nalgorithm = 'budget'\nlimit = 5\nperiod = '1s'\ncost = 5\n";
    let bucket = "[[policy]]\nname = 'b'\nlimit = 100\nperiod = '1h'\n";
    for table in [String::from(budget), format!("{budget}{bucket}")] {
        for table in [table.clone(), table.replace("cost = 5\n", "cost = 5\nshadow = true\n")] {
            let policies = policies(&table);
            let inner = service_fn(|_: Request<()>| async { Ok::<_, BoxError>(Response::new("")) });
            let layer = policies.layer();
            layer.layer(inner).oneshot(request("GET", "/", &[])).await.unwrap();
            assert_eq!(left(&policies, "a", "global").await, 0);
            // What is held would not refill.
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(left(&policies, "a", "global").await, 5, "{table}");
        }
    }
}

/// Charges alice and bob alike, but settles a charge of alice from before the reset.
#[tokio::test]
async fn a_charge_of_before_the_reset_of_a_row_is_settled_under_the_others() {
    let server = Server::start();
    let algorithms = ["'token_bucket'", "'budget'", "'sliding_log'"];
    for (number, algorithm) in algorithms.into_iter().enumerate() {
        let row = |name: &str, algorithm: &str| {
            format!(
                "{{ name = '{name}-{number}', algorithm = {algorithm}, limit = 100, \
                    period = '10h', key = 'header:x-user' }},"
            )
        };
        let table =
            rows(&(row("reset", algorithm) + &row("other", "'fixed_window', anchored = true")));
        for builder in [Policies::builder(), over(&server)] {
            let now = Arc::new(AtomicU64::new(1_767_225_600_000_000));
            let policies = builder.clock(support::clock_at(&now)).build(&table).unwrap();
            let [reset, other] = policies.policies().try_into().expect("two rows");
            for used in [0, 9] {
                let [alice, bob] = ["alice", "bob"].map(|name| format!("{name}-{used}"));
                let take = async |user: &str| {
                    let call = request("GET", "/", &[&format!("x-user: {user}")]);
                    decide(&policies, &call).await.into_reservation().expect("admitted")
                };
                let old = take(&alice).await;
                drop(take(&bob).await);
                for user in [&alice, &bob] {
                    reset.reset(&[user]).await.expect("reset");
                }
                drop((take(&alice).await, take(&bob).await));
                policies.settle(old, used).expect("its own").await.expect("settled");
                let peek = async |user: &str| {
                    let decision = reset.peek(&[user]).await.expect("a decision");
                    (decision.outcome(), decision.remaining(), decision.reset_after())
                };
                assert_eq!(peek(&alice).await, peek(&bob).await, "{used}: {policies:?}");
                let left = other.peek(&[&alice]).await.expect("a decision").remaining();
                assert_eq!(left, Some(99 - used), "{used}: {policies:?}");
            }
        }
    }
}
