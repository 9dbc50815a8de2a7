//! Lets the runtime catch up at a deadline, before a wrapper gives up.
//!
//! A busy process fires timers before it reads replies that have already arrived. The operating
//! system may also pause one thread while the others run: on a busy machine, or under a limit of
//! processor time. Tasks of that thread then wait, and timers still fire in time on the others.

use std::time::{self, Duration};

use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};

/// The longest timeout. Longer ones are shortened to it, because instants have a limited range.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(86_400 * 365);

/// The number of times that the runtime runs everything that is ready.
const MAX_ROUNDS: usize = 6;

/// The rounds that a reply needs: from the socket to the task that reads it, to the task that
/// distributes it, to the caller. If these rounds take long, the process is busy.
const MIN_ROUNDS: usize = 3;

/// The largest delay of a timer in a process that is not busy.
const SLACK: Duration = Duration::from_millis(10);

/// The longest turn of a running thread in a process that is not busy.
const MAX_TURN: Duration = Duration::from_millis(5);

/// The step in which timers fire.
const TICK: Duration = Duration::from_millis(1);

/// The time after a deadline in which an answer still counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct GracePeriod {
    deadline: Instant,
}

impl GracePeriod {
    pub(super) fn new(deadline: Instant) -> Self {
        Self { deadline }
    }

    /// Returns the deadline, at which the caller's timer should fire.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns true if it began so long ago that the process must be busy.
    pub(super) fn is_late(&self) -> bool {
        self.deadline.elapsed() > SLACK
    }

    /// Lets the runtime read replies that have arrived. Ends early if the process is busy. Ends
    /// late if a thread that may have to read them stands still, or stood still until a moment ago.
    pub(super) async fn catch_up(self) {
        let before = WorkerThreads::now();
        for round in 1..=MAX_ROUNDS {
            // The runtime polls its sockets before it continues here.
            yield_now().await;
            if round >= MIN_ROUNDS && self.is_late() {
                return;
            }
        }
        let threads = WorkerThreads::now();
        sleep_until(self.deadline.max(Instant::now() + TICK)).await;
        yield_now().await;
        let have_run = || threads.as_ref().is_none_or(WorkerThreads::have_run);
        let stood_still = before.is_some_and(|before| before.stood_still(MAX_TURN));
        if have_run() && !stood_still {
            return;
        }
        while !have_run() && self.deadline.elapsed() < MAX_TURN {
            sleep(TICK).await;
        }
        // The answers that waited for the thread need time. If the thread still stands still, it is
        // late.
        let end = if have_run() { SLACK - 2 * TICK } else { SLACK + TICK };
        sleep_until(self.deadline + end).await;
        yield_now().await;
    }
}

/// The counts of each worker thread of the current runtime at one moment.
struct WorkerThreads {
    metrics: RuntimeMetrics,
    seen: Vec<Turns>,
    seen_at: time::Instant,
}

/// The counts of a thread: its parks, and its busy time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Turns {
    parks: u64,
    busy: Duration,
}

impl WorkerThreads {
    /// Returns the current counts of the threads. `None` outside of a runtime.
    fn now() -> Option<Self> {
        let metrics = Handle::try_current().ok()?.metrics();
        let seen = (0..metrics.num_workers()).map(|worker| Turns::of(&metrics, worker)).collect();
        Some(Self { metrics, seen, seen_at: time::Instant::now() })
    }

    /// Returns true if each thread has made a turn since, or has nothing to do.
    fn have_run(&self) -> bool {
        self.turns().all(|(seen, turns)| turns.is_parked() || turns != seen)
    }

    /// Returns true if a thread stood still at that time, and has continued since: it has ended a
    /// turn that took longer than `max_turn`.
    fn stood_still(&self, max_turn: Duration) -> bool {
        let most = self.seen_at.elapsed() + max_turn;
        self.turns().any(|(seen, turns)| turns.busy.saturating_sub(seen.busy) > most)
    }

    /// Returns the earlier and the current counts of each thread.
    fn turns(&self) -> impl Iterator<Item = (Turns, Turns)> {
        let now = |(worker, seen): (usize, &Turns)| (*seen, Turns::of(&self.metrics, worker));
        self.seen.iter().enumerate().map(now)
    }
}

impl Turns {
    #[cfg(target_has_atomic = "64")]
    fn of(metrics: &RuntimeMetrics, worker: usize) -> Self {
        let parks = metrics.worker_park_unpark_count(worker);
        Self { parks, busy: metrics.worker_total_busy_duration(worker) }
    }

    /// Without 64-bit atomics, tokio counts nothing, and every thread counts as parked.
    #[cfg(not(target_has_atomic = "64"))]
    fn of(_: &RuntimeMetrics, _: usize) -> Self {
        Self { parks: 1, busy: Duration::ZERO }
    }

    /// Returns true for a thread that has parked more often than it has continued.
    fn is_parked(self) -> bool {
        self.parks % 2 == 1
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::runtime::Builder;
    use tokio::time::advance;

    use super::*;

    /// The process is late, and the replies that have arrived wait to be read.
    #[tokio::test(start_paused = true)]
    async fn a_busy_process_reads_what_has_arrived_first() {
        let grace_period = GracePeriod::new(Instant::now());
        advance(2 * SLACK).await;
        assert!(grace_period.is_late());
        let arrived = tokio::spawn(yield_now());
        grace_period.catch_up().await;
        assert!(arrived.is_finished());
    }

    /// Its answers come late, even if the other threads are on time.
    #[test]
    fn a_thread_that_stands_still_makes_the_process_late() {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
        let runtime = runtime.expect("a runtime");
        let ((standing, stands), (go_on, going_on)) = (mpsc::channel(), mpsc::channel());
        runtime.spawn(async move {
            standing.send(()).expect("awaited");
            going_on.recv().expect("a sign");
        });
        stands.recv().expect("a thread that stands still");
        runtime.block_on(async {
            let grace_period = GracePeriod::new(Instant::now());
            grace_period.catch_up().await;
            assert!(grace_period.is_late());
        });
        go_on.send(()).expect("it waits");
    }
}
