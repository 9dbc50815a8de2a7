use redis::{RedisError, parse_redis_value};
use tokio::task::yield_now;
use tokio::time::advance;

use super::*;

const D: Duration = Duration::from_millis(20);

fn two() -> (Health, Health) {
    let server = Arc::default();
    (Health::new(&server), Health::new(&server))
}

/// Lets calls over `health` time out for `time`.
async fn silent(health: &Health, time: Duration) {
    unheard(health, time, false).await;
}

/// The same, in a process that is busy or not.
async fn unheard(health: &Health, time: Duration, is_busy: bool) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        let sent = Instant::now();
        advance(D).await;
        (0..10).for_each(|_| health.record_timeout(sent, is_busy));
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_timeouts_are_one_silence() {
    let (health, _) = two();
    for _ in 0..100 {
        silent(&health, D).await;
        health.record(&Ok(()));
    }
    silent(&health, MAX_SILENCE - D).await;
    assert_eq!(health.state(), ConnectionState::Usable);
    silent(&health, D).await;
    assert_eq!(health.state(), ConnectionState::Silent);
}

/// New connections do not end the silence: only a reply does.
#[tokio::test(start_paused = true)]
async fn a_silent_server_stays_silent_until_it_replies() {
    let server = Arc::default();
    let health = Health::new(&server);
    silent(&health, MAX_SILENCE - D).await;
    assert!(!server.is_silent());
    silent(&health, D).await;
    assert!(server.is_silent());
    let health = Health::new(&server);
    silent(&health, D).await;
    assert!(server.is_silent());
    health.record(&Ok(()));
    assert!(!server.is_silent());
}

