//! The callers of this process that ask a limiter, and those that wait until they may ask.
//!
//! The format has no room for reservations, so every refused caller asks again. If many callers
//! wait for one permit, all except one would be refused. So callers that can wait share the last
//! refusal.
//!
//! - While the refusal is valid, and at most for a second, they wait until its end and do not ask.
//! - Then one of them asks, or as many as there were free permits. The others wait to be woken.
//! - A caller that cannot wait until the end of the refusal always asks.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// The longest time for which a refusal is valid, since others may refund permits or raise the
/// rate.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(1);

/// The time that an idle queue is kept, since callers come back soon after their pause.
const IDLE_LIFETIME: Duration = Duration::from_secs(2);

/// The longest name with a queue: many long names would take much memory.
const MAX_NAME_LENGTH: usize = 1_024;

/// The number of queues from which on idle queues are dropped.
const SWEEP_FROM: usize = 64;

/// The most queues.
const MAX_QUEUES: usize = 65_536;

/// The queues of one limiter, by name.
#[derive(Default)]
pub(super) struct Queues {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_name: HashMap<String, NameQueue>,
    /// The number of queues from which on idle queues are dropped.
    sweep_at: usize,
    /// The earliest instant at which idle queues are dropped again.
    next_sweep: Option<Instant>,
}

/// The last refusal under a name, and the callers that ask and wait.
struct NameQueue {
    refusal: KnownRefusal,
    /// The permits that were free after the last admission.
    free_permits: u64,
    /// The permits that callers are requesting now.
    requested_permits: u64,
    /// The callers that wait to be woken.
    waiters: VecDeque<oneshot::Sender<Wakeup>>,
}

/// Wakes a waiter. If the waiter is gone, it wakes the next waiter.
struct Wakeup {
    queues: Arc<Queues>,
    name: String,
    was_received: bool,
}

/// The last refusal under a name.
#[derive(Clone, Copy)]
struct KnownRefusal {
    /// The number of permits that are not free before `until`.
    permits: u32,
    until: Instant,
    /// The instant of the refusal.
    at: Instant,
    /// The rate of the limiter. More permits are never granted.
    rate: u64,
}

impl KnownRefusal {
    /// Returns true if the refusal is still valid.
    fn is_believed(&self, now: Instant) -> bool {
        now < self.until.min(self.believed_until())
    }

    /// Returns the time that a caller waits for this number of permits before it asks. `None` if
    /// they may be free.
    fn pause(&self, permits: u32, now: Instant) -> Option<Duration> {
        let end = self.until.min(self.believed_until());
        self.covers(permits, now).then(|| end - now)
    }

    /// Returns the later end: of the refusal, or of its lifetime.
    fn last_end(&self) -> Instant {
        self.until.max(self.believed_until())
    }

    /// Replaces the refusal with `next`. If it is still valid and for fewer permits, it stays,
    /// since it covers `next` too.
    fn update(&mut self, next: Self) {
        self.rate = next.rate;
        if !self.covers(next.permits, next.at) || next.permits <= self.permits {
            *self = next;
        }
    }

    /// Returns true if this number of permits is known not to be free.
    fn covers(&self, permits: u32, now: Instant) -> bool {
        self.is_believed(now) && permits >= self.permits && u64::from(permits) <= self.rate
    }

    fn believed_until(&self) -> Instant {
        self.at + REFUSAL_LIFETIME
    }
}

/// The next step of a caller.
pub(super) enum CallerTurn {
    /// The caller asks now, and reports the result to the attempt.
    Ask(Attempt),
    /// The caller comes back after this time.
    Wait(Duration),
}

/// A caller that asks. Others may wait for its result.
pub(super) struct Attempt {
    queues: Arc<Queues>,
    name: String,
    permits: u32,
    /// True if the queue counts its permits as requested.
    is_counted: bool,
}

