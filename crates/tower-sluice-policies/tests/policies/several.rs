//! A request under several policies is decided by all: all or nothing, each with its own cost and
//! its own longest wait.

use tower_sluice::LimiterExt;

use super::*;

const TWO: &str = "{ name = 'user', limit = 3, period = '1h', key = 'header:x-user' },
     { name = 'all', algorithm = 'fixed_window', limit = 5, period = '1h' },";

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_from_the_others_on_a_refusal() {
    let policies = policies(TWO);
    let alice = request("GET", "/", &["x-user: alice"]);
    let bob = request("GET", "/", &["x-user: bob"]);
    assert_eq!(burst(&policies, &alice, 5).await, (3, vec![], 2));
    assert_eq!(
        (left(&policies, "user", "alice").await, left(&policies, "all", "global").await),
        (0, 2)
    );
    assert_eq!(burst(&policies, &bob, 5).await, (2, vec![], 3));
    assert_eq!(decide(&policies, &bob).await.limiter(), Some("all"));
    assert_eq!(
        (left(&policies, "user", "bob").await, left(&policies, "all", "global").await),
        (1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn each_policy_has_its_own_cost_and_its_own_wait() {
    let policies = policies(
        "{ name = 'requests', limit = 5, period = '1s', max_wait = '1s' },
         { name = 'kilobytes', limit = 10, period = '10s', cost = 'content_length_kb' },",
    );
    let three = request("POST", "/", &["content-length: 3000"]);
    assert_eq!(burst(&policies, &three, 3).await, (3, vec![], 0));
    assert_eq!(left(&policies, "kilobytes", "global").await, 1);
    assert_eq!(left(&policies, "requests", "global").await, 2);
    // One that does not wait refuses, though the other would.
    let refused = decide(&policies, &three).await;
    assert_eq!((refused.limiter(), refused.is_admitted()), (Some("kilobytes"), false));
    assert_eq!(left(&policies, "requests", "global").await, 2);
    // And it does not keep the other from waiting.
    let empty = request("GET", "/", &[]);
    policies.get("requests").unwrap().penalize(&["global"], 2).await.unwrap();
    let decision = decide(&policies, &empty).await;
    assert!(matches!(decision.outcome(), Outcome::Wait(_)), "{decision:?}");
    assert_eq!(left(&policies, "kilobytes", "global").await, 0);
}

/// A policy with these settings, beside one that paces requests and lets them wait.
fn beside_a_pace(settings: &str) -> Policies {
    let pace = "{ name = 'pace', limit = 5, period = '1s', max_wait = '500ms' }";
    policies(&format!("{pace}, {{ name = 'other', {settings} }}"))
}

#[tokio::test(start_paused = true)]
async fn a_policy_without_a_wait_lets_others_delay_as_many_as_they_would_alone() {
    for settings in [
        "limit = 100, period = '1s', burst = 10",
        "limit = 100, period = '1s', algorithm = 'fixed_window'",
        "limit = 100, period = '100ms', algorithm = 'fixed_window', anchored = true",
        "limit = 100, period = '1s', algorithm = 'sliding_log'",
        "limit = 100, period = '1s', algorithm = 'sliding_window', cells = 20",
        "limit = 100, period = '1s', algorithm = 'sliding_counter'",
        "limit = 100, period = '100ms', algorithm = 'sliding_counter'",
        "limit = 100, period = '1s', algorithm = 'smooth_bursty'",
    ] {
        let policies = beside_a_pace(settings);
        let call = request("GET", "/", &[]);
        assert_eq!(burst(&policies, &call, 10).await, (5, vec![200, 400], 3), "{settings}");
        assert_eq!(decide(&policies, &call).await.limiter(), Some("pace"), "{settings}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_needs_the_longest_wait_says_whether_it_may_be_reserved() {
    let policies =
        beside_a_pace("limit = 6, period = '1h', algorithm = 'fixed_window', anchored = true");
    let call = request("GET", "/", &[]);
    assert_eq!(burst(&policies, &call, 10).await, (5, vec![200], 4));
    let refused = decide(&policies, &call).await;
    assert_eq!(refused.limiter(), Some("other"));
    assert!(refused.retry_after() > Some(std::time::Duration::from_secs(1)), "{refused:?}");
    // A request that waits is taken under each of its policies.
    policies.get("other").unwrap().reset(&["global"]).await.unwrap();
    let waits = decide(&policies, &call).await;
    assert!(matches!(waits.outcome(), Outcome::Wait(_)));
    assert!(waits.policies().all(|one| one.is_admitted()), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_up_gives_back_under_every_policy() {
    let policies = policies(
        "{ name = 'a', limit = 2, period = '1s', max_wait = '2s' },
         { name = 'b', limit = 9, period = '1h', cost = 2 },",
    );
    let call = request("GET", "/", &[]);
    assert_eq!(burst(&policies, &call, 2).await, (2, vec![], 0));
    let mut waiting = decide(&policies, &call).await;
    assert!(matches!(waiting.outcome(), Outcome::Wait(_)));
    assert_eq!(left(&policies, "b", "global").await, 3);
    policies.refund(waiting.take_reservation().unwrap()).unwrap();
    assert_eq!(left(&policies, "b", "global").await, 5);
    assert_eq!(decide(&policies, &call).await.outcome(), waiting.outcome());
}

/// The combined decision of a process never admits more than each of its policies.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_at_once_take_no_more_than_every_policy_has() {
    let policies = Arc::new(policies(
        "{ name = 'a', limit = 40, period = '1h', key = 'header:x-user' },
         { name = 'b', algorithm = 'sliding_log', limit = 100, period = '1h' },
         { name = 'c', algorithm = 'sliding_window', limit = 90, period = '1h', cost = 2, \
           match = { header = 'x-heavy' } },",
    ));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let policies = Arc::clone(&policies);
        tasks.spawn(async move {
            let user = format!("x-user: {}", task % 4);
            let heavy = [&*user, "x-heavy: 1"];
            let headers = if task % 2 == 0 { &heavy[..1] } else { &heavy[..] };
            let call = request("GET", "/", headers);
            burst(&policies, &call, 100).await.0
        });
    }
    let admitted: u32 = tasks.join_all().await.into_iter().sum();
    assert_eq!(admitted, 100);
    assert_eq!(left(&policies, "b", "global").await, 0);
}

#[tokio::test]
async fn a_charge_of_another_limiter_is_an_error() {
    let policies = policies(TWO);
    assert!(policies.check(&Charge::new("alice")).await.is_err());
    // Neither does anybody else say what a request costs.
    let own = charge(&policies, &request("GET", "/", &["x-user: a"]));
    assert!(policies.check(&own.clone().cost(2)).await.is_err());
    assert_eq!(policies.check(&own.peek()).await.unwrap().remaining(), Some(3));
    let other = Policies::builder().build(&rows(TWO)).unwrap();
    let mut decision =
        other.check(&charge(&other, &request("GET", "/", &["x-user: a"]))).await.unwrap();
    assert!(policies.settle(decision.take_reservation().unwrap(), 0).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_decision_reports_every_policy() {
    let waits = "{ name = 'waits', limit = 2, period = '1s', max_wait = '1s', match = '/slow' }";
    let policies = policies(&format!("{TWO} {waits}"));
    let told = |decision: &tower_sluice::Decision| -> Vec<_> {
        let each = decision.policies();
        each.map(|one| (one.name().to_owned(), one.remaining(), one.is_admitted())).collect()
    };
    let of = |name: &str, left, admits| (name.to_owned(), Some(left), admits);
    let slow = request("GET", "/slow", &["x-user: a"]);
    let first = decide(&policies, &slow).await;
    assert_eq!(told(&first), [of("user", 2, true), of("all", 4, true), of("waits", 1, true)]);
    assert_eq!(burst(&policies, &slow, 2).await, (1, vec![500], 0));
    // The last of them alone would let it wait.
    let refused = decide(&policies, &slow).await;
    assert_eq!(told(&refused), [of("user", 0, false), of("all", 2, true), of("waits", 0, true)]);
    assert_eq!(refused.tightest().map(|one| one.name().to_owned()), Some("user".to_owned()));
}
