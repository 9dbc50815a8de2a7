//! The examples of the documents, byte for byte.

use std::future::ready;

use tower::{Layer, ServiceExt};
use tower_sluice::limiter::{Description, PolicyReport, QuotaUnit};
use tower_sluice::{Charge, Error, LimiterExt, RateLimitLayer};

use super::*;
use crate::grpc_call;

#[test]
fn of_two_policies_the_one_nearest_exhaustion() {
    let burst = PolicyReport::new("burst", Quota::per_second(10)).with_report(9, SECOND);
    let daily = PolicyReport::new("daily", Quota::per_day(1_000)).with_report(100, 36_000 * SECOND);
    let decision = Decision::new(Outcome::Allow).with_policies([burst, daily]);
    assert_eq!(
        lines(&annotated(always(HeaderStyle::Draft11), decision)),
        [
            r#"ratelimit-policy: "burst";q=10;w=1, "daily";q=1000;w=86400"#,
            r#"ratelimit: "daily";r=100;t=36000"#,
        ]
    );
}

#[tokio::test]
async fn bytes_with_a_partition_key() {
    let limiter = |_: &Charge| {
        let quota = Quota::new(65_535, 10 * SECOND);
        let decision = Decision::new(Outcome::Allow).with_limiter("bytes".into(), quota);
        ready(Ok::<_, Error>(decision.with_report(300, 4 * SECOND)))
    };
    let description = Description::new().unit(QuotaUnit::ContentBytes).partition_key();
    let layer = RateLimitLayer::new(limiter.describe(description), |_: &Request<()>| "user:42")
        .respond(HttpResponder::new().headers(always(HeaderStyle::Draft11)));
    let inner = async |_: Request<()>| Ok::<_, Infallible>(Response::new(()));
    let response = layer.layer(tower::service_fn(inner)).oneshot(Request::new(())).await.unwrap();
    assert_eq!(
        lines(response.headers()),
        [
            r#"ratelimit-policy: "bytes";q=65535;qu="content-bytes";w=10;pk=:6j/UO+HlfWI=:"#,
            r#"ratelimit: "bytes";r=300;t=4;pk=:6j/UO+HlfWI=:"#,
        ]
    );
}

#[test]
fn a_refusal_in_full() {
    let decision = api(deny(Duration::from_millis(12_300)), 0, 60 * SECOND);
    let responder = HttpResponder::new().problem_json();
    let response: Response<String> =
        responder.refuse_in_handler(Request::new(()), Refusal::Denied(decision));
    assert_eq!(response.status(), 429);
    assert_eq!(
        lines(response.headers()),
        [
            "retry-after: 13",
            r#"ratelimit-policy: "api";q=100;w=60"#,
            r#"ratelimit: "api";r=0;t=13"#,
            "content-type: application/problem+json",
        ]
    );
    assert_eq!(
        response.body(),
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["api"]}"#
    );
}

#[test]
fn the_other_styles() {
    let decision = || api(Outcome::Allow, 42, 13 * SECOND);
    let expected = "
ratelimit-policy: 100;w=60
ratelimit: limit=100, remaining=42, reset=13

ratelimit-policy: 100;w=60
ratelimit-limit: 100
ratelimit-remaining: 42
ratelimit-reset: 13

x-ratelimit-limit: 100
x-ratelimit-remaining: 42
x-ratelimit-reset: 13

x-ratelimit-limit: 100
x-ratelimit-remaining: 42
x-ratelimit-reset: 1767225613";
    let shown = |style: &HeaderStyle| lines(&annotated(always(*style), decision())).join("\n");
    let others: Vec<_> = STYLES[1..].iter().map(shown).collect();
    assert_eq!(others.join("\n\n"), expected.trim_start());
    assert_eq!(lines(&annotated(always(HeaderStyle::None), decision())), [""; 0]);
}

/// A gRPC caller reads `RetryInfo`, `QuotaFailure` and `ErrorInfo`, and not these fields.
#[test]
fn a_grpc_status_has_details_and_no_fields() {
    let grpc = grpc_call();
    let decision = api(deny(Duration::from_millis(250)), 0, 60 * SECOND);
    let responder = HttpResponder::new().problem_json().headers(always(HeaderStyle::Draft11));
    let response: Response<String> = responder.refuse_in_handler(grpc, Refusal::Denied(decision));
    assert_eq!((response.status().as_u16(), response.body().as_str()), (200, ""));
    assert_eq!(
        lines(response.headers()),
        [
            "content-type: application/grpc",
            "grpc-status: 8",
            "grpc-message: rate limit exceeded",
            "grpc-status-details-bin: CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaMwoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIHCgUQgOWadxo2Cit0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuUXVvdGFGYWlsdXJlEgcKBQoDYXBpGk8KKHR5cGUuZ29vZ2xlYXBpcy5jb20vZ29vZ2xlLnJwYy5FcnJvckluZm8SIwoTUkFURV9MSU1JVF9FWENFRURFRBIMdG93ZXItc2x1aWNl",
            "grpc-retry-pushback-ms: 250",
        ]
    );
}
