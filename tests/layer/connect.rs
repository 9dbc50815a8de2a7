//! Refusals as callers of Connect read them.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use base64::prelude::{BASE64_STANDARD_NO_PAD, Engine as _};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tonic_types::StatusExt;
use tower::{Layer, ServiceExt};
use tower_sluice::algorithm::FixedWindow;
use tower_sluice::key::Global;
use tower_sluice::testing::Scripted;
use tower_sluice::{
    ErrorKind, HttpResponder, LimiterExt, Memory, Quota, RateLimitLayer, Refusal, by_head,
};

use super::frameworks::grpc;
use super::{HOUR, inner, serve};
use support::http::{Answer, send};

const UNARY: [(&str, &str); 2] =
    [("content-type", "application/json"), ("connect-protocol-version", "1")];
const STREAM: [(&str, &str); 1] = [("content-type", "application/connect+proto")];

/// A limit of one request an hour, which is spent.
async fn spent() -> Memory<FixedWindow> {
    let limiter = Memory::new("api", FixedWindow::new(Quota::per_hour(1)).anchored());
    assert!(limiter.acquire("global").await.is_ok());
    limiter
}

/// Serves axum with the layer on a socket.
async fn server(
    limiter: impl tower_sluice::Limiter<Future: Send> + Send + Sync + 'static,
) -> SocketAddr {
    let layer = RateLimitLayer::new(limiter, Global);
    serve(Router::new().route("/a.B/C", any(async || "inner")).layer(layer)).await
}

async fn post(address: SocketAddr, headers: &[(&str, &str)]) -> Answer {
    send("POST", address, "/a.B/C", headers).await
}

