//! The gateway as a proxy: what reaches the upstream, and what comes back.

mod common;

use std::io::{Error, ErrorKind, Read, Write};
use std::net::SocketAddr;

use common::client::Connection;
use common::upstream::{Upstream, read_body};
use common::{Gateway, request};
use support::PATIENCE;
use support::files::Files;

fn before(upstream: &Upstream) -> Gateway {
    Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &upstream.url())])
}

#[test]
fn without_an_upstream_it_answers_itself() {
    let gateway = Gateway::with_policies(common::NO_POLICIES);
    let hello = gateway.get("/");
    assert_eq!((hello.status, hello.text().lines().count()), (200, 1));
    let echo = gateway.send("POST", "/echo", &[], b"what I say");
    assert_eq!((echo.status, echo.text().as_str()), (200, "what I say"));
    assert_eq!(gateway.send("HEAD", "/", &[], b"").status, 200);
    assert_eq!(gateway.get("/other").status, 404);
    assert_eq!(gateway.get("/echo").status, 405);
}

#[test]
fn a_large_body_is_echoed() {
    let gateway = Gateway::with_policies(common::NO_POLICIES);
    let body: Vec<u8> = (0..3_000_000_u32).map(|byte| byte.to_le_bytes()[0]).collect();
    assert!(gateway.send("POST", "/echo", &[], &body).body == body);
}

#[test]
fn an_answer_passes_with_its_status_its_fields_and_its_body() {
    let upstream = Upstream::answering(
        "HTTP/1.1 418 I'm a teapot\r\nx-own: 1\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nkeep-alive: timeout=9",
        "short and stout",
    );
    let answer = before(&upstream).get("/pot?milk=no");
    assert_eq!((answer.status, answer.text().as_str()), (418, "short and stout"));
    assert_eq!(answer.header("x-own"), Some("1"));
    assert_eq!(answer.lines("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(answer.header("keep-alive"), None);
}

#[test]
fn the_upstream_sees_the_request_and_who_sent_it() {
    let upstream = Upstream::showing_heads();
    let headers = [
        ("host", "example.com"),
        ("connection", "x-hop, keep-alive"),
        ("x-hop", "1"),
        ("x-end", "2"),
        ("proxy-authorization", "Basic x"),
        ("x-forwarded-for", "1.2.3.4"),
        ("x-forwarded-proto", "https"),
    ];
    let text = before(&upstream).send("PUT", "/a/%2F/../b?c=d&e", &headers, b"").text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "PUT /a/%2F/../b?c=d&e HTTP/1.1", "{text}");
    let values = |name: &str| -> Vec<&str> {
        lines.iter().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).collect()
    };
    assert_eq!(values("host"), ["example.com"]);
    assert_eq!(values("x-end"), ["2"]);
    assert_eq!(values("x-forwarded-for"), ["1.2.3.4", "127.0.0.1"]);
    // A peer that is no trusted proxy cannot say this.
    assert_eq!(values("x-forwarded-proto"), ["http"]);
    assert_eq!(values("x-forwarded-host"), ["example.com"]);
    assert_eq!(values("x-hop").len() + values("proxy-authorization").len(), 0);
}

#[test]
fn an_upstream_may_have_a_base() {
    let upstream = Upstream::showing_heads();
    let url = format!("{}/base/", upstream.url());
    let gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &url)]);
    assert!(gateway.get("/x").text().starts_with("GET /base/x HTTP/1.1\n"));
}

#[test]
fn bodies_stream_both_ways() {
    // It answers each piece of the request as soon as it has it.
    let upstream = Upstream::start(|_, mut stream| {
        let out = stream.get_ref().try_clone().expect("a clone");
        (&out).write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        for _ in 0..3 {
            assert_eq!(read_body(&mut stream, 5), b"piece");
            (&out).write_all(b"5\r\nheard\r\n").unwrap();
        }
        (&out).write_all(b"0\r\n\r\n").unwrap();
    });
    let gateway = before(&upstream);
    let mut connection = Connection::open(gateway.listen);
    connection.send_head("POST", "/stream", &[], Some(15));
    for piece in 0..3 {
        connection.send(b"piece");
        if piece == 0 {
            assert_eq!(connection.head().0, 200);
        }
        assert_eq!(connection.chunk().as_deref(), Some(&b"heard"[..]));
    }
    assert_eq!(connection.chunk(), None);
}

