//! The promises of the layer to a tower service, with time paused and without Redis.

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_test::{assert_pending, assert_ready, task};
use tower::{BoxError, Layer, Service, ServiceExt};
use tower_sluice::key::Global;
use tower_sluice::respond::Raise;
use tower_sluice::testing::Scripted;
use tower_sluice::{
    Charge, ErrorKind, Exempt, HttpResponder, Limiter, Outcome, RateLimit, RateLimitLayer, Refusal,
};

#[cfg(feature = "redis")]
mod axum;
#[cfg(all(feature = "axum", feature = "tonic", feature = "redis"))]
mod client_ip;
#[cfg(all(feature = "axum", feature = "tonic"))]
mod connect;
mod forwarded;
mod frameworks;
#[cfg(feature = "redis")]
mod headers;
mod http_responder;
#[cfg(all(feature = "axum", feature = "tonic"))]
mod in_handlers;
mod keyless;
#[cfg(feature = "retry")]
mod obey_retry_after;
mod obey_upstream;
mod retry_after;
mod two_layers;
mod uploads;
mod waiting;

use support::strict::Strict;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// A request that is answered as gRPC.
fn grpc_call() -> http::Request<()> {
    http::Request::post("/").header("content-type", "application/grpc").body(()).unwrap()
}

type Raised<K> = RateLimitLayer<Scripted, K, Raise>;

fn layer(limiter: &Scripted) -> Raised<Global> {
    RateLimitLayer::new(limiter.clone(), Global).respond(Raise)
}

fn gate(limiter: &Scripted) -> (RateLimit<Strict, Scripted, Global, Raise>, Strict) {
    let inner = Strict::default();
    (layer(limiter).max_wait(HOUR).layer(inner.clone()), inner)
}

/// Awaits `future`: with time paused, one that waits for nothing fails instead of hanging.
async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(24 * HOUR, future).await.expect("it hangs")
}

#[tokio::test(start_paused = true)]
async fn admitted_request_goes_through_at_once() {
    let limiter = Scripted::new().allow();
    let (service, inner) = gate(&limiter);
    let begun = Instant::now();
    assert_eq!(service.oneshot("hello").await.unwrap(), "hello");
    assert_eq!((inner.called(), begun.elapsed()), (1, Duration::ZERO));
    assert_eq!(limiter.charges()[0].key(), "global");
}

#[tokio::test(start_paused = true)]
async fn refused_request_never_reaches_inner() {
    let limiter = Scripted::new().deny(SECOND).never().fail(ErrorKind::Infrastructure);
    let (service, inner) = gate(&limiter);
    for _ in 0..3 {
        assert!(service.clone().oneshot("hello").await.unwrap_err().is::<Refusal>());
    }
    assert_eq!((inner.polled(), inner.called()), (0, 0));
    assert_eq!(limiter.left(), 0);
}

