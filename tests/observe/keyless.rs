//! Refusals of requests without a key: counted, warned of once, and answered with a text.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::{Ready, ready};

use http::{Request, Response};
use tower::util::ServiceFn;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::key::{ClientIp, Global, by_bearer_token};
use tower_sluice::limiter::{MetricsExt, Switch, SwitchMode, TraceExt};
use tower_sluice::respond::PlainText;
use tower_sluice::testing::Scripted;
use tower_sluice::{
    Charge, ErrorKind, HttpResponder, Limiter, LimiterExt, Memory, Quota, RateLimitLayer, Settle,
    by_api_key, by_head,
};

use super::SECOND;
use super::events::Lines;
use super::recorder::{Recorder, assert_counts};

fn bucket() -> Memory<TokenBucket> {
    Memory::new("bucket", TokenBucket::new(Quota::per_hour(9)))
}

fn layer<L: Limiter, K>(limiter: L, key: K) -> RateLimitLayer<L, K, HttpResponder<PlainText>> {
    RateLimitLayer::new(limiter, key).respond(HttpResponder::new().text())
}

type Answer = Ready<Result<Response<String>, Infallible>>;

fn inner(_: Request<()>) -> Answer {
    ready(Ok(Response::new(String::from("inner"))))
}

/// Asks `times` without any header, and returns the last status and body.
async fn ask<T>(limit: &T, times: u32) -> (u16, String)
where
    T: Layer<ServiceFn<fn(Request<()>) -> Answer>>,
    T::Service: Service<Request<()>, Response = Response<String>, Error: Debug>,
{
    let mut seen = (0, String::new());
    for _ in 0..times {
        let response = limit.layer(service_fn(inner as fn(_) -> _)).oneshot(Request::new(())).await;
        let response = response.unwrap();
        seen = (response.status().as_u16(), response.into_body());
    }
    seen
}

// Case 161.
#[tokio::test(start_paused = true)]
async fn requests_without_a_key_are_counted_and_warned_of_once() {
    let (recorder, (lines, _guard)) = (Recorder::new(), Lines::listen());
    let limiter = bucket().metrics("api").trace("api");
    let limit = layer(limiter.clone(), by_api_key("x-api-key"));
    let (status, body) = ask(&limit, 5).await;
    assert_eq!((status, body.as_str()), (400, "request has no header x-api-key to limit by"));
    assert_counts!(recorder, "decisions_total{outcome=undecided}": 5,
        "errors_total{kind=request}": 5);
    let said = lines.take();
    let warnings: Vec<_> = said.iter().filter(|line| line.starts_with("WARN")).collect();
    let [warning] = warnings[..] else { panic!("{said:#?}") };
    for part in ["WARN tower_sluice::fault ", "no header x-api-key", "kind=\"request\""] {
        assert!(warning.contains(part), "{part} in {warning}");
    }
    assert_eq!(said.iter().filter(|line| line.contains("outcome=\"undecided\"")).count(), 5);

    // A clone is the same layer, and another layer warns for itself.
    ask(&limit.clone(), 5).await;
    assert_eq!(lines.of("fault").len(), 0);
    ask(&layer(limiter, by_bearer_token()), 2).await;
    let warning = lines.of("fault");
    assert!(warning.len() == 1 && warning[0].contains("no bearer token"), "{warning:?}");
}

// Case 161.
#[tokio::test(start_paused = true)]
async fn a_missing_peer_is_a_fault_of_the_application() {
    let (recorder, (lines, _guard)) = (Recorder::new(), Lines::listen());
    let limit = layer(bucket().metrics("api"), ClientIp::new());
    // What the operator has to do is none of the caller's business.
    assert_eq!(ask(&limit, 3).await, (400, String::from("request has no key to limit by")));
    assert_counts!(recorder, "decisions_total{outcome=undecided}": 3,
        "errors_total{kind=configuration}": 3);
    let warning = lines.of("fault");
    let why = "no peer address: serve with into_make_service_with_connect_info";
    assert!(warning.len() == 1 && warning[0].contains(why), "{warning:?}");
}

// Case 161.
#[tokio::test(start_paused = true)]
async fn off_warns_of_nothing_and_a_shadow_counts_what_it_would_refuse() {
    let (recorder, (lines, _guard)) = (Recorder::new(), Lines::listen());
    let switch = Switch::new();
    let limiter = bucket().switch(&switch).metrics("api");
    let limit = layer(limiter, by_head(|head| head.header("x-user")));
    switch.set(SwitchMode::Off);
    assert_eq!(ask(&limit, 2).await.0, 200);
    assert_eq!(lines.of("fault").len(), 0);
    switch.set(SwitchMode::Shadow);
    assert_eq!(ask(&limit, 3).await.0, 200);
    assert_counts!(recorder, "decisions_total{outcome=undecided}": 3,
        "errors_total{kind=request}": 3, "shadow_refusals_total{outcome=invalid}": 3, "switched_off_total": 2);
    let warning = lines.of("fault");
    assert!(warning.len() == 1 && warning[0].contains("admitted=true"), "{warning:?}");
    assert!(warning[0].contains("request has no key to limit by"), "{warning:?}");
}

/// A limiter warns of no request that is at fault itself, and its layer of the first.
#[tokio::test(start_paused = true)]
async fn requests_with_an_empty_key_are_warned_of_once() {
    let (lines, _guard) = Lines::listen();
    let limit = layer(bucket().trace("api"), by_head(|_| String::new()));
    for _ in 0..3 {
        assert_eq!(ask(&limit, 2).await, (400, String::from("the key is empty")));
        tokio::time::advance(SECOND).await;
    }
    let said = lines.take();
    assert_eq!(said.iter().filter(|line| line.contains("outcome=\"undecided\"")).count(), 6);
    let warnings: Vec<_> = said.iter().filter(|line| line.starts_with("WARN")).collect();
    let [warning] = warnings[..] else { panic!("{said:#?}") };
    for part in ["WARN tower_sluice::fault ", "the key is empty", "kind=\"request\""] {
        assert!(warning.contains(part), "{part} in {warning}");
    }
}

/// Also where no `trace` stands around the limiter.
#[tokio::test(start_paused = true)]
async fn a_layer_warns_once_of_each_kind_that_it_refuses_undecided() {
    let (lines, _guard) = Lines::listen();
    let kinds = [ErrorKind::Configuration, ErrorKind::State, ErrorKind::Configuration];
    let scripted = kinds.into_iter().fold(Scripted::new(), Scripted::fail);
    let limit = layer(scripted, Global);
    for _ in kinds {
        assert_eq!(ask(&limit, 1).await.0, 503);
    }
    let warnings = lines.of("fault");
    assert_eq!(warnings.len(), 2, "{warnings:#?}");
    assert!(warnings.iter().all(|line| line.starts_with("WARN ")), "{warnings:#?}");
    assert!(warnings[0].contains("kind=\"configuration\""), "{warnings:#?}");
    assert!(warnings[1].contains("kind=\"state\""), "{warnings:#?}");

    // A closure around a limiter passes no settlement on.
    let scripted = Scripted::new().allow().allow();
    let limit = RateLimitLayer::new(move |charge: &Charge| scripted.check(charge), Global);
    let limit = limit.settle(|_| Settle::Cost(2));
    assert_eq!(ask(&limit, 2).await.0, 200);
    let warnings = lines.of("fault");
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(warnings[0].contains("did not settle"), "{warnings:#?}");
}
