//! Callers and upstreams that are silent are given up in time, and keep nobody else out.

mod common;

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, Response, Version};
use common::client::{Connection, by_http2, by_http2_over};
use common::upstream::Upstream;
use common::{Gateway, grpc};
use hyper::body::Incoming;
use support::PATIENCE;
use support::files::Files;
use support::process::open_files;
use tokio_stream::StreamExt;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// A gateway before this upstream, with such times.
fn before(upstream: &Upstream, times: &[(&str, &str)]) -> Gateway {
    before_url(&upstream.url(), times)
}

fn before_url(url: &str, times: &[(&str, &str)]) -> Gateway {
    let variables: Vec<_> = times.iter().copied().chain([("UPSTREAM", url)]).collect();
    Gateway::start(common::NO_POLICIES, &variables)
}

/// One that answers nothing, and keeps its connections open.
fn silent_upstream() -> Upstream {
    Upstream::start(|_, mut stream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    })
}

/// A request by HTTP/2, on the first stream.
fn get_by_two() -> Vec<u8> {
    let head = b"\x82\x86\x84\0\x0a:authority\x01a";
    let length = u8::try_from(head.len()).unwrap();
    [&[0, 0, length, 1, 5, 0, 0, 0, 1], &head[..]].concat()
}

/// A socket that has sent these bytes and no more.
fn stopped(address: SocketAddr, sent: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(sent).expect("sent");
    stream
}

/// Returns what comes until the other side has closed. Waits for it.
fn until_closed(mut stream: TcpStream) -> Vec<u8> {
    let mut read = Vec::new();
    match stream.read_to_end(&mut read) {
        Ok(_) => read,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => read,
        Err(error) => panic!("it stays open: {error}"),
    }
}

// Case 170.
#[test]
fn a_silent_connection_is_closed() {
    let times = ["FIRST_BYTE_TIMEOUT", "HEAD_TIMEOUT", "IDLE_TIMEOUT"].map(|name| (name, "1"));
    let gateway = Gateway::start(common::NO_POLICIES, &times);
    let unfinished = [PREFACE, SETTINGS, &[0, 0, 9, 1, 0, 0, 0, 0, 1, 0x83]].concat();
    let answered = b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n";
    let begun = Instant::now();
    let mut open = Vec::new();
    for address in [gateway.listen, gateway.admin] {
        for sent in [
            &b""[..],
            b"GET / HT",
            b"GET / HTTP/1.1\r\nhost: a\r\nx: ",
            &PREFACE[..10],
            PREFACE,
            &[PREFACE, SETTINGS].concat(),
            &unfinished,
            answered,
            &[&answered[..], b"GET / HTTP/1.1\r\nhos"].concat(),
        ] {
            open.push((sent.to_vec(), stopped(address, sent)));
        }
    }
    for (sent, stream) in open {
        let read = until_closed(stream);
        assert!(begun.elapsed() >= Duration::from_secs(1), "{sent:?}: {read:?}");
        assert_eq!(read.starts_with(b"HTTP/1.1"), sent.starts_with(answered), "{read:?}");
    }
}

