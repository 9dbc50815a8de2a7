//! tower's `retry` with the policy that waits as long as the upstream asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::{Request, Response};
use tokio::time::Instant;
use tower::retry::RetryLayer;
use tower::retry::budget::TpsBudget;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_sluice::upstream::ObeyRetryAfter;

use super::SECOND;

/// Calls an upstream through the policy, and returns the last status, how often it was called, and
/// how long that took. The upstream refuses the first calls with these times.
async fn call(policy: ObeyRetryAfter, refusals: &'static [&'static str]) -> (u16, u64, Duration) {
    let called = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&called);
    let upstream = service_fn(move |_: Request<String>| {
        let refused = refusals.get(counter.fetch_add(1, Relaxed) as usize);
        async move {
            let response = match refused {
                Some(&"error") => return Err(BoxError::from("broken")),
                Some(wait) => Response::builder().status(429).header("retry-after", *wait),
                None => Response::builder(),
            };
            Ok(response.body(())?)
        }
    });
    let begun = Instant::now();
    let client = RetryLayer::new(policy).layer(upstream);
    let response = client.oneshot(Request::new(String::from("clonable"))).await;
    let status = response.map_or(0, |response| response.status().as_u16());
    (status, called.load(Relaxed), begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_waits_as_long_as_it_is_asked() {
    let (status, calls, time) = call(ObeyRetryAfter::new(), &["3", "10"]).await;
    assert_eq!((status, calls), (200, 3));
    // A tenth more at most, and the clock of paused time has whole milliseconds.
    let longest = Duration::from_millis(14_302);
    assert!((13 * SECOND..=longest).contains(&time), "{time:?}");
}

/// Many servers cut their wait to whole seconds.
#[tokio::test(start_paused = true)]
async fn a_wait_of_0_is_not_taken_at_its_word() {
    let (status, calls, time) = call(ObeyRetryAfter::new(), &["0", "0", "0"]).await;
    assert_eq!((status, calls), (200, 4));
    assert!((700..=780).contains(&time.as_millis()), "{time:?}");
    let short = ObeyRetryAfter::new().longest(Duration::from_millis(50)).attempts(3);
    let (status, _, time) = call(short, &["0", "0", "0"]).await;
    assert!(status == 200 && time <= Duration::from_millis(175), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn callers_do_not_come_back_at_once() {
    let mut times = Vec::new();
    for _ in 0..20 {
        times.push(call(ObeyRetryAfter::new(), &["30"]).await.2);
    }
    times.sort();
    times.dedup();
    assert!(times.len() > 10, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn attempts_and_times_have_bounds() {
    let (status, calls, _) = call(ObeyRetryAfter::new(), &["1", "1", "1", "1", "1"]).await;
    assert_eq!((status, calls), (429, 4));
    let (status, calls, _) = call(ObeyRetryAfter::new().attempts(1), &["1", "1", "1"]).await;
    assert_eq!((status, calls), (429, 2));
    // A longer time is left to the caller, at once.
    let (status, calls, time) = call(ObeyRetryAfter::new(), &["31"]).await;
    assert_eq!((status, calls, time), (429, 1, Duration::ZERO));
    let (status, calls, _) = call(ObeyRetryAfter::new().longest(60 * SECOND), &["31"]).await;
    assert_eq!((status, calls), (200, 2));
    // Neither a time that is too large for a clock, nor one that nobody can read.
    let endless = ObeyRetryAfter::new().longest(Duration::MAX);
    assert_eq!(call(endless, &["soon"]).await.1, 1);
    assert_eq!(call(ObeyRetryAfter::new(), &["99999999999999999999"]).await.1, 1);
    // An error names no time.
    assert_eq!(call(ObeyRetryAfter::new(), &["error"]).await.1, 1);
}

/// One that is refused for all of its clones.
#[tokio::test(start_paused = true)]
async fn all_requests_share_the_budget() {
    let policy = ObeyRetryAfter::new().budget(TpsBudget::new(10 * SECOND, 0, 1.0));
    for _ in 0..3 {
        assert_eq!(call(policy.clone(), &["1"]).await, (429, 1, Duration::ZERO));
    }
    // Each call that is not refused earns one attempt.
    assert_eq!(call(policy.clone(), &[]).await.0, 200);
    let (status, calls, _) = call(policy, &["1"]).await;
    assert_eq!((status, calls), (200, 2));
}
