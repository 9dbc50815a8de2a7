//! The cost of a stream is counted as it passes, and settled when it ends, fails or is left: over
//! real sockets, by HTTP/1 and gRPC. Or its handler settles it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use super::*;
use axum::body::Body;
use axum::response::sse::{Event, Sse};
use axum::routing::{get, post};
use axum::{Router, middleware};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use support::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower_sluice::key::{ByHead, Head};
use tower_sluice::respond::{
    CountedBody, InHandler, SettleGuard, SettleHandle, Unsettled, count_bytes,
};
use tower_sluice::{Exempt, HttpResponder};

/// The most that a request may use, of 10,000 an hour.
const MOST: u64 = 1_000;

fn limiter() -> Memory<FixedWindow> {
    Memory::new("tokens", FixedWindow::new(Quota::new(10_000, Duration::from_secs(3_600_000))))
}

type ByAlice = ByHead<fn(Head<'_>) -> Charge>;

fn layer<L: Limiter>(limiter: L) -> RateLimitLayer<L, ByAlice, HttpResponder> {
    let key: fn(Head<'_>) -> Charge = |_| Charge::new("alice").cost(MOST);
    RateLimitLayer::new(limiter, by_head(key)).respond(HttpResponder::new().report_in_request())
}

async fn used(limiter: &impl Limiter) -> u64 {
    10_000 - limiter.peek("alice").await.expect("a decision").remaining().expect("known")
}

/// Waits until a settlement that nobody awaits has arrived.
async fn uses(limiter: &impl Limiter, units: u64) {
    eventually("the settlement has arrived", async || used(limiter).await == units).await;
}

/// The events in a frame.
fn events(frame: &Frame<Bytes>) -> u64 {
    let data = frame.data_ref().map_or(&b""[..], |data| data);
    data.windows(5).filter(|window| window == b"data:").count() as u64
}

/// A body of these frames; `None` fails.
#[derive(Default)]
struct Frames(Vec<Option<Frame<Bytes>>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.0.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(self.0.remove(0).ok_or_else(|| "the body failed".into())))
    }
}

fn data(text: &'static str) -> Option<Frame<Bytes>> {
    Some(Frame::data(Bytes::from_static(text.as_bytes())))
}

/// Counts the data and the trailers of a body that is read to an end, or dropped after so many
/// frames.
async fn settled(frames: fn() -> Vec<Option<Frame<Bytes>>>, read: usize) -> Vec<(usize, u64)> {
    let limiter = Scripted::new().allow();
    let units = |frame: &Frame<Bytes>| match frame.data_ref() {
        Some(data) => data.len() as u64,
        None => 100,
    };
    let inner = service_fn(move |_: Request<()>| async move {
        Ok::<_, Infallible>(Response::new(Frames(frames())))
    });
    let service = layer(limiter.clone()).settle_later(units).layer(inner);
    let mut body = service.oneshot(Request::new(())).await.unwrap().into_body();
    for _ in 0..read {
        if !matches!(body.frame().await, Some(Ok(_))) {
            // It has ended or failed, so it is settled already.
            return limiter.settlements();
        }
        assert!(limiter.settlements().is_empty());
    }
    drop(body);
    limiter.settlements()
}

#[tokio::test]
async fn a_body_is_settled_once_when_it_ends_fails_or_is_dropped() {
    let whole = || {
        let trailers = Frame::trailers(HeaderMap::new());
        vec![data("hello"), data("you"), Some(trailers)]
    };
    assert_eq!(settled(whole, usize::MAX).await, [(0, 108)]);
    assert_eq!(settled(whole, 3).await, [(0, 108)]);
    assert_eq!(settled(whole, 2).await, [(0, 8)]);
    assert_eq!(settled(whole, 0).await, [(0, 0)]);
    assert_eq!(settled(|| vec![data("hello"), None, data("you")], usize::MAX).await, [(0, 5)]);
    assert_eq!(settled(Vec::new, usize::MAX).await, [(0, 0)]);
}

/// A body whose end is known settles with its last frame: a server need not ask again.
#[tokio::test]
async fn a_whole_body_is_settled_with_its_last_frame() {
    let limiter = limiter();
    let inner = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    });
    let service = layer(limiter.clone()).settle_later(count_bytes).layer(inner);
    let response = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(5));
    let mut body = response.into_body();
    assert_eq!(used(&limiter).await, MOST);
    body.frame().await.unwrap().unwrap();
    assert_eq!(used(&limiter).await, 5);
}

