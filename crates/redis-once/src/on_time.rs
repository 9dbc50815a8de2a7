//! Checks if this process is on time, and has read all replies that have arrived.
//!
//! A busy process fires timers before it reads replies that have already arrived. So a caller that
//! waits for a reply lets the runtime catch up before it gives up. It begins slightly before its
//! deadline, so that a process that is on time gives up at the deadline itself.
//!
//! The operating system may pause one thread while the others run: on a busy machine, or under a
//! limit of processor time. Tasks of that thread then wait, such as the task that writes a call or
//! the one that reads the reply. Timers still fire in time on the other threads.

use std::future::Future;
use std::pin::pin;
use std::time::{self, Duration};

use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

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

/// The longest turn of a running thread in a process that is not busy.
const MAX_TURN: Duration = Duration::from_millis(5);

/// The step in which timers fire.
const TICK: Duration = Duration::from_millis(1);

/// The time before its deadline at which a decision begins to catch up: the ticks that this takes.
const LEAD: Duration = Duration::from_millis(2);

/// The number of timers that are watched during a wait: an attempt to connect takes about as many
/// steps.
const WATCHED_TIMERS: u32 = 10;

/// The timers that fire one after another during a wait. A single timer may fire in time by chance.
#[derive(Debug)]
pub struct Timers {
    interval: Duration,
    /// The instant at which the next timer should fire.
    next: Instant,
    end: Instant,
    /// The total delay of all timers.
    late: Duration,
}

impl Timers {
    pub(super) fn until(end: Instant) -> Self {
        let begun = Instant::now();
        let interval = (end.saturating_duration_since(begun) / WATCHED_TIMERS).max(TICK);
        Self { interval, next: (begun + interval).min(end), end, late: Duration::ZERO }
    }

    /// Returns the instant at which the next timer should fire; the last one fires at the end.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Records that a timer has fired. Returns true if it was the last one.
    pub(super) fn record(&mut self) -> bool {
        // A timer that is on time fires up to two ticks later.
        self.late += self.next.elapsed().saturating_sub(2 * TICK);
        let was_last = self.next >= self.end;
        self.next = (Instant::now() + self.interval).min(self.end);
        was_last
    }

    /// Returns true if the delays are a quarter of the time: this process was too busy.
    pub(super) fn show_load(&self) -> bool {
        4 * self.late > self.interval * WATCHED_TIMERS
    }
}

/// Runs an attempt to connect, or a question, that must end by `deadline`. If this process was too
/// busy, its error does not blame the server.
pub(super) async fn unless_busy<T>(
    deadline: Instant,
    attempt: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let (mut attempt, mut timers) = (pin!(attempt), Timers::until(deadline));
    let threads = WorkerThreads::now();
    let result = loop {
        let result = timeout_at(timers.next(), &mut attempt).await;
        let was_last = timers.record();
        match result {
            Ok(result) => break result,
            Err(_) if was_last => break attempt.await,
            Err(_) => {}
        }
    };
    // A step of the attempt may have waited for a thread that stood still all the time.
    let stood_still = || threads.is_some_and(|threads| !threads.have_run());
    let is_busy = deadline <= Instant::now() && (timers.show_load() || stood_still());
    result.map_err(|error| match is_busy && error.kind() == ErrorKind::Infrastructure {
        true => {
            let message = "this process is too busy to connect in time";
            Error::new(ErrorKind::Saturation, message).with_source(error)
        }
        false => error,
    })
}

/// Lets the runtime read replies that have arrived, and waits for nothing else.
pub(super) async fn read_arrived() {
    for _ in 0..MAX_ROUNDS {
        yield_now().await;
    }
}

/// A deadline, and the time around it in which an answer still counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct GracePeriod {
    begin: Instant,
    deadline: Instant,
}

impl GracePeriod {
    /// A grace period that ends at the deadline if the process is on time. It begins after `start`.
    pub(super) fn before(deadline: Instant, start: Instant) -> Self {
        let begin = deadline.checked_sub(LEAD).map_or(start, |begin| begin.max(start));
        Self { begin, deadline }
    }

    /// Returns the instant at which the caller's timer should fire.
    pub(super) fn begin(&self) -> Instant {
        self.begin
    }

