//! The layer in an axum app, over real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::routing::get;
use axum::{Extension, Router};
use http::Request;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::key::IntoCharge;
use tower_sluice::limiter::{Switch, SwitchMode};
use tower_sluice::respond::DecisionReport;
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