#[tokio::test]
async fn a_body_of_a_request_that_took_nothing_passes_as_it_is() {
    let away = Scripted::new().fail(ErrorKind::Infrastructure);
    let never = |_: &Frame<Bytes>| -> u64 { panic!("counted") };
    let inner = || {
        service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
        })
    };
    let service = layer(away.clone().or_else(FailOpen)).settle_later(never).layer(inner());
    let response = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");

    let service = layer(Scripted::new().never()).settle_later(never).layer(inner());
    let response = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
}

/// The use that a handler makes of its handle.
#[derive(Clone, Copy)]
enum Handler {
    LeavesIt,
    Settles,
    SettlesLater,
    Drops,
    /// It ends a guard to which it added these units.
    Guards(Option<u64>),
}

/// A service that settles 120 units, or leaves that to the layer. A task settles at a sign.
async fn handled(
    handler: Handler,
    counts: bool,
) -> (Memory<FixedWindow>, Option<tokio::task::JoinHandle<u64>>) {
    let limiter = limiter();
    let (tasks, mut task) = mpsc::unbounded_channel();
    let inner = service_fn(move |request: Request<()>| {
        let tasks = tasks.clone();
        async move {
            let handle = request.extensions().get::<SettleHandle>().expect("added").clone();
            assert!(request.extensions().get::<tower_sluice::respond::DecisionReport>().is_some());
            match handler {
                Handler::LeavesIt => {}
                Handler::Settles => {
                    let unsettled = handle.take().expect("it took units");
                    assert_eq!(unsettled.cost(), MOST);
                    assert!(handle.take().is_none());
                    assert_eq!(unsettled.settle(120).await.unwrap().given_back, MOST - 120);
                }
                Handler::SettlesLater => {
                    let unsettled = handle.take().expect("it took units");
                    let settles = async move { unsettled.settle(120).await.unwrap().given_back };
                    tasks.send(tokio::spawn(settles)).expect("a test");
                }
                Handler::Drops => drop(handle.take()),
                Handler::Guards(units) => {
                    let mut guard = SettleGuard::new(handle.take());
                    units.into_iter().for_each(|units| guard.add(units));
                }
            }
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
        }
    });
    let layer = layer(limiter.clone());
    match counts {
        false => {
            let service = layer.settle(|_| Settle::Cost(5)).settle_later(InHandler).layer(inner);
            service.oneshot(Request::new(())).await.unwrap();
        }
        true => {
            let service = layer.settle_later(count_bytes).layer(inner);
            let response = service.oneshot(Request::new(())).await.unwrap();
            response.into_body().collect().await.unwrap();
        }
    }
    (limiter, task.recv().await)
}

#[tokio::test]
async fn a_handler_settles_in_place_of_the_layer() {
    for counts in [false, true] {
        assert_eq!(used(&handled(Handler::LeavesIt, counts).await.0).await, 5);
        assert_eq!(used(&handled(Handler::Settles, counts).await.0).await, 120);
        assert_eq!(used(&handled(Handler::Drops, counts).await.0).await, MOST);
        // A caller that leaves before its cost is known pays the estimate.
        for (units, paid) in [(None, MOST), (Some(0), 0), (Some(120), 120)] {
            assert_eq!(used(&handled(Handler::Guards(units), counts).await.0).await, paid);
        }
        let (limiter, task) = handled(Handler::SettlesLater, counts).await;
        assert_eq!(task.expect("a task").await.unwrap(), MOST - 120);
        assert_eq!(used(&limiter).await, 120);
    }
}

