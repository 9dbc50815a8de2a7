//! The answers to HTTP callers that are refused, through a layer.

use std::convert::Infallible;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use tower::{Layer, ServiceExt};
use tower_sluice::key::{Global, Keyed};
use tower_sluice::respond::HttpRefusal;
use tower_sluice::testing::Scripted;
use tower_sluice::{
    Decision, Error, ErrorKind, HttpResponder, Outcome, RateLimitLayer, Refusal, Settle,
};

use super::{grpc_call, inner};

fn no_header() -> Error {
    Error::new(ErrorKind::Request, "no header x-user")
}

async fn status_of(limiter: Scripted, responder: HttpResponder) -> Response<String> {
    let key = |request: &Request<()>| match request.uri().path() {
        "/missing" => Keyed::Missing(no_header()),
        _ => Keyed::Charge("key".into()),
    };
    let missing = limiter.left() == 0;
    let layer = RateLimitLayer::new(limiter, key).respond(responder);
    let uri = if missing { "/missing" } else { "/" };
    let request = Request::builder().uri(uri).body(()).unwrap();
    layer.layer(tower::service_fn(inner)).oneshot(request).await.unwrap()
}

fn retry_after(response: &Response<String>) -> Option<&str> {
    response.headers().get("retry-after").map(|value| value.to_str().unwrap())
}

// Case 121.
#[tokio::test(start_paused = true)]
async fn denied_is_429_undecided_is_503_and_a_wrong_request_is_400() {
    let unauthorized = || HttpResponder::new().no_key(StatusCode::UNAUTHORIZED);
    let deny = Duration::from_millis(1_001);
    for (limiter, responder, status, wait) in [
        (Scripted::new().deny(deny), HttpResponder::new(), 429, Some("2")),
        (Scripted::new().never(), HttpResponder::new(), 429, None),
        (Scripted::new().fail(ErrorKind::Request), HttpResponder::new(), 400, None),
        // Without a key.
        (Scripted::new(), HttpResponder::new(), 400, None),
        (Scripted::new(), unauthorized(), 401, None),
    ] {
        let response = status_of(limiter, responder).await;
        assert_eq!((response.status().as_u16(), retry_after(&response)), (status, wait));
        assert_eq!(response.body(), "");
    }
    for kind in [
        ErrorKind::Infrastructure,
        ErrorKind::Saturation,
        ErrorKind::Capacity,
        ErrorKind::Configuration,
        ErrorKind::State,
    ] {
        let response = status_of(Scripted::new().fail(kind), HttpResponder::new()).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{kind:?}");
        let seconds: u64 = retry_after(&response).unwrap().parse().unwrap();
        assert!((1..=3).contains(&seconds));
        assert_eq!(response.headers()["cache-control"], "no-store");
    }
}

/// A missing peer address, say: no caller can mend that by authenticating.
#[test]
fn a_key_that_the_application_lost_is_400_and_asks_nobody_to_authenticate() {
    for status in [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN] {
        let responder = HttpResponder::new()
            .no_key(status)
            .www_authenticate(HeaderValue::from_static("Bearer"));
        let ask = |request, kind| -> Response<String> {
            responder
                .refuse_in_handler(request, Refusal::NoKey(Error::new(kind, "no peer address")))
        };
        let response = ask(Request::new(()), ErrorKind::Configuration);
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert!(!response.headers().contains_key("www-authenticate"));
        assert_eq!(ask(Request::new(()), ErrorKind::Request).status(), status);
        let grpc = grpc_call();
        assert_eq!(ask(grpc, ErrorKind::Configuration).headers()["grpc-status"], "3");
    }
}

#[tokio::test(start_paused = true)]
async fn a_401_names_the_scheme_and_no_other_refusal_does() {
    let responder = HttpResponder::new()
        .no_key(StatusCode::UNAUTHORIZED)
        .www_authenticate(HeaderValue::from_static("Bearer"));
    let response = status_of(Scripted::new(), responder.clone()).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(response.headers()["www-authenticate"], "Bearer");
    let denied = status_of(Scripted::new().deny(Duration::from_secs(1)), responder.clone()).await;
    assert!(!denied.headers().contains_key("www-authenticate"));
    let forbidden = status_of(Scripted::new(), responder.no_key(StatusCode::FORBIDDEN)).await;
    assert!(!forbidden.headers().contains_key("www-authenticate"));
}

