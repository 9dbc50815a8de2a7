//! The layer in an axum app, over real sockets.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::extract::{MatchedPath, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use http::{HeaderValue, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::{Layer as _, ServiceExt as _};
use tower_sluice::algorithm::{Concurrency, TokenBucket};
use tower_sluice::key::IntoCharge;
use tower_sluice::limiter::{Switch, SwitchMode};
use tower_sluice::respond::{DecisionReport, InHandler, SettleHandle, Unsettled};
use tower_sluice::{
    Exempt, HttpResponder, LimiterExt, Memory, Quota, RateLimitLayer, Redis, by_head,
};

use super::serve;
use support::Server;
use support::http::get as ask;

/// So long that nothing comes back while a test runs.
const HOURLY: Quota = Quota::per_hour(2);

/// A handler that counts how often it is reached.
fn counting(reached: &Arc<AtomicU64>) -> axum::routing::MethodRouter {
    let reached = Arc::clone(reached);
    get(async move || {
        reached.fetch_add(1, Relaxed);
        "inner"
    })
}

#[tokio::test]
async fn a_key_closure_over_the_request_limits_each_key() {
    let (_server, pool) = Server::pooled();
    let limiter =
        Redis::new("api", TokenBucket::new(HOURLY), pool).decision_timeout(Duration::from_secs(20));
    let reached = Arc::default();
    let app = Router::new().route("/", counting(&reached)).layer(RateLimitLayer::new(
        limiter,
        |request: &Request<_>| {
            let key = request.headers().get("x-api-key")?;
            key.to_str().ok().map(str::to_owned)
        },
    ));
    let address = serve(app).await;
    for (key, status) in [("a", 200), ("a", 200), ("a", 429), ("b", 200), ("a", 429)] {
        let answer = ask(address, "/", &[("x-api-key", key)]).await;
        assert_eq!(answer.status, status, "{key}");
        assert_eq!(answer.header("retry-after").is_some(), status == 429);
        assert_eq!(answer.body, if status == 200 { "inner" } else { "" });
    }
    assert_eq!(ask(address, "/", &[]).await.status, 400);
    assert_eq!(reached.load(Relaxed), 3);
}

/// A handler that takes the report is reached by every request that passes.
#[tokio::test]
async fn a_handler_may_take_the_report_of_every_request() {
    let switch = Switch::new();
    let limiter = Memory::new("api", TokenBucket::new(HOURLY)).switch(&switch);
    let key = by_head(|head| match head.uri().path() {
        "/exempt" => Exempt.into_charge(),
        _ => head.header("x-user").into_charge(),
    });
    let respond = HttpResponder::new().text().report_in_request();
    let shown = async |Extension(report): Extension<DecisionReport>| {
        format!("{:?} {:?} {:?}", report.origin(), report.limiter(), report.remaining())
    };
    let app = Router::new()
        .route("/", get(shown))
        .route("/exempt", get(shown))
        .layer(RateLimitLayer::new(limiter, key).respond(respond));
    let address = serve(app).await;
    for (mode, path, user, status, body) in [
        (SwitchMode::On, "/", Some("alice"), 200, "Local Some(\"api\") Some(1)"),
        (SwitchMode::On, "/exempt", None, 200, "Exempt None None"),
        (SwitchMode::On, "/", None, 400, "request has no key to limit by"),
        (SwitchMode::Off, "/", None, 200, "Off None None"),
        (SwitchMode::Shadow, "/", None, 200, "Shadow None None"),
        (SwitchMode::Off, "/exempt", None, 200, "Exempt None None"),
    ] {
        switch.set(mode);
        let headers: Vec<_> = user.map(|user| ("x-user", user)).into_iter().collect();
        let answer = ask(address, path, &headers).await;
        assert_eq!((answer.status, answer.body.as_str()), (status, body), "{mode:?} {path}");
    }
}

