//! The clock of the world. While the clients' thread stands still, it follows the events of the
//! network.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// The instant at which a world begins, in µs since the epoch, unless it says another one.
pub const START: i64 = 1_767_225_600_000_000;

thread_local! {
    /// The instant at which the world of this thread begins.
    static BEGINS_AT: Cell<i64> = const { Cell::new(START) };
    /// The present by the clocks of its clients' machines.
    static PRESENT: Cell<i64> = const { Cell::new(START) };
    static BEGUN: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The instant of the event that is run, or the last that anybody asked for.
    static CLOCK: Cell<Option<Instant>> = const { Cell::new(None) };
    static RUNS_EVENT: Cell<bool> = const { Cell::new(false) };
}

/// The instant of the world. It never goes back.
pub fn now() -> Instant {
    let last = CLOCK.get();
    if RUNS_EVENT.get() {
        return last.expect("the instant of an event");
    }
    let now = last.map_or_else(Instant::now, |last| last.max(Instant::now()));
    CLOCK.set(Some(now));
    now
}

/// The time since the world began.
pub fn elapsed() -> Duration {
    since_begin(now())
}

pub fn since_begin(at: Instant) -> Duration {
    at - BEGUN.get().expect("a network")
}

/// The time of the world, in µs since the epoch. The world begins with its network.
pub fn micros() -> i64 {
    micros_at(now())
}

pub fn micros_at(at: Instant) -> i64 {
    begins_at() + i64::try_from(since_begin(at).as_micros()).expect("few")
}

/// The instant at which the world begins, in µs since the epoch.
pub fn begins_at() -> i64 {
    BEGINS_AT.get()
}

/// The present by the clocks of the clients' machines, in µs since the epoch.
pub fn present() -> i64 {
    PRESENT.get()
}

/// Lets the next world of this thread begin at another instant, for clients of this present.
pub fn begin_at(micros: i64, present: i64) {
    BEGINS_AT.set(micros);
    PRESENT.set(present);
}

/// Begins a world.
pub fn begin() {
    BEGUN.set(Some(Instant::now()));
    CLOCK.set(None);
    RUNS_EVENT.set(false);
}

/// Runs an event at its instant.
pub fn run_at(at: Instant, event: impl FnOnce()) {
    CLOCK.set(Some(CLOCK.get().map_or(at, |last| last.max(at))));
    RUNS_EVENT.set(true);
    event();
    RUNS_EVENT.set(false);
}
