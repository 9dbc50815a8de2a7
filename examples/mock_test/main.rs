//! Unit tests of a limited service without Redis: decisions are scripted, and the inner service is
//! a mock.
//!
//! `cargo test --example mock_test`

use std::time::Duration;

use tower::{BoxError, Layer, Service};
use tower_sluice::respond::Raise;
use tower_sluice::{Charge, Limiter, RateLimitLayer};

/// The service under test. A request is a name, is charged one unit, and waits up to a second.
pub fn limited<L, S>(
    limiter: L,
    inner: S,
) -> impl Service<&'static str, Response = S::Response, Error = BoxError>
where
    L: Limiter,
    S: Service<&'static str, Error = BoxError> + Clone,
{
    let limit = RateLimitLayer::new(limiter, |name: &&'static str| Charge::new(*name))
        .max_wait(Duration::from_secs(1))
        .respond(Raise);
    limit.layer(inner)
}

fn main() {
    println!("run me with: cargo test --example mock_test");
}

#[cfg(test)]
mod tests {
    use tokio_test::{assert_pending, assert_ready, assert_ready_err, task};
    use tower_sluice::testing::Scripted;
    use tower_sluice::{ErrorKind, Refusal};
    use tower_test::{assert_request_eq, mock};

    use super::*;

    #[tokio::test]
    async fn an_admitted_request_is_passed_on() {
        let limiter = Scripted::new().allow();
        let (inner, mut handle) = mock::pair::<&str, &str>();
        let mut call = task::spawn(limited(limiter.clone(), inner).call("alice"));
        assert_pending!(call.poll());
        assert_request_eq!(handle, "alice").send_response("hello");
        assert_eq!(assert_ready!(call.poll()).unwrap(), "hello");
        assert_eq!(limiter.charges()[0].key(), "alice");
    }

    #[tokio::test]
    async fn a_denied_request_is_an_error_and_goes_nowhere() {
        let limiter = Scripted::new().deny(Duration::from_secs(3));
        let (inner, mut handle) = mock::pair::<&str, &str>();
        let mut call = task::spawn(limited(limiter, inner).call("alice"));
        let error = assert_ready_err!(call.poll());
        let refusal = error.downcast_ref::<Refusal>().unwrap();
        assert_eq!(refusal.retry_after(), Some(Duration::from_secs(3)));
        assert_pending!(task::spawn(handle.next_request()).poll());
    }

    /// Redis is away: the limiter has no decision, and the service decides what its callers get.
    #[tokio::test]
    async fn without_a_decision_the_error_says_why() {
        let limiter = Scripted::new().fail(ErrorKind::Infrastructure);
        let (inner, mut handle) = mock::pair::<&str, &str>();
        let mut call = task::spawn(limited(limiter, inner).call("alice"));
        let error = assert_ready_err!(call.poll());
        let Some(Refusal::Undecided(error)) = error.downcast_ref() else { panic!("{error}") };
        assert_eq!(error.kind(), ErrorKind::Infrastructure);
        assert_pending!(task::spawn(handle.next_request()).poll());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_hangs_up_gives_its_slot_back() {
        let limiter = Scripted::new().wait(Duration::from_millis(200));
        let (inner, _handle) = mock::pair::<&str, &str>();
        let mut call = task::spawn(limited(limiter.clone(), inner).call("alice"));
        assert_pending!(call.poll());
        drop(call);
        assert_eq!(limiter.refunds(), [0]);
    }
}
