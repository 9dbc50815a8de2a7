//! SIGTERM: what runs finishes, and what idles does not delay the end.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::Gateway;
use common::client::Connection;
use common::upstream::Upstream;
use support::until;

/// Ends within so long after what ran last, as promised.
const SOON: Duration = Duration::from_secs(10);

fn assert_ends(gateway: &mut Gateway, since: Instant) {
    let status = gateway.process.wait();
    assert!(status.success(), "{status}");
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}

#[test]
fn idle_connections_do_not_hold_it_up() {
    let mut gateway = Gateway::with_policies(common::NO_POLICIES);
    let mut used = Connection::open(gateway.listen);
    assert_eq!(used.request("GET", "/", &[], b"").status, 200);
    let _fresh = TcpStream::connect(gateway.listen).unwrap();
    let mut half = TcpStream::connect(gateway.listen).unwrap();
    half.write_all(b"GET / HT").unwrap();
    let mut admin = Connection::open(gateway.admin);
    admin.request("GET", "/health", &[], b"");
    let begun = Instant::now();
    gateway.process.signal("TERM");
    assert_ends(&mut gateway, begun);
}

#[test]
fn a_stream_finishes_and_no_other_begins() {
    let (more, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::start(move |_, mut stream| {
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";
        stream.get_mut().write_all(head).unwrap();
        wait.lock().unwrap().recv().unwrap();
        stream.get_mut().write_all(b"4\r\nlast\r\n0\r\n\r\n").unwrap();
    });
    let mut gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &upstream.url())]);
    let mut connection = Connection::open(gateway.listen);
    connection.send_head("GET", "/", &[], None);
    assert_eq!(connection.head().0, 200);
    assert_eq!(connection.chunk().unwrap(), b"first");

    gateway.process.signal("TERM");
    until("the listening socket is closed", || TcpStream::connect(gateway.listen).is_err());
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(gateway.process.ended(), None);
    more.send(()).unwrap();
    assert_eq!(connection.chunk().unwrap(), b"last");
    assert_eq!(connection.chunk(), None);
    assert_ends(&mut gateway, Instant::now());
}

#[test]
fn an_upload_finishes() {
    let mut gateway = Gateway::with_policies(common::NO_POLICIES);
    let mut connection = Connection::open(gateway.listen);
    connection.send_head("POST", "/echo", &[], Some(10));
    connection.send(b"first");
    assert_eq!(connection.head().0, 200);
    gateway.process.signal("TERM");
    until("the listening socket is closed", || TcpStream::connect(gateway.listen).is_err());
    connection.send(b"other");
    let mut body = [0; 10];
    connection.read_exact(&mut body);
    assert_eq!(&body, b"firstother");
    assert_ends(&mut gateway, Instant::now());
}

#[test]
fn callers_that_stop_in_the_middle_do_not_hold_it_up_for_ever() {
    let mut gateway = Gateway::with_policies(common::NO_POLICIES);
    let mut owes = Connection::open(gateway.listen);
    owes.send_head("POST", "/echo", &[], Some(10));
    owes.send(b"first");
    assert_eq!(owes.head().0, 200);
    // One that sends all the time and reads nothing.
    let mut takes_nothing = TcpStream::connect(gateway.listen).unwrap();
    let head = b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000\r\n\r\n";
    takes_nothing.write_all(head).unwrap();
    takes_nothing.set_nonblocking(true).unwrap();
    let mut full_since = Instant::now();
    until("nothing more is taken", || {
        while takes_nothing.write(&[0; 65_536]).is_ok() {
            full_since = Instant::now();
        }
        full_since.elapsed() > Duration::from_secs(1)
    });
    let begun = Instant::now();
    gateway.process.signal("TERM");
    let status = gateway.process.wait();
    assert!(status.success(), "{status}");
    // Seven seconds of silence, and some time of a busy machine; and long before `BODY_TIMEOUT`.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut gateway = Gateway::with_policies(common::NO_POLICIES);
    let mut connection = Connection::open(gateway.listen);
    connection.send_head("POST", "/echo", &[], Some(10));
    connection.send(b"first");
    assert_eq!(connection.head().0, 200);
    gateway.process.signal("TERM");
    until("the listening socket is closed", || TcpStream::connect(gateway.listen).is_err());
    gateway.process.signal("INT");
    assert!(!gateway.process.wait().success());
    assert!(gateway.process.stderr().contains("second signal"), "{}", gateway.process.stderr());
}

#[test]
fn a_silent_tunnel_does_not_hold_it_up() {
    let upstream = Upstream::start(|_, mut stream| {
        let answer =
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
        stream.get_mut().write_all(answer).unwrap();
        std::thread::sleep(support::PATIENCE);
    });
    let mut gateway = Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &upstream.url())]);
    let mut connection = Connection::open(gateway.listen);
    connection.send_head("GET", "/", &[("connection", "upgrade"), ("upgrade", "x")], None);
    assert_eq!(connection.head().0, 101);
    let begun = Instant::now();
    gateway.process.signal("TERM");
    assert_ends(&mut gateway, begun);
}

#[test]
fn a_delayed_request_finishes() {
    let pace = r#"
        [[policy]]
        name = "pace"
        algorithm = "token_bucket"
        limit = 1
        period = "4s"
        burst = 1
        max_wait = "10s"
        key = "global"
    "#;
    let mut gateway = Gateway::with_policies(pace);
    assert_eq!(gateway.get("/").status, 200);
    let mut connection = Connection::open(gateway.listen);
    connection.send_head("GET", "/", &[], None);
    until("the second waits", || {
        gateway.counter("", &["limiter=\"pace\"", "outcome=\"delayed\""]) > 0
    });
    gateway.process.signal("TERM");
    assert_eq!(connection.answer("GET").status, 200);
    assert_ends(&mut gateway, Instant::now());
}
