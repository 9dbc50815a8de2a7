//! The body of a refused request is read on, so that its caller sees the answer and no reset.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::Full;
use hyper::server::conn::http2;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt};
use tower_sluice::key::Global;
use tower_sluice::testing::Scripted;
use tower_sluice::{ErrorKind, RateLimitLayer};

/// A body that counts what is read of it, and whether it still lives.
#[derive(Default)]
struct Watched {
    /// `None`: the body of a request that the layer has put in place of the caller's.
    read: Option<Arc<AtomicUsize>>,
    is_silent: bool,
}

const FRAME: usize = 1 << 20;

impl Body for Watched {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(read) = self.read.as_ref().filter(|_| !self.is_silent) else {
            return Poll::Pending;
        };
        read.fetch_add(FRAME, SeqCst);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; FRAME])))))
    }
}

/// A request with a body that counts.
fn request(is_silent: bool) -> (Request<Watched>, Arc<AtomicUsize>) {
    let read = Arc::new(AtomicUsize::new(0));
    let body = Watched { read: Some(Arc::clone(&read)), is_silent };
    (Request::new(body), read)
}

type Draining = RateLimitLayer<
    Scripted,
    Global,
    tower_sluice::HttpResponder,
    tower_sluice::respond::Hooks<(), (), tower_sluice::respond::DrainRefused>,
>;

fn layer(limiter: Scripted) -> Draining {
    RateLimitLayer::new(limiter, Global).drain_refused()
}

