//! The layer in an axum app, over real sockets.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, Response, StatusCode};
use support::Server;
use support::http::get as ask;
use tower::ServiceBuilder;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{
    Charge, Exempt, IntoCharge, LimiterExt, Memory, Pool, Quota, RateLimitLayer, Redis, Refusal,
    by_head,
};

/// So long that nothing comes back while a test runs.
const HOURLY: Quota = Quota::per_hour(2);

async fn serve(app: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async { axum::serve(listener, app).await });
    address
}

/// A handler that counts how often it is reached.
fn counting(reached: &Arc<AtomicU64>) -> axum::routing::MethodRouter {
    let reached = Arc::clone(reached);
    get(async move || {
        reached.fetch_add(1, Relaxed);
        "inner"
    })
}

#[tokio::test]
async fn a_key_closure_over_the_request_limits_each_key() {
    let server = Server::start();
    let pool = Pool::connect(&server.url()).unwrap();
    let limiter =
        Redis::new("api", TokenBucket::new(HOURLY), pool).deadline(Duration::from_secs(20));
    let reached = Arc::default();
    let app = Router::new().route("/", counting(&reached)).layer(RateLimitLayer::new(
        limiter,
        |request: &Request<_>| {
            let key = request.headers().get("x-api-key")?;
            key.to_str().ok().map(str::to_owned)
        },
    ));
    let address = serve(app).await;
    for (key, status) in [("a", 200), ("a", 200), ("a", 429), ("b", 200), ("a", 429)] {
        let answer = ask(address, "/", &[("x-api-key", key)]).await;
        assert_eq!(answer.status, status, "{key}");
        assert_eq!(answer.header("retry-after").is_some(), status == 429);
        assert_eq!(answer.body, if status == 200 { "inner" } else { "" });
    }
    assert_eq!(ask(address, "/", &[]).await.status, 400);
    assert_eq!(reached.load(Relaxed), 3);
}

#[tokio::test]
async fn routes_under_one_layer_share_one_limit() {
    let reached = Arc::default();
    let limiter = Memory::new("api", TokenBucket::new(HOURLY));
    let app = Router::new()
        .route("/a", counting(&reached))
        .route("/b", counting(&reached))
        .layer(RateLimitLayer::new(limiter, by_head(|head| head.header("x-api-key"))));
    let address = serve(app).await;
    for (path, status) in [("/a", 200), ("/b", 200), ("/a", 429), ("/b", 429)] {
        assert_eq!(ask(address, path, &[("x-api-key", "k")]).await.status, status, "{path}");
    }
    assert_eq!(reached.load(Relaxed), 2);
}

#[tokio::test]
async fn a_closure_answers_refusals_through_a_service_builder() {
    let limiter = Memory::new("api", TokenBucket::new(HOURLY)).boxed();
    let key = |request: &Request<_>| match request.uri().path() {
        "/health" => Exempt.into_charge(),
        _ => Charge::new("everyone").cost(2).into_charge(),
    };
    let answer = |_request: Request<Body>, refusal: Refusal| {
        let mut response = Response::new(Body::from(refusal.to_string()));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    };
    let reached = Arc::default();
    let stack = ServiceBuilder::new().layer(RateLimitLayer::new(limiter, key).respond(answer));
    let app = Router::new()
        .route("/", counting(&reached))
        .route("/health", counting(&reached))
        .layer(stack);
    let address = serve(app).await;
    assert_eq!(ask(address, "/", &[]).await.status, 200);
    let refused = ask(address, "/", &[]).await;
    assert_eq!((refused.status, refused.body.as_str()), (418, "rate limit exceeded"));
    assert_eq!(ask(address, "/health", &[]).await.status, 200);
    assert_eq!(reached.load(Relaxed), 2);
}

#[tokio::test]
async fn an_undecided_request_is_503_and_goes_nowhere() {
    let pool = Pool::connect(&format!("redis://127.0.0.1:{}", support::free_port())).unwrap();
    let limiter = Redis::new("api", TokenBucket::new(HOURLY), pool);
    let reached = Arc::default();
    let app = Router::new()
        .route("/", counting(&reached))
        .layer(RateLimitLayer::new(limiter, |_: &Request<_>| "everyone"));
    let answer = ask(serve(app).await, "/", &[]).await;
    assert_eq!((answer.status, answer.header("cache-control")), (503, Some("no-store")));
    assert!(answer.header("retry-after").is_some());
    assert_eq!(reached.load(Relaxed), 0);
}
