//! The decision in the extensions of requests and responses.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Extension, Router};
use tower::ServiceExt;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::key::{IntoCharge, Keyed};
use tower_sluice::limiter::Origin;
use tower_sluice::respond::DecisionReport;
use tower_sluice::testing::Scripted;
use tower_sluice::{
    Charge, ErrorKind, Exempt, FailOpen, Limiter, LimiterExt, Memory, RateLimitLayer, by_head,
};

use super::*;

/// The decisions that the handler and the layer outside have seen.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Sight>>>);

/// The place where a decision was seen, its outcome, and the units left.
type Sight = (&'static str, Outcome, Option<u64>);

impl Seen {
    fn add(&self, place: &'static str, report: Option<&DecisionReport>) {
        if let Some(report) = report {
            self.0.lock().unwrap().push((place, report.outcome(), report.remaining()));
        }
    }

    fn take(&self) -> Vec<Sight> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn app<L>(limiter: L, seen: &Seen) -> Router
where
    L: Limiter<Future: Send> + Send + Sync + 'static,
{
    let (inside, outside) = (seen.clone(), seen.clone());
    let key = by_head(|head| match head.uri().path() {
        "/exempt" => Exempt.into_charge(),
        "/missing" => None::<String>.into_charge(),
        _ => Keyed::Charge("key".into()),
    });
    let handler = get(async move |report: Option<Extension<DecisionReport>>| {
        inside.add("handler", report.map(|Extension(report)| report).as_ref());
        http::StatusCode::NO_CONTENT.into_response()
    });
    let respond = HttpResponder::new().report_in_request().report_in_response();
    Router::new()
        .route("/{*path}", handler)
        .layer(RateLimitLayer::new(limiter, key).max_wait(SECOND).respond(respond))
        .layer(from_fn(move |request: axum::extract::Request, next: Next| {
            let outside = outside.clone();
            async move {
                assert!(request.extensions().get::<DecisionReport>().is_none());
                let response = next.run(request).await;
                outside.add("outside", response.extensions().get());
                response
            }
        }))
}

async fn ask(app: &Router, path: &str) -> u16 {
    let request = http::Request::get(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn handlers_and_layers_outside_read_the_decision() {
    let seen = Seen::default();
    let limiter = Memory::new("api", TokenBucket::new(Quota::per_second(1).burst(2)));
    let app = app(limiter.clone(), &seen);
    let both = |outcome, left| vec![("handler", outcome, left), ("outside", outcome, left)];
    assert_eq!(ask(&app, "/a").await, 204);
    assert_eq!(seen.take(), both(Outcome::Allow, Some(1)));
    ask(&app, "/a").await;
    seen.take();
    // One that waits carries its wait.
    assert_eq!(ask(&app, "/a").await, 204);
    assert_eq!(seen.take(), both(Outcome::Wait(SECOND), Some(0)));

    limiter.penalize(Charge::new("key").cost(2)).await.unwrap();
    assert_eq!(ask(&app, "/a").await, 429);
    let [(place, outcome, left)] = seen.take()[..] else { panic!("one") };
    assert!(matches!(outcome, Outcome::Deny { .. }));
    assert_eq!((place, left), ("outside", Some(0)));

    // A request that is not limited has a report that says so, and a refused one without a decision
    // has none.
    assert_eq!(ask(&app, "/exempt").await, 204);
    assert_eq!(seen.take(), both(Outcome::Allow, None));
    assert_eq!(ask(&app, "/missing").await, 400);
    assert_eq!(seen.take(), []);
}

#[tokio::test(start_paused = true)]
async fn an_error_leaves_no_decision_and_a_fallback_does() {
    let seen = Seen::default();
    let away = Scripted::new().fail(ErrorKind::Infrastructure);
    assert_eq!(ask(&app(away.clone(), &seen), "/a").await, 503);
    assert_eq!(seen.take(), []);
    let away = Scripted::new().fail(ErrorKind::Infrastructure).or_else(FailOpen);
    assert_eq!(ask(&app(away, &seen), "/a").await, 204);
    let none = (Outcome::Allow, None);
    assert_eq!(seen.take(), [("handler", none.0, none.1), ("outside", none.0, none.1)]);
}

#[tokio::test(start_paused = true)]
async fn a_report_reads_as_its_decision_and_takes_nothing() {
    let limiter = Memory::new("api", TokenBucket::new(Quota::per_second(2)));
    let decision = limiter.check(&Charge::new("key")).await.unwrap();
    let report = DecisionReport::from(&decision);
    let clone = report.clone();
    assert_eq!((clone.limiter(), clone.remaining()), (Some("api"), Some(1)));
    assert_eq!((clone.origin(), clone.decided_at()), (Origin::Local, decision.decided_at()));
    assert_eq!(clone.tightest(), decision.tightest());
    assert!(report.reservation().is_none() && decision.reservation().is_some());
    assert!(DecisionReport::from(decision).reservation().is_none());
    assert_eq!(limiter.peek("key").await.unwrap().remaining(), Some(1));
}

/// Clones that share would take this allocation when the report is made, for each request, even if
/// nobody clones it. With axum, `Extension<DecisionReport>` clones it once for a handler that asks.
#[tokio::test(start_paused = true)]
async fn a_clone_of_a_report_is_one_allocation() {
    let limiter = Memory::new("api", TokenBucket::new(Quota::per_second(2)));
    let decision = limiter.check(&Charge::new("key")).await.unwrap();
    let report = DecisionReport::from(decision);
    let first = report.clone();
    let allocated = allocation_counter::measure(|| drop(first.clone()));
    assert_eq!(allocated.count_total, 1);
    assert_eq!(format!("{report:?}"), format!("{first:?}"));
}

#[tokio::test]
async fn no_report_is_left_by_default() {
    let limiter = Scripted::new().allow().deny(SECOND);
    let layer = RateLimitLayer::new(limiter, |_: &Request<()>| "key");
    let inner = async |request: Request<()>| {
        assert!(request.extensions().get::<DecisionReport>().is_none());
        Ok::<_, Infallible>(Response::new(()))
    };
    let service = tower::Layer::layer(&layer, tower::service_fn(inner));
    for status in [200, 429] {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), status);
        assert!(response.extensions().get::<DecisionReport>().is_none());
    }
}
