//! Callers of HTTP/2 without an upgrade.

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, Version};
use common::Gateway;
use common::upstream::Upstream;
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

const UPLOADS: &str = r#"
    [[policy]]
    name = "uploads"
    algorithm = "token_bucket"
    limit = 100
    period = "1h"
    cost = "content_length_kb"
    key = "global"
"#;

async fn connect(gateway: SocketAddr) -> SendRequest<Body> {
    let stream = TcpStream::connect(gateway).await.expect("a connection");
    let (sender, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

async fn post(sender: &mut SendRequest<Body>, path: &str, body: Vec<u8>) -> Response<Incoming> {
    let request = Request::post(format!("http://gateway.test{path}"))
        .version(Version::HTTP_2)
        .header("content-length", body.len())
        .body(Body::from(body))
        .expect("a request");
    sender.send_request(request).await.expect("an answer")
}

async fn text(response: Response<Incoming>) -> String {
    let bytes = to_bytes(Body::new(response.into_body()), usize::MAX).await.expect("a body");
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_arrives_although_its_body_is_not_read() {
    let gateway = Gateway::with_policies(UPLOADS);
    let mut sender = connect(gateway.listen).await;
    for _ in 0..20 {
        let refused = post(&mut sender, "/echo", vec![0; 4_000_000]).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers().get("retry-after"), None);
        assert!(text(refused).await.contains("uploads"));
    }
    let echo = post(&mut sender, "/echo", vec![b'x'; 50_000]).await;
    assert_eq!((echo.status().as_u16(), text(echo).await.len()), (200, 50_000));
}

/// A frame: its kind, its flags, and its stream.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Reads a frame, and returns its kind and its flags.
fn read_frame(stream: &mut std::net::TcpStream) -> (u8, u8) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).expect("a frame");
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    stream.read_exact(&mut vec![0; length as usize]).expect("its payload");
    (head[3], head[4])
}

#[test]
fn a_caller_may_finish_a_body_that_is_not_wanted() {
    const DATA: (u8, u8) = (0, 1);
    const RESET: u8 = 3;
    let gateway = Gateway::with_policies(UPLOADS);
    let mut stream = std::net::TcpStream::connect(gateway.listen).unwrap();
    stream.set_read_timeout(Some(support::PATIENCE)).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.write_all(&frame(4, 0, 0, b"")).unwrap();
    // POST, http, and three fields as literals.
    let head = b"\x83\x86\0\x05:path\x05/echo\0\x0a:authority\x01a\0\x0econtent-length\x06200000";
    stream.write_all(&frame(1, 4, 1, head)).unwrap();
    stream.write_all(&frame(0, 0, 1, &[0; 16_000])).unwrap();
    while read_frame(&mut stream) != DATA {}
    let refused = Instant::now();
    // Its settings are taken, and with them a larger window.
    stream.write_all(&frame(4, 1, 0, b"")).unwrap();
    for _ in 0..11 {
        stream.write_all(&frame(0, 0, 1, &[0; 16_000])).unwrap();
    }
    stream.write_all(&frame(0, 1, 1, &[0; 8_000])).unwrap();
    stream.write_all(&frame(6, 0, 0, b"are done")).unwrap();
    loop {
        match read_frame(&mut stream) {
            (6, 1) => break,
            (RESET, _) => assert!(refused.elapsed() > Duration::from_secs(2), "reset at once"),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_the_upstream_arrives_before_the_body_is_read() {
    let upstream = Upstream::answering_at_once("HTTP/1.1 413 Content Too Large", "too much");
    let gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &upstream.url())]);
    let mut sender = connect(gateway.listen).await;
    for _ in 0..20 {
        let answer = post(&mut sender, "/", vec![0; 4_000_000]).await;
        assert_eq!((answer.status().as_u16(), text(answer).await.as_str()), (413, "too much"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_is_that_of_the_target() {
    let upstream = Upstream::showing_heads();
    let gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &upstream.url())]);
    let mut sender = connect(gateway.listen).await;
    let seen = text(post(&mut sender, "/x?y", Vec::new()).await).await;
    let lines: Vec<_> = seen.lines().collect();
    assert_eq!(lines[0], "POST /x?y HTTP/1.1");
    for line in ["host: gateway.test", "x-forwarded-host: gateway.test", "via: 2 gateway"] {
        assert!(lines.contains(&line), "{line}: {seen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_are_one_field_towards_http_1() {
    let upstream = Upstream::showing_heads();
    let gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &upstream.url())]);
    let mut sender = connect(gateway.listen).await;
    let request = Request::get("http://gateway.test/").version(Version::HTTP_2);
    let request = request.header("cookie", "a=1").header("x", "y").header("cookie", "b=2; c=3");
    let answer = sender.send_request(request.body(Body::empty()).unwrap()).await.unwrap();
    let seen = text(answer).await;
    let cookies: Vec<_> = seen.lines().filter(|line| line.starts_with("cookie")).collect();
    assert_eq!(cookies, ["cookie: a=1; b=2; c=3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_too_long_is_refused() {
    let gateway = Gateway::with_policies(common::NO_POLICIES);
    let mut sender = connect(gateway.listen).await;
    let request = Request::get("http://gateway.test/").version(Version::HTTP_2);
    let request = request.header("x-long", "x".repeat(17_000));
    let answer = sender.send_request(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 431);
}
