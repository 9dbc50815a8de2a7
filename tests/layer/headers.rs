//! The fields that tell a caller its limits, and the decision in the extensions.

mod answers;
mod at_once;
mod cost;
mod epoch;
mod examples;
mod extensions;
mod stores;
mod styles;

use std::convert::Infallible;
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use tower_sluice::respond::{HeaderStyle, OnAdmitted, RateLimitHeaders, Respond};
use tower_sluice::{Decision, HttpResponder, Outcome, Quota, Refusal};

const SECOND: Duration = Duration::from_secs(1);
const STYLES: [HeaderStyle; 5] = [
    HeaderStyle::Draft11,
    HeaderStyle::Draft07,
    HeaderStyle::Draft06,
    HeaderStyle::Legacy,
    HeaderStyle::LegacyEpoch,
];

/// 2026-01-01, to the second.
const NEW_YEAR: Duration = Duration::from_secs(1_767_225_600);

/// A style on every response.
fn always(style: HeaderStyle) -> RateLimitHeaders {
    RateLimitHeaders::new(style).on_admitted(OnAdmitted::Always)
}

fn deny(wait: Duration) -> Outcome {
    Outcome::Deny { retry_after: Some(wait) }
}

/// A decision of the policy `api`, 100 in a minute.
fn api(outcome: Outcome, remaining: u64, reset_after: Duration) -> Decision {
    Decision::new(outcome)
        .with_limiter("api".into(), Quota::per_minute(100))
        .with_report(remaining, reset_after)
        .with_instant(NEW_YEAR, 0)
}

/// The response of an admitted request whose inner service has set `inner`.
fn annotated_beside(
    headers: impl Into<RateLimitHeaders>,
    mut decision: Decision,
    inner: &[(&'static str, &'static str)],
) -> Response<()> {
    let responder = HttpResponder::new().headers(headers);
    let mut response = Response::new(());
    for (name, value) in inner {
        response.headers_mut().append(*name, value.parse().unwrap());
    }
    let respond: &dyn Respond<Request<()>, Response<()>, Infallible, Error = Infallible> =
        &responder;
    respond.annotate(&mut decision, &mut response);
    response
}

fn annotated(headers: impl Into<RateLimitHeaders>, decision: Decision) -> HeaderMap {
    annotated_beside(headers, decision, &[]).headers().clone()
}

/// The response of a refused request.
fn rejected(headers: impl Into<RateLimitHeaders>, decision: Decision) -> HeaderMap {
    let responder = HttpResponder::new().headers(headers);
    let response: Response<String> =
        responder.refuse_in_handler(Request::new(()), Refusal::Denied(decision));
    response.headers().clone()
}

/// All fields in order, as lines.
fn lines(headers: &HeaderMap) -> Vec<String> {
    let line =
        |(name, value): (_, &http::HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
    headers.iter().map(line).collect()
}