async fn ask(layer: &Draining, request: Request<Watched>) -> u16 {
    let inner = tower::service_fn(async |request: Request<Watched>| {
        assert!(request.into_body().read.is_some(), "an admitted body is the caller's");
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    layer.layer(inner).oneshot(request).await.unwrap().status().as_u16()
}

/// Waits until nobody else has the count: its body is dropped.
async fn dropped(read: Arc<AtomicUsize>) -> usize {
    while Arc::strong_count(&read) > 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    read.load(SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_refused_body_is_read_up_to_64_mib() {
    let limiter = Scripted::new().deny(Duration::from_secs(1)).fail(ErrorKind::Infrastructure);
    let layer = layer(limiter);
    for status in [429, 503] {
        let (request, read) = request(false);
        assert_eq!(ask(&layer, request).await, status);
        assert_eq!(dropped(read).await, 65 * FRAME);
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_body_is_read_for_two_seconds() {
    let (request, read) = request(true);
    assert_eq!(ask(&layer(Scripted::new().never()), request).await, 429);
    let begun = tokio::time::Instant::now();
    assert_eq!(dropped(read).await, 0);
    assert!((2_000..2_010).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
}

/// A body whose next frame is always ready and empty. It ends only after a million frames.
#[derive(Default)]
struct Empty(Arc<AtomicUsize>);

impl Body for Empty {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let is_over = self.0.fetch_add(1, SeqCst) == 1_000_000;
        Poll::Ready((!is_over).then(|| Ok(Frame::data(Bytes::new()))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_always_ready_is_read_for_two_seconds() {
    let inner = tower::service_fn(async |_: Request<Empty>| {
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let frames = Arc::new(AtomicUsize::new(0));
    let request = Request::new(Empty(Arc::clone(&frames)));
    layer(Scripted::new().never()).layer(inner).oneshot(request).await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&frames), 2, "the body is read on");
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(dropped(frames).await < 1_000_000);
}

#[tokio::test(start_paused = true)]
async fn so_many_bodies_are_read_at_once_and_no_more() {
    let limiter = (0..258).fold(Scripted::new(), |limiter, _| limiter.never());
    let layer = layer(limiter);
    let mut counts = Vec::new();
    for _ in 0..257 {
        let (request, read) = request(true);
        ask(&layer, request).await;
        counts.push(read);
    }
    let are_read = counts.iter().filter(|read| Arc::strong_count(read) == 2).count();
    assert_eq!(are_read, 256);
    // After two seconds there is room again.
    for read in counts {
        dropped(read).await;
    }
    let (request, read) = request(false);
    ask(&layer, request).await;
    assert_eq!(dropped(read).await, 65 * FRAME);
}

#[tokio::test(start_paused = true)]
async fn what_needs_no_reading_is_not_read() {
    let layer = layer(Scripted::new().never().allow());
    // To read would ask the caller to send.
    let (mut waits, read) = request(false);
    waits.headers_mut().insert("expect", "100-continue".parse().unwrap());
    assert_eq!(ask(&layer, waits).await, 429);
    assert_eq!(dropped(read).await, 0);
    let (admitted, read) = request(false);
    assert_eq!(ask(&layer, admitted).await, 200);
    assert_eq!(dropped(read).await, 0);
}

/// Outside of a runtime the body is dropped at once.
#[test]
fn no_runtime_is_no_panic() {
    let (request, read) = request(false);
    let layer = layer(Scripted::new().never());
    let status = tokio_test::task::spawn(ask(&layer, request)).poll();
    assert_eq!(status, Poll::Ready(429));
    assert_eq!((Arc::strong_count(&read), read.load(SeqCst)), (1, 0));
}

/// Sends all of an upload before it reads, as simple clients do, and reads the status.
fn upload(address: SocketAddr, bytes: usize, is_chunked: bool) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    let (field, begin, end) = match is_chunked {
        true => {
            (String::from("transfer-encoding: chunked"), format!("{bytes:x}\r\n"), "\r\n0\r\n\r\n")
        }
        false => (format!("content-length: {bytes}"), String::new(), ""),
    };
    stream
        .write_all(format!("POST / HTTP/1.1\r\nhost: test\r\n{field}\r\n\r\n{begin}").as_bytes())?;
    stream.write_all(&vec![0; bytes])?;
    stream.write_all(end.as_bytes())?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    Ok(String::from_utf8_lossy(&status).into_owned())
}

/// More than the buffers of both sockets hold. On several connections, since one that is reset may
/// have delivered its answer by luck.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_caller_of_a_refused_upload_sees_429() {
    const UPLOADS: usize = 10;
    let limiter = (0..UPLOADS).fold(Scripted::new(), |limiter, _| limiter.never());
    let app = axum::Router::new()
        .route("/", axum::routing::post(async |body: Bytes| body.len().to_string()))
        .layer(RateLimitLayer::new(limiter, Global).drain_refused());
    let address = super::serve(app).await;
    let uploads = move || {
        let each = |number| upload(address, 16 << 20, number % 2 == 0);
        (0..UPLOADS).map(each).collect::<Vec<_>>()
    };
    for answer in tokio::task::spawn_blocking(uploads).await.unwrap() {
        assert_eq!(answer.expect("no reset"), "HTTP/1.1 429");
    }
}

/// The requests of a caller share a connection of HTTP/2. hyper ends it when too many bodies are
/// dropped while they are sent: after 1,024 parts of them, and here after ten.
// Case 185.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_uploads_end_no_other_request_of_their_connection() {
    const CALLERS: usize = 100;
    const UPLOADS: usize = 20;
    let limiter = (0..CALLERS * UPLOADS).fold(Scripted::new(), |limiter, _| limiter.never());
    let (refused, other) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begun, end) = (Arc::clone(&other), Arc::clone(&refused));
    let app = axum::Router::new()
        .route("/", axum::routing::post(async |body: Bytes| body.len().to_string()))
        .layer(RateLimitLayer::new(limiter, Global).drain_refused())
        .route(
            "/other",
            axum::routing::get(async move || {
                begun.notify_one();
                end.notified().await;
            }),
        );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let stream = TokioIo::new(listener.accept().await.unwrap().0);
        let mut server = http2::Builder::new(TokioExecutor::new());
        server.max_local_error_reset_streams(10);
        server.serve_connection(stream, TowerToHyperService::new(app)).await
    });
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let other_request =
        tokio::spawn(client.get(format!("http://{address}/other").parse().unwrap()));
    other.notified().await;
    let uploads = (0..CALLERS).map(|_| {
        let client = client.clone();
        async move {
            for _ in 0..UPLOADS {
                let body = Full::new(Bytes::from_static(&[0; 65_536]));
                let upload = Request::post(format!("http://{address}/")).body(body).unwrap();
                assert_eq!(client.request(upload).await.expect("an answer").status(), 429);
            }
        }
    });
    uploads.collect::<JoinSet<_>>().join_all().await;
    refused.notify_one();
    assert_eq!(other_request.await.unwrap().expect("an answer").status(), 200);
}