#[test]
fn a_websocket_passes_through() {
    let upstream = Upstream::start(|head, mut stream| {
        let has = |line: &str| head.iter().any(|header| header.eq_ignore_ascii_case(line));
        assert!(has("upgrade: websocket") && has("connection: upgrade"), "{head:?}");
        assert!(has("sec-websocket-key: abc"), "{head:?}");
        let answer = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\n\
                      upgrade: websocket\r\nsec-websocket-accept: xyz\r\n\r\n";
        stream.get_mut().write_all(answer.as_bytes()).unwrap();
        let mut bytes = [0; 4];
        while stream.read_exact(&mut bytes).is_ok() {
            bytes.reverse();
            stream.get_mut().write_all(&bytes).unwrap();
        }
    });
    let gateway = before(&upstream);
    let mut connection = Connection::open(gateway.listen);
    let headers = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-key", "abc"),
    ];
    connection.send_head("GET", "/socket", &headers, None);
    let (status, headers) = connection.head();
    assert_eq!(status, 101);
    let has = |name: &str, value: &str| {
        headers.iter().any(|(header, is)| header == name && is.eq_ignore_ascii_case(value))
    };
    assert!(has("upgrade", "websocket") && has("sec-websocket-accept", "xyz"), "{headers:?}");
    assert!(has("connection", "upgrade"), "{headers:?}");
    for (sent, back) in [(b"ping", b"gnip"), (b"abcd", b"dcba")] {
        connection.send(sent);
        let mut bytes = [0; 4];
        connection.read_exact(&mut bytes);
        assert_eq!(&bytes, back);
    }
}

#[test]
fn an_upstream_that_is_down_is_a_502() {
    let url = format!("http://127.0.0.1:{}", support::NOWHERE);
    let gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &url)]);
    assert_eq!(gateway.get("/").status, 502);
    let hangs_up = Upstream::start(|_, stream| drop(stream));
    assert_eq!(before(&hangs_up).get("/").status, 502);
}

#[test]
fn an_upstream_that_breaks_off_is_no_whole_answer() {
    let upstream = Upstream::start(|_, mut stream| {
        let _ = stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
    });
    let gateway = before(&upstream);
    let mut stream = std::net::TcpStream::connect(gateway.listen).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let is_reset = |error: &Error| error.kind() == ErrorKind::ConnectionReset;
    assert!(read.as_ref().err().is_none_or(is_reset), "it stays open: {read:?}");
    let answer = String::from_utf8(answer).unwrap().to_ascii_lowercase();
    // Its head may be there, but not as many bytes as it says, and no chunk that ends it.
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        assert_eq!(answer, "");
        return;
    };
    match head.contains("\r\ntransfer-encoding:") {
        true => assert!(!body.ends_with("0\r\n\r\n"), "{answer:?}"),
        false => assert!(head.contains("\r\ncontent-length: 9") && body.len() < 9, "{answer:?}"),
    }
}

#[test]
fn one_connection_serves_many_requests() {
    let gateway = Gateway::with_policies(common::NO_POLICIES);
    let mut connection = Connection::open(gateway.listen);
    for _ in 0..5 {
        assert_eq!(connection.request("GET", "/", &[], b"").status, 200);
        assert_eq!(connection.request("POST", "/echo", &[], b"x").text(), "x");
    }
}

#[test]
fn what_cannot_be_started_says_why() {
    let table = [
        ("UPSTREAM", "nowhere"),
        ("HEADERS", "draft-1"),
        ("FORWARDED", "x-real-ip"),
        ("TRUSTED", "10.0.0.0/99"),
        ("LISTEN", "127.0.0.1:99999"),
        ("ADMIN", "203.0.113.1:1"),
        ("REDIS_URL", "http://127.0.0.1"),
        ("POLICIES", "/nowhere/policies.toml"),
    ];
    for (name, value) in table {
        let stderr = Gateway::run(Files::new(), &[(name, value)]).err().expect(name);
        assert!(stderr.contains(name) || stderr.contains(value), "{name}: {stderr}");
    }
}

#[test]
fn nothing_of_the_admin_port_is_on_the_other() {
    let gateway = Gateway::with_policies(common::NO_POLICIES);
    let token = [("authorization", "Bearer secret")];
    for path in ["/metrics", "/metrics.json", "/health", "/policies", "/keys/api/alice"] {
        let answer = request(gateway.listen, "GET", path, &token, b"");
        assert_eq!(answer.status, 404, "{path}");
    }
    assert_eq!(request(gateway.listen, "PUT", "/switch", &token, b"off").status, 404);
}

#[test]
fn addresses_that_are_taken_are_an_error() {
    let gateway = Gateway::with_policies(common::NO_POLICIES);
    let taken = SocketAddr::to_string(&gateway.listen);
    let stderr = Gateway::run(Files::new(), &[("LISTEN", &taken)]).err().expect("an error");
    assert!(stderr.contains("LISTEN") && stderr.contains(&taken), "{stderr}");
}
