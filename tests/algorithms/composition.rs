//! The layer among tower's own, inside and outside of them: each attempt is charged once, a
//! sleeping request holds nothing, and nothing is left behind.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::JoinSet;
use tower::retry::Policy;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_sluice::algorithm::{FixedWindow, TokenBucket};
use tower_sluice::key::Global;
use tower_sluice::respond::Raise;
use tower_sluice::testing::Scripted;
use tower_sluice::{
    Charge, FailOpen, Limiter, LimiterExt, Memory, Quota, RateLimitLayer, Redis, by_head,
};

use support::Server;
use support::faults::eventually;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn limit(limiter: &Scripted) -> RateLimitLayer<Scripted, Global, Raise> {
    RateLimitLayer::new(limiter.clone(), Global).respond(Raise).max_wait(HOUR)
}

/// A service that counts its calls, and fails the first `failures`.
fn inner(
    called: &Arc<AtomicU64>,
    failures: u64,
) -> impl Service<u64, Response = u64, Error = BoxError, Future: Send> + Clone + use<> {
    let called = Arc::clone(called);
    service_fn(move |request: u64| {
        let failed = called.fetch_add(1, Relaxed) < failures;
        async move { if failed { Err(BoxError::from("failed")) } else { Ok(request) } }
    })
}

/// Tries three times.
#[derive(Clone)]
struct Thrice(u64);

impl Policy<u64, u64, BoxError> for Thrice {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut u64, result: &mut Result<u64, BoxError>) -> Option<Ready<()>> {
        self.0 += 1;
        (result.is_err() && self.0 < 3).then(|| ready(()))
    }

    fn clone_request(&mut self, request: &u64) -> Option<u64> {
        Some(*request)
    }
}

// Case 102.
#[tokio::test(start_paused = true)]
async fn each_retry_is_charged_once_and_none_inside() {
    let (limiter, called) = (Scripted::new().allow().allow().allow(), Arc::default());
    let service =
        ServiceBuilder::new().retry(Thrice(0)).layer(limit(&limiter)).service(inner(&called, 2));
    assert_eq!(service.oneshot(7).await.unwrap(), 7);
    assert_eq!((limiter.charges().len(), called.load(Relaxed)), (3, 3));

    let (limiter, called) = (Scripted::new().allow(), Arc::default());
    let service =
        ServiceBuilder::new().layer(limit(&limiter)).retry(Thrice(0)).service(inner(&called, 2));
    assert_eq!(service.oneshot(7).await.unwrap(), 7);
    assert_eq!((limiter.charges().len(), called.load(Relaxed)), (1, 3));
}

// Case 102.
#[tokio::test(start_paused = true)]
async fn a_timeout_around_it_gives_the_slot_back() {
    let (limiter, called) = (Scripted::new().wait(HOUR), Arc::default());
    let service =
        ServiceBuilder::new().timeout(SECOND).layer(limit(&limiter)).service(inner(&called, 0));
    service.oneshot(7).await.unwrap_err();
    assert_eq!((limiter.refunds(), called.load(Relaxed)), (vec![0], 0));
}

// Case 102.
#[tokio::test(start_paused = true)]
async fn a_timeout_inside_it_does_not_count_the_wait() {
    let (limiter, called) = (Scripted::new().wait(HOUR), Arc::default());
    let service =
        ServiceBuilder::new().layer(limit(&limiter)).timeout(SECOND).service(inner(&called, 0));
    assert_eq!(service.oneshot(7).await.unwrap(), 7);
}

// Case 96.
#[tokio::test(start_paused = true)]
async fn sleepers_hold_no_permit_and_no_place_in_a_buffer() {
    let mut limiter = Scripted::new();
    for _ in 0..100 {
        limiter = limiter.wait(HOUR);
    }
    let (limiter, called) = (limiter.allow().allow(), Arc::default());
    let service = ServiceBuilder::new()
        .layer(limit(&limiter))
        .buffer(1)
        .concurrency_limit(1)
        .service(inner(&called, 0));
    let mut sleepers = JoinSet::new();
    for number in 0..100 {
        sleepers.spawn(service.clone().oneshot(number));
    }
    while limiter.left() > 2 {
        tokio::task::yield_now().await;
    }
    let begun = tokio::time::Instant::now();
    service.clone().oneshot(7).await.unwrap();
    service.oneshot(7).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    while let Some(answer) = sleepers.join_next().await {
        answer.unwrap().unwrap();
    }
}

// Case 102.
#[tokio::test(start_paused = true)]
async fn load_shed_inside_sheds_what_was_admitted() {
    let limiter = Scripted::new().allow().allow();
    let (mock, mut handle) = tower_test::mock::pair::<u64, u64>();
    handle.allow(0);
    let service = ServiceBuilder::new().layer(limit(&limiter)).load_shed().service(mock);
    let error = service.clone().oneshot(7).await.unwrap_err();
    assert!(error.is::<tower::load_shed::error::Overloaded>());
    assert_eq!((limiter.charges().len(), limiter.refunds()), (1, vec![]));
}