#[tokio::test(start_paused = true)]
async fn one_timeout_is_no_silence_however_long_it_was() {
    let (health, _) = two();
    for second in [1, 60] {
        let sent = Instant::now();
        advance(Duration::from_secs(second)).await;
        health.record_timeout(sent, false);
        assert_eq!(health.state(), ConnectionState::Usable);
        health.record(&Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_silence_is_twice_as_long_as_the_call_that_shows_it() {
    let (health, _) = two();
    silent(&health, D).await;
    let sent = Instant::now();
    advance(Duration::from_secs(1)).await;
    health.record_timeout(sent, false);
    assert_eq!(health.state(), ConnectionState::Usable);
    silent(&health, Duration::from_secs(1)).await;
    assert_eq!(health.state(), ConnectionState::Silent);
}

/// Replies come every 300 ms, and calls time out after 100 ms.
#[tokio::test(start_paused = true)]
async fn a_silence_begins_after_the_last_reply() {
    let (health, _) = two();
    for _ in 0..10 {
        let early = Instant::now();
        advance(MAX_SILENCE / 3).await;
        health.record(&Ok(()));
        // The early call was sent before the reply, and times out after it.
        health.record_timeout(early, false);
        advance(MAX_SILENCE / 3).await;
        let late = Instant::now();
        advance(MAX_SILENCE / 3).await;
        health.record_timeout(late, false);
        assert_eq!(health.state(), ConnectionState::Usable);
    }
    silent(&health, MAX_SILENCE).await;
    assert_eq!(health.state(), ConnectionState::Silent);
}

/// Rare calls must not keep a dead connection: the system may take a quarter of an hour to close
/// it.
#[tokio::test(start_paused = true)]
async fn two_calls_without_a_reply_are_a_silence_however_rare_they_are() {
    let (health, _) = two();
    for state in [ConnectionState::Usable, ConnectionState::Silent] {
        silent(&health, D).await;
        assert_eq!(health.state(), state);
        advance(Duration::from_secs(3_600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn rare_calls_with_late_replies_are_no_silence() {
    let (health, _) = two();
    for _ in 0..3 {
        silent(&health, D).await;
        health.record(&Ok(()));
        advance(Duration::from_secs(3_600)).await;
    }
    assert_eq!(health.state(), ConnectionState::Usable);
}

#[tokio::test(start_paused = true)]
async fn a_busy_process_waits_longer() {
    let (health, _) = two();
    health.record_timeout(Instant::now(), true);
    for limit in [MAX_SILENCE * BUSY_FACTOR - D, D] {
        assert_eq!(health.state(), ConnectionState::Usable);
        unheard(&health, limit, true).await;
    }
    assert_eq!(health.state(), ConnectionState::Unread);
}

/// A reply, or an earlier silence, does not change why they were given up.
#[tokio::test(start_paused = true)]
async fn connections_that_are_given_up_together_have_one_reason() {
    let (first, second) = two();
    silent(&first, MAX_SILENCE).await;
    first.record(&Ok(()));
    assert_eq!(second.state(), ConnectionState::Silent);

    let third = Health::new(&first.server);
    silent(&third, MAX_SILENCE).await;
    let [fourth, fifth] = [(); 2].map(|()| Health::new(&first.server));
    unheard(&fourth, MAX_SILENCE * BUSY_FACTOR + D, true).await;
    assert!(first.server.is_silent());
    assert_eq!((fourth.state(), fifth.state()), (ConnectionState::Unread, ConnectionState::Unread));
}

#[tokio::test(start_paused = true)]
async fn the_time_before_a_busy_call_ended_is_no_silence() {
    let (health, _) = two();
    let sent = Instant::now();
    advance(MAX_SILENCE).await;
    health.record_timeout(sent, true);
    health.record_timeout(Instant::now(), false);
    assert_eq!(health.state(), ConnectionState::Usable);
    advance(MAX_SILENCE).await;
    health.record_timeout(Instant::now(), false);
    assert_eq!(health.state(), ConnectionState::Silent);
}

#[tokio::test(start_paused = true)]
async fn one_silent_connection_goes_alone() {
    let (silenced, other) = two();
    advance(D).await;
    let sent = Instant::now();
    while silenced.is_usable() {
        assert!(sent.elapsed() < Duration::from_secs(1));
        silent(&silenced, D).await;
        other.record(&Ok(()));
    }
    assert_eq!(other.state(), ConnectionState::Usable);
}

#[tokio::test(start_paused = true)]
async fn silent_connections_go_together() {
    let (first, second) = two();
    advance(D).await;
    silent(&first, MAX_SILENCE / 2).await;
    silent(&second, MAX_SILENCE / 2).await;
    assert_eq!((first.state(), second.state()), (ConnectionState::Silent, ConnectionState::Silent));
    let third = Health::new(&first.server);
    second.record_timeout(Instant::now(), false);
    assert_eq!(third.state(), ConnectionState::Usable);
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

/// The system gives up a call without an answer of the server, for example if the route is lost.
#[tokio::test(start_paused = true)]
async fn only_a_reply_ends_a_silence() {
    let lost = || RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
    let replied = || answered("-ERR unknown command\r\n");
    for (error, state) in [(lost(), ConnectionState::Silent), (replied(), ConnectionState::Usable)]
    {
        let (health, _) = two();
        silent(&health, MAX_SILENCE - D).await;
        health.record::<()>(&Err(error));
        silent(&health, D).await;
        assert_eq!(health.state(), state);
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

/// The process has not read the replies to its earlier calls.
#[tokio::test(start_paused = true)]
async fn a_process_that_stood_still_gives_up_no_connection() {
    let (health, _) = two();
    let first = Instant::now();
    advance(D).await;
    let second = Instant::now();
    advance(MAX_SILENCE * BUSY_FACTOR).await;
    (0..10).for_each(|_| health.record_timeout(first, true));
    advance(D).await;
    (0..10).for_each(|_| health.record_timeout(second, true));
    let third = Instant::now();
    advance(D).await;
    (0..10).for_each(|_| health.record_timeout(third, true));
    assert_eq!(health.state(), ConnectionState::Usable);
}

#[tokio::test(start_paused = true)]
async fn a_useless_connection_says_since_when() {
    let (health, other) = two();
    advance(D).await;
    health.retire(ConnectionState::ReadOnly);
    let retired = Instant::now();
    advance(D).await;
    health.retire(ConnectionState::Closed);
    assert_eq!(health.useless_since().duration_since(retired).as_millis(), 0);
    // The pool gives up all connections to a server together.
    silent(&health, 2 * MAX_SILENCE).await;
    assert_eq!(other.state(), ConnectionState::Silent);
    assert!(other.useless_since().elapsed() <= MAX_SILENCE);
}
