use redis::{RedisError, parse_redis_value};
use tokio::task::yield_now;
use tokio::time::advance;

use super::*;

const D: Duration = Duration::from_millis(20);

fn two() -> (Health, Health) {
    let server = Arc::default();
    (Health::new(&server), Health::new(&server))
}

/// New connections do not end the silence: only a reply does.
#[test]
fn a_silent_server_stays_silent_until_it_replies() {
    let (health, next) = two();
    assert!(!health.server.is_silent());
    health.give_up();
    assert_eq!((health.state(), next.state()), (ConnectionState::Silent, ConnectionState::Usable));
    // The system gives up a call without an answer, for example if the route is lost.
    next.record::<()>(&Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
    assert!(health.server.is_silent());
    next.record(&Ok(()));
    assert!(!health.server.is_silent());
}

#[test]
fn the_first_reason_stays() {
    let (health, _) = two();
    health.retire(ConnectionState::ReadOnly);
    health.retire(ConnectionState::Closed);
    assert_eq!(health.state(), ConnectionState::ReadOnly);
}

#[test]
fn no_connection_to_a_server_that_was_left_is_used() {
    let (first, second) = two();
    second.retire(ConnectionState::ReadOnly);
    first.server.leave();
    let states = [first.state(), second.state(), Health::new(&first.server).state()];
    let expected = [ConnectionState::Closed, ConnectionState::ReadOnly, ConnectionState::Closed];
    assert_eq!(states, expected);
}

/// The error of a server that answers `reply`.
fn answered(reply: &str) -> RedisError {
    parse_redis_value(reply.as_bytes()).unwrap().extract_error().unwrap_err()
}

#[test]
fn a_failed_call_ends_a_closed_connection() {
    let closed = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    let failures = [
        (RedisError::from(closed), ConnectionState::Closed),
        (answered("-ERR unknown command\r\n"), ConnectionState::Usable),
    ];
    for (error, state) in failures {
        let (health, _) = two();
        health.record::<()>(&Err(error));
        assert_eq!(health.state(), state);
        assert_eq!(health.is_usable(), state == ConnectionState::Usable);
    }
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
    health.retire(ConnectionState::ReadOnly);
    let retired = Instant::now();
    advance(D).await;
    health.retire(ConnectionState::Closed);
    assert_eq!(health.useless_since().duration_since(retired).as_millis(), 0);
}
