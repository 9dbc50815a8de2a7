//! Heads that two readers read in two ways, and what must not pass a proxy.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use common::Gateway;
use common::client::Connection;
use common::upstream::{Upstream, read_body};
use support::PATIENCE;

/// A gateway before an upstream that answers with the head it has seen.
fn showing() -> Gateway {
    Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &Upstream::showing_heads().url())])
}

/// The status of the answer to these bytes.
fn status(address: SocketAddr, bytes: &str) -> u16 {
    let mut connection = Connection::open(address);
    connection.send(bytes.as_bytes());
    connection.head().0
}

#[test]
fn a_head_with_two_readings_is_refused() {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let upstream = Upstream::start(move |_, mut stream| {
        count.fetch_add(1, Ordering::Relaxed);
        let _ = stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
    });
    let gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &upstream.url())]);
    for (expected, head) in [
        (400, "GET / HTTP/1.1"),
        (400, "GET / HTTP/1.1\r\nhost: a\r\nhost: b"),
        (400, "GET / HTTP/1.1\r\nhost: a\r\nhost: a"),
        (400, "GET / HTTP/1.1\r\nhost: a b"),
        (400, "GET / HTTP/1.1\r\nhost: user@a"),
        (400, "GET http://user:secret@b/ HTTP/1.1\r\nhost: a"),
        (400, "GET b:80 HTTP/1.1\r\nhost: a"),
        (400, "GET / HTTP/1.1\r\nhost: a\r\nx: 1\r\n folded"),
        (400, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2"),
        (400, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +1"),
        (400, "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked"),
        (400, "POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked"),
        (501, "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked"),
    ] {
        assert_eq!(status(gateway.listen, &format!("{head}\r\n\r\n")), expected, "{head}");
    }
    assert_eq!(seen.load(Ordering::Relaxed), 0);
    assert_eq!(status(gateway.listen, "GET / HTTP/1.0\r\n\r\n"), 200);
}

#[test]
fn a_length_beside_chunks_is_refused() {
    let gateway = showing();
    for fields in [
        "content-length: 6\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\nContent-Length: 6",
        "Content-LENGTH: 6\r\nx: 1\r\ntransfer-encoding: chunked",
    ] {
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n");
        for address in [gateway.listen, gateway.admin] {
            let mut connection = Connection::open(address);
            // In two packets, and with a request in the body.
            let (first, rest) = head.split_at(40);
            connection.send(first.as_bytes());
            connection.send(rest.as_bytes());
            connection.send(b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n");
            assert_eq!(connection.answer("POST").status, 400, "{fields}");
            assert!(connection.is_closed(), "what follows may be a part of the body");
        }
    }
    // A length in another request of the connection is none of this one. This upstream reads bodies:
    // one that does not may close the connection as the second request comes.
    let gateway = Gateway::with_policies(common::NO_POLICIES);
    let mut connection = Connection::open(gateway.listen);
    assert_eq!(connection.request("POST", "/echo", &[], b"abc").status, 200);
    connection.send_head("POST", "/echo", &[("transfer-encoding", "chunked")], None);
    connection.send(b"e\r\ncontent-length\r\n0\r\n\r\n");
    assert_eq!(connection.answer("POST").status, 200);
}

#[test]
fn a_length_beside_chunks_is_refused_behind_other_requests() {
    let gateway = Gateway::with_policies(common::NO_POLICIES);
    let get = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let sized = "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc";
    let chunked = "POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
                   3;x=1\r\nabc\r\n0\r\nx-sum: 1\n\nGET / HTTP/1.1\r\n\r\n";
    let all = [get, sized, chunked, get, chunked, "\r\n"].concat();
    let head = "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let both = format!("{head}0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n");
    let behind_length = head.find("transfer").unwrap();
    for (before, requests) in
        [("", 0), ("\r\n", 0), (get, 1), (sized, 1), (chunked, 1), (all.as_str(), 5)]
    {
        // In one packet, in two after its length, and after the answers to those before it.
        for cut in [both.len(), behind_length, 0] {
            let mut connection = Connection::open(gateway.listen);
            let sent = format!("{before}{both}");
            let (first, rest) = sent.split_at(before.len() + cut);
            connection.send(first.as_bytes());
            for _ in 0..requests {
                assert_eq!(connection.answer("POST").status, 200, "{before}");
            }
            connection.try_send(rest.as_bytes());
            assert_eq!(connection.answer("POST").status, 400, "{before}, {cut}");
            assert!(connection.is_closed(), "what follows may be a part of the body");
        }
    }
    let mut connection = Connection::open(gateway.admin);
    connection.send(format!("{get}{both}").as_bytes());
    assert_eq!(connection.answer("GET").status, 200);
    assert_eq!(connection.answer("POST").status, 400);
}

#[test]
fn a_head_that_is_too_long_is_refused_early() {
    let gateway = Gateway::with_policies(common::NO_POLICIES);
    for address in [gateway.listen, gateway.admin] {
        let mut connection = Connection::open(address);
        connection.send(b"GET / HTTP/1.1\r\nhost: a\r\n");
        let line = format!("x-long: {}\r\n", "x".repeat(1_000));
        // It may be refused before all has left.
        for _ in 0..70 {
            connection.try_send(line.as_bytes());
        }
        assert_eq!(connection.head().0, 431);
    }
    let long = "x".repeat(50_000);
    let answer = gateway.send("GET", "/", &[("x-long", &long)], b"");
    assert_eq!(answer.status, 200);
}

#[test]
fn only_a_trusted_proxy_says_who_asks() {
    let upstream = Upstream::showing_heads();
    let url = upstream.url();
    let headers = [
        ("x-real-ip", "192.0.2.7"),
        ("True-Client-IP", "192.0.2.7"),
        ("cf-connecting-ip", "192.0.2.7"),
        ("x-forwarded-port", "1"),
        ("x-original-url", "/admin"),
    ];
    // Some servers read `_` as `-`, and no proxy sets such names.
    let never = [
        ("Proxy", "http://192.0.2.7"),
        ("X_Real_IP", "192.0.2.7"),
        ("x_forwarded_for", "192.0.2.7"),
        ("x-forwarded_host", "evil"),
        ("x_api_key", "another"),
    ];
    for (trusted, is_there) in [("127.0.0.0/8", true), ("", false)] {
        let gateway =
            Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &url), ("TRUSTED", trusted)]);
        let all = [&headers[..], &never].concat();
        let seen = gateway.send("GET", "/", &all, b"").text().to_ascii_lowercase();
        for (name, _) in headers {
            assert_eq!(seen.contains(&name.to_ascii_lowercase()), is_there, "{name}: {seen}");
        }
        for (name, _) in never {
            assert!(!seen.contains(&format!("{}:", name.to_ascii_lowercase())), "{name}: {seen}");
        }
    }
}