// Case 102.
#[tokio::test(start_paused = true)]
async fn outside_a_buffer_it_limits_what_enters() {
    let (limiter, called) = (Scripted::new().allow().deny(SECOND), Arc::default());
    let service = ServiceBuilder::new()
        .buffer(8)
        .layer(limit(&limiter))
        .concurrency_limit(1)
        .service(inner(&called, 0));
    service.clone().oneshot(7).await.unwrap();
    service.oneshot(7).await.unwrap_err();
    assert_eq!(called.load(Relaxed), 1);
}

// Case 97.
#[tokio::test]
async fn clones_and_tasks_share_one_limit() {
    let limiter = Memory::new("m", TokenBucket::new(Quota::new(20, 8_760 * HOUR)));
    let called = Arc::default();
    let layer = RateLimitLayer::new(limiter, Global).respond(Raise);
    let service = ServiceBuilder::new().layer(layer).service(inner(&called, 0));
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        tasks.spawn(service.clone().oneshot(number));
    }
    assert_eq!(tasks.join_all().await.iter().filter(|answer| answer.is_ok()).count(), 20);
    assert_eq!(called.load(Relaxed), 20);
}

// Case 103.
#[test]
fn it_runs_on_every_kind_of_runtime() {
    let (_server, pool) = Server::pooled();
    let limiter = Redis::new("r", FixedWindow::new(Quota::per_day(1_000)), pool)
        .decision_timeout(Duration::from_secs(30));
    let ask = async |limiter: Redis<FixedWindow>| {
        let called = Arc::default();
        let layer = RateLimitLayer::new(limiter, Global).respond(Raise);
        let service = ServiceBuilder::new().layer(layer).service(inner(&called, 0));
        // Connections end with the runtime that made them; the next one finds that out
        // and makes its own.
        eventually("an answer", async || service.clone().oneshot(7).await.is_ok()).await;
    };
    let mut current = tokio::runtime::Builder::new_current_thread();
    let mut several = tokio::runtime::Builder::new_multi_thread();
    let starved = several.enable_all().worker_threads(2).max_blocking_threads(1);
    for runtime in [current.enable_all().build().unwrap(), starved.build().unwrap()] {
        runtime.block_on(ask(limiter.clone()));
        let local = tokio::task::LocalSet::new();
        runtime.block_on(local.run_until(ask(limiter.clone())));
    }
}

// Case 117.
#[tokio::test]
async fn no_byte_of_a_request_fails_open() {
    let (_server, pool) = Server::pooled();
    // Nothing is ever admitted but by a decision, and none admits: each key has one unit, and each
    // charge costs two at least.
    let limiter = Redis::new("api", FixedWindow::new(Quota::new(1, 8_760 * HOUR)), pool)
        .decision_timeout(Duration::from_secs(30));
    let keyed = limiter.clone().or_else(FailOpen);
    let admitted = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&admitted);
    let inner = service_fn(move |_: http::Request<()>| {
        counter.fetch_add(1, Relaxed);
        async { Ok::<_, BoxError>(http::Response::new(String::new())) }
    });
    // Whatever the header holds is the key; what is no text is no key.
    let service = ServiceBuilder::new()
        .layer(RateLimitLayer::new(
            keyed,
            by_head(|head| {
                head.header("x-api-key").map(|key| {
                    let cost = key.len() as u64 * 0x0123_4567_89AB;
                    Charge::new(key).cost(cost.max(2))
                })
            }),
        ))
        .service(inner);
    let mut dice = fastrand::Rng::with_seed(117);
    let mut tasks = JoinSet::new();
    let requests = std::env::var("HOSTILE_REQUESTS").map_or(20_000, |n| n.parse().unwrap());
    for _ in 0..requests {
        let length = match dice.u8(..) {
            0..16 => 0,
            16 => 70_000,
            _ => dice.usize(..64),
        };
        // What a header may hold: no control characters. Half of them hold bytes that are no text.
        let mask = if dice.bool() { 0xFF } else { 0x7F };
        let bytes = (0..length).map(|_| (dice.u8(..) | 0x20) & mask);
        let bytes: Vec<u8> = bytes.filter(|byte| *byte != 0x7F).collect();
        let request = http::Request::builder().header("x-api-key", bytes).body(()).unwrap();
        tasks.spawn(service.clone().oneshot(request));
        if tasks.len() > 64 {
            let response = tasks.join_next().await.unwrap().unwrap().unwrap();
            assert!([400, 429, 503].contains(&response.status().as_u16()));
        }
    }
    tasks.join_all().await;
    assert_eq!(admitted.load(Relaxed), 0);
    println!("fault case=117 requests={requests} admitted=0");
    // A charge of one unit fits, so the limiter did decide.
    assert!(limiter.check(&Charge::new("fine")).await.unwrap().is_admitted());
}