#[tokio::test(start_paused = true)]
async fn without_a_key_a_grpc_caller_gets_the_code_of_the_status() {
    for (status, code) in [(400, "3"), (401, "16"), (403, "7"), (404, "3")] {
        let responder = HttpResponder::new().no_key(StatusCode::from_u16(status).unwrap());
        let grpc = grpc_call();
        let response: Response<String> =
            responder.refuse_in_handler(grpc, Refusal::NoKey(no_header()));
        assert_eq!(response.headers()["grpc-status"], code);
        assert_eq!(response.headers()["grpc-message"], "no header x-user");
        assert_eq!(response.body(), "");
    }
}

/// A body without `Default`.
struct Page(String);

#[tokio::test(start_paused = true)]
async fn a_body_keeps_statuses_and_headers_and_grpc_gets_none() {
    let limiter = Scripted::new().deny(Duration::from_secs(2)).deny(Duration::from_secs(2));
    let responder = HttpResponder::new()
        .content_type(HeaderValue::from_static("application/problem+json"))
        .body(|refusal| Page(format!(r#"{{"title":"{refusal}"}}"#)))
        .empty_body(|| Page(String::new()));
    let inner = tower::service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Page(String::from("inner"))))
    });
    let service = RateLimitLayer::new(limiter, Global).respond(responder).layer(inner);

    let response = service.clone().oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "2");
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.body().0, r#"{"title":"rate limit exceeded"}"#);

    let grpc = grpc_call();
    let response = service.oneshot(grpc).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["grpc-status"], "8");
    assert_eq!(response.headers()["grpc-retry-pushback-ms"], "2000");
    assert_eq!(response.headers()["content-type"], "application/grpc");
    assert_eq!(response.body().0, "");
}

/// Otherwise a header alone would turn the 429 of a page into a 200.
#[tokio::test(start_paused = true)]
async fn the_content_type_alone_makes_no_grpc_call() {
    let denied = || {
        Refusal::Denied(Decision::new(Outcome::Deny { retry_after: Some(Duration::from_secs(1)) }))
    };
    for (method, version) in [
        (Method::GET, Version::HTTP_11),
        (Method::GET, Version::HTTP_2),
        (Method::HEAD, Version::HTTP_2),
        (Method::PUT, Version::HTTP_11),
    ] {
        let mut request = grpc_call();
        (*request.method_mut(), *request.version_mut()) = (method, version);
        let response: Response<String> = HttpResponder::new().refuse_in_handler(request, denied());
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(!response.headers().contains_key("grpc-status"));
    }
}

/// Programs read the body, so it says what the status and the headers say.
#[tokio::test(start_paused = true)]
async fn a_body_can_say_what_status_and_headers_say() {
    let responder =
        HttpResponder::new().no_key(StatusCode::UNAUTHORIZED).body(|refusal: &HttpRefusal| {
            let wait =
                refusal.retry_after().map_or(0, |wait| wait.as_nanos().div_ceil(1_000_000_000));
            format!("{} {wait} {refusal}", refusal.status().as_u16())
        });
    let denied =
        || Decision::new(Outcome::Deny { retry_after: Some(Duration::from_millis(1_001)) });
    let error = |kind| Refusal::Undecided(Error::new(kind, "the key is empty"));
    let table = [
        (Refusal::Denied(denied()), "rate limit exceeded"),
        (Refusal::NoKey(no_header()), "no header x-user"),
        (
            Refusal::NoKey(Error::new(ErrorKind::Configuration, "no peer")),
            "request has no key to limit by",
        ),
        (error(ErrorKind::Request), "the key is empty"),
        // What is wrong with a store is none of the caller's business.
        (error(ErrorKind::Infrastructure), "rate limit could not be decided"),
    ];
    for (refusal, text) in table {
        let response: Response<String> = responder.refuse_in_handler(Request::new(()), refusal);
        let (status, wait) = (response.status().as_u16(), retry_after(&response).unwrap_or("0"));
        assert_eq!(*response.body(), format!("{status} {wait} {text}"));
    }
}