#[test]
fn a_connection_hides_nothing_that_is_for_all() {
    let gateway = showing();
    let headers = [
        ("host", "example.com"),
        ("connection", "host, x-forwarded-for, via, x-hop"),
        ("x-forwarded-for", "192.0.2.7"),
        ("via", "1.1 other"),
        ("x-hop", "1"),
    ];
    let seen = gateway.send("GET", "/", &headers, b"").text();
    for line in ["host: example.com", "x-forwarded-for: 192.0.2.7", "via: 1.1 other"] {
        assert!(seen.lines().any(|seen| seen == line), "{line}: {seen}");
    }
    assert!(!seen.contains("x-hop"), "{seen}");
}

#[test]
fn no_connection_changes_to_a_protocol_that_carries_requests() {
    // It would change to whatever is asked.
    let upstream = Upstream::start(|head, mut stream| {
        let asked = head.iter().any(|line| line.to_ascii_lowercase().starts_with("upgrade"));
        let answer: &[u8] = match asked {
            true => b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
            false => b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        };
        let _ = stream.get_mut().write_all(answer);
    });
    let gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &upstream.url())]);
    for (protocol, expected) in [("h2c", 200), ("HTTP/2.0", 200), ("websocket, h2c", 200)] {
        let headers = [("connection", "Upgrade, HTTP2-Settings"), ("upgrade", protocol)];
        assert_eq!(gateway.send("GET", "/", &headers, b"").status, expected, "{protocol}");
    }
    // Asked for one protocol, it changes to another.
    let headers = [("connection", "upgrade"), ("upgrade", "websocket")];
    assert_eq!(gateway.send("GET", "/", &headers, b"").status, 502);
}

