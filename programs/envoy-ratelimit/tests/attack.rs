//! Callers that want to harm: the service keeps its memory, and goes on to serve the others.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::iter;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use common::Service;
use common::ask::{about, ask, client, hits, x};
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use prost::Message;
use support::files::Files;
use support::process::{peak_memory, processor_time};
use support::{PATIENCE, until};
use tokio::runtime::{Handle, Runtime};
use tonic::Code;

const RULES: &str = "domain: x\ndescriptors:\n- key: a\n  rate_limit: {unit: year, requests_per_unit: 4000000000}\n";
/// The most memory of a service under attack.
const MOST: u64 = 100 << 20;
/// The longest time that another caller may wait, on a machine that is busy. A service that stalls
/// makes it wait for 5 s. Optimised, 0.5 s is the longest that was seen beside 16 busy processes.
const SOON: Duration = Duration::from_secs(if cfg!(debug_assertions) { 4 } else { 2 });

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A field that no table remembers.
fn field(name: &str, value: &str) -> Vec<u8> {
    // Lengths of seven bits, and the rest seven by seven.
    let length = |text: &str| match text.len() {
        short @ ..127 => vec![u8::try_from(short).unwrap()],
        long => {
            let rest = u16::try_from(long - 127).unwrap();
            vec![127, (rest & 127) as u8 | 128, (rest >> 7) as u8]
        }
    };
    [&[0][..], &length(name), name.as_bytes(), &length(value), value.as_bytes()].concat()
}

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The head of a call, without an end of its stream.
fn head(stream: u32, more: &[u8]) -> Vec<u8> {
    head_of(METHOD, stream, more)
}

fn head_of(path: &str, stream: u32, more: &[u8]) -> Vec<u8> {
    let fields = [
        &b"\x83\x86"[..],
        &field(":path", path),
        &field(":authority", "a"),
        &field("content-type", "application/grpc"),
        &field("te", "trailers"),
        more,
    ];
    frame(HEADERS, END_HEADERS, stream, &fields.concat())
}

/// A message as gRPC frames it.
fn message(request: &RateLimitRequest) -> Vec<u8> {
    let bytes = request.encode_to_vec();
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    [&[0][..], &length, &bytes].concat()
}

/// A connection that has sent its preface. It takes what comes if it `reads`.
fn connect(address: SocketAddr, reads: bool) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_write_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, b"")].concat()).expect("sent");
    if reads {
        let mut reader = stream.try_clone().expect("a socket");
        thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    }
    stream
}

/// Sends what `call` makes for each stream, until all is sent or the service takes no more.
fn flood(mut stream: &TcpStream, calls: u32, call: impl Fn(u32) -> Vec<u8>) -> u32 {
    for number in 0..calls {
        if stream.write_all(&call(1 + 2 * number)).is_err() {
            return number;
        }
    }
    calls
}

/// Another caller, who asks all the time over a connection of its own and one new each time.
struct Others {
    ends: Arc<AtomicBool>,
    asking: thread::JoinHandle<(u32, Duration)>,
}

impl Others {
    fn of(service: &Service) -> Self {
        let (ends, grpc, http) = (Arc::<AtomicBool>::default(), service.grpc, service.http);
        let over = Arc::clone(&ends);
        let asking = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            let known = runtime.block_on(async { client(grpc) });
            let (mut asked, mut longest) = (0, Duration::ZERO);
            while !over.load(Relaxed) {
                for new in [false, true] {
                    let begun = Instant::now();
                    let answer = runtime.block_on(async {
                        let client = if new { client(grpc) } else { known.clone() };
                        tokio::time::timeout(PATIENCE, x(&client, &["a=others"])).await
                    });
                    assert!(answer.expect("an answer").starts_with("OK"));
                    longest = longest.max(begun.elapsed());
                    asked += 1;
                }
                assert_eq!(common::request(http, "GET", "/healthcheck", "").0, 200);
                thread::sleep(Duration::from_millis(5));
            }
            (asked, longest)
        });
        Self { ends, asking }
    }

    /// The longest time that an answer took.
    fn end(self) -> Duration {
        self.ends.store(true, Relaxed);
        let (asked, longest) = self.asking.join().expect("others are served");
        println!("others: {asked} answers, the longest after {longest:?}");
        longest
    }
}