/// A block without an end has no time to come back.
#[tokio::test(start_paused = true)]
async fn a_block_without_an_end_names_no_time() {
    use tower_sluice::algorithm::FixedWindow;
    use tower_sluice::{LimiterExt, Memory, Quota};

    let limiter = Memory::new("api", FixedWindow::new(Quota::per_hour(5)));
    let service = RateLimitLayer::new(limiter.clone(), Global).layer(tower::service_fn(inner));
    for (time, field) in [(Duration::MAX, None), (Duration::from_secs(90), Some("90"))] {
        limiter.block("global", time).await.unwrap();
        let refused = service.clone().oneshot(Request::new(())).await.unwrap();
        let retry_after = refused.headers().get("retry-after");
        assert_eq!(retry_after.map(|value| value.to_str().unwrap()), field);
        assert_eq!(
            refused.headers()["ratelimit"].to_str().unwrap().contains(";t="),
            field.is_some()
        );
        let refused = service.clone().oneshot(grpc_call()).await.unwrap();
        let pushback = if field.is_some() { "90000" } else { "-1" };
        assert_eq!(refused.headers()["grpc-retry-pushback-ms"], pushback);
        limiter.unblock("global").await.unwrap();
    }
}

/// In whatever order a layer is set up.
#[tokio::test(start_paused = true)]
async fn a_responder_keeps_the_setters_before_it() {
    let teapot = |_: Request<()>, _: &Refusal| {
        let mut response = Response::new(String::from("teapot"));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    };
    let limiter = Scripted::new().allow().never();
    let layer = RateLimitLayer::new(limiter.clone(), Global)
        .respond(HttpResponder::new().text())
        .settle(|_| Settle::Refund)
        .respond(teapot);
    let service = layer.layer(tower::service_fn(inner));
    assert_eq!(service.clone().oneshot(Request::new(())).await.unwrap().status(), 200);
    assert_eq!(limiter.refunds(), [0]);
    assert_eq!(service.oneshot(Request::new(())).await.unwrap().status(), 418);
}

/// A page for a browser, and a document with the request's own path for a program.
#[tokio::test(start_paused = true)]
async fn a_body_may_depend_on_the_request_and_admitted_responses_keep_their_fields() {
    use tower_sluice::respond::{HeaderStyle, OnAdmitted, RateLimitHeaders};
    use tower_sluice::{Memory, Quota, algorithm::FixedWindow};

    let is_browser = |refusal: &HttpRefusal| {
        refusal.head().header("accept").is_some_and(|accept| accept.starts_with("text/html"))
    };
    let fields = RateLimitHeaders::new(HeaderStyle::Legacy).on_admitted(OnAdmitted::Always);
    let respond = HttpResponder::new()
        .headers(fields)
        .content_type(HeaderValue::from_static("application/problem+json"))
        .body(move |refusal| match is_browser(refusal) {
            true => String::from("<h1>Slow down</h1>"),
            false => format!(r#"{{"instance":"{}"}}"#, refusal.head().original_uri()),
        })
        .edit_headers(move |refusal, headers| {
            if is_browser(refusal) {
                headers.insert("content-type", HeaderValue::from_static("text/html"));
            }
        });
    let limiter = Memory::new("api", FixedWindow::new(Quota::per_hour(1)).anchored());
    let service =
        RateLimitLayer::new(limiter, Global).respond(respond).layer(tower::service_fn(inner));
    let ask = |accept| {
        let request = Request::get("/reports?page=2").header("accept", accept).body(()).unwrap();
        service.clone().oneshot(request)
    };
    assert_eq!(ask("*/*").await.unwrap().headers()["x-ratelimit-remaining"], "0");
    for (accept, kind, body) in [
        ("text/html,*/*", "text/html", "<h1>Slow down</h1>"),
        ("*/*", "application/problem+json", r#"{"instance":"/reports?page=2"}"#),
    ] {
        let refused = ask(accept).await.unwrap();
        assert_eq!(refused.headers()["content-type"], kind);
        assert_eq!(refused.headers()["retry-after"], "3600");
        assert_eq!(refused.body(), body);
    }
}
