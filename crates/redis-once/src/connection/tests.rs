use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::advance;

use super::*;

const D: Duration = Duration::from_millis(20);

fn reason(health: &ConnectionHealth) -> Option<Useless> {
    health.useless().map(|(reason, _)| reason)
}

fn two() -> (ConnectionHealth, ConnectionHealth) {
    let server = Arc::default();
    (ConnectionHealth::new(&server), ConnectionHealth::new(&server))
}

#[test]
fn the_first_reason_stays() {
    let (health, _) = two();
    assert_eq!(health.useless(), None);
    health.retire(Useless::ReadOnly);
    health.retire(Useless::Closed);
    assert_eq!(reason(&health), Some(Useless::ReadOnly));
}

#[test]
fn no_connection_to_a_server_that_was_left_is_used() {
    let (first, second) = two();
    second.retire(Useless::ReadOnly);
    first.server.leave();
    let reasons = [first, second, two().0].map(|health| reason(&health));
    assert_eq!(reasons, [Some(Useless::Closed), Some(Useless::ReadOnly), None]);
}

/// A reply passes from the socket to the caller in a few turns of the runtime.
#[tokio::test(start_paused = true)]
async fn a_call_to_a_server_that_is_left_ends_with_what_has_arrived() {
    let outcome = async |turns| {
        let health = two().0;
        let call = async {
            health.server.leave();
            for _ in 0..turns {
                yield_now().await;
            }
        };
        health.unless_left(call).await
    };
    for turns in 0..=3 {
        assert_eq!(outcome(turns).await, Some(()), "{turns}");
    }
    assert_eq!(outcome(100).await, None);
    let health = two().0;
    health.server.leave();
    assert_eq!(health.unless_left(async {}).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_useless_connection_says_since_when() {
    let (health, _) = two();
    advance(D).await;
    health.retire(Useless::ReadOnly);
    let retired = Instant::now();
    advance(D).await;
    health.retire(Useless::Closed);
    assert_eq!(health.useless(), Some((Useless::ReadOnly, retired)));
}
