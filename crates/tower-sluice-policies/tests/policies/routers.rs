//! Every place of axum that takes a layer: which policy is charged, under which key, and what the
//! caller sees. Routers that are nested rewrite the path before their layers see it.

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use http::{Request, StatusCode};
use tower::ServiceExt;
use tower::util::option_layer;
use tower_sluice::{RateLimitLayer, by_head};
use tower_sluice_policies::{Policies, Row, Rows};

/// The policies of rows, each with a name, a path and a key, and with two units an hour.
fn policies(rows: &[[&str; 3]]) -> Policies {
    let row = |[name, path, key]: &[&str; 3]| {
        let row = Row::new().with("name", *name).with("limit", 2).with("period", "1h");
        row.with("match", *path).with("key", *key)
    };
    Policies::builder().build(&Rows::from_iter(rows.iter().map(row))).expect("policies")
}

fn layer(policies: &Policies) -> RateLimitLayer<Policies, Policies, tower_sluice::HttpResponder> {
    policies.layer()
}

async fn ask(app: &Router, method: &str, path: &str) -> StatusCode {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status()
}

async fn statuses<const N: usize>(app: &Router, paths: [&str; N]) -> [u16; N] {
    let mut statuses = [0; N];
    for (status, path) in statuses.iter_mut().zip(paths) {
        *status = ask(app, "GET", path).await.as_u16();
    }
    statuses
}

/// The units that are left of a policy with the key `path`.
async fn left(policies: &Policies, name: &str, path: &str) -> Option<u64> {
    policies.get(name).unwrap().peek(&[path]).await.unwrap().remaining()
}

fn login() -> Router {
    Router::new().route("/login", get(async || "welcome"))
}

#[tokio::test]
async fn a_layer_inside_of_nest_charges_the_path_of_the_caller() {
    let policies = policies(&[["login", "/api/login", "path"]]);
    for app in [
        Router::new().nest("/api", login().layer(layer(&policies))),
        Router::new().nest_service("/api", login().layer(layer(&policies))),
        Router::new().nest_service("/api", tower::Layer::layer(&layer(&policies), login())),
    ] {
        let asked = statuses(&app, ["/api/login"; 3]).await;
        assert_eq!(asked, [200, 200, 429]);
        assert_eq!(left(&policies, "login", "/api/login").await, Some(0));
        policies.get("login").unwrap().reset(&["/api/login"]).await.unwrap();
    }
}

#[tokio::test]
async fn a_row_may_write_the_rest_of_the_path_that_a_nested_router_sees() {
    let policies = policies(&[["inner", "/login", "path"]]);
    let nested = || login().layer(layer(&policies));
    let app = Router::new().nest("/v1", nested()).nest("/v2", nested());
    // The key is the path of the caller, so that two routers do not share a limit.
    let asked = statuses(&app, ["/v1/login", "/v1/login", "/v1/login", "/v2/login"]).await;
    assert_eq!(asked, [200, 200, 429, 200]);
    assert_eq!(left(&policies, "inner", "/v1/login").await, Some(0));
    assert_eq!(left(&policies, "inner", "/v2/login").await, Some(1));
    assert_eq!(left(&policies, "inner", "/login").await, Some(2));
}

#[tokio::test]
async fn both_paths_of_one_request_charge_a_row_once() {
    let policies = policies(&[["any", "/{*rest}", "global"], ["inner", "/login", "global"]]);
    let app = Router::new().nest("/a", Router::new().nest("/b", login().layer(layer(&policies))));
    assert_eq!(ask(&app, "GET", "/a/b/login").await, 200);
    for name in ["any", "inner"] {
        assert_eq!(left(&policies, name, "global").await, Some(1), "{name}");
    }
}

#[tokio::test]
async fn a_key_closure_sees_the_uri_of_the_caller() {
    let limiter = tower_sluice::testing::Scripted::new().allow().allow();
    let by_path = by_head(|head| head.original_uri().path().to_owned());
    let limit = RateLimitLayer::new(limiter.clone(), by_path);
    let app = Router::new().nest("/v1", login().layer(limit.clone())).merge(login().layer(limit));
    assert_eq!(statuses(&app, ["/v1/login", "/login"]).await, [200, 200]);
    let charges = limiter.charges();
    let keys: Vec<_> = charges.iter().map(|charge| charge.key()).collect();
    assert_eq!(keys, ["/v1/login", "/login"]);
}

#[tokio::test]
async fn each_place_of_a_layer_charges_the_requests_that_reach_it() {
    let policies = policies(&[["all", "/{*rest}", "path"]]);
    let limit = || layer(&policies);
    let app = Router::new()
        .route("/method", get(async || "read").layer(limit()).post(async || "free"))
        .route("/open", get(async || "open"))
        .route("/some", get(async || "some").layer(option_layer(Some(limit()))))
        .route(
            "/none",
            get(async || "none").layer(option_layer(None::<tower::layer::util::Identity>)),
        )
        .fallback_service(tower::Layer::layer(&limit(), Router::new().fallback(async || "none")));
    for (method, path, statuses) in [
        // A layer of a method router limits the methods before it alone.
        ("GET", "/method", [200, 200, 429]),
        ("POST", "/method", [200, 200, 200]),
        ("GET", "/open", [200, 200, 200]),
        ("GET", "/some", [200, 200, 429]),
        ("GET", "/none", [200, 200, 200]),
        // The fallback limits paths without a route.
        ("GET", "/no/such", [200, 200, 429]),
    ] {
        for status in statuses {
            assert_eq!(ask(&app, method, path).await.as_u16(), status, "{method} {path}");
        }
    }
    assert_eq!(left(&policies, "all", "/open").await, Some(2));
    assert_eq!(left(&policies, "all", "/no/such").await, Some(0));
}

#[tokio::test]
async fn a_layer_around_routes_limits_paths_without_one_and_route_layer_does_not() {
    let routes = || Router::new().route("/login", post(async || "welcome"));
    for outer in [true, false] {
        let policies = policies(&[["all", "/{*rest}", "path"]]);
        let app = match outer {
            true => routes().layer(layer(&policies)),
            false => routes().route_layer(layer(&policies)),
        };
        // A wrong method is a request of the route.
        assert_eq!(statuses(&app, ["/login"; 3]).await, [405, 405, 429]);
        let unknown = statuses(&app, ["/nothing"; 3]).await;
        assert_eq!(unknown, if outer { [404, 404, 429] } else { [404, 404, 404] });
    }
}
