//! The fields of a limit of requests at the same time: a unit, no window, and no reset.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tower_sluice::algorithm::{Concurrency, FixedWindow};
use tower_sluice::{Charge, Limiter, LimiterExt, Memory, Redis};

use super::*;
use support::Server;

/// The midnight at which the clock of the tests stands.
const T0: u64 = 1_767_225_600_000_000;

async fn ask(limiter: &impl Limiter) -> Decision {
    limiter.check(&Charge::new("key")).await.expect("a decision")
}

/// The fields of an answer, in draft-11.
fn draft_11(decision: Decision) -> [Option<String>; 3] {
    let headers = match decision.is_admitted() {
        true => annotated(always(HeaderStyle::Draft11), decision),
        false => rejected(HeaderStyle::Draft11, decision),
    };
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    ["ratelimit-policy", "ratelimit", "retry-after"].map(text)
}

fn some<const N: usize>(texts: [&str; N]) -> [Option<String>; N] {
    texts.map(|text| (!text.is_empty()).then(|| text.to_owned()))
}

#[tokio::test]
async fn a_limit_at_once_has_a_unit_and_neither_window_nor_reset() {
    let server = Server::start();
    let now = Arc::new(AtomicU64::new(T0));
    let clock = support::clock_at(&now);
    let at_once = Concurrency::new(2);
    let memory = Memory::new("exports", at_once).clock(support::clock_at(&now)).boxed();
    let redis = Redis::new("exports", at_once, server.pool());
    let redis = redis.decision_timeout(Duration::from_secs(20)).clock(clock).boxed();
    for limiter in [memory, redis] {
        let policy = r#""exports";q=2;qu="concurrent-requests""#;
        let fields = async || draft_11(ask(&limiter).await);
        assert_eq!(fields().await, some([policy, r#""exports";r=1"#, ""]));
        assert_eq!(fields().await, some([policy, r#""exports";r=0"#, ""]));
        // The guess is 1 to 3 s.
        for (after, seconds) in
            [(0, "1"), (1, "2"), (1_000_000, "2"), (1_000_001, "3"), (2_000_000, "3")]
        {
            let offset = (2_000_001 - T0 % 2_000_001 + after) % 2_000_001;
            now.store(T0 + offset, Relaxed);
            assert_eq!(fields().await, some([policy, r#""exports";r=0"#, seconds]), "{after}");
        }
        now.store(T0, Relaxed);
    }
}

/// Beside a window, the policy that refuses is shown.
#[tokio::test]
async fn the_limit_that_refuses_says_whether_time_helps() {
    let now = Arc::new(AtomicU64::new(T0));
    let limiter = Memory::new("api", (FixedWindow::new(Quota::per_hour(3)), Concurrency::new(2)));
    let limiter = limiter.clock(support::clock_at(&now));
    let policies = r#""api-1";q=3;w=3600, "api-2";q=2;qu="concurrent-requests""#;
    let mut first = ask(&limiter).await;
    let reservation = first.take_reservation().expect("it was taken");
    assert_eq!(draft_11(first), some([policies, r#""api-2";r=1"#, ""]));
    let _ = ask(&limiter).await;
    let [policy, limit, wait] = draft_11(ask(&limiter).await);
    assert_eq!([policy, limit], some([policies, r#""api-2";r=0"#]));
    assert!((1..=3).contains(&wait.expect("a guess").parse().unwrap()));
    limiter.settle(reservation, 1).expect("its own").await.unwrap();
    let _ = ask(&limiter).await;
    // Now the window has no more.
    assert_eq!(draft_11(ask(&limiter).await), some([policies, r#""api-1";r=0;t=3600"#, "3600"]));
}

/// Styles with a required reset state the guess, and no window.
#[tokio::test]
async fn older_styles_show_the_guess_as_the_reset() {
    let now = Arc::new(AtomicU64::new(T0 - T0 % 2_000_001 + 500_000));
    let limiter = Memory::new("exports", Concurrency::new(1)).clock(support::clock_at(&now));
    let admitted = annotated(always(HeaderStyle::Draft07), ask(&limiter).await);
    assert_eq!(
        lines(&admitted),
        ["ratelimit-policy: 1", "ratelimit: limit=1, remaining=0, reset=0"]
    );
    for (style, fields) in [
        (HeaderStyle::Draft07, "ratelimit-policy: 1|ratelimit: limit=1, remaining=0, reset=2"),
        (
            HeaderStyle::Draft06,
            "ratelimit-policy: 1|ratelimit-limit: 1|ratelimit-remaining: 0|ratelimit-reset: 2",
        ),
        (HeaderStyle::Legacy, "x-ratelimit-limit: 1|x-ratelimit-remaining: 0|x-ratelimit-reset: 2"),
    ] {
        let refused = rejected(style, ask(&limiter).await);
        let shown = lines(&refused);
        for field in fields.split('|').chain(["retry-after: 2"]) {
            assert!(shown.iter().any(|line| line == field), "{style:?}: {field}: {shown:?}");
        }
    }
}
