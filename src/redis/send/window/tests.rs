use super::*;

/// The calls in flight, at most `max`, to a server that works `work` µs on each call and is
/// `away` µs away.
fn calls_to(max: usize, work: u32, away: u32) -> usize {
    let mut window = CallWindow::new(max);
    for in_flight in (1..=4).chain([0; 200]) {
        let in_flight = if in_flight == 0 { window.calls() } else { in_flight.min(max) };
        let took = (away + work).max(work * in_flight as u32);
        window.answered(Duration::from_micros(took.into()), in_flight);
    }
    window.calls()
}

#[test]
fn few_calls_wait_at_a_near_server() {
    assert!((4..=6).contains(&calls_to(16, 150, 50)), "{}", calls_to(16, 150, 50));
    assert_eq!(calls_to(2, 150, 50), 2);
    assert_eq!(calls_to(1, 150, 50), 1);
}

#[test]
fn a_far_server_has_as_many_calls_as_keep_it_busy() {
    for (away, fewest, most) in [(500, 5, 9), (1_000, 8, 13), (5_000, 16, 16)] {
        let calls = calls_to(16, 150, away);
        assert!((fewest..=most).contains(&calls), "{calls} calls over {away} µs");
    }
    assert_eq!(calls_to(3, 150, 5_000), 3);
}

/// A window that is not used says nothing about a larger one.
#[test]
fn a_window_grows_only_while_it_is_full() {
    let mut window = CallWindow::new(16);
    (0..100).for_each(|_| window.answered(Duration::from_millis(1), 3));
    assert_eq!(window.calls(), 4);
}

#[test]
fn a_server_that_becomes_slow_has_few_calls_again() {
    let mut window = CallWindow::new(16);
    while window.calls() < 16 {
        window.answered(Duration::from_millis(1), window.calls());
    }
    (0..100).for_each(|_| window.answered(Duration::from_millis(20), window.calls()));
    assert_eq!(window.calls(), 4);
}

#[test]
fn an_answer_in_no_time_is_an_answer() {
    let mut window = CallWindow::new(16);
    (0..100).for_each(|_| window.answered(Duration::ZERO, window.calls()));
    assert_eq!(window.calls(), 4);
}