impl Queues {
    /// Waits for a turn to ask for permits of `name`, at most until `end`. `wait_until` is the end
    /// of the caller's `max_wait`, if it has one.
    pub(super) async fn turn(
        self: &Arc<Self>,
        name: &str,
        permits: u32,
        wait_until: Option<Instant>,
        end: Instant,
    ) -> CallerTurn {
        let ask = |is_counted| {
            let (queues, name) = (Arc::clone(self), name.to_owned());
            CallerTurn::Ask(Attempt { queues, name, permits, is_counted })
        };
        loop {
            // Dropped after the lock: the last sender drops its waker.
            let (mut idle, mut left) = (None, Vec::new());
            let wakeup = {
                let mut state = lock(&self.state);
                let now = Instant::now();
                if state.by_name.get(name).is_some_and(|queue| queue.is_idle(now)) {
                    idle = state.by_name.remove(name);
                }
                let Some(queue) = state.by_name.get_mut(name) else { return ask(false) };
                // Only Redis may refuse, so a caller that cannot wait until the end of the refusal
                // asks at once.
                let ends_too_late = wait_until.is_some_and(|end| end < queue.refusal.until);
                if permits >= queue.refusal.permits && ends_too_late {
                    return ask(queue.count(permits));
                }
                if let Some(pause) = queue.refusal.pause(permits, now) {
                    return CallerTurn::Wait(pause);
                }
                if queue.requested_permits == 0
                    || queue.requested_permits + u64::from(permits) <= queue.free_permits
                    || now >= end
                {
                    return ask(queue.count(permits));
                }
                let (sender, wakeup) = oneshot::channel();
                while queue.waiters.front().is_some_and(oneshot::Sender::is_closed) {
                    left.extend(queue.waiters.pop_front());
                }
                queue.waiters.push_back(sender);
                wakeup
            };
            drop((idle, left));
            // In both cases, the caller looks at the queue again.
            if let Ok(Ok(mut wakeup)) = timeout_at(end, wakeup).await {
                wakeup.was_received = true;
            }
        }
    }

    /// Forgets a refusal, because permits were refunded.
    pub(super) fn forget_refusal(&self, name: &str) {
        if let Some(queue) = lock(&self.state).by_name.get_mut(name) {
            queue.refusal.until = Instant::now();
        }
    }

    /// Wakes the waiters that may ask now, or all waiters if a refusal is known. The others still
    /// wait. None is woken under the lock, since a waker may do anything.
    fn wake(self: &Arc<Self>, name: &str) {
        let mut woken = 0;
        // A woken waiter may come back at once, and is not woken again.
        let waiting = lock(&self.state).by_name.get(name).map_or(0, |queue| queue.waiters.len());
        for _ in 0..waiting {
            let Some(next) = self.next_to_wake(name, woken) else { return };
            let wakeup =
                Wakeup { queues: Arc::clone(self), name: name.to_owned(), was_received: false };
            match next.send(wakeup) {
                Ok(()) => woken += 1,
                Err(mut unreceived) => unreceived.was_received = true,
            }
        }
    }

    /// Takes out the first waiter, if it may ask beside the `woken` ones.
    fn next_to_wake(&self, name: &str, woken: usize) -> Option<oneshot::Sender<Wakeup>> {
        let mut state = lock(&self.state);
        let queue = state.by_name.get_mut(name)?;
        let is_known = queue.refusal.is_believed(Instant::now());
        let most = if is_known { usize::MAX } else { queue.free_permits.max(1) as usize };
        if woken < most { queue.waiters.pop_front() } else { None }
    }
}

impl NameQueue {
    fn count(&mut self, permits: u32) -> bool {
        self.requested_permits += u64::from(permits);
        true
    }

    fn is_idle(&self, now: Instant) -> bool {
        let is_unused =
            self.requested_permits == 0 && self.waiters.iter().all(oneshot::Sender::is_closed);
        is_unused && now >= self.refusal.last_end() + IDLE_LIFETIME
    }
}

impl Drop for Wakeup {
    fn drop(&mut self) {
        if !self.was_received {
            self.queues.wake(&self.name);
        }
    }
}

impl Attempt {
    /// Reports an admission after which `remaining` permits are free. If no permit is free, `next`
    /// is the wait until one is.
    pub(super) fn admitted(self, remaining: u64, next: Duration, rate: u64) {
        if remaining == 0 && !next.is_zero() {
            self.record_refusal(1, next, rate);
        } else if let Some(queue) = lock(&self.queues.state).by_name.get_mut(&self.name) {
            queue.free_permits = remaining;
        }
    }

    /// Reports a refusal for the time `wait` under a rate.
    pub(super) fn refused(self, wait: Duration, rate: u64) {
        self.record_refusal(self.permits, wait, rate);
    }

    /// Records that this number of permits is not free for `wait`.
    fn record_refusal(&self, permits: u32, wait: Duration, rate: u64) {
        let now = Instant::now();
        // Dropped after the lock, as in `turn`.
        let _idle: Vec<_>;
        let mut state = lock(&self.queues.state);
        let State { by_name, sweep_at, next_sweep } = &mut *state;
        if by_name.len() >= (*sweep_at).max(SWEEP_FROM) && next_sweep.is_none_or(|next| now >= next)
        {
            _idle = by_name.extract_if(|_, queue| queue.is_idle(now)).collect();
            (*sweep_at, *next_sweep) =
                ((2 * by_name.len()).min(MAX_QUEUES), Some(now + IDLE_LIFETIME));
        }
        let is_new = !by_name.contains_key(&self.name);
        if is_new && (by_name.len() >= MAX_QUEUES || self.name.len() > MAX_NAME_LENGTH) {
            return;
        }
        let refusal = KnownRefusal { permits, until: now + wait, at: now, rate };
        let queue = by_name.entry(self.name.clone()).or_insert_with(|| NameQueue {
            refusal,
            free_permits: 0,
            requested_permits: 0,
            waiters: VecDeque::new(),
        });
        queue.free_permits = 0;
        queue.refusal.update(refusal);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.is_counted
            && let Some(queue) = lock(&self.queues.state).by_name.get_mut(&self.name)
        {
            queue.requested_permits = queue.requested_permits.saturating_sub(self.permits.into());
        }
        self.queues.wake(&self.name);
    }
}

