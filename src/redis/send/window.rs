//! How many calls are in flight to a server: enough to keep it busy, and few that wait there.
//!
//! A near server is busy with four calls. Over a network of half a millisecond, four of full size
//! leave it idle most of the time. So the window follows TCP Vegas (L. Brakmo, S. O'Malley and
//! L. Peterson, 1994): the share of a call's time beyond that of the fastest call was spent in
//! queues, so that share of the calls in flight waits.

use std::time::Duration;

/// The calls that keep a near server busy.
const NEAR: usize = 4;

/// The most calls that wait at a server, beside the one that it runs. Redis runs all calls that have
/// come over one connection before it serves others, so more calls would let these wait longer.
const MAX_QUEUED: usize = NEAR - 1;

pub(super) struct Window {
    /// The most calls in flight now.
    calls: usize,
    /// The most calls that there may ever be in flight.
    max: usize,
    /// The time of the fastest call. It is never forgotten: under a steady load every call waits in
    /// queues, so a later minimum would take these for the network.
    fastest: Duration,
}

impl Window {
    pub(super) fn new(max: usize) -> Self {
        Self { calls: NEAR.min(max), max, fastest: Duration::MAX }
    }

    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    /// Records that a call was answered. `in_flight` calls were in flight until then.
    pub(super) fn answered(&mut self, took: Duration, in_flight: usize) {
        self.fastest = self.fastest.min(took);
        let in_queues = (took - self.fastest).as_secs_f64() * in_flight as f64;
        let allowed = took.as_secs_f64() * MAX_QUEUED as f64;
        if in_queues < allowed && in_flight == self.calls && self.calls < self.max {
            self.calls += 1;
        } else if in_queues > allowed && self.calls > NEAR {
            self.calls -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls in flight, at most `max`, to a server that works `work` µs on each call and is
    /// `away` µs away.
    fn calls_to(max: usize, work: u32, away: u32) -> usize {
        let mut window = Window::new(max);
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
        let mut window = Window::new(16);
        (0..100).for_each(|_| window.answered(Duration::from_millis(1), 3));
        assert_eq!(window.calls(), 4);
    }

    #[test]
    fn a_server_that_becomes_slow_has_few_calls_again() {
        let mut window = Window::new(16);
        while window.calls() < 16 {
            window.answered(Duration::from_millis(1), window.calls());
        }
        (0..100).for_each(|_| window.answered(Duration::from_millis(20), window.calls()));
        assert_eq!(window.calls(), 4);
    }

    #[test]
    fn an_answer_in_no_time_is_an_answer() {
        let mut window = Window::new(16);
        (0..100).for_each(|_| window.answered(Duration::ZERO, window.calls()));
        assert_eq!(window.calls(), 4);
    }
}