#[test]
fn each_time_has_a_setting() {
    let closed = |variable: &'static str, sent: &'static [u8]| {
        std::thread::spawn(move || {
            let gateway = Gateway::start(common::NO_POLICIES, &[(variable, "0.3")]);
            let begun = Instant::now();
            until_closed(stopped(gateway.listen, sent));
            assert!(begun.elapsed() < Duration::from_secs(9), "{variable}: {:?}", begun.elapsed());
        })
    };
    for test in [
        closed("FIRST_BYTE_TIMEOUT", b""),
        closed("HEAD_TIMEOUT", b"GET / HT"),
        closed("IDLE_TIMEOUT", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"),
        closed("BODY_TIMEOUT", b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n"),
    ] {
        test.join().unwrap();
    }
}

// Case 170.
#[test]
fn a_body_that_stops_is_a_408() {
    let gateway = before(&silent_upstream(), &[("BODY_TIMEOUT", "0.5")]);
    for sent in [
        &b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n"[..],
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nfirst",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n",
    ] {
        let read = until_closed(stopped(gateway.listen, sent));
        let read = String::from_utf8_lossy(&read).into_owned();
        assert!(read.starts_with("HTTP/1.1 408 ") && read.contains("connection: close"), "{read}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stops_is_a_408_by_http_2() {
    let gateway = before(&silent_upstream(), &[("BODY_TIMEOUT", "0.5")]);
    let mut sender = by_http2(gateway.listen).await;
    let (words, said) = tokio::sync::mpsc::channel::<Result<String, std::io::Error>>(1);
    let body = Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(said));
    let request = Request::post("http://a/").version(Version::HTTP_2).body(body).unwrap();
    words.send(Ok("first".to_owned())).await.unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 408);
}

#[test]
fn a_body_that_goes_on_is_read_however_long_it_takes() {
    let times = [("BODY_TIMEOUT", "3"), ("UPSTREAM_TIMEOUT", "3"), ("BODY_RATE", "0")];
    let gateway = Gateway::start(common::NO_POLICIES, &times);
    let mut connection = Connection::open(gateway.listen);
    connection.send_head("POST", "/echo", &[], Some(5));
    assert_eq!(connection.head().0, 200);
    for part in [b"a", b"b", b"c", b"d", b"e"] {
        connection.send(part);
        let mut echo = [0];
        connection.read_exact(&mut echo);
        assert_eq!(&echo, part);
        std::thread::sleep(Duration::from_secs(1));
    }
    assert_eq!(connection.request("GET", "/", &[], b"").status, 200);
}

/// A request whose body comes byte by byte, from this address, until the gateway gives it up.
fn slow_upload(gateway: SocketAddr, from: [u8; 4]) -> std::thread::JoinHandle<Vec<u8>> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&gateway.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n";
    stream.write_all(head).unwrap();
    let mut sending = stream.try_clone().unwrap();
    std::thread::spawn(move || {
        while sending.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    std::thread::spawn(move || until_closed(stream))
}

#[test]
fn a_body_that_comes_too_slowly_is_a_408() {
    let gateway = before(&silent_upstream(), &[("BODY_TIMEOUT", "1"), ("BODY_RATE", "100")]);
    let read = slow_upload(gateway.listen, [127, 0, 0, 1]).join().unwrap();
    assert!(read.starts_with(b"HTTP/1.1 408 "), "{:?}", String::from_utf8_lossy(&read));
    // 300 bytes a second have a second more for each 100.
    let echo = Gateway::start(common::NO_POLICIES, &[("BODY_TIMEOUT", "1"), ("BODY_RATE", "100")]);
    let mut connection = Connection::open(echo.listen);
    connection.send_head("POST", "/echo", &[], Some(600));
    for _ in 0..20 {
        connection.send(&[b'x'; 30]);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(connection.answer("POST").body, [b'x'; 600]);
    let rate = before(&silent_upstream(), &[("BODY_TIMEOUT", "1"), ("BODY_RATE", "0")]);
    let upload = slow_upload(rate.listen, [127, 0, 0, 1]);
    std::thread::sleep(Duration::from_secs(3));
    assert!(!upload.is_finished(), "it goes on");
}

#[test]
fn slow_uploads_of_one_address_keep_nobody_out() {
    let upstream = Upstream::start(|head, mut stream| {
        if head[0].starts_with("GET") {
            let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            let _ = stream.get_mut().write_all(answer);
            return;
        }
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let gateway = before(&upstream, &[("MAX_CONNECTIONS", "20")]);
    let slow: Vec<_> = (0..25).map(|_| slow_upload(gateway.listen, [127, 0, 0, 2])).collect();
    support::until("all places are taken", || {
        gateway.process.stderr().contains("LISTEN has 20 connections, its most")
    });
    for _ in 0..30 {
        let begun = Instant::now();
        assert_eq!(gateway.get("/").status, 200);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
    let ended = slow.iter().filter(|upload| upload.is_finished()).count();
    assert!(ended < 20, "{ended} of 25 ended");
}

#[test]
fn an_address_has_no_more_connections_than_are_set() {
    let variables = [("MAX_CONNECTIONS", "20"), ("MAX_OF_ADDRESS", "3")];
    let gateway = before(&silent_upstream(), &variables);
    let first: Vec<_> = (0..3).map(|_| slow_upload(gateway.listen, [127, 0, 0, 2])).collect();
    assert!(slow_upload(gateway.listen, [127, 0, 0, 2]).join().unwrap().is_empty());
    assert!(first.iter().all(|upload| !upload.is_finished()));
    let other = slow_upload(gateway.listen, [127, 0, 0, 3]);
    assert!(slow_upload(gateway.listen, [127, 0, 0, 2]).join().unwrap().is_empty());
    assert!(!other.is_finished());
    // A proxy's address stands for many callers.
    let proxy = [variables[0], variables[1], ("TRUSTED", "127.0.0.2")];
    let gateway = before(&silent_upstream(), &proxy);
    let many: Vec<_> = (0..9).map(|_| slow_upload(gateway.listen, [127, 0, 0, 2])).collect();
    let other = slow_upload(gateway.listen, [127, 0, 0, 3]);
    std::thread::sleep(Duration::from_millis(300));
    assert!(many.iter().chain([&other]).all(|upload| !upload.is_finished()));
}

// Case 170.
#[test]
fn an_upstream_that_does_not_answer_is_a_504() {
    let gateway = before(&silent_upstream(), &[("UPSTREAM_TIMEOUT", "0.3")]);
    let begun = Instant::now();
    for _ in 0..5 {
        let answer = gateway.send("POST", "/", &[], b"whole");
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (504, "the upstream does not answer\n")
        );
    }
    let seconds = begun.elapsed().as_secs() as usize;
    let lines = || gateway.process.stderr();
    support::until("it says so", || lines().contains("has not answered within 300ms"));
    let said = lines().matches("has not answered").count();
    assert!(said <= 1 + seconds, "a line a second: {said} in {seconds} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_not_answered_is_unavailable() {
    let gateway = before(&silent_upstream(), &[("UPSTREAM_TIMEOUT", "0.3")]);
    let mut sender = by_http2(gateway.listen).await;
    let request = Request::post("http://a/test.Echo/Each").version(Version::HTTP_2);
    let request = request.header("content-type", "application/grpc").body(Body::from("a"));
    let answer = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["grpc-status"], "14");
}

#[test]
fn an_answer_may_be_quiet_once_it_has_begun() {
    let (more, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::start(move |_, mut stream| {
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";
        stream.get_mut().write_all(head).unwrap();
        wait.lock().unwrap().recv().unwrap();
        stream.get_mut().write_all(b"4\r\nlast\r\n0\r\n\r\n").unwrap();
    });
    // So long that the begin of an answer meets it on a busy machine.
    let times = ["BODY_TIMEOUT", "IDLE_TIMEOUT", "UPSTREAM_TIMEOUT"].map(|name| (name, "4"));
    let gateway = before(&upstream, &times);
    let mut connection = Connection::open(gateway.listen);
    connection.send_head("GET", "/", &[], None);
    assert_eq!(connection.head().0, 200);
    assert_eq!(connection.chunk().unwrap(), b"first");
    std::thread::sleep(Duration::from_secs(5));
    more.send(()).unwrap();
    assert_eq!(connection.chunk().unwrap(), b"last");
    assert_eq!(connection.chunk(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_may_be_quiet_both_ways_once_it_is_answered() {
    let (upstream, _end) = grpc::serve("127.0.0.1:0").await;
    let url = format!("http://{upstream}");
    // So long that the begin of an answer meets it on a busy machine.
    let times = ["BODY_TIMEOUT", "IDLE_TIMEOUT", "UPSTREAM_TIMEOUT"].map(|name| (name, "4"));
    let variables: Vec<_> = times.into_iter().chain([("UPSTREAM", url.as_str())]).collect();
    let gateway = Gateway::start(common::NO_POLICIES, &variables);
    let channel = grpc::channel(gateway.listen).await;
    let (words, mut answers) = grpc::call(&channel, "alice").await.unwrap();
    for word in ["one", "two"] {
        words.send(word.to_owned()).await.unwrap();
        let answer = answers.get_mut().message().await.unwrap();
        assert_eq!(answer.as_deref(), Some(word.to_uppercase().as_str()));
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

/// A body of 64 MiB, in one answer. `end` hears whether all of it was written.
fn large_until(end: mpsc::Sender<bool>) -> Upstream {
    Upstream::start(move |_, mut stream| {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 67108864\r\n\r\n";
        let answer = [&head[..], &vec![b'x'; 64 << 20]].concat();
        let _ = end.send(stream.get_mut().write_all(&answer).is_ok());
    })
}

fn large() -> Upstream {
    large_until(mpsc::channel().0)
}

#[test]
fn a_caller_that_takes_nothing_is_given_up() {
    let (end, ended) = mpsc::channel();
    let gateway = before(&large_until(end), &[("BODY_TIMEOUT", "0.5")]);
    let stream = stopped(gateway.listen, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    // It reads once the gateway has given up, and finds less than the whole.
    assert!(!ended.recv_timeout(PATIENCE).expect("it is given up"), "all was taken");
    assert!(until_closed(stream).len() < 64 << 20);
}

#[test]
fn a_stream_that_takes_nothing_is_given_up() {
    let gateway = before(&large(), &[("BODY_TIMEOUT", "0.5")]);
    // Its window is 0.
    let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
    let stream = stopped(gateway.listen, &[PREFACE, &settings, &get_by_two()].concat());
    until_closed_for_asking(stream);
}

/// One caller behind a proxy takes nothing, and the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_takes_nothing_ends_alone() {
    let (end, ended) = mpsc::channel();
    let (more, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::start(move |head, mut stream| {
        let stream = stream.get_mut();
        if head[0].contains("/large") {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 67108864\r\n\r\n";
            let answer = [&answer[..], &vec![b'x'; 64 << 20]].concat();
            let _ = end.send(stream.write_all(&answer).is_ok());
            return;
        }
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";
        stream.write_all(head).unwrap();
        wait.lock().unwrap().recv().unwrap();
        stream.write_all(b"4\r\nlast\r\n0\r\n\r\n").unwrap();
    });
    let gateway = before(&upstream, &[("BODY_TIMEOUT", "0.5")]);
    let mut sender = by_http2(gateway.listen).await;
    let get = |path: &str| {
        let request = Request::get(format!("http://a{path}")).version(Version::HTTP_2);
        request.body(Body::empty()).unwrap()
    };
    let quiet = sender.send_request(get("/quiet")).await.unwrap();
    // Its own body stays open.
    let (_words, said) = tokio::sync::mpsc::channel::<Result<String, std::io::Error>>(1);
    let body = Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(said));
    let large = Request::post("http://a/large").version(Version::HTTP_2).body(body).unwrap();
    let _large = sender.send_request(large).await.unwrap();
    let given_up = tokio::task::spawn_blocking(move || ended.recv_timeout(PATIENCE));
    assert!(!given_up.await.unwrap().expect("it is given up"), "all was taken");
    more.send(()).unwrap();
    let rest = axum::body::to_bytes(Body::new(quiet.into_body()), usize::MAX).await.unwrap();
    assert_eq!(&rest[..], b"firstlast");
}

/// It sends on, until the upstream cannot answer any more and reads no more either.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_takes_no_answers_is_reset() {
    let (upstream, _end) = grpc::serve("127.0.0.1:0").await;
    let gateway = before_url(&format!("http://{upstream}"), &[("BODY_TIMEOUT", "0.5")]);
    let channel = grpc::channel(gateway.listen).await;
    // Another call keeps the connection.
    let (others, to_others) = grpc::call(&channel, "bob").await.unwrap();
    let (words, answers) = grpc::call(&channel, "alice").await.unwrap();
    let word = "x".repeat(64 << 10);
    let reset = async { while words.send(word.clone()).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, reset).await.expect("its stream is reset");
    drop((answers, others, to_others));
}

/// A body without an end. Counts its parts, of 64 KiB.
fn endless(parts: &Arc<AtomicUsize>) -> Body {
    let parts = Arc::clone(parts);
    Body::from_stream(tokio_stream::iter(std::iter::repeat_with(move || {
        parts.fetch_add(1, Relaxed);
        Ok::<_, Infallible>(vec![b'x'; 64 << 10])
    })))
}

/// An upstream of HTTP/2, before which a silent caller is given up late: `/large` answers without
/// an end, `/quiet` with a head alone, and reads nothing; all others with what they read.
async fn gateway_of_two(parts: &Arc<AtomicUsize>) -> Gateway {
    let parts = Arc::clone(parts);
    let upstream = grpc::serve_with(move |request: Request<Incoming>| {
        let body = match request.uri().path() {
            "/large" => endless(&parts),
            "/quiet" => {
                let kept = request.into_body();
                let none = tokio_stream::pending::<Result<String, Infallible>>();
                Body::from_stream(none.map(move |item| {
                    let _ = &kept;
                    item
                }))
            }
            _ => Body::new(request.into_body()),
        };
        async { Ok(Response::new(body)) }
    });
    before_url(&format!("h2c://{}", upstream.await), &[("BODY_TIMEOUT", "600")])
}

fn ask(path: &str, body: Body) -> Request<Body> {
    let request = Request::post(format!("http://a{path}")).version(Version::HTTP_2);
    request.body(body).unwrap()
}

/// Until nothing moves any more. On a machine that is slower it only asks less of a test.
async fn until_still(parts: &AtomicUsize) {
    let mut before = usize::MAX;
    while before != parts.load(Relaxed) {
        before = parts.load(Relaxed);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Asserts that another caller is answered.
async fn another_is_answered(gateway: &Gateway) {
    let mut sender = by_http2(gateway.listen).await;
    let word = async {
        let answer = sender.send_request(ask("/", Body::from("a word"))).await.unwrap();
        axum::body::to_bytes(Body::new(answer.into_body()), 9).await.unwrap()
    };
    let word = tokio::time::timeout(PATIENCE, word).await.expect("the upstream is held up");
    assert_eq!(&word[..], b"a word");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_take_nothing_hold_no_other_up() {
    let parts = Arc::default();
    let gateway = gateway_of_two(&parts).await;
    let mut callers = Vec::new();
    for _ in 0..20 {
        let mut sender = by_http2(gateway.listen).await;
        callers.push((sender.send_request(ask("/large", Body::empty())).await.unwrap(), sender));
    }
    until_still(&parts).await;
    another_is_answered(&gateway).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_whose_request_is_not_read_holds_no_other_up() {
    let parts = Arc::default();
    let gateway = gateway_of_two(&parts).await;
    let mut sender = by_http2(gateway.listen).await;
    let _quiet = sender.send_request(ask("/quiet", endless(&parts))).await.unwrap();
    until_still(&parts).await;
    another_is_answered(&gateway).await;
}

/// They are as many as a connection to the upstream may carry.
#[tokio::test(flavor = "multi_thread")]
async fn quiet_calls_hold_no_other_caller_up() {
    let gateway = gateway_of_two(&Arc::default()).await;
    let mut quiet = Vec::new();
    for _ in 0..2 {
        let mut sender = by_http2(gateway.listen).await;
        for _ in 0..100 {
            quiet.push(sender.send_request(ask("/quiet", Body::empty())).await.unwrap());
        }
        quiet.last_mut().unwrap().extensions_mut().insert(sender);
    }
    another_is_answered(&gateway).await;
}

/// Its stream is reset without an error, as servers do after an early answer.
#[test]
fn a_body_that_breaks_off_by_http_2_is_no_whole_one() {
    let (read, was_read) = mpsc::channel();
    let upstream = Upstream::start(move |_, mut stream| {
        let mut body = b"4\r\npart\r\n".to_vec();
        let _ = read.send(stream.read_exact(&mut body).map(|()| body).unwrap_or_default());
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        let _ = read.send(rest);
    });
    let gateway = before(&upstream, &[]);
    let mut head = get_by_two();
    // `POST`, whose body follows.
    (head[4], head[9]) = (4, 0x83);
    let part = [&[0, 0, 4, 0, 0, 0, 0, 0, 1][..], b"part"].concat();
    let mut stream = stopped(gateway.listen, &[PREFACE, SETTINGS, &head, &part].concat());
    assert_eq!(was_read.recv_timeout(PATIENCE).unwrap(), b"4\r\npart\r\n");
    stream.write_all(&[0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 0]).unwrap();
    assert_eq!(was_read.recv_timeout(PATIENCE).unwrap(), b"");
}

/// The upstream has answered and reads nothing of the call. The caller leaves it, or closes its
/// connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_caller_has_left_ends_at_the_upstream() {
    tokio::join!(leave_a_call(true), leave_a_call(false));
}

async fn leave_a_call(resets: bool) {
    let (ended, mut ends) = tokio::sync::mpsc::channel::<()>(1);
    let ended = Mutex::new(Some(ended));
    let ended = Arc::new(ended);
    let upstream = grpc::serve_with(move |request: Request<Incoming>| {
        let kept = (request.into_body(), ended.lock().unwrap().take());
        let quiet = tokio_stream::pending::<Result<String, Infallible>>().map(move |item| {
            let _ = &kept;
            item
        });
        async { Ok(Response::new(Body::from_stream(quiet))) }
    });
    let gateway = before_url(&format!("h2c://{}", upstream.await), &[("BODY_TIMEOUT", "0.5")]);
    let socket = TcpStream::connect(gateway.listen).unwrap();
    let mut sender = by_http2_over(socket.try_clone().unwrap()).await;
    let (words, said) = tokio::sync::mpsc::channel::<Result<_, std::io::Error>>(9);
    for _ in 0..8 {
        // More than the upstream takes.
        words.send(Ok(vec![b'x'; 16 << 10])).await.unwrap();
    }
    let body = Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(said));
    let _answer = sender.send_request(ask("/", body)).await.unwrap();
    match resets {
        true => words.send(Err(std::io::ErrorKind::Other.into())).await.unwrap(),
        false => socket.shutdown(Shutdown::Both).unwrap(),
    }
    let end = tokio::time::timeout(PATIENCE, ends.recv()).await;
    assert_eq!(end.expect("it stays open"), None);
}

#[test]
fn a_connection_of_http_2_without_a_request_is_closed() {
    let gateway = Gateway::start(common::NO_POLICIES, &[("IDLE_TIMEOUT", "0.5")]);
    until_closed_for_asking(stopped(gateway.listen, &[PREFACE, SETTINGS, &get_by_two()].concat()));
}

/// Waits until a connection of HTTP/2 is closed that says all the time that it is there: that is
/// neither a request nor a part of an answer.
fn until_closed_for_asking(stream: TcpStream) {
    let mut pings = stream.try_clone().unwrap();
    let pinging = std::thread::spawn(move || {
        let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[0; 8]].concat();
        let begun = Instant::now();
        while pings.write_all(&ping).is_ok() {
            // Less than the time for a head.
            assert!(begun.elapsed() < Duration::from_secs(25), "it stays open");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    until_closed(stream);
    pinging.join().unwrap();
}

/// A host that is gone closes no connection.
#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_of_http_2_that_is_gone_is_asked_over_another_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (upstream, _end) = grpc::serve("127.0.0.1:0").await;
    tokio::spawn(async move {
        let (_gone, _) = listener.accept().await.unwrap();
        loop {
            let (mut caller, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut there = tokio::net::TcpStream::connect(upstream).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut caller, &mut there).await;
            });
        }
    });
    let gateway = before_url(&url, &[("UPSTREAM_TIMEOUT", "1")]);
    let mut sender = by_http2(gateway.listen).await;
    let mut call = async || {
        let request = Request::post("http://a/test.Echo/Each").version(Version::HTTP_2);
        let request = request.header("content-type", "application/grpc").body(Body::empty());
        let answer = sender.send_request(request.unwrap()).await.unwrap();
        answer.headers().get("grpc-status").is_some_and(|status| status == "14")
    };
    assert!(call().await, "nobody answers");
    let begun = Instant::now();
    while call().await {
        assert!(begun.elapsed() < PATIENCE, "it asks nobody else");
    }
}

#[test]
fn a_caller_that_reads_slowly_gets_all() {
    let gateway = before(&large(), &[("BODY_TIMEOUT", "3"), ("IDLE_TIMEOUT", "3")]);
    let mut stream = stopped(gateway.listen, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    for _ in 0..5 {
        stream.read_exact(&mut vec![0; 10 << 20]).unwrap();
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(until_closed(stream).len() > 14 << 20);
}

/// A gateway that may open 128 files, with the times of its settings.
fn with_128_files(variables: &[(&str, &str)]) -> Gateway {
    let folder = Files::new();
    let file = folder.write("policies.toml", common::NO_POLICIES);
    let policies = ("POLICIES", &*file);
    let variables: Vec<_> = variables.iter().copied().chain([policies]).collect();
    Gateway::run_with_files(128, folder, &variables).unwrap()
}

// Case 170.
#[test]
fn silent_callers_keep_nobody_out() {
    let mut gateway = with_128_files(&[]);
    let mut silent = Vec::new();
    for sent in [&b""[..], b"GET / HT", PREFACE, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"] {
        for address in [gateway.listen, gateway.admin] {
            silent.extend((0..125).map(|_| stopped(address, sent)));
            let begun = Instant::now();
            assert_eq!(gateway.health().status, 200);
            assert_eq!(gateway.get("/").status, 200);
            // Long before the first of them is silent for too long.
            assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        }
    }
    gateway.process.signal("TERM");
    assert!(gateway.process.wait().success());
    let lines = gateway.process.stderr();
    assert!(lines.contains("LISTEN has 64 connections, its most"), "{lines}");
    assert!(!lines.contains("cannot accept"), "{lines}");
    // A line a second, of a thousand connections.
    assert!(lines.lines().count() < 100, "{lines}");
}

#[test]
fn requests_that_run_leave_the_admin_port_its_own_connections() {
    let upstream = silent_upstream();
    let mut gateway = with_128_files(&[("UPSTREAM", &upstream.url()), ("BODY_TIMEOUT", "1")]);
    let head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n";
    let silent: Vec<_> = (0..125).map(|_| stopped(gateway.listen, head)).collect();
    for _ in 0..20 {
        assert_eq!(gateway.health().status, 200);
        std::thread::sleep(Duration::from_millis(50));
    }
    // Those in the queue have their turn, or find that their address has all places.
    let answers: Vec<_> = silent.into_iter().map(until_closed).collect();
    let is_late = |read: &&Vec<u8>| read.starts_with(b"HTTP/1.1 408 ");
    assert!(answers.iter().all(|read| read.is_empty() || is_late(&read)), "{answers:?}");
    assert!(answers.iter().filter(is_late).count() >= 21, "{answers:?}");
    gateway.process.signal("TERM");
    assert!(gateway.process.wait().success());
    let lines = gateway.process.stderr();
    assert!(!lines.contains("cannot accept"), "{lines}");
}

#[test]
fn connections_to_the_upstream_are_bounded() {
    let upstream = silent_upstream();
    let gateway = with_128_files(&[("UPSTREAM", &upstream.url()), ("UPSTREAM_TIMEOUT", "2")]);
    // 128 requests on one connection.
    let head = b"\x82\x86\x84\0\x0a:authority\x01a";
    let length = u8::try_from(head.len()).unwrap();
    let mut sent = [PREFACE, SETTINGS].concat();
    for stream in (1..256_u32).step_by(2) {
        sent.extend([0, 0, length, 1, 5]);
        sent.extend(stream.to_be_bytes());
        sent.extend(head);
    }
    let _many = stopped(gateway.listen, &sent);
    for _ in 0..20 {
        assert_eq!(gateway.health().status, 200);
        let open = open_files(gateway.process.id());
        assert!(open < 100, "{open}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn more_connections_than_files_are_an_error() {
    let error = |most: &str| {
        let variables = [("MAX_CONNECTIONS", most), ("UPSTREAM", "http://127.0.0.1:9")];
        Gateway::run_with_files(128, Files::new(), &variables).err()
    };
    assert!(error("22").unwrap().contains("MAX_CONNECTIONS"));
    assert!(error("21").is_none());
}