/// After the response nothing is left in the handle, and what it settles with has to fit.
#[tokio::test]
async fn a_handle_is_empty_once_the_layer_has_settled() {
    let (handles, mut handle) = mpsc::unbounded_channel();
    let inner = service_fn(move |request: Request<()>| {
        let handles = handles.clone();
        async move {
            handles.send(request.extensions().get::<SettleHandle>().cloned()).expect("a test");
            match request.uri().path() {
                "/fails" => Err(BoxError::from("failed")),
                _ => Ok(Response::new(Full::<Bytes>::default())),
            }
        }
    });
    let limiter = limiter();
    let layer = layer(limiter.clone())
        .settle_later(InHandler)
        .settle(|answer| if answer.result().is_ok() { Settle::Keep } else { Settle::Refund });
    for (path, left) in [("/", MOST), ("/fails", MOST)] {
        let request = Request::builder().uri(path).body(()).unwrap();
        let _ = layer.layer(inner.clone()).oneshot(request).await;
        assert!(handle.recv().await.flatten().expect("a handle").take().is_none());
        assert_eq!(used(&limiter).await, left);
    }

    // What the limiter cannot settle is an error, and stays charged.
    let limiter = Memory::new("javas", FixedWindow::new(Quota::per_hour(10)).anchored());
    let inner = limiter.clone();
    let closure = move |charge: &Charge| inner.check(charge);
    let settles = service_fn(async |request: Request<()>| {
        let handle = request.extensions().get::<SettleHandle>().expect("a handle");
        let unsettled: Unsettled = handle.take().expect("it took units");
        assert_eq!(unsettled.settle(0).await.unwrap_err().kind(), ErrorKind::Configuration);
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let layer = RateLimitLayer::new(closure, by_head(|_| Some("alice"))).settle_later(InHandler);
    layer.layer(settles).oneshot(Request::new(())).await.unwrap();
    assert_eq!(limiter.peek("alice").await.unwrap().remaining(), Some(9));
}

/// A handler that used 5 units.
async fn settles_five(request: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    let handle = request.extensions().get::<SettleHandle>().expect("a handle");
    handle.take().expect("units that were taken").settle(5).await.unwrap();
    Ok(Response::default())
}

/// A layer inside that does not limit the request leaves the handle of the outer one in its place.
#[tokio::test]
async fn a_layer_inside_that_does_not_limit_hides_no_handle() {
    let outer = || {
        let limiter = limiter();
        (layer(limiter.clone()).settle_later(InHandler), limiter)
    };
    let (layer_outside, limiter) = outer();
    let exempt = RateLimitLayer::new(Scripted::new(), |_: &Request<()>| Exempt);
    let service = exempt.settle_later(InHandler).layer(service_fn(settles_five));
    layer_outside.layer(service).oneshot(Request::new(())).await.unwrap();
    assert_eq!(used(&limiter).await, 5, "exempt");

    let (layer_outside, limiter) = outer();
    let switch = Switch::new();
    switch.set(SwitchMode::Off);
    let off = layer(Scripted::new().switch(&switch));
    let service = off.settle_later(InHandler).layer(service_fn(settles_five));
    layer_outside.layer(service).oneshot(Request::new(())).await.unwrap();
    assert_eq!(used(&limiter).await, 5, "off");
}

/// The closure chooses which bodies are counted, in whatever order a layer is set up.
#[tokio::test]
async fn a_body_is_counted_if_the_closure_says_later() {
    let inner = || {
        service_fn(async |request: Request<()>| match request.uri().path() {
            "/fails" => Err(BoxError::from("failed")),
            path => Ok(Response::new(Full::<Bytes>::from(path.to_owned()))),
        })
    };
    let choose = |answer: Answer<Response<Full<Bytes>>, BoxError>| match answer.response() {
        Some(response) if response.body().size_hint().exact() != Some(5) => Settle::Refund,
        _ => Settle::Later,
    };
    for closure_first in [true, false] {
        for (path, expected) in [("/five", 5), ("/other", 0), ("/fails", MOST)] {
            let limiter = limiter();
            let layer = layer(limiter.clone());
            let layer = match closure_first {
                true => layer.settle(choose).settle_later(count_bytes),
                false => layer.settle_later(count_bytes).settle(choose),
            };
            let request = Request::builder().uri(path).body(()).unwrap();
            if let Ok(response) = layer.layer(inner()).oneshot(request).await {
                assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), path);
            }
            assert_eq!(used(&limiter).await, expected, "{path}");
        }
    }
}

