use tokio::time::advance;

use super::*;

const D: Duration = Duration::from_millis(20);

fn two() -> (Health, Health) {
    let server = Arc::default();
    (Health::new(&server), Health::new(&server))
}

/// Calls over `health` get no reply for `time`.
async fn silent(health: &Health, time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        let sent = Instant::now();
        advance(D).await;
        (0..10).for_each(|_| health.record_timeout(sent, false));
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_timeouts_are_one_silence() {
    let (health, _) = two();
    for _ in 0..100 {
        silent(&health, D).await;
        health.record(&Ok(()));
    }
    silent(&health, LONGEST_SILENCE - D).await;
    assert_eq!(health.state(), State::Usable);
    silent(&health, D).await;
    assert_eq!(health.state(), State::Silent);
}

#[tokio::test(start_paused = true)]
async fn one_timeout_is_no_silence_however_long_it_was() {
    let (health, _) = two();
    for second in [1, 60] {
        let sent = Instant::now();
        advance(Duration::from_secs(second)).await;
        health.record_timeout(sent, false);
        assert_eq!(health.state(), State::Usable);
        health.record(&Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn timeouts_of_different_hours_are_two_silences() {
    let (health, _) = two();
    for _ in 0..3 {
        silent(&health, D).await;
        advance(Duration::from_secs(3_600)).await;
    }
    assert_eq!(health.state(), State::Usable);
}

#[tokio::test(start_paused = true)]
async fn a_busy_process_waits_longer() {
    let (health, _) = two();
    for limit in [LONGEST_SILENCE * BUSY - D, D] {
        assert_eq!(health.state(), State::Usable);
        let begun = Instant::now();
        while begun.elapsed() < limit {
            let sent = Instant::now();
            advance(D).await;
            health.record_timeout(sent, true);
        }
    }
    assert_eq!(health.state(), State::Silent);
}

#[tokio::test(start_paused = true)]
async fn one_silent_connection_goes_alone() {
    let (silenced, other) = two();
    let sent = Instant::now();
    while silenced.is_usable() {
        assert!(sent.elapsed() < Duration::from_secs(1));
        silent(&silenced, D).await;
        other.record(&Ok(()));
    }
    assert_eq!(other.state(), State::Usable);
}

#[tokio::test(start_paused = true)]
async fn silent_connections_go_together() {
    let (first, second) = two();
    silent(&first, LONGEST_SILENCE / 2).await;
    silent(&second, LONGEST_SILENCE / 2).await;
    assert_eq!((first.state(), second.state()), (State::Silent, State::Silent));
    let third = Health::new(&first.server);
    second.record_timeout(Instant::now(), false);
    assert_eq!(third.state(), State::Usable);
}

#[test]
fn the_first_reason_stays() {
    let (health, _) = two();
    health.end(State::ReadOnly);
    health.end(State::Closed);
    assert_eq!(health.state(), State::ReadOnly);
}