// Case 95.
#[tokio::test(start_paused = true)]
async fn readiness_comes_after_admission() {
    let (inner, mut handle) = tower_test::mock::pair::<&str, &str>();
    let limiter = Scripted::new().wait(SECOND);
    let service = layer(&limiter).max_wait(HOUR).layer(inner);
    handle.allow(0);
    let mut call = held_up(service.oneshot("hello"));
    tokio::time::advance(2 * SECOND).await;
    // The request is admitted. Only the inner service is not ready.
    assert_pending!(call.poll());
    handle.allow(1);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    let (request, respond) = soon(handle.next_request()).await.unwrap();
    respond.send_response(request);
    assert_eq!(assert_ready!(call.poll()).unwrap(), "hello");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_reaches_inner_is_refunded() {
    let (inner, mut handle) = tower_test::mock::pair::<&str, &str>();
    let limiter = Scripted::new().allow().wait(SECOND).allow();
    let service = layer(&limiter).max_wait(HOUR).layer(inner);
    // The callers leave while the inner service is not ready.
    handle.allow(0);
    let admitted = held_up(service.clone().oneshot("admitted"));
    let mut waited = held_up(service.clone().oneshot("waited"));
    tokio::time::advance(2 * SECOND).await;
    assert_pending!(waited.poll());
    assert!(limiter.refunds().is_empty());
    drop(admitted);
    drop(waited);
    assert_eq!(limiter.refunds(), [0, 1]);
    // It fails to become ready, which refunds once.
    handle.send_error("broken");
    let mut failed = task::spawn(service.oneshot("failed"));
    assert_ready!(failed.poll()).unwrap_err();
    drop(failed);
    assert_eq!(limiter.refunds(), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn request_that_entered_inner_is_not_refunded() {
    let (inner, mut handle) = tower_test::mock::pair::<&str, &str>();
    let limiter = Scripted::new().wait(SECOND).allow();
    let service = layer(&limiter).max_wait(HOUR).layer(inner);
    let calls = [service.clone(), service].map(|service| tokio::spawn(service.oneshot("hello")));
    let mut unanswered = Vec::new();
    for call in &calls {
        unanswered.push(soon(handle.next_request()).await.unwrap());
        assert!(!call.is_finished());
    }
    for call in calls {
        call.abort();
    }
    tokio::task::yield_now().await;
    assert!(limiter.refunds().is_empty());
}

#[tokio::test(start_paused = true)]
async fn exempt_requests_are_not_charged() {
    let limiter = Scripted::new();
    let layer = RateLimitLayer::new(limiter.clone(), |_: &&str| Exempt).respond(Raise);
    layer.layer(Strict::default()).oneshot("health").await.unwrap();
    assert_eq!(limiter.charges().len(), 0);
}

// Case 94.
#[tokio::test(start_paused = true)]
async fn nothing_is_charged_before_the_call() {
    let limiter = Scripted::new().allow();
    let (mut service, inner) = gate(&limiter);
    for _ in 0..3 {
        service.ready().await.unwrap();
    }
    drop(service);
    assert_eq!((limiter.charges().len(), inner.polled()), (0, 0));
}

// Case 101.
#[tokio::test(start_paused = true)]
async fn inner_errors_pass_and_stay_charged() {
    let limiter = Scripted::new().allow();
    let (service, _) = gate(&limiter);
    assert_eq!(service.oneshot("fail").await.unwrap_err().to_string(), "the inner service failed");
    assert!(limiter.refunds().is_empty());
}

/// The service may have done its work before it panicked.
#[tokio::test(start_paused = true)]
async fn a_request_whose_service_panics_stays_charged() {
    let limiter = Scripted::new().allow();
    let panics = |_: &str| -> std::future::Ready<Result<(), BoxError>> { panic!("in the call") };
    let service = layer(&limiter).layer(tower::service_fn(panics));
    assert!(tokio::spawn(service.oneshot("hello")).await.unwrap_err().is_panic());
    assert_eq!((limiter.charges().len(), limiter.refunds()), (1, vec![]));
}

// Case 80.
#[tokio::test(start_paused = true)]
async fn a_panic_in_the_extractor_harms_nobody_else() {
    let limiter = Scripted::new().allow();
    let key = |request: &&str| match *request {
        "panic" => panic!("no key"),
        key => key.to_owned(),
    };
    let layer = RateLimitLayer::new(limiter, key).respond(Raise);
    let service = layer.layer(Strict::default());
    assert!(tokio::spawn(service.clone().oneshot("panic")).await.unwrap_err().is_panic());
    service.oneshot("fine").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_answer_of_a_key_closure_is_understood() {
    async fn charged<C: tower_sluice::key::IntoCharge + 'static>(
        key: impl Fn(&&'static str) -> C + 'static,
    ) -> Option<String> {
        let limiter = Scripted::new().allow();
        let layer = RateLimitLayer::new(limiter.clone(), key).respond(Raise);
        let _ = layer.layer(Strict::default()).oneshot("request").await;
        limiter.charges().first().map(|charge| charge.key().to_owned())
    }
    let key = Some(String::from("a"));
    assert_eq!(charged(|_| "a").await, key);
    assert_eq!(charged(|_| String::from("a")).await, key);
    assert_eq!(charged(|_| Arc::<str>::from("a")).await, key);
    assert_eq!(charged(|_| Box::<str>::from("a")).await, key);
    assert_eq!(charged(|_| Cow::Borrowed("a")).await, key);
    assert_eq!(charged(|_| Cow::<'static, str>::Owned(String::from("a"))).await, key);
    let address = charged(|_| IpAddr::from([192, 0, 2, 1])).await;
    assert_eq!(address.as_deref(), Some("192.0.2.1"));
    assert_eq!(charged(|_| Charge::new("a")).await, key);
    assert_eq!(charged(|_| Some("a")).await, key);
    assert_eq!(charged(|_| Ok::<_, ()>(Charge::new("a"))).await, key);
    assert_eq!(charged(|_| Ok::<_, ()>(Some(String::from("a")))).await, key);
    assert_eq!(charged(|_| None::<&'static str>).await, None);
    assert_eq!(charged(|_| Err::<String, _>("why")).await, None);
    assert_eq!(charged(|_| Exempt).await, None);
}

// Cases 104 and 105.
#[test]
fn layer_and_future_are_what_frameworks_need() {
    fn framework<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send>(_: &T) {}
    framework::<Raised<Global>>();
    framework::<RateLimit<Strict, Scripted, Global, HttpResponder>>();
    let (mut service, _) = gate(&Scripted::new().allow());
    let call = service.call("hello");
    sent(&call);
    assert!(size_of_val(&call) <= 1_024, "{}", size_of_val(&call));
}

/// Begins a future, which has to wait.
#[track_caller]
fn held_up<F: Future<Output: std::fmt::Debug>>(future: F) -> task::Spawn<F> {
    let mut task = task::spawn(future);
    assert_pending!(task.poll());
    task
}

/// A service that answers every request.
async fn inner(_: http::Request<()>) -> Result<http::Response<String>, Infallible> {
    Ok(http::Response::new(String::from("inner")))
}

/// Serves an application on a port of its own, as one would that wants the peer in its requests.
async fn serve(app: ::axum::Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { ::axum::serve(listener, app).await });
    address
}
