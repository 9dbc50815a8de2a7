//! Tables of policies that are exchanged while requests run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use http::{Request, Response};
use tokio::task::JoinSet;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_sluice::key::{Head, Keyed};
use tower_sluice::{Decision, Limiter};
use tower_sluice_policies::{Policies, Rows};

/// A million in each second.
pub const HOURLY: u64 = 3_600_000_000;

/// The rows of two policies: one of all requests, and one of a path.
pub fn table(limit: u64, algorithm: &str) -> Rows {
    // A window that no test meets the end of.
    let period = if algorithm == "fixed_window" { "10000h" } else { "1h" };
    let text = format!(
        "policy = [{{ name = 'a', algorithm = '{algorithm}', limit = {limit}, period = '{period}' }},
                   {{ name = 'b', limit = 1000000000, period = '1h', match = '/b' }}]"
    );
    toml::from_str(&text).expect("rows")
}

fn request(path: &str) -> Request<()> {
    Request::get(path).body(()).expect("a request")
}

async fn decide(policies: &Policies, request: &Request<()>) -> Decision {
    match policies.charge(Head::from(request)) {
        Keyed::Charge(charge) => policies.check(&charge).await.expect("a decision"),
        other => panic!("no policy takes it: {other:?}"),
    }
}

/// Loads `swaps` tables while `tasks` tasks send requests, and returns how many requests were
/// answered, and the longest time that one took. None may fail.
pub async fn swap_under_load(
    policies: Policies,
    tasks: usize,
    swaps: usize,
    pause: Duration,
) -> (u64, Duration) {
    let (ended, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let inner =
        service_fn(|_: Request<()>| async { Ok::<_, BoxError>(Response::new(String::new())) });
    let layer = policies.layer();
    let slowest = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let slowest = Arc::clone(&slowest);
        let (service, ended) = (layer.layer(inner), Arc::clone(&ended));
        let answered = Arc::clone(&answered);
        running.spawn(async move {
            while !ended.load(Relaxed) {
                let path = if task % 2 == 0 { "/a" } else { "/b" };
                let begun = Instant::now();
                let response = service.clone().oneshot(request(path)).await.unwrap();
                assert!([200, 429].contains(&response.status().as_u16()), "{response:?}");
                answered.fetch_add(1, Relaxed);
                slowest.fetch_max(begun.elapsed().as_micros() as u64, Relaxed);
                tokio::task::yield_now().await;
            }
        });
    }
    let probe = request("/probe");
    for swap in 0..swaps {
        let before = answered.load(Relaxed);
        while answered.load(Relaxed) < before + tasks as u64 {
            tokio::task::yield_now().await;
        }
        let limit = HOURLY * (2 + swap as u64);
        policies.load(&table(limit, "fixed_window")).unwrap();
        // The next decision is under the new table.
        let decision = decide(&policies, &probe).await;
        assert_eq!(decision.quota().unwrap().limit(), limit);
        tokio::time::sleep(pause).await;
    }
    ended.store(true, Relaxed);
    while running.join_next().await.transpose().expect("no request fails").is_some() {}
    let a = policies.get("a").unwrap().peek(&["global"]).await.unwrap();
    let taken = a.quota().unwrap().limit() - a.remaining().unwrap();
    // Everything that was admitted under any table counts under the last one.
    assert_eq!(taken, answered.load(Relaxed) + swaps as u64);
    (answered.load(Relaxed), Duration::from_micros(slowest.load(Relaxed)))
}
