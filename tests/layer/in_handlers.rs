//! `?` on `acquire` in a handler of axum and in a method of tonic.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::get;
use http::Request;
use tonic::{Code, Status};
use tonic_types::StatusExt;
use tower::ServiceExt;
use tower_sluice::algorithm::FixedWindow;
use tower_sluice::testing::Scripted;
use tower_sluice::{Charge, ErrorKind, LimiterExt, Memory, Quota, Refusal};

use super::SECOND;

#[tokio::test(start_paused = true)]
async fn a_handler_of_axum_answers_as_the_layer_does() {
    async fn report(State(limiter): State<Scripted>) -> Result<&'static str, Refusal> {
        limiter.acquire("reports").await?;
        Ok("a report")
    }
    let limiter = Scripted::new().allow().deny(90 * SECOND).never().fail(ErrorKind::State);
    let app = Router::new().route("/", get(report)).with_state(limiter);
    for (status, retry_after) in [(200, None), (429, Some("90")), (429, None), (503, Some(""))] {
        let response = app.clone().oneshot(Request::new(Body::empty())).await.unwrap();
        assert_eq!(response.status(), status);
        let field = response.headers().get("retry-after").map(|value| value.to_str().unwrap());
        // That of a 503 is random.
        let field = if status == 503 { field.map(|_| "") } else { field };
        assert_eq!(field, retry_after);
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_of_tonic_answers_as_the_layer_does() {
    async fn report(limiter: impl tower_sluice::Limiter) -> Result<(), Status> {
        limiter.acquire(Charge::new("reports")).await?;
        Ok(())
    }
    let api = Memory::new("api", FixedWindow::new(Quota::per_hour(1)).anchored());
    let impatient = api.clone().timeout(SECOND);
    assert!(report(impatient.clone()).await.is_ok());
    let status = report(impatient).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "rate limit exceeded"));
    let delay = status.get_details_retry_info().unwrap().retry_delay;
    assert_eq!(delay, Some(3_600 * SECOND));
    let failure = status.get_details_quota_failure().unwrap();
    assert_eq!(failure.violations[0].subject, "api");
    assert_eq!(status.get_details_error_info().unwrap().reason, "RATE_LIMIT_EXCEEDED");
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "3600000");
    assert!(!status.metadata().contains_key("content-type"));
    let source = std::error::Error::source(&status).unwrap();
    assert!(matches!(source.downcast_ref(), Some(Refusal::Denied(_))));

    let table = [
        (ErrorKind::Infrastructure, Code::Unavailable),
        (ErrorKind::Request, Code::InvalidArgument),
    ];
    for (kind, code) in table {
        assert_eq!(report(Scripted::new().fail(kind)).await.unwrap_err().code(), code);
    }
}
