//! The client that a request is charged to over real sockets: by the peer, by what trusted proxies
//! say, and by API keys. No header that a client writes itself gives it a second quota.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::get;
use http::{HeaderName, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::ServiceExt;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::key::{ClientIp, KeyExtractor, PeerAddr};
use tower_sluice::testing::Scripted;
use tower_sluice::{Limiter, Memory, Quota, RateLimitLayer, by_client_ip};

use super::frameworks::{channel, check, grpc};
use super::serve;
use support::http::get as ask;

/// Enough for each test, and nothing comes back while it runs.
const LIMIT: u64 = 100;
const FORGED: usize = 10_000;

fn limiter() -> Memory<TokenBucket> {
    Memory::new("ip", TokenBucket::new(Quota::new(LIMIT, Duration::from_secs(300 * 3_600))))
}

fn app<L, K>(limiter: L, key: K) -> Router
where
    L: Limiter<Future: Send> + Send + Sync + 'static,
    K: KeyExtractor<Request<axum::body::Body>> + Send + Sync + 'static,
{
    Router::new().route("/", get(async || "hello")).layer(RateLimitLayer::new(limiter, key))
}

/// Sends a request for each of these headers over one connection, and counts the statuses 200, 429
/// and all.
async fn send_all(address: SocketAddr, headers: impl Iterator<Item = String>) -> [usize; 3] {
    let mut requests: Vec<String> =
        headers.map(|headers| format!("GET / HTTP/1.1\r\nhost: test\r\n{headers}\r\n")).collect();
    let last = requests.last_mut().expect("a request");
    last.insert_str(last.len() - 2, "connection: close\r\n");
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (mut reader, mut writer) = stream.into_split();
    // A writer that is dropped ends the connection, whatever is still to be answered.
    let writing = tokio::spawn(async move {
        writer.write_all(requests.concat().as_bytes()).await.map(|()| writer)
    });
    let mut answers = String::new();
    reader.read_to_string(&mut answers).await.expect("answers");
    writing.await.expect("no panic").expect("requests");
    ["HTTP/1.1 200", "HTTP/1.1 429", "HTTP/1.1 "].map(|begin| answers.matches(begin).count())
}

/// A header as a client might forge it, different for each number.
fn forged(number: usize) -> String {
    let [.., a, b] = number.to_be_bytes();
    match number % 8 {
        0 => format!("x-forwarded-for: 198.51.{a}.{b}\r\n"),
        1 => format!("x-forwarded-for: 127.0.0.1, 10.0.{a}.{b}\r\nx-real-ip: 10.0.{a}.{b}\r\n"),
        2 => format!("forwarded: for=\"[2001:db8:{number:x}::1]\"\r\n"),
        3 => format!("x-forwarded-for: {}10.0.{a}.{b}\r\n", "127.0.0.1,".repeat(number % 100)),
        4 => format!("forwarded: for=10.0.{a}.{b};by=\"\r\n"),
        5 => format!(
            "x-forwarded-for: ::ffff:10.0.{a}.{b}%{number}\r\ntrue-client-ip: {a}.0.0.1\r\n"
        ),
        6 => format!(
            "x-forwarded-for: , ,junk {number}\r\nx-forwarded-for: 2001:db8:{number:x}::\r\n"
        ),
        _ => format!("forwarded: for=\"10.0.{a}.{b}\\\"\r\nx-client-ip: 10.0.{a}.{b}\r\n"),
    }
}

/// Twice as many as any limit admits, and none of them is another client.
// Case 83.
#[tokio::test(flavor = "multi_thread")]
async fn forged_headers_give_nobody_a_second_quota() {
    let behind = || ClientIp::new().try_trusted_networks("127.0.0.0/8").unwrap();
    let forwarded = HeaderName::from_static("forwarded");
    for (name, key, appended) in [
        // Nobody is trusted.
        ("peer", by_client_ip(), ""),
        // The test is the proxy: it appends one client to whatever the client wrote.
        ("list", behind(), "x-forwarded-for: 203.0.113.9\r\n"),
        ("hops", ClientIp::new().trusted_hops(1), "x-forwarded-for: 203.0.113.9\r\n"),
        ("forwarded", behind().header(forwarded), "forwarded: for=203.0.113.9\r\n"),
    ] {
        let address = serve(app(limiter(), key)).await;
        let headers = (0..FORGED).map(|number| format!("{}{appended}", forged(number)));
        let [admitted, refused, all] = send_all(address, headers).await;
        println!("{name}: forged={FORGED} admitted={admitted} refused={refused}");
        assert_eq!((admitted, all), (LIMIT as usize, FORGED), "{name}");
        assert_eq!(refused, FORGED - admitted, "{name}");
    }
}

// Case 84.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_addresses_of_one_network_have_one_quota() {
    let behind = ClientIp::new().try_trusted_networks("127.0.0.1").unwrap();
    let address = serve(app(limiter(), behind)).await;
    let of_network = |network: usize| {
        let mut dice = fastrand::Rng::with_seed(0x5EED);
        (0..FORGED).map(move |_| {
            let host: [u16; 4] = std::array::from_fn(|_| dice.u16(..));
            let [a, b, c, d] = host;
            format!("x-forwarded-for: 2001:db8:1:{network:x}:{a:x}:{b:x}:{c:x}:{d:x}\r\n")
        })
    };
    for network in [2, 3] {
        let [admitted, _, all] = send_all(address, of_network(network)).await;
        println!("2001:db8:1:{network}::/64: addresses={all} admitted={admitted}");
        assert_eq!((admitted, all), (LIMIT as usize, FORGED));
    }
}

#[tokio::test]
async fn the_peer_of_axum_is_found_and_without_one_there_is_no_key() {
    let scripted = Scripted::new().allow().allow().allow();
    let address = serve(app(scripted.clone(), by_client_ip())).await;
    assert_eq!(ask(address, "/", &[]).await.status, 200);
    // Forgotten: `into_make_service_with_connect_info`.
    let request = |extension: Option<PeerAddr>| {
        let mut request = Request::get("/").header("x-forwarded-for", "203.0.113.9");
        if let Some(extension) = extension {
            request = request.extension(extension);
        }
        request.body(axum::body::Body::empty()).unwrap()
    };
    let app = app(scripted.clone(), by_client_ip());
    assert_eq!(app.clone().oneshot(request(None)).await.unwrap().status(), 400);
    let own = PeerAddr(SocketAddr::from(([192, 0, 2, 1], 80)));
    assert_eq!(app.clone().oneshot(request(Some(own))).await.unwrap().status(), 200);
    let mock = app.layer(MockConnectInfo(SocketAddr::from(([192, 0, 2, 2], 80))));
    assert_eq!(mock.oneshot(request(None)).await.unwrap().status(), 200);
    let charges = scripted.charges();
    let keys: Vec<_> = charges.iter().map(|charge| charge.key()).collect();
    assert_eq!(keys, ["127.0.0.1", "192.0.2.1", "192.0.2.2"]);
}

#[tokio::test]
async fn the_peer_of_tonic_is_found() {
    let scripted = Scripted::new().allow();
    let address = grpc(RateLimitLayer::new(scripted.clone(), by_client_ip())).await;
    check(channel(address).await).await.unwrap();
    assert_eq!(scripted.charges()[0].key(), "127.0.0.1");
}