/// Locks a mutex, even after a panic: no change is left half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tests of turns, with paused time.
#[cfg(test)]
mod tests {
    use std::task::{Context, Wake, Waker};

    use tokio::time::{advance, sleep};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const WAIT: Duration = Duration::from_millis(100);

    async fn turn(queues: &Arc<Queues>, permits: u32) -> CallerTurn {
        queues.turn("r", permits, None, Instant::now() + MINUTE).await
    }

    async fn attempt(queues: &Arc<Queues>, permits: u32) -> Attempt {
        match turn(queues, permits).await {
            CallerTurn::Ask(attempt) => attempt,
            CallerTurn::Wait(pause) => panic!("only after {pause:?}"),
        }
    }

    async fn pause(queues: &Arc<Queues>, permits: u32) -> Duration {
        match turn(queues, permits).await {
            CallerTurn::Ask(_) => panic!("asks"),
            CallerTurn::Wait(pause) => pause,
        }
    }

    /// Returns true if a new caller waits to be woken.
    async fn must_wait(queues: &Arc<Queues>, permits: u32) -> bool {
        tokio::select! {
            biased;
            _ = turn(queues, permits) => false,
            () = tokio::task::yield_now() => true,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_ask_while_none_is_refused() {
        let queues = Arc::default();
        let (one, two) = (attempt(&queues, 1).await, attempt(&queues, 1).await);
        one.admitted(1, Duration::ZERO, 9);
        two.admitted(0, Duration::ZERO, 9);
        assert!(lock(&queues.state).by_name.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_holds_for_all_that_need_as_much() {
        let queues = Arc::default();
        let nine = attempt(&queues, 9).await;
        attempt(&queues, 2).await.refused(WAIT, 9);
        assert_eq!([pause(&queues, 2).await, pause(&queues, 9).await], [WAIT; 2]);
        attempt(&queues, 1).await.refused(WAIT / 2, 9);
        assert_eq!(pause(&queues, 1).await, WAIT / 2);
        nine.refused(WAIT * 2, 9);
        assert_eq!(pause(&queues, 9).await, WAIT / 2, "a refusal of one covers nine");
        let impatient =
            queues.turn("r", 1, Some(Instant::now() + WAIT / 4), Instant::now() + MINUTE).await;
        assert!(matches!(impatient, CallerTurn::Ask(_)), "only Redis refuses");
        drop(attempt(&queues, 10).await);
        queues.forget_refusal("r");
        drop(attempt(&queues, 1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn one_asks_and_the_others_learn_the_result() {
        let queues: Arc<Queues> = Arc::default();
        attempt(&queues, 1).await.refused(WAIT, 9);
        advance(WAIT).await;
        let first = attempt(&queues, 1).await;
        assert!(must_wait(&queues, 1).await);
        let (one, other) = (Arc::clone(&queues), Arc::clone(&queues));
        let second = tokio::spawn(async move { attempt(&one, 1).await });
        let third = tokio::spawn(async move { pause(&other, 1).await });
        tokio::task::yield_now().await;
        first.admitted(0, Duration::ZERO, 9);
        second.await.unwrap().refused(WAIT, 9);
        assert_eq!(third.await.unwrap(), WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_permit_comes_with_the_wait_for_the_next() {
        let queues = Arc::default();
        attempt(&queues, 3).await.admitted(0, WAIT, 9);
        assert_eq!(pause(&queues, 1).await, WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_ask_at_once_as_there_was_room_for() {
        let queues = Arc::default();
        attempt(&queues, 1).await.refused(WAIT, 9);
        advance(WAIT).await;
        attempt(&queues, 1).await.admitted(3, Duration::ZERO, 9);
        let held = [attempt(&queues, 1).await, attempt(&queues, 2).await];
        assert!(must_wait(&queues, 1).await);
        drop(held);
        drop(attempt(&queues, 5).await);
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_survive_a_dropped_attempt_and_end_in_time() {
        let queues: Arc<Queues> = Arc::default();
        attempt(&queues, 1).await.refused(WAIT, 9);
        advance(WAIT).await;
        let first = attempt(&queues, 1).await;
        let one = Arc::clone(&queues);
        let second = tokio::spawn(async move { attempt(&one, 1).await });
        tokio::task::yield_now().await;
        drop(first);
        let second = second.await.unwrap();
        let begun = Instant::now();
        let third = queues.turn("r", 1, None, begun + WAIT).await;
        assert!(matches!(third, CallerTurn::Ask(_)));
        assert!(begun.elapsed() >= WAIT);
        drop(second);
    }

    #[tokio::test(start_paused = true)]
    async fn one_caller_asks_after_an_old_refusal() {
        let queues: Arc<Queues> = Arc::default();
        attempt(&queues, 1).await.refused(MINUTE, 9);
        advance(REFUSAL_LIFETIME / 2).await;
        // Until one caller asks again.
        assert_eq!(pause(&queues, 1).await, REFUSAL_LIFETIME / 2);
        advance(REFUSAL_LIFETIME / 2).await;
        let first = attempt(&queues, 1).await;
        assert!(must_wait(&queues, 1).await);
        first.refused(MINUTE, 9);
        assert_eq!(pause(&queues, 1).await, REFUSAL_LIFETIME);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wakeup_of_a_dropped_waiter_wakes_the_next() {
        let queues: Arc<Queues> = Arc::default();
        attempt(&queues, 1).await.refused(WAIT, 9);
        advance(WAIT).await;
        let first = attempt(&queues, 1).await;
        let waiters = [(); 3].map(|()| {
            let queues = Arc::clone(&queues);
            tokio::spawn(async move { attempt(&queues, 1).await })
        });
        tokio::task::yield_now().await;
        let begun = Instant::now();
        // The second and the third are woken one after another, and are dropped before they run.
        drop(first);
        let [second, third, fourth] = waiters;
        second.abort();
        third.abort();
        drop(fourth.await.unwrap());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    /// A waker may do anything, as that of an executor which polls in place does.
    #[tokio::test(start_paused = true)]
    async fn no_waiter_is_woken_under_the_lock() {
        struct Asks(Arc<Queues>);
        impl Wake for Asks {
            fn wake(self: Arc<Self>) {
                self.0.forget_refusal("r");
            }
        }
        let queues: Arc<Queues> = Arc::default();
        attempt(&queues, 1).await.refused(WAIT, 9);
        advance(WAIT).await;
        let first = attempt(&queues, 1).await;
        let waker = Waker::from(Arc::new(Asks(Arc::clone(&queues))));
        let mut second = Box::pin(turn(&queues, 1));
        assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(first);
        assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_queues_are_dropped() {
        let queues = Arc::new(Queues::default());
        let refuse =
            async |name: String| match queues.turn(&name, 1, None, Instant::now() + MINUTE).await {
                CallerTurn::Ask(attempt) => attempt.refused(WAIT, 9),
                CallerTurn::Wait(_) => panic!("a name of its own"),
            };
        for number in 0..SWEEP_FROM {
            refuse(number.to_string()).await;
        }
        sleep(REFUSAL_LIFETIME + IDLE_LIFETIME).await;
        refuse(String::from("another")).await;
        assert_eq!(lock(&queues.state).by_name.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_with_little_time_never_waits_for_others() {
        let queues: Arc<Queues> = Arc::default();
        attempt(&queues, 1).await.refused(MINUTE, 9);
        // The refusal is too old, and one caller asks.
        advance(REFUSAL_LIFETIME).await;
        let first = attempt(&queues, 1).await;
        assert!(must_wait(&queues, 1).await);
        let begun = Instant::now();
        for _ in 0..5 {
            let attempt = queues.turn("r", 1, Some(begun + WAIT), begun + MINUTE).await;
            assert!(matches!(attempt, CallerTurn::Ask(_)));
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        drop(first);
    }

    #[tokio::test(start_paused = true)]
    async fn queues_outlive_a_long_refusal() {
        let queues: Arc<Queues> = Arc::default();
        attempt(&queues, 1).await.refused(MINUTE, 9);
        advance(MINUTE).await;
        let first = attempt(&queues, 1).await;
        assert!(must_wait(&queues, 1).await, "all would ask at once");
        drop(first);
        // A name of this length has no queue.
        let long = "x".repeat(MAX_NAME_LENGTH + 1);
        let turn = queues.turn(&long, 1, None, Instant::now()).await;
        if let CallerTurn::Ask(attempt) = turn {
            attempt.refused(MINUTE, 9);
        }
        assert_eq!(lock(&queues.state).by_name.len(), 1);
    }
}