/// Attacks while others ask, and keeps what `attack` returns open until all has been taken.
fn under<T>(name: &str, attack: impl FnOnce(&Service) -> T) {
    let service = Service::start(RULES, &[]);
    until("it serves", || service.get("/healthcheck").0 == 200);
    let others = Others::of(&service);
    let open = attack(&service);
    let mut peak = 0;
    until("it has taken all", || {
        thread::sleep(Duration::from_millis(500));
        let before = std::mem::replace(&mut peak, peak_memory(service.process.id()));
        peak == before
    });
    let longest = others.end();
    drop(open);
    println!("{name}: {} MiB at most, others {longest:?}", peak >> 20);
    assert!(peak < MOST, "{name}: {} MiB", peak >> 20);
    assert!(longest < SOON, "{name}: others waited {longest:?}");
}

#[test]
fn calls_that_never_end_are_bounded() {
    for reads in [true, false] {
        under(&format!("open calls, reads: {reads}"), |service| {
            let stream = connect(service.grpc, reads);
            println!("{} calls", flood(&stream, 60_000, |number| head(number, b"")));
            stream
        });
    }
}

#[test]
fn calls_with_long_heads_are_bounded() {
    let cookie = field("cookie", &"c".repeat(14_000));
    for reads in [true, false] {
        under(&format!("cookies, reads: {reads}"), |service| {
            let stream = connect(service.grpc, reads);
            println!("{} calls", flood(&stream, 20_000, |number| head(number, &cookie)));
            stream
        });
    }
}

#[test]
fn a_flood_of_whole_calls_is_bounded() {
    let body = message(&about("x", &["a=flood"], 0));
    for reads in [true, false] {
        under(&format!("whole calls, reads: {reads}"), |service| {
            let streams: Vec<_> = (0..4).map(|_| connect(service.grpc, reads)).collect();
            thread::scope(|scope| {
                for stream in &streams {
                    let call = |number| {
                        [head(number, b""), frame(DATA, END_STREAM, number, &body)].concat()
                    };
                    scope.spawn(move || println!("{} calls", flood(stream, 50_000, call)));
                }
            });
            streams
        });
    }
}

/// Many connections, of which each would have all that one may have.
#[test]
fn calls_of_many_connections_are_bounded() {
    let cookie = field("cookie", &"c".repeat(14_000));
    under("many connections", |service| {
        let streams: Vec<_> = (0..32).map(|_| connect(service.grpc, false)).collect();
        let calls: u32 =
            streams.iter().map(|stream| flood(stream, 128, |number| head(number, &cookie))).sum();
        println!("{calls} calls");
        streams
    });
}

/// A caller may listen as long as it wants, and says nothing more.
#[test]
fn streams_keep_no_call_out() {
    under("streams", |service| {
        let listen = |number| {
            let watch = head_of("/grpc.health.v1.Health/Watch", number, b"");
            [watch, frame(DATA, END_STREAM, number, &[0; 5])].concat()
        };
        let streams: Vec<_> = (0..64).map(|_| connect(service.grpc, true)).collect();
        for stream in &streams {
            assert_eq!(flood(stream, 128, listen), 128);
        }
        streams
    });
}

/// Who asks about the health, and what the counts are, is answered while no call is free.
#[tokio::test(flavor = "multi_thread")]
async fn the_other_port_is_served_while_no_call_is_free() {
    let service = Service::start(RULES, &[("BODY_TIMEOUT", "600")]);
    let client = client(service.grpc);
    let mut streams = Vec::new();
    until("no call is free", || {
        let stream = connect(service.grpc, true);
        flood(&stream, 128, |number| head(number, b""));
        streams.push(stream);
        let answer = ask(&client, about("x", &["a=1"], 0));
        let answer = tokio::task::block_in_place(|| Handle::current().block_on(answer));
        answer.is_err_and(|status| status.code() == Code::ResourceExhausted)
    });
    println!("{} connections", streams.len());
    for path in ["/healthcheck", "/metrics", "/rlconfig"] {
        assert_eq!(service.get(path).0, 200, "{path}");
    }
}

