//! The admin port: what the gateway knows, and what an operator changes.
//!
//! | | token |
//! |---|---|
//! | `GET /`, `/metrics`, `/metrics.json`, `/health` | none |
//! | `GET /policies`, `/keys/..`, `PUT /switch`, `/policies/{name}/switch` | `ADMIN_TOKEN` |
//!
//! `keys.rs` reads paths of keys, and `token.rs` tells who may ask.

mod keys;
mod token;

use std::net::SocketAddr;
use std::time::SystemTime;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, get, put};
use serde_json::{Value, json};
use tower::util::{MapRequest, ServiceExt};
use tower_sluice::key::PeerAddr;
use tower_sluice::limiter::SwitchMode;

use crate::gate::{AdminError, Gate};
use crate::health::Health;
use crate::minute::Minute;
use crate::policy_file::PolicyFile;
use serving::metrics::Metrics;
use serving::port::Sent;

/// The page, which loads nothing but `/metrics.json`.
const PAGE: &str = include_str!("../page.html");
const PAGE_LOADS: &str = "default-src 'none'; connect-src 'self'; img-src data:; \
                          script-src 'unsafe-inline'; style-src 'unsafe-inline'";

/// All that the admin port shows and changes.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) gate: Gate,
    pub(crate) file: PolicyFile,
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
    pub(crate) minute: Minute,
    pub(crate) token: Option<String>,
}

/// The routes, for requests as a port serves them.
pub(crate) type Routes = MapRequest<Router, fn(Request<Sent>) -> Request<Body>>;

impl Admin {
    pub(crate) fn routes(self) -> Routes {
        ServiceExt::<Request<Body>>::map_request(self.router(), |request| {
            let mut request = request.map(Body::new);
            if let Some(PeerAddr(peer)) = request.extensions().get().copied() {
                request.extensions_mut().insert(ConnectInfo::<SocketAddr>(peer));
            }
            request
        })
    }

    fn router(self) -> Router {
        let token = token::Token::new(self.token.as_deref());
        let guarded = Router::new()
            .route("/policies", get(policies))
            .route("/policies/{name}/switch", put(policy_switch))
            .route("/switch", put(global_switch))
            .route("/keys/{*key}", any(keys::answer))
            .fallback(async || problem(StatusCode::NOT_FOUND, "nothing is here"))
            .layer(from_fn_with_state(token, token::check));
        Router::new()
            .route("/", get(page))
            .route("/metrics", get(metrics))
            .route("/metrics.json", get(metrics_json))
            .route("/health", get(health))
            .merge(guarded)
            .with_state(self)
    }
}

async fn page() -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_LOADS)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, Html(PAGE)).into_response()
}

async fn metrics(State(admin): State<Admin>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    let text = beside(move || admin.metrics.render()).await;
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// Returns what the page shows: the outcomes of all requests in each second of the last minute, the
/// decisions of each policy, and what is wrong.
async fn metrics_json(State(admin): State<Admin>) -> Response {
    let text = beside(move || {
        let (requests, policies) = admin.minute.seconds();
        let shown = json!({
            "counts": admin.gate.counts(),
            "requests": requests,
            "policies": admin.gate.summary(),
            "seconds": policies,
            "switch": admin.gate.switch_word(),
            "store": admin.health.wrong(),
            "file": admin.file.wrong(),
        });
        format!("{shown}\n")
    });
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text.await)
        .into_response()
}

/// Makes a long text beside the requests: that of 10,000 policies takes some milliseconds.
async fn beside(text: impl FnOnce() -> String + Send + 'static) -> String {
    tokio::task::spawn_blocking(text).await.expect("it does not panic")
}

/// 200 while it can decide. A broken policy file is named, and harms nobody. The last line says how
/// many policies limit.
async fn health(State(admin): State<Admin>) -> Response {
    if let Some(wrong) = admin.health.wrong() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("cannot decide: {wrong}\n"))
            .into_response();
    }
    let counts = admin.gate.counts();
    let counts = format!(
        "{} policies in force, {} in a shadow, {} off\n",
        counts["on"], counts["shadow"], counts["off"]
    );
    match admin.file.wrong() {
        Some(wrong) => {
            format!("ok, but {wrong}; the table from before is in force\n{counts}").into_response()
        }
        None => format!("ok\n{counts}").into_response(),
    }
}

async fn policies(State(admin): State<Admin>) -> Response {
    json_response(StatusCode::OK, &admin.gate.policies())
}

async fn global_switch(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    body: Body,
) -> Response {
    switch(&admin, peer, None, body).await
}

async fn policy_switch(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(name): Path<String>,
    body: Body,
) -> Response {
    switch(&admin, peer, Some(&name), body).await
}

async fn switch(admin: &Admin, peer: SocketAddr, policy: Option<&str>, body: Body) -> Response {
    let body = axum::body::to_bytes(body, 64).await.unwrap_or_default();
    let mode = match body.trim_ascii() {
        b"on" => SwitchMode::On,
        b"off" => SwitchMode::Off,
        b"shadow" => SwitchMode::Shadow,
        _ => return problem(StatusCode::BAD_REQUEST, "the body must be on, off or shadow"),
    };
    match admin.gate.switch(policy, mode) {
        Ok(holds) => {
            let set = String::from_utf8_lossy(body.trim_ascii());
            changed(peer, &format!("{} is switched {set}", policy.unwrap_or("everything")));
            let shown = json!({ "policy": policy, "switch": holds, "set": set });
            json_response(StatusCode::OK, &shown)
        }
        Err(error) => error.into_response(),
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        match self {
            AdminError::UnknownPolicy => problem(StatusCode::NOT_FOUND, "there is no such policy"),
            AdminError::Invalid(why) => problem(StatusCode::BAD_REQUEST, &why),
            AdminError::Undecided(why) => problem(StatusCode::SERVICE_UNAVAILABLE, &why),
        }
    }
}

/// Leaves a line about a change that an operator has made.
fn changed(peer: SocketAddr, what: &str) {
    let now = humantime::format_rfc3339_seconds(SystemTime::now());
    eprintln!("gateway: {now}, {peer}: {what}");
}

fn problem(status: StatusCode, error: &str) -> Response {
    json_response(status, &json!({ "error": error }))
}

fn json_response(status: StatusCode, value: &Value) -> Response {
    let kind = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, kind)], format!("{value}\n")).into_response()
}