/// A path without a route is left to the router: it is not found, and no bad request. What a
/// nested service or a fallback answers has a limit, though it has no `MatchedPath`.
#[tokio::test]
async fn a_limit_by_route_leaves_out_no_service() {
    let by_route = by_head(|head| {
        let route = head.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str);
        Some(format!("{route} {}", head.header("x-user")?))
    });
    let limit = || RateLimitLayer::new(Memory::new("routes", TokenBucket::new(HOURLY)), by_route);
    let users = || Router::new().route("/users/{id}", get(async || "user"));
    let files = || Router::new().nest_service("/files", get(async || "file"));
    for (app, paths, unmatched) in [
        (Router::new().nest("/api", users()).route_layer(limit()), "/api/users/", 404),
        (Router::new().nest("/api", users().route_layer(limit())), "/api/users/", 404),
        (Router::new().nest("/api", users()).layer(limit()), "/api/users/", 400),
        (files().route_layer(limit()), "/files/", 404),
        (files().layer(limit()), "/files/", 400),
        (Router::new().fallback(async || "any").layer(limit()), "/", 400),
    ] {
        let address = serve(app).await;
        for (id, status) in [("a", 200), ("b", 200), ("c/d", 429), ("e", 429)] {
            // The router knows no user with a slash.
            if id.contains('/') && paths.contains("users") {
                continue;
            }
            let answer = ask(address, &format!("{paths}{id}"), &[("x-user", "alice")]).await;
            assert_eq!(answer.status, status, "{paths}{id}");
        }
        assert_eq!(ask(address, &format!("{paths}a"), &[]).await.status, 400, "{paths}");
        assert_eq!(ask(address, "/nothing", &[]).await.status, unmatched, "{paths}");
    }
}

/// HTTP/2 has no `Host`, and splits cookies. A key of either is the same as over HTTP/1.1.
#[tokio::test]
async fn host_and_cookies_are_found_over_http_2() {
    let seen = by_head(|head| {
        let text = ["host", "Cookie"].map(|name| head.header(name));
        text.map(Option::unwrap_or_default).join("|")
    });
    let limit = RateLimitLayer::new(Memory::new("hosts", TokenBucket::new(HOURLY)), seen);
    let request = |uri: &str, fields: &[(&'static str, &'static str)]| {
        let mut request = Request::new(());
        *request.uri_mut() = uri.parse().expect("a URI");
        for (name, value) in fields {
            request
                .headers_mut()
                .append(*name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
        }
        request
    };
    let service = limit.layer(tower::service_fn(async |_| Ok::<_, Infallible>(Response::new(()))));
    for (status, request) in [
        (200, request("/", &[("host", "a.example:8080"), ("cookie", "a=1; b=2")])),
        (200, request("http://a.example:8080/", &[("cookie", "a=1"), ("cookie", "b=2")])),
        (429, request("http://a.example:8080/", &[("cookie", "a=1; b=2")])),
        // Elsewhere two lines are no key, nor is a part that is no text.
        (200, request("/", &[("host", "a"), ("host", "a")])),
        (200, request("/", &[("cookie", "a=1"), ("cookie", "b=\u{e9}")])),
        (429, request("/", &[])),
    ] {
        let shown = format!("{request:?}");
        let answer = service.clone().oneshot(request).await.expect("an answer");
        assert_eq!(answer.status(), status, "{shown}");
    }
}

/// Asks for a WebSocket, and returns the status of the answer with the connection.
async fn upgraded(address: std::net::SocketAddr) -> (String, TcpStream) {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let ask = "GET /chat HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
               sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(ask.as_bytes()).await.expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    (String::from_utf8_lossy(&head[9..12]).into_owned(), stream)
}

/// A WebSocket holds its unit until it is closed, though its response ended long before.
#[tokio::test]
async fn a_websocket_holds_its_unit_until_it_is_closed() {
    async fn chat(socket: WebSocketUpgrade, Extension(units): Extension<SettleHandle>) -> Response {
        let hold = units.take().map(Unsettled::hold);
        socket.on_upgrade(async move |mut socket| {
            let _hold = hold;
            while let Some(Ok(_)) = socket.recv().await {}
        })
    }
    let limiter = Memory::new("sockets", Concurrency::new(1));
    let key = by_head(|_| "all");
    let refusing = RateLimitLayer::new(limiter.clone(), key).settle_later(InHandler);
    let waiting = refusing.clone().max_wait(Duration::from_secs(50));
    let chat_behind = |layer| serve(Router::new().route("/chat", get(chat)).layer(layer));
    let (refusing, waiting) = (chat_behind(refusing).await, chat_behind(waiting).await);

    let (status, first) = upgraded(refusing).await;
    assert_eq!(status, "101");
    assert_eq!(upgraded(refusing).await.0, "429");
    // It waits for the end of the first one.
    let second = tokio::spawn(upgraded(waiting));
    drop(first);
    assert_eq!(second.await.expect("an answer").0, "101");
}
