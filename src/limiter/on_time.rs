//! Checks if this process is on time, and lets it read the replies that have arrived.
//!
//! A busy process fires timers before it reads replies that have already arrived. So a wrapper
//! lets the runtime read first, before it gives up.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::Instant;

/// The longest timeout. Longer ones are shortened to it, because instants have a limited range.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(86_400 * 365);

/// The number of times that the runtime runs everything that is ready.
const MAX_ROUNDS: usize = 6;

/// The rounds that a reply needs: from the socket to the task that reads it, to the task that
/// distributes it, to the caller. If these rounds take long, the process is busy.
const MIN_ROUNDS: usize = 3;

/// The largest delay of a timer in a process that is not busy.
const SLACK: Duration = Duration::from_millis(10);

/// Returns true if a timer that was due at `due` ends so late that the process must be busy.
pub(crate) fn is_late(due: Instant) -> bool {
    due.elapsed() > SLACK
}

/// Lets the runtime read replies that have arrived, and waits for nothing else. Ends early in a
/// process that is late for a timer that was due at `due`.
pub(crate) async fn read_arrived(due: Instant) {
    for round in 1..=MAX_ROUNDS {
        // The runtime polls its sockets before it continues here.
        yield_now().await;
        if round >= MIN_ROUNDS && is_late(due) {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