#[test]
fn an_upgrade_that_is_refused_is_an_answer() {
    let upstream = Upstream::answering(
        "HTTP/1.1 426 Upgrade Required\r\nupgrade: websocket",
        "only with websocket",
    );
    let gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &upstream.url())]);
    let answer = gateway.send("GET", "/", &[("connection", "upgrade"), ("upgrade", "x")], b"");
    assert_eq!((answer.status, answer.header("upgrade")), (426, Some("websocket")));
    assert_eq!(answer.text(), "only with websocket");
}

#[test]
fn trailers_pass_both_ways() {
    let (seen, request) = mpsc::channel();
    let upstream = Upstream::start(move |_, mut stream| {
        let body = String::from_utf8(read_body(&mut stream, 25)).unwrap();
        seen.send(body).unwrap();
        let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-end\r\n\r\n\
                      3\r\nabc\r\n0\r\nx-end: 1\r\n\r\n";
        stream.get_mut().write_all(answer.as_bytes()).unwrap();
    });
    let gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &upstream.url())]);
    let mut stream = TcpStream::connect(gateway.listen).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = "POST / HTTP/1.1\r\nhost: a\r\nte: trailers\r\ntrailer: x-sum\r\nconnection: close\r\n\
                transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 12345\r\n\
                x-forwarded-for: 192.0.2.7\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(request.recv_timeout(PATIENCE).unwrap(), "3\r\nabc\r\n0\r\nx-sum: 12345\r\n");
    assert!(answer.contains("trailer: x-end\r\n"), "{answer}");
    assert!(answer.ends_with("3\r\nabc\r\n0\r\nx-end: 1\r\n\r\n"), "{answer}");
}

#[test]
fn a_caller_that_breaks_its_body_is_no_fault_of_the_upstream() {
    let upstream = Upstream::start(|_, mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let mut gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &upstream.url())]);
    let chunked = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!(status(gateway.listen, &format!("{chunked}no size\r\n")), 400);
    let mut stream = TcpStream::connect(gateway.listen).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    gateway.process.signal("TERM");
    assert!(gateway.process.wait().success());
    let lines = gateway.process.stderr();
    assert!(!lines.contains(&upstream.address.to_string()), "{lines}");
}

#[test]
fn an_answer_comes_before_the_body_is_read() {
    let upstream = Upstream::answering_at_once("HTTP/1.1 413 Content Too Large", "too much");
    let gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &upstream.url())]);
    let mut connection = Connection::open(gateway.listen);
    connection.send_head("POST", "/", &[], Some(1_000_000));
    connection.send(b"the first of many bytes");
    let answer = connection.answer("POST");
    assert_eq!((answer.status, answer.text().as_str()), (413, "too much"));
}

#[test]
fn the_server_as_a_whole_is_a_target() {
    let upstream = Upstream::showing_heads();
    for (base, expected) in [("", "OPTIONS * HTTP/1.1"), ("/base", "OPTIONS /base HTTP/1.1")] {
        let url = format!("{}{base}", upstream.url());
        let gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &url)]);
        let seen = gateway.send("OPTIONS", "*", &[], b"").text();
        assert_eq!(seen.lines().next(), Some(expected));
    }
}

#[test]
fn via_names_the_version_of_the_caller() {
    let gateway = showing();
    let mut connection = Connection::open(gateway.listen);
    connection.send(b"GET / HTTP/1.0\r\nhost: a\r\n\r\n");
    let seen = connection.answer("GET").text();
    assert!(seen.contains("via: 1.0 gateway"), "{seen}");
    let seen = gateway.get("/").text();
    assert!(seen.contains("via: 1.1 gateway"), "{seen}");
}
