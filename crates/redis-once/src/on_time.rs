//! Checks if this process is on time, and lets it read the replies that have arrived.
//!
//! A busy process fires timers before it reads replies that have already arrived. So a caller that
//! waits for a reply lets the runtime read first, before it gives up.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::error::{Error, ErrorKind};

/// The longest timeout. Longer ones are shortened to it, because instants have a limited range.
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(86_400 * 365);

/// The number of times that the runtime runs everything that is ready.
const MAX_ROUNDS: usize = 6;

/// The rounds that a reply needs: from the socket to the task that reads it, to the task that
/// distributes it, to the caller. If these rounds take long, the process is busy.
const MIN_ROUNDS: usize = 3;

/// The largest delay of a timer in a process that is not busy.
const SLACK: Duration = Duration::from_millis(10);

/// The step in which timers fire.
const TICK: Duration = Duration::from_millis(1);

/// The number of timers that are watched during an attempt to connect, which takes about as many
/// steps.
const WATCHED_TIMERS: u32 = 10;

/// Runs an attempt to connect, or a question, that must end by `deadline`. If this process was too
/// busy, its error does not blame the server.
///
/// Timers fire one after another during it, since a single one may fire in time by chance. If their
/// delays are a quarter of the time, this process was too busy.
pub(super) async fn unless_busy<T>(
    deadline: Instant,
    attempt: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let (mut attempt, mut late) = (pin!(attempt), Duration::ZERO);
    let time = deadline.saturating_duration_since(Instant::now());
    let interval = (time / WATCHED_TIMERS).max(TICK);
    let result = loop {
        let next = (Instant::now() + interval).min(deadline);
        let result = timeout_at(next, &mut attempt).await;
        // A timer that is on time fires up to two ticks later.
        late += next.elapsed().saturating_sub(2 * TICK);
        match result {
            Ok(result) => break result,
            Err(_) if next == deadline => break attempt.await,
            Err(_) => {}
        }
    };
    let is_busy = deadline <= Instant::now() && 4 * late > interval * WATCHED_TIMERS;
    result.map_err(|error| match is_busy && error.kind() == ErrorKind::Infrastructure {
        true => {
            let message = "this process is too busy to connect in time";
            Error::new(ErrorKind::Saturation, message).with_source(error)
        }
        false => error,
    })
}

/// Returns true if a timer that was due at `due` ends so late that the process must be busy.
pub(super) fn is_late(due: Instant) -> bool {
    due.elapsed() > SLACK
}

/// Lets the runtime read replies that have arrived, and waits for nothing else. Ends early in a
/// process that is late for a timer that was due at `due`.
pub(super) async fn read_arrived(due: Instant) {
    for round in 1..=MAX_ROUNDS {
        // The runtime polls its sockets before it continues here.
        yield_now().await;
        if round >= MIN_ROUNDS && is_late(due) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;

    /// Returns the kind of error of an attempt to connect without a result by its deadline. The
    /// clock of the process moves by `step` whenever a timer has fired.
    async fn kind_after(connect_timeout: Duration, step: Duration) -> ErrorKind {
        let deadline = Instant::now() + connect_timeout;
        let attempt = async {
            while Instant::now() < deadline {
                sleep(TICK).await;
                advance(step).await;
            }
            Err::<(), _>(Error::new(ErrorKind::Infrastructure, "no connection in time"))
        };
        unless_busy(deadline, attempt).await.expect_err("no connection").kind()
    }

    /// The process is awake when the last timer is due.
    #[tokio::test(start_paused = true)]
    async fn a_process_that_runs_now_and_then_is_too_busy() {
        let step = Duration::from_millis(5);
        for (stands_still, is_busy) in [(4 * step, true), (step / 5, false)] {
            let deadline = Instant::now() + 20 * step;
            let attempt = async {
                while Instant::now() < deadline {
                    sleep(step).await;
                    advance(stands_still).await;
                }
                sleep(step).await;
                Err::<(), _>(Error::new(ErrorKind::Infrastructure, "no connection in time"))
            };
            let error = unless_busy(deadline, attempt).await.expect_err("no connection");
            assert_eq!(error.kind() == ErrorKind::Saturation, is_busy, "{stands_still:?}");
        }
    }

    /// A timer fires in the tick after its instant, which is much of a short time to connect.
    #[tokio::test(start_paused = true)]
    async fn a_short_time_to_connect_is_no_load() {
        for connect_timeout in [2, 5, 10, 20, 100].map(Duration::from_millis) {
            let kind = kind_after(connect_timeout, Duration::from_micros(100)).await;
            assert_eq!(kind, ErrorKind::Infrastructure, "{connect_timeout:?}");
            let kind = kind_after(connect_timeout, Duration::from_millis(50)).await;
            assert_eq!(kind, ErrorKind::Saturation, "{connect_timeout:?}");
        }
    }

    /// The process is late, and the replies that have arrived wait to be read.
    #[tokio::test(start_paused = true)]
    async fn a_busy_process_reads_what_has_arrived() {
        let due = Instant::now();
        advance(2 * SLACK).await;
        assert!(is_late(due));
        let arrived = tokio::spawn(yield_now());
        read_arrived(due).await;
        assert!(arrived.is_finished());
    }
}
