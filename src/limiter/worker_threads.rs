//! The worker threads of the runtime, and whether they run.
//!
//! The operating system may pause one thread while the others go on: on a busy machine, or under a
//! limit of processor time. What waits for that thread then waits on, be it the task that writes a
//! call or the one that reads the reply, while timers fire in time on the others.

use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeMetrics};

/// The counts of each worker thread of the current runtime, as they were at a moment.
pub(super) struct WorkerThreads {
    metrics: RuntimeMetrics,
    seen: Vec<Turns>,
    seen_at: Instant,
}

/// The counts of a thread: its parks, and the time that it was busy.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Turns {
    parks: u64,
    busy: Duration,
}

impl WorkerThreads {
    /// The threads as they are now. `None` outside of a runtime.
    pub(super) fn now() -> Option<Self> {
        let metrics = Handle::try_current().ok()?.metrics();
        let seen = (0..metrics.num_workers()).map(|worker| Turns::of(&metrics, worker)).collect();
        Some(Self { metrics, seen, seen_at: Instant::now() })
    }

    /// Returns true if each of them has made a turn since, or has nothing to do.
    pub(super) fn have_run(&self) -> bool {
        self.turns().all(|(seen, turns)| turns.is_parked() || turns != seen)
    }

    /// Returns true if one of them stood still then, and has gone on since: it has ended a turn
    /// that took longer than `max_turn`.
    pub(super) fn stood_still(&self, max_turn: Duration) -> bool {
        let most = self.seen_at.elapsed() + max_turn;
        self.turns().any(|(seen, turns)| turns.busy.saturating_sub(seen.busy) > most)
    }

    /// Pairs of what each had done then, and has done by now.
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

    /// Without 64-bit atomics tokio counts nothing: then every thread counts as parked.
    #[cfg(not(target_has_atomic = "64"))]
    fn of(_: &RuntimeMetrics, _: usize) -> Self {
        Self { parks: 1, busy: Duration::ZERO }
    }

    /// A thread that has parked more often than it has continued is parked.
    fn is_parked(self) -> bool {
        self.parks % 2 == 1
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_that_stands_still_has_not_run() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
        let runtime = runtime.expect("a runtime");
        let ((standing, stands), (go_on, going_on)) = (mpsc::channel(), mpsc::channel::<()>());
        let stopped = runtime.spawn(async move {
            standing.send(()).expect("awaited");
            going_on.recv().expect("a sign");
        });
        stands.recv().expect("a thread that stands still");
        runtime.block_on(async {
            let threads = WorkerThreads::now().expect("a runtime");
            assert!(!threads.have_run());
            go_on.send(()).expect("it waits");
            stopped.await.expect("no panic");
            while !threads.have_run() {
                tokio::task::yield_now().await;
            }
        });
        assert!(WorkerThreads::now().is_none());
    }
}
