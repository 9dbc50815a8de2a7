//! Jobs of apalis and functions of AWS Lambda: who is charged, and what the caller sees.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tower::{Layer, Service, ServiceExt};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::key::Global;
use tower_sluice::respond::Raise;
use tower_sluice::{LimiterExt, Memory, Quota, RateLimitLayer, by_head};

#[tokio::test]
async fn a_worker_of_apalis_waits_for_its_slots() {
    use apalis::prelude::*;

    const JOBS: usize = 4;
    let mut storage = MemoryStorage::new();
    for job in 0..JOBS {
        storage.push(job).await.unwrap();
    }
    let done = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&done);
    let work = move |_: usize, worker: WorkerContext| {
        let counted = Arc::clone(&counted);
        async move {
            if counted.fetch_add(1, SeqCst) + 1 == JOBS {
                worker.stop().unwrap();
            }
            Ok::<(), BoxDynError>(())
        }
    };
    let limiter = Memory::new("jobs", TokenBucket::new(Quota::per_second(20).burst(1)));
    let limit = RateLimitLayer::new(limiter.clone(), Global)
        .respond(Raise)
        .max_wait(Duration::from_secs(10));
    let begun = std::time::Instant::now();
    let worker = WorkerBuilder::new("worker").backend(storage).layer(limit).build(work);
    worker.run().await.unwrap();
    assert_eq!(done.load(SeqCst), JOBS);
    // The first goes at once, each other 50 ms later.
    assert!(begun.elapsed() >= Duration::from_millis(50) * (JOBS as u32 - 1));
}

#[tokio::test]
async fn a_function_of_lambda_answers_429() {
    use lambda_http::{Body, Request, Response};

    let event = r#"{
        "version": "2.0", "routeKey": "$default", "rawPath": "/orders", "rawQueryString": "",
        "headers": {"x-user": "alice"}, "isBase64Encoded": false,
        "requestContext": {"accountId": "1", "apiId": "a", "domainName": "d", "domainPrefix": "d",
            "http": {"method": "GET", "path": "/orders", "protocol": "HTTP/1.1",
                "sourceIp": "192.0.2.1", "userAgent": "test"},
            "requestId": "r", "routeKey": "$default", "stage": "$default",
            "time": "01/Jan/2026:00:00:00 +0000", "timeEpoch": 1767225600000}
    }"#;
    let limiter = Memory::new("functions", TokenBucket::new(Quota::per_hour(2)));
    let limit = RateLimitLayer::new(limiter.clone(), by_head(|head| head.header("x-user")));
    let handler = tower::service_fn(async |_: Request| {
        Ok::<_, Infallible>(Response::new(Body::from("an order")))
    });
    let mut service = limit.layer(handler);
    for status in [200, 200, 429] {
        let request = lambda_http::request::from_str(event).unwrap();
        let response = service.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(response.headers().contains_key("retry-after"), status == 429);
    }
    assert_eq!(limiter.peek("alice").await.unwrap().remaining(), Some(0));
}
