//! One layer value serves them all: an axum app, a tonic server, a tonic client, a hyper client and
//! a plain service; and a gRPC client sees what a gRPC client understands.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tonic::transport::{Channel, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;
use tower::{Layer, Service, ServiceExt};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::key::{ByHead, Global, Head};
use tower_sluice::respond::Raise;
use tower_sluice::testing::Scripted;
use tower_sluice::{
    ErrorKind, HttpResponder, Limiter, LimiterExt, Memory, Quota, RateLimitLayer, Refusal, by_head,
};

/// Asks the health service behind `channel`.
pub(super) async fn check<S, B>(channel: S) -> Result<(), Status>
where
    S: Service<Request<tonic::body::Body>, Response = Response<B>>,
    S::Error: Into<tower::BoxError>,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError> + Send,
{
    let mut client = HealthClient::new(channel);
    client.check(HealthCheckRequest::default()).await.map(drop)
}

/// A gRPC server with the health service behind `layer`.
pub(super) async fn grpc<L, K>(layer: RateLimitLayer<L, K, HttpResponder>) -> SocketAddr
where
    L: Limiter<Future: Send> + Send + Sync + 'static,
    K: tower_sluice::key::KeyExtractor<Request<tonic::body::Body>> + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health);
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

pub(super) async fn channel(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

type ByUserAgent = ByHead<fn(Head<'_>) -> &'static str>;

/// Admits the first request of all, and five units in all.
fn one_layer() -> RateLimitLayer<Arc<Memory<TokenBucket>>, ByUserAgent, HttpResponder> {
    let limiter = Memory::new("all", TokenBucket::new(Quota::per_hour(5)));
    let key: fn(Head<'_>) -> &'static str = |head| match head.headers().len() {
        usize::MAX => "never",
        _ => "everyone",
    };
    RateLimitLayer::new(Arc::new(limiter), by_head(key))
}

#[tokio::test]
async fn one_layer_value_serves_every_framework() {
    let layer = one_layer();
    let open_web = super::serve(Router::new().route("/", get(async || "inner"))).await;
    let open_grpc = grpc(RateLimitLayer::new(
        Memory::new("open", TokenBucket::new(Quota::per_second(1_000_000))),
        Global,
    ))
    .await;

    // An axum app.
    let app = Router::new().route("/", get(async || "inner")).layer(layer.clone());
    let axum_at = super::serve(app).await;
    // A tonic server.
    let grpc_at = grpc(layer.clone()).await;
    // A tonic client.
    let limited_channel = layer.clone().layer(channel(open_grpc).await);
    // A hyper client, whose body was boxed, since its own cannot be made up.
    let hyper: Client<_, Empty<bytes::Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let boxed = tower::ServiceBuilder::new()
        .layer(layer.clone())
        .map_response(|response: Response<hyper::body::Incoming>| {
            response.map(|body| MaybeBody(Some(body.boxed())))
        })
        .service(hyper);
    // A plain service.
    let plain = layer.layer(tower::service_fn(super::inner));

    let ask_hyper = || {
        let request = Request::builder().uri(format!("http://{open_web}/"));
        boxed.clone().oneshot(request.body(Empty::new()).unwrap())
    };
    assert_eq!(support::http::get(axum_at, "/", &[]).await.status, 200);
    check(channel(grpc_at).await).await.unwrap();
    check(limited_channel.clone()).await.unwrap();
    let body = ask_hyper().await.unwrap().into_body().0.expect("the server's own");
    assert_eq!(body.collect().await.unwrap().to_bytes(), "inner");
    assert_eq!(plain.clone().oneshot(Request::new(())).await.unwrap().body(), "inner");

    // All five together have used the five units.
    assert_eq!(support::http::get(axum_at, "/", &[]).await.status, 429);
    assert_eq!(check(channel(grpc_at).await).await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(check(limited_channel).await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(ask_hyper().await.unwrap().status(), 429);
    assert_eq!(plain.oneshot(Request::new(())).await.unwrap().status(), 429);
}

/// A client's body, or none for an answer that was made up.
#[derive(Default)]
struct MaybeBody(Option<BoxBody<bytes::Bytes, hyper::Error>>);

async fn told(limiter: Scripted) -> Status {
    let address = grpc(RateLimitLayer::new(limiter, Global)).await;
    check(channel(address).await).await.unwrap_err()
}

#[tokio::test]
async fn a_grpc_client_reads_code_delay_and_pushback() {
    let status = told(Scripted::new().deny(Duration::from_millis(1_250))).await;
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "rate limit exceeded"));
    let delay = status.get_details_retry_info().unwrap().retry_delay;
    assert_eq!(delay, Some(Duration::from_millis(1_250)));
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "1250");

    let status = told(Scripted::new().never()).await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.get_details_retry_info().is_none());
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "-1");

    let status = told(Scripted::new().fail(ErrorKind::Infrastructure)).await;
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(told(Scripted::new().fail(ErrorKind::Request)).await.code(), Code::InvalidArgument);
}