/// Sends these parts in a hundred calls of each connection, and ends none of them.
fn send_without_end<P>(service: &Service, connections: usize, parts: P) -> Runtime
where
    P: Iterator<Item = Vec<u8>> + Clone + Send + 'static,
{
    let runtime = Runtime::new().expect("a runtime");
    let sent = Arc::<AtomicUsize>::default();
    for _ in 0..connections {
        let (address, sent, parts) = (service.grpc, Arc::clone(&sent), parts.clone());
        runtime.spawn(async move {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            let mut calls = Vec::new();
            for _ in 0..100 {
                client = client.ready().await.unwrap();
                let request = http::Request::post(format!("http://a{METHOD}"));
                let request = request.header("content-type", "application/grpc");
                let (_, mut body) = client.send_request(request.body(()).unwrap(), false).unwrap();
                let (sent, parts) = (Arc::clone(&sent), parts.clone());
                calls.push(tokio::spawn(async move {
                    for part in parts {
                        body.reserve_capacity(part.len());
                        match std::future::poll_fn(|cx| body.poll_capacity(cx)).await {
                            Some(Ok(_)) => {}
                            _ => return,
                        }
                        sent.fetch_add(part.len(), Relaxed);
                        if body.send_data(part.into(), false).is_err() {
                            return;
                        }
                    }
                    std::future::pending::<()>().await;
                }));
            }
            for call in calls {
                let _ = call.await;
            }
        });
    }
    // Until nothing moves any more.
    let mut before = 0;
    until("it takes no more", || {
        thread::sleep(Duration::from_millis(300));
        let sent = sent.load(Relaxed);
        sent > 0 && std::mem::replace(&mut before, sent) == sent
    });
    println!("{} MiB sent", before >> 20);
    runtime
}

/// Each states a message of 4 MiB, and sends all of it but the last part.
#[test]
fn messages_that_never_end_are_bounded() {
    under("messages", |service| {
        let parts = iter::repeat_n(vec![0; 16 << 10], 254);
        send_without_end(service, 8, iter::once(vec![0, 0, 0x40, 0, 0]).chain(parts))
    });
}

/// Each is a whole message of 32 KB, which is 768 KB in memory, in a call that does not end.
#[test]
fn entries_in_memory_are_bounded() {
    under("entries", |service| {
        let head = [0, 0, 0, 0x7d, 4, 0x12, 0x80, 0xfa, 1];
        let message = [&head[..], &[10, 0].repeat(16_000)].concat();
        send_without_end(service, 10, iter::once(message))
    });
}

/// Returns true if the other side has closed.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    match stream.read(&mut [0; 64]) {
        Ok(read) => read == 0 || is_closed(stream),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it stays open");
            true
        }
    }
}

#[test]
fn silent_sockets_are_closed_and_keep_nobody_out() {
    let service = Service::with_files(64, RULES, &[("FIRST_BYTE_TIMEOUT", "2")]);
    let connect = |address| TcpStream::connect(address).expect("a connection");
    let (before, begun) = (processor_time(service.process.id()), Instant::now());
    let silent: Vec<_> =
        (0..100).flat_map(|_| [connect(service.grpc), connect(service.http)]).collect();
    let runtime = Runtime::new().expect("a runtime");
    for _ in 0..10 {
        let answer = runtime.block_on(async { x(&client(service.grpc), &["a=1"]).await });
        assert!(answer.starts_with("OK"), "{answer}");
        assert_eq!(service.get("/healthcheck").0, 200);
    }
    assert!(silent.iter().all(is_closed));
    let (spent, passed) = (processor_time(service.process.id()) - before, begun.elapsed());
    println!("{spent:?} of a processor in {passed:?}");
    assert!(spent < passed / 2, "{spent:?} of a processor in {passed:?}");
}