fn error(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

/// The error in the only message of a stream.
fn end_of_stream(body: &[u8]) -> Value {
    let length = u32::from_be_bytes(body[1..5].try_into().unwrap());
    assert_eq!((body[0], length as usize), (2, body.len() - 5));
    error(std::str::from_utf8(&body[5..]).unwrap())["error"].take()
}

#[tokio::test]
async fn a_unary_call_reads_the_code_the_details_and_the_fields() {
    let address = server(spent().await).await;
    for (kind, method, path) in [
        ("application/json", "POST", "/a.B/C"),
        ("application/proto", "POST", "/a.B/C"),
        ("", "GET", "/a.B/C?encoding=json&message=%7B%7D&connect=v1"),
    ] {
        let headers = [("content-type", kind), ("connect-protocol-version", "1")];
        let answer = send(method, address, path, &headers).await;
        assert_eq!(answer.status, 429);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((3_500..=3_600).contains(&seconds), "{seconds}");
        assert_eq!(answer.header("ratelimit-policy"), Some(r#""api";q=1;w=3600"#));
        let error = error(&answer.body);
        assert_eq!(error["code"], "resource_exhausted");
        assert_eq!(error["message"], "rate limit exceeded");
        let types: Vec<_> =
            error["details"].as_array().unwrap().iter().map(|it| &it["type"]).collect();
        let names = ["google.rpc.RetryInfo", "google.rpc.QuotaFailure", "google.rpc.ErrorInfo"];
        assert_eq!(types, names);
    }
}

/// The same bytes in both, which a library of gRPC has read.
#[tokio::test(start_paused = true)]
async fn details_are_those_of_grpc() {
    let refused = async || spent().await.try_acquire("global").await.unwrap_err();
    let status = tonic::Status::from(refused().await);
    assert_eq!(status.get_details_retry_info().unwrap().retry_delay, Some(HOUR));
    assert_eq!(status.get_details_quota_failure().unwrap().violations[0].subject, "api");
    assert_eq!(status.get_details_error_info().unwrap().domain, "tower-sluice");

    let call = Request::get("/a.B/C?connect=v1").body(()).unwrap();
    let response: Response<String> = HttpResponder::new().refuse_in_handler(call, refused().await);
    for detail in error(response.body())["details"].as_array().unwrap() {
        let value = BASE64_STANDARD_NO_PAD.decode(detail["value"].as_str().unwrap()).unwrap();
        let has = status.details().windows(value.len()).any(|bytes| bytes == value);
        assert!(has && !value.is_empty(), "{detail}");
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_error() {
    let address = server(spent().await).await;
    for kind in ["application/connect+proto", "application/connect+json"] {
        let answer = post(address, &[("content-type", kind)]).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)));
        let error = end_of_stream(answer.body.as_bytes());
        assert_eq!(error["code"], "resource_exhausted");
        assert_eq!(error["details"].as_array().unwrap().len(), 3);
    }
}

#[tokio::test]
async fn each_refusal_has_its_code_and_the_status_of_that_code() {
    let codes = |limiter: fn() -> Scripted| async move {
        let address = server(limiter()).await;
        let (unary, stream) = (post(address, &UNARY).await, post(address, &STREAM).await);
        assert_eq!(stream.status, 200);
        let (unary_error, stream_error) =
            (error(&unary.body), end_of_stream(stream.body.as_bytes()));
        assert_eq!(unary_error["code"], stream_error["code"]);
        (unary, unary_error)
    };
    let (away, error) =
        codes(|| Scripted::new().fail(ErrorKind::Infrastructure).fail(ErrorKind::Infrastructure))
            .await;
    assert_eq!((away.status, &error["code"]), (503, &json!("unavailable")));
    // What is wrong with a store is none of the caller's business.
    assert_eq!(error["message"], "rate limit could not be decided");
    assert_eq!(error["details"][0]["type"], "google.rpc.RetryInfo");
    assert_eq!(error["details"].as_array().unwrap().len(), 1);
    assert_eq!(away.header("cache-control"), Some("no-store"));
    assert!(away.header("retry-after").is_some());

    let (bad, error) =
        codes(|| Scripted::new().fail(ErrorKind::Request).fail(ErrorKind::Request)).await;
    assert_eq!((bad.status, &error["code"]), (400, &json!("invalid_argument")));
    assert_eq!(error.get("details"), None);

    let (never, error) = codes(|| Scripted::new().never().never()).await;
    assert_eq!((never.status, never.header("retry-after")), (429, None));
    assert_eq!(error["code"], "resource_exhausted");
    assert_eq!(error["details"][0]["type"], "google.rpc.ErrorInfo");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_has_the_code_of_its_status() {
    for (status, expected, code) in [
        (400, 400, "invalid_argument"),
        (401, 401, "unauthenticated"),
        (403, 403, "permission_denied"),
        (422, 400, "invalid_argument"),
    ] {
        let respond = HttpResponder::new().no_key(StatusCode::from_u16(status).unwrap());
        let layer = RateLimitLayer::new(Scripted::new(), by_head(|head| head.header("x-user")));
        let service = layer.respond(respond).layer(tower::service_fn(inner));
        let call = Request::get("/?connect=v1").body(()).unwrap();
        let response = service.oneshot(call).await.unwrap();
        assert_eq!(response.status(), expected);
        assert_eq!(error(response.body())["code"], code);
    }
}

/// With each code that is chosen for it.
#[tokio::test(start_paused = true)]
async fn a_denial_has_the_code_that_is_set() {
    let respond = HttpResponder::new().grpc_code(14);
    let refusal = spent().await.try_acquire("global").await.unwrap_err();
    let call = Request::get("/?connect=v1").body(()).unwrap();
    let response: Response<String> = respond.refuse_in_handler(call, refusal);
    assert_eq!(
        (response.status().as_u16(), &error(response.body())["code"]),
        (503, &json!("unavailable"))
    );
}

#[tokio::test]
async fn a_server_of_tonic_answers_connect_too() {
    let address = grpc(RateLimitLayer::new(spent().await, Global)).await;
    let client: Client<_, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let ask = async |headers: &[(&str, &str)]| {
        let mut request = Request::post(format!("http://{address}/a.B/C"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = client.request(request.body(Empty::new()).unwrap()).await.unwrap();
        let status = response.status();
        (status, response.into_body().collect().await.unwrap().to_bytes())
    };
    let (status, body) = ask(&UNARY).await;
    assert_eq!(status, 429);
    assert_eq!(error(std::str::from_utf8(&body).unwrap())["code"], "resource_exhausted");
    let (status, body) = ask(&STREAM).await;
    assert_eq!(
        (status.as_u16(), &end_of_stream(&body)["code"]),
        (200, &json!("resource_exhausted"))
    );
}

/// Every responder answers, whatever body it makes for HTTP.
#[tokio::test(start_paused = true)]
async fn bodies_for_http_stay_and_those_of_connect_are_json() {
    async fn code<F, E>(respond: HttpResponder<F, E>) -> (String, String)
    where
        HttpResponder<F, E>:
            tower_sluice::respond::Respond<Request<()>, Response<String>, std::convert::Infallible>,
        F: Clone,
    {
        let deny = Scripted::new().never().never();
        let service = RateLimitLayer::new(deny, Global).respond(respond);
        let service = service.layer(tower::service_fn(inner));
        let plain = service.clone().oneshot(Request::new(())).await;
        let call = Request::get("/?connect=v1").body(()).unwrap();
        let (Ok(plain), Ok(connect)) = (plain, service.oneshot(call).await) else { panic!() };
        assert_eq!(connect.headers()["content-type"], "application/json");
        (plain.into_body(), error(connect.body())["code"].as_str().unwrap().to_owned())
    }
    let code_of_all = String::from("resource_exhausted");
    assert_eq!(code(HttpResponder::new()).await, (String::new(), code_of_all.clone()));
    let (text, connect) = code(HttpResponder::new().text()).await;
    assert_eq!((&*text, &connect), ("rate limit exceeded", &code_of_all));
    let (problem, connect) = code(HttpResponder::new().problem_json()).await;
    assert_eq!((problem.starts_with(r#"{"type":"#), &connect), (true, &code_of_all));
    let (closure, connect) = code(HttpResponder::new().body(|_| String::from("closure"))).await;
    assert_eq!((&*closure, &connect), ("closure", &code_of_all));
}

/// Without a body there is no error to read, so the status has to say it.
#[tokio::test(start_paused = true)]
async fn a_body_that_nothing_makes_gets_the_answer_for_http() {
    let refused = || Refusal::Undecided(tower_sluice::Error::new(ErrorKind::State, "no"));
    for kind in ["application/connect+proto", "application/json"] {
        let call = || {
            let call = Request::post("/a.B/C").header("content-type", kind);
            call.header("connect-protocol-version", "1").body(()).unwrap()
        };
        let response: Response<()> = HttpResponder::new().refuse_in_handler(call(), refused());
        assert_eq!(response.status(), 503);
        assert!(!response.headers().contains_key("content-type"));

        let respond = HttpResponder::new().connect_body(Full::<Bytes>::from);
        let response = respond.refuse_in_handler(call(), refused());
        let stream = kind.contains("connect");
        assert_eq!(response.status(), if stream { 200 } else { 503 });
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body.ends_with(b"}") || stream, "{body:?}");
    }
}

/// A caller could else turn the 429 of a page into a 200, which caches store.
#[tokio::test(start_paused = true)]
async fn only_a_post_gets_the_status_200() {
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::OPTIONS] {
        let call = Request::builder().method(method).uri("/a.B/C?connect=v1");
        let call = call.header("content-type", "application/connect+proto").body(()).unwrap();
        let refusal = spent().await.try_acquire("global").await.unwrap_err();
        let response: Response<String> = HttpResponder::new().refuse_in_handler(call, refusal);
        assert_eq!(response.status(), 429);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_no_longer_than_its_timeout() {
    let limiter = Scripted::new().allow();
    let layer = RateLimitLayer::new(limiter.clone(), Global).max_wait(Duration::from_secs(9));
    let call = Request::post("/a.B/C").header("content-type", "application/connect+json");
    let call = call.header("connect-timeout-ms", "300").body(()).unwrap();
    layer.layer(tower::service_fn(inner)).oneshot(call).await.unwrap();
    assert_eq!(limiter.charges()[0].longest_wait(), Some(Duration::from_millis(300)));
}