    /// Returns true if it began so long ago that the process must be busy.
    pub(super) fn is_late(&self) -> bool {
        self.begin.elapsed() > SLACK
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
        if let Some(last_tick) = self.deadline.checked_sub(TICK) {
            sleep_until(last_tick).await;
        }
        let threads = WorkerThreads::now();
        sleep_until(self.deadline.max(Instant::now() + TICK)).await;
        yield_now().await;
        let have_run = || threads.as_ref().is_none_or(WorkerThreads::have_run);
        let stood_still = before.is_some_and(|before| before.stood_still(MAX_TURN));
        if have_run() && !stood_still {
            return;
        }
        while !have_run() && self.begin.elapsed() < MAX_TURN {
            sleep(TICK).await;
        }
        // The answers that waited for the thread need time. If the thread still stands still, it is
        // late.
        let end = if have_run() { SLACK - 2 * TICK } else { SLACK + TICK };
        sleep_until(self.begin + end).await;
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
    use std::future::poll_fn;
    use std::task::Poll;

    use tokio::runtime::Builder;
    use tokio::time::advance;

    use super::thread_tests::stand_still;
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

    /// The timers fire in time on the other thread.
    #[test]
    fn a_thread_that_stands_still_during_an_attempt_is_load() {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
        let runtime = runtime.expect("a runtime");
        let (go_on, _) = stand_still(&runtime);
        let kind = runtime.block_on(async {
            let deadline = Instant::now() + 20 * TICK;
            let attempt = async {
                sleep_until(deadline).await;
                Err::<(), _>(Error::new(ErrorKind::Infrastructure, "no connection in time"))
            };
            unless_busy(deadline, attempt).await.expect_err("no connection").kind()
        });
        go_on.send(()).expect("it waits");
        assert_eq!(kind, ErrorKind::Saturation);
    }

    /// The process is late, and the replies that have arrived wait to be read.
    #[tokio::test(start_paused = true)]
    async fn a_busy_process_reads_what_has_arrived() {
        let now = Instant::now();
        let grace_period = GracePeriod::before(now, now);
        advance(2 * SLACK).await;
        assert!(grace_period.is_late());
        let arrived = tokio::spawn(yield_now());
        grace_period.catch_up().await;
        assert!(arrived.is_finished());
    }

    /// An answer that the thread delayed needs time, even if the thread continues just before the
    /// deadline.
    #[test]
    fn a_thread_that_goes_on_at_the_deadline_has_time_for_its_answers() {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (go_on, _) = stand_still(&runtime);
        runtime.block_on(async {
            let start = Instant::now();
            let grace_period = GracePeriod::before(start + 2 * SLACK, start);
            sleep_until(grace_period.begin()).await;
            let mut catching_up = pin!(grace_period.catch_up());
            let is_pending =
                poll_fn(|cx| Poll::Ready(catching_up.as_mut().poll(cx).is_pending())).await;
            assert!(is_pending);
            let release = grace_period.deadline - TICK / 2;
            let releasing = std::thread::spawn(move || {
                while Instant::now() < release {}
                go_on.send(()).expect("it waits");
            });
            catching_up.await;
            assert!(grace_period.begin().elapsed() >= SLACK - 2 * TICK);
            releasing.join().expect("no panic");
        });
    }
}

#[cfg(test)]
mod thread_tests {
    use std::sync::mpsc;

    use tokio::runtime::Runtime;
    use tokio::task::JoinHandle;

    use super::*;

    /// Lets a thread of the runtime stand still until it gets a sign.
    pub(super) fn stand_still(runtime: &Runtime) -> (mpsc::Sender<()>, JoinHandle<()>) {
        let ((standing, stands), (go_on, going_on)) = (mpsc::channel(), mpsc::channel());
        let stopped = runtime.spawn(async move {
            standing.send(()).expect("awaited");
            going_on.recv().expect("a sign");
        });
        stands.recv().expect("a thread that stands still");
        (go_on, stopped)
    }

    #[test]
    fn a_thread_that_stands_still_has_not_run() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
        let runtime = runtime.expect("a runtime");
        let (go_on, stopped) = stand_still(&runtime);
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
