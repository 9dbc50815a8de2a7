//! How many calls are in flight to a server: enough to keep it busy, and few that wait there.
//!
//! Four calls keep a near server busy, and not a far one. So the window follows TCP Vegas
//! (L. Brakmo, S. O'Malley and L. Peterson, 1994): the share of a call's time beyond that of the
//! fastest call was spent in queues, so that share of the calls in flight waits.

use std::time::Duration;

/// The calls that keep a near server busy.
const NEAR: usize = 4;

/// The most calls that wait at a server, beside the one that it runs. Redis runs all calls that have
/// come over one connection before it serves others, so more calls would let these wait longer.
const MAX_QUEUED: usize = NEAR - 1;

pub(super) struct CallWindow {
    /// The most calls in flight now.
    calls: usize,
    /// The most calls that there may ever be in flight.
    max: usize,
    /// The time of the fastest call. It is never forgotten: under a steady load every call waits.
    fastest: Duration,
}

impl CallWindow {
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
mod tests;
