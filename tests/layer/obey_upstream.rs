//! A client's layer that obeys an upstream that says stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::{Request, Response};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_sluice::algorithm::{Budget, TokenBucket};
use tower_sluice::key::Global;
use tower_sluice::respond::count_bytes;
use tower_sluice::testing::Scripted;
use tower_sluice::{Limiter, LimiterExt, Memory, Quota, RateLimitLayer, Settle};

use super::{HOUR, SECOND};
#[cfg(feature = "redis")]
use super::{Instant, Raise};

/// An upstream that counts its calls and answers each with this status and field.
fn upstream(
    called: &Arc<AtomicU64>,
    status: u16,
    field: [&'static str; 2],
) -> impl Service<Request<()>, Response = Response<String>, Error = BoxError, Future: Send> + Clone + use<>
{
    let called = Arc::clone(called);
    service_fn(move |_: Request<()>| {
        called.fetch_add(1, Relaxed);
        let response = Response::builder().status(status).header(field[0], field[1]);
        async move { Ok(response.body(String::from("upstream"))?) }
    })
}

/// Calls it twice, and returns both answers and how often the upstream was reached.
async fn twice<L>(
    layer: RateLimitLayer<L, Global, tower_sluice::HttpResponder, Obey>,
    status: u16,
    field: [&'static str; 2],
) -> ([u16; 2], u64)
where
    L: Limiter,
{
    let called = Arc::default();
    let service = layer.layer(upstream(&called, status, field));
    let mut statuses = [0; 2];
    for answer in &mut statuses {
        *answer = service.clone().oneshot(Request::new(())).await.unwrap().status().as_u16();
    }
    (statuses, called.load(Relaxed))
}

type Obey = tower_sluice::respond::Hooks<tower_sluice::upstream::ObeyUpstream>;

fn memory() -> Memory<TokenBucket> {
    Memory::new("supplier", TokenBucket::new(Quota::per_second(100)))
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_upstream_stops_all_who_share_the_limiter() {
    let (limiter, called) = (memory(), Arc::default());
    let client = || {
        let layer = RateLimitLayer::new(limiter.clone(), Global).obey_upstream(60 * SECOND);
        layer.layer(upstream(&called, 429, ["retry-after", "3"]))
    };
    let first = client().oneshot(Request::new(())).await.unwrap();
    assert_eq!((first.status().as_u16(), &**first.body()), (429, "upstream"));
    for _ in 0..5 {
        let other = client().oneshot(Request::new(())).await.unwrap();
        assert_eq!((other.status().as_u16(), &**other.body()), (429, ""));
        assert_eq!(other.headers()["retry-after"], "3");
    }
    assert_eq!(called.load(Relaxed), 1);
    tokio::time::advance(3 * SECOND).await;
    client().oneshot(Request::new(())).await.unwrap();
    assert_eq!(called.load(Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn only_what_asks_to_wait_stops_and_never_for_longer_than_is_believed() {
    let obey = |longest| RateLimitLayer::new(memory(), Global).obey_upstream(longest);
    assert_eq!(twice(obey(HOUR), 200, ["retry-after", "3"]).await, ([200, 200], 2));
    assert_eq!(twice(obey(HOUR), 500, ["retry-after", "3"]).await, ([500, 500], 2));
    assert_eq!(twice(obey(HOUR), 429, ["retry-after", "soon"]).await, ([429, 429], 2));
    let grpc = ["grpc-retry-pushback-ms", "3000"];
    assert_eq!(twice(obey(HOUR), 200, grpc).await, ([200, 200], 2));
    let limiter = memory();
    let layer = RateLimitLayer::new(limiter.clone(), Global).obey_upstream(5 * SECOND);
    assert_eq!(twice(layer, 503, ["retry-after", "86400"]).await, ([503, 429], 1));
    let left = limiter.peek("global").await.unwrap().retry_after();
    assert_eq!(left, Some(5 * SECOND));
}

/// Nothing is obeyed unless it is set.
#[tokio::test(start_paused = true)]
async fn without_the_setter_no_upstream_stops_a_key() {
    let called = Arc::default();
    let service =
        RateLimitLayer::new(memory(), Global).layer(upstream(&called, 429, ["retry-after", "3"]));
    for _ in 0..2 {
        service.clone().oneshot(Request::new(())).await.unwrap();
    }
    assert_eq!(called.load(Relaxed), 2);
}

/// The response of the upstream passes, and its units stay taken.
#[tokio::test(start_paused = true)]
async fn a_limiter_without_pauses_lets_the_answer_pass() {
    let limiter = Scripted::new().allow().allow();
    let layer = RateLimitLayer::new(limiter.clone(), Global).obey_upstream(HOUR);
    assert_eq!(twice(layer, 429, ["retry-after", "3"]).await, ([429, 429], 2));
    assert!(limiter.refunds().is_empty());
}

#[tokio::test(start_paused = true)]
async fn units_stay_taken_and_bodies_of_others_are_counted() {
    let limiter = Memory::new("bytes", Budget::new(Quota::per_day(100)));
    let called = Arc::default();
    let client = |status| {
        let layer = RateLimitLayer::new(limiter.clone(), Global)
            .obey_upstream(HOUR)
            .settle_later(count_bytes);
        layer.layer(upstream(&called, status, ["retry-after", "3"]))
    };
    use http_body_util::BodyExt;
    let served = client(200).oneshot(Request::new(())).await.unwrap();
    served.into_body().collect().await.unwrap();
    // A charge of 1, and 8 bytes.
    assert_eq!(limiter.peek("global").await.unwrap().remaining(), Some(92));
    let refused = client(429).oneshot(Request::new(())).await.unwrap();
    limiter.unblock("global").await.unwrap();
    // Its charge is held until its body has ended, and its bytes count, too.
    assert_eq!(limiter.peek("global").await.unwrap().remaining(), Some(91));
    refused.into_body().collect().await.unwrap();
    assert_eq!(limiter.peek("global").await.unwrap().remaining(), Some(84));
}

#[tokio::test(start_paused = true)]
async fn a_closure_may_pause_too() {
    let (limiter, called) = (memory(), Arc::default());
    let layer =
        RateLimitLayer::new(limiter.clone(), Global).settle(|answer| match answer.status() {
            Some(418) => Settle::Pause(7 * SECOND),
            _ => Settle::Keep,
        });
    let service = layer.layer(upstream(&called, 418, ["x", "y"]));
    service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(limiter.peek("global").await.unwrap().retry_after(), Some(7 * SECOND));
}

/// Of 120 calls that wait in four processes, those go later whose slots come while the upstream is
/// busy. Without a look at the store before they go, 35 reached it.
#[cfg(feature = "redis")]
#[tokio::test]
async fn over_redis_calls_that_wait_already_go_after_the_pause() {
    use std::sync::Mutex;

    use tower_sluice::{Pool, Redis};

    let server = support::Server::start();
    let (busy_since, served) = (Mutex::new(None), AtomicU64::new(0));
    let (busy_since, served) = (Arc::new(busy_since), Arc::new(served));
    let hits = Arc::new(AtomicU64::new(0));
    let upstream = {
        let (busy_since, served, hits) = (busy_since, Arc::clone(&served), Arc::clone(&hits));
        service_fn(move |_: Request<()>| {
            let calls = served.fetch_add(1, Relaxed);
            let mut since = busy_since.lock().unwrap();
            if calls == 20 {
                *since = Some(Instant::now());
            }
            let is_busy = since.is_some_and(|since: Instant| since.elapsed() < SECOND);
            hits.fetch_add(u64::from(is_busy), Relaxed);
            let response = match is_busy {
                true => Response::builder().status(429).header("retry-after", "1"),
                false => Response::builder().status(200),
            };
            async move { Ok::<_, BoxError>(response.body(())?) }
        })
    };
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let pool = Pool::connect(&server.url()).unwrap();
        let pace = TokenBucket::new(Quota::per_second(100).burst(1));
        let limiter = Redis::new("supplier", pace, pool).decision_timeout(20 * SECOND);
        let layer = RateLimitLayer::new(limiter, Global).max_wait(60 * SECOND);
        let client = layer.obey_upstream(HOUR).respond(Raise).layer(upstream.clone());
        for _ in 0..30 {
            calls.spawn(client.clone().oneshot(Request::new(())));
        }
    }
    while let Some(answer) = calls.join_next().await {
        answer.unwrap().unwrap();
    }
    // Those that were under way when the first one was refused.
    assert_eq!(served.load(Relaxed), 120);
    assert!((1..=8).contains(&hits.load(Relaxed)), "{hits:?}");
}