/// With each code that is chosen for it.
#[tokio::test]
async fn a_grpc_client_reads_which_limit_refuses() {
    let quotas = || {
        let minute = TokenBucket::new(Quota::per_minute(2));
        (minute, TokenBucket::new(Quota::per_day(1_000)))
    };
    for (cost, code) in [(2, Code::ResourceExhausted), (3, Code::Unavailable)] {
        let limiter = Memory::new("api", quotas());
        let names = tower_sluice::limiter::Description::new().names(["per-minute", "daily"]);
        let key = by_head(move |_| Some(tower_sluice::Charge::new("everyone").cost(cost)));
        let respond = HttpResponder::new().grpc_code(code as u8);
        let layer = RateLimitLayer::new(limiter.describe(names), key).respond(respond);
        let channel = channel(grpc(layer).await).await;
        // A cost of 3 can never fit.
        assert_eq!(check(channel.clone()).await.is_ok(), cost == 2);
        let status = check(channel).await.unwrap_err();
        assert_eq!(status.code(), code);
        let failure = status.get_details_quota_failure().unwrap();
        let subjects: Vec<_> = failure.violations.iter().map(|one| &*one.subject).collect();
        assert_eq!(subjects, ["per-minute"]);
        let info = status.get_details_error_info().unwrap();
        assert_eq!((&*info.reason, &*info.domain), ("RATE_LIMIT_EXCEEDED", "tower-sluice"));
        assert_eq!(status.get_details_retry_info().is_some(), cost == 2);
    }
}

#[tokio::test]
async fn a_wait_beyond_the_callers_timeout_is_refused_at_once() {
    let limiter = Memory::new(
        "grpc",
        TokenBucket::new(Quota::per_hour(1)).horizon(Duration::from_secs(86_400)),
    );
    let layer = RateLimitLayer::new(limiter, Global).max_wait(Duration::from_secs(86_400));
    let mut client = HealthClient::new(channel(grpc(layer).await).await);
    client.check(HealthCheckRequest::default()).await.unwrap();
    let mut request = tonic::Request::new(HealthCheckRequest::default());
    request.set_timeout(Duration::from_secs(600));
    let answer = tokio::time::timeout(Duration::from_secs(60), client.check(request));
    let status = answer.await.expect("refused at once").unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
}

#[tokio::test]
async fn browsers_get_their_own_dialect_back() {
    let layer = RateLimitLayer::new(Scripted::new().deny(Duration::from_secs(1)), Global);
    let request = Request::post("/").header("content-type", "application/grpc-web-text");
    let service = layer.layer(tower::service_fn(super::inner));
    let response = service.oneshot(request.body(()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/grpc-web-text");
    assert_eq!(response.headers()["grpc-status"], "8");
}

#[tokio::test]
async fn a_client_that_raises_keeps_the_refusal_as_its_source() {
    let open = grpc(RateLimitLayer::new(Scripted::new(), Global)).await;
    let layer =
        RateLimitLayer::new(Scripted::new().deny(Duration::from_secs(1)), Global).respond(Raise);
    let status = check(layer.layer(channel(open).await)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    let source = std::error::Error::source(&status).unwrap();
    assert!(source.is::<Refusal>());
}
