//! Two routes, two quotas, one pool: a header names the caller, and a refusal is answered in JSON.
//!
//! `REDIS_URL=redis://127.0.0.1:6379 cargo run --example axum`, then
//! `curl -H 'x-tenant: a' 127.0.0.1:3000/search`.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use http::{HeaderValue, Request};
use serde_json::json;
use tower_sluice::algorithm::{FixedWindow, TokenBucket};
use tower_sluice::respond::HttpRefusal;
use tower_sluice::{Charge, HttpResponder, Pool, Quota, RateLimitLayer, Redis, by_head};

// Quotas that cannot be do not compile.
const SEARCHES: Quota = Quota::per_second(10).burst(20);
const UPLOADS: Quota = Quota::per_day(1_000);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let pool = Pool::connect(&url)?;

    // A search may wait a little for its turn.
    let searches = Redis::new("searches", TokenBucket::new(SEARCHES), pool.clone());
    let searches = RateLimitLayer::new(searches, by_head(|head| head.header("x-tenant")))
        .max_wait(Duration::from_millis(500))
        .respond(in_json());

    // An upload is charged by its size, a unit for each MiB begun.
    let uploads = Redis::new("uploads", FixedWindow::new(UPLOADS), pool);
    let by_size = |request: &Request<_>| {
        let tenant = request.headers().get("x-tenant")?.to_str().ok()?.to_owned();
        let size = request.headers().get("content-length")?.to_str().ok()?.parse::<u64>().ok()?;
        Some(Charge::from(tenant).cost(size.div_ceil(1 << 20).max(1)))
    };
    let uploads = RateLimitLayer::new(uploads, by_size).respond(in_json());

    let app = Router::new()
        .route("/search", get(async || "found\n").layer(searches))
        .route("/upload", post(async || "stored\n").layer(uploads));
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

/// A refusal, for programs to read: the usual status and headers, `Retry-After` among them, and a
/// body.
fn in_json() -> HttpResponder<impl Fn(&HttpRefusal) -> Body> {
    HttpResponder::new().content_type(HeaderValue::from_static("application/json")).body(
        |refusal| {
            let wait = refusal.retry_after().map(|wait| wait.as_millis() as u64);
            let body = json!({ "error": refusal.to_string(), "retry_after_ms": wait });
            Body::from(format!("{body}\n"))
        },
    )
}