/// The status of a call with this message.
async fn status_of(address: SocketAddr, message: &[u8]) -> Code {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://a{METHOD}"));
    let request = request.header("content-type", "application/grpc").body(()).unwrap();
    let (answer, mut body) = client.ready().await.unwrap().send_request(request, false).unwrap();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    body.send_data([&[0][..], &length, message].concat().into(), true).unwrap();
    let answer = answer.await.unwrap();
    Code::from_bytes(answer.headers()["grpc-status"].as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_descriptors_are_refused_before_they_are_read() {
    let service = Service::start(RULES, &[]);
    let client = client(service.grpc);
    let many = |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("a=user-{number:06}")).collect();
        about("x", &names.iter().map(String::as_str).collect::<Vec<_>>(), 0)
    };
    assert_eq!(ask(&client, many(1_000)).await.unwrap().statuses.len(), 1_000);
    let error = ask(&client, many(1_001)).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::InvalidArgument, "there are more than 1000 descriptors")
    );
    // Eight at once, all the time, while another asks about one.
    let large = many(80_000);
    let attacks: Vec<_> = (0..8)
        .map(|_| {
            let (client, large) = (common::ask::client(service.grpc), large.clone());
            tokio::spawn(async move {
                for _ in 0..5 {
                    assert_eq!(
                        ask(&client, large.clone()).await.unwrap_err().code(),
                        Code::InvalidArgument
                    );
                }
            })
        })
        .collect();
    let mut longest = Duration::ZERO;
    while !attacks.iter().all(tokio::task::JoinHandle::is_finished) {
        let begun = Instant::now();
        assert!(x(&client, &["a=1"]).await.starts_with("OK"));
        longest = longest.max(begun.elapsed());
    }
    for attack in attacks {
        attack.await.unwrap();
    }
    println!(
        "one descriptor: {longest:?} at most, {} MiB",
        peak_memory(service.process.id()) >> 20
    );
    // Parts of two bytes, each of which would be 72 in memory.
    for parts in [
        [0x12, 0].repeat(2_000_000),
        [&[0x12, 0x80, 0x89, 0x7a][..], &[10, 0].repeat(1_000_000)].concat(),
    ] {
        assert_eq!(status_of(service.grpc, &parts).await, Code::InvalidArgument);
    }
    let braces = format!("{{\"domain\":\"x\",\"descriptors\":[{}{{}}]}}", "{},".repeat(1_000_000));
    assert_eq!(service.json(&braces).0, 400);
    let peak = peak_memory(service.process.id());
    assert!(peak < MOST, "{} MiB", peak >> 20);
    assert!(longest < SOON, "{longest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hits_do_not_wrap_the_counts() {
    const TOTAL: &str = "ratelimit_service_rate_limit_total_hits{domain=\"x\",key1=\"a\"}";
    let service = Service::start(RULES, &[]);
    let client = client(service.grpc);
    let mut before = 0;
    for _ in 0..3 {
        let answer = hits(&client, &["a=1+18446744073709551615"], 0).await;
        assert!(answer.starts_with("OVER"), "{answer}");
        let total = service.metric(TOTAL);
        assert!(total > before, "{total} after {before}");
        before = total;
    }
}

/// A chain of aliases, of which each is one level of descriptors.
fn aliases(levels: usize) -> String {
    let mut text = "domain: x\ndescriptors:\n- &a0 {key: a}\n".to_owned();
    for level in 1..levels {
        text += &format!("- &a{level} {{key: a{level}, descriptors: [*a{}]}}\n", level - 1);
    }
    text
}

#[test]
fn a_file_of_aliases_is_refused_at_the_start_and_later() {
    let begun = Instant::now();
    for levels in [700, 1_500] {
        let folder = Files::new();
        folder.write("rules.yaml", &aliases(levels));
        let error = Service::run(folder, &[]).err().expect("it is refused");
        assert!(error.contains("nested deeper"), "{error}");
    }
    assert!(begun.elapsed() < PATIENCE);
    let service = Service::start(RULES, &[]);
    for levels in [700, 1_500] {
        service.folder.write("rules.yaml", &aliases(levels));
        until("it is named", || service.get("/healthcheck").1.contains("nested deeper"));
        service.folder.write("rules.yaml", RULES);
        until("it is repaired", || service.get("/healthcheck").1 == "OK\n");
    }
}
