//! What the clients of connect-go read: `connect/main.go` is one of each protocol.

use axum::Router;
use axum::routing::any;
use tower_sluice::algorithm::FixedWindow;
use tower_sluice::key::Global;
use tower_sluice::{LimiterExt, Memory, Quota, RateLimitLayer};

/// Needs Go: `tests/frameworks.sh` builds the client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_protocol_of_connect_go_reads_code_and_details() {
    let Ok(client) = std::env::var("CONNECT_CLIENT") else { panic!("run tests/frameworks.sh") };
    let limiter = Memory::new("api", FixedWindow::new(Quota::per_hour(1)).anchored());
    limiter.acquire("global").await.unwrap();
    let limit = RateLimitLayer::new(limiter, Global);
    let app = Router::new().fallback(any(async || "inner")).layer(limit);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, app).await });

    let output = tokio::task::spawn_blocking(move || {
        std::process::Command::new(client).arg(url).output()
    });
    let output = output.await.unwrap().expect("the client");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<_> = text.lines().collect();
    // Three kinds of calls by Connect with both formats and by gRPC-Web, and one by GET.
    assert_eq!(lines.len(), 10, "{output:?}");
    for line in lines {
        println!("{line}");
        let (name, read) = line.split_once(' ').unwrap();
        assert!(read.starts_with("resource_exhausted: rate limit exceeded retry=59m"), "{line}");
        assert!(read.contains(" quota=api reason=RATE_LIMIT_EXCEEDED"), "{line}");
        let is_unary = ["connect-proto", "connect-json", "connect-get"].contains(&name);
        assert_eq!(!read.ends_with("retry-after="), is_unary, "{line}");
    }
}