/// The cost of one limit is never settled with another: a layer inside that failed open has a
/// handle too, which is empty.
#[tokio::test]
async fn a_layer_inside_that_failed_open_hides_the_outer_handle() {
    let limiter = limiter();
    let settles = service_fn(async |request: Request<()>| {
        let handle = request.extensions().get::<SettleHandle>().expect("a handle");
        assert!(handle.take().is_none(), "the inner layer took nothing");
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let away = Scripted::new().fail(ErrorKind::Infrastructure).or_else(FailOpen);
    let service = layer(away).settle_later(InHandler).layer(settles);
    let service = layer(limiter.clone()).settle_later(InHandler).layer(service);
    service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(used(&limiter).await, MOST);
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async { axum::serve(listener, app).await });
    address
}

/// A handler that streams the events that a test sends. Each request hands the test a sender.
fn events_app() -> (Router, mpsc::UnboundedReceiver<mpsc::Sender<&'static str>>) {
    let (senders, sender) = mpsc::unbounded_channel();
    let handler = async move || {
        let (sender, receiver) = mpsc::channel(1);
        senders.send(sender).expect("a test");
        let event = |text| Ok::<_, Infallible>(Event::default().data(text));
        Sse::new(ReceiverStream::new(receiver).map(event))
    };
    (Router::new().route("/", get(handler)), sender)
}

/// A client that leaves in the middle pays for the events that it was sent, and one that stays for
/// all.
#[tokio::test]
async fn server_sent_events_over_http_1() {
    let limiter = limiter();
    let (app, mut senders) = events_app();
    let address = serve(app.layer(layer(limiter.clone()).settle_later(events))).await;

    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    let sender = senders.recv().await.unwrap();
    let mut received = Vec::new();
    for count in 1..=3 {
        sender.send("token").await.unwrap();
        while received.windows(5).filter(|window| window == b"data:").count() < count {
            assert!(client.read_buf(&mut received).await.unwrap() > 0);
        }
        assert_eq!(used(&limiter).await, MOST);
    }
    drop(client);
    sender.closed().await;
    uses(&limiter, 3).await;

    let mut client = TcpStream::connect(address).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    client.write_all(request).await.unwrap();
    let sender = senders.recv().await.unwrap();
    for _ in 0..5 {
        sender.send("token").await.unwrap();
    }
    drop(sender);
    client.read_to_end(&mut received).await.unwrap();
    uses(&limiter, 3 + 5).await;
}

/// A call that streams: a message is a frame, and its status is in the trailers.
#[tokio::test]
async fn a_stream_of_grpc_is_counted_to_its_trailers() {
    let limiter = limiter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (mut reporter, health) = tonic_health::server::health_reporter();
    let units = |frame: &Frame<Bytes>| match frame.trailers_ref() {
        Some(trailers) => {
            assert_eq!(trailers["grpc-status"], "0");
            50
        }
        None => 1,
    };
    let limit = layer(limiter.clone()).settle_later(units);
    let server = tonic::transport::Server::builder().layer(limit).add_service(health);
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(server.serve_with_incoming(incoming));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(channel.connect().await.unwrap());
    reporter.set_service_status("all", ServingStatus::Serving).await;
    let request = || HealthCheckRequest { service: "all".to_owned() };

    // A client that leaves after a message.
    let mut stream = client.watch(request()).await.unwrap().into_inner();
    stream.message().await.unwrap().expect("a status");
    assert_eq!(used(&limiter).await, MOST);
    drop(stream);
    uses(&limiter, 1).await;

    // A stream that ends.
    let mut stream = client.watch(request()).await.unwrap().into_inner();
    stream.message().await.unwrap().expect("a status");
    reporter.set_service_status("all", ServingStatus::NotServing).await;
    stream.message().await.unwrap().expect("another status");
    reporter.clear_service_status("all").await;
    assert!(stream.message().await.unwrap().is_none());
    uses(&limiter, 1 + 2 + 50).await;
}

/// The bytes of an upload are counted around the body of the request.
#[tokio::test]
async fn an_upload_is_counted_as_it_is_read() {
    let limiter = limiter();
    let count = |request: Request<Body>, next: middleware::Next| async move {
        let unsettled = request.extensions().get::<SettleHandle>().and_then(SettleHandle::take);
        let counted = |body| Body::new(CountedBody::new(body, count_bytes, unsettled));
        next.run(request.map(counted)).await
    };
    let read = async |body: Bytes| body.len().to_string();
    let app = Router::new()
        .route("/", post(read))
        .layer(middleware::from_fn(count))
        .layer(layer(limiter.clone()).settle_later(InHandler));
    let address = serve(app).await;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::post(format!("http://{address}/")).body(Full::from(vec![7; 3_000]));
    let response = client.request(request.unwrap()).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "3000");
    uses(&limiter, 3_000).await;
}
