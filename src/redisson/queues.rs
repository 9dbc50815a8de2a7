//! The callers of this process that ask for a limiter, and those that wait meanwhile.
//!
//! The format has no room for reservations, so every refused caller asks again. Of many callers
//! that wait for one permit, all but one would be refused. So callers that can wait share the last
//! refusal.
//!
//! - While it holds, and for a second at most, they wait until its end and do not ask.
//! - Then one of them asks, or as many as there were permits left for. The others wait to be woken.
//! - A caller that cannot wait until the end of the refusal always asks.

mod known_refusal;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use self::known_refusal::KnownRefusal;

/// The time that an idle queue is kept: callers whose pause is over come back soon after.
const IDLE_LIFETIME: Duration = Duration::from_secs(2);

/// Longer names have no queue, because many of them would take much memory.
const MAX_NAME_LENGTH: usize = 1_024;

/// Idle queues are dropped from this number of queues on.
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
    by_name: HashMap<String, Queue>,
    /// The number of queues from which on idle ones are dropped.
    sweep_at: usize,
    /// The instant from which on idle ones may be dropped again.
    next_sweep: Option<Instant>,
}

/// The last refusal under a name, and the callers that ask and wait.
struct Queue {
    refusal: KnownRefusal,
    /// The permits that were free after the last admission.
    free_permits: u64,
    /// The permits that callers ask for now.
    requested_permits: u64,
    /// The callers that wait to be woken.
    waiters: VecDeque<oneshot::Sender<Wakeup>>,
}

/// Wakes a waiter. When the waiter is gone, it wakes the next one.
struct Wakeup {
    queues: Arc<Queues>,
    name: String,
    was_received: bool,
}

/// The next step of a caller.
pub(super) enum Turn {
    /// It asks now, and reports the result to the attempt.
    Ask(Attempt),
    /// It comes back after this time.
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
    /// Waits for a turn to ask for permits of `name`, until `end` at the latest. `wait_until` is
    /// the end of the caller's `max_wait`, if it has one.
    pub(super) async fn turn(
        self: &Arc<Self>,
        name: &str,
        permits: u32,
        wait_until: Option<Instant>,
        end: Instant,
    ) -> Turn {
        let ask = |is_counted| {
            let (queues, name) = (Arc::clone(self), name.to_owned());
            Turn::Ask(Attempt { queues, name, permits, is_counted })
        };
        loop {
            let wakeup = {
                let mut state = self.lock();
                let now = Instant::now();
                if state.by_name.get(name).is_some_and(|queue| queue.is_idle(now)) {
                    state.by_name.remove(name);
                }
                let Some(queue) = state.by_name.get_mut(name) else { return ask(false) };
                // Only Redis refuses: a caller that cannot wait until the end of the
                // refusal asks at once.
                let ends_too_late = wait_until.is_some_and(|end| end < queue.refusal.until);
                if permits >= queue.refusal.permits && ends_too_late {
                    return ask(queue.count(permits));
                }
                if let Some(pause) = queue.refusal.pause(permits, now) {
                    return Turn::Wait(pause);
                }
                if queue.requested_permits == 0
                    || queue.requested_permits + u64::from(permits) <= queue.free_permits
                    || now >= end
                {
                    return ask(queue.count(permits));
                }
                let (sender, wakeup) = oneshot::channel();
                while queue.waiters.front().is_some_and(oneshot::Sender::is_closed) {
                    queue.waiters.pop_front();
                }
                queue.waiters.push_back(sender);
                wakeup
            };
            // Woken or not, the caller looks at the queue again.
            if let Ok(Ok(mut wakeup)) = timeout_at(end, wakeup).await {
                wakeup.was_received = true;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a refusal, because permits were refunded.
    pub(super) fn forget_refusal(&self, name: &str) {
        if let Some(queue) = self.lock().by_name.get_mut(name) {
            queue.refusal.until = Instant::now();
        }
    }
}

impl Queue {
    fn count(&mut self, permits: u32) -> bool {
        self.requested_permits += u64::from(permits);
        true
    }

    fn is_idle(&self, now: Instant) -> bool {
        let is_unused =
            self.requested_permits == 0 && self.waiters.iter().all(oneshot::Sender::is_closed);
        is_unused && now >= self.refusal.last_end() + IDLE_LIFETIME
    }

    /// Wakes the waiters that may ask now, or all if a refusal is known. The others keep waiting.
    fn wake(&mut self, queues: &Arc<Queues>, name: &str, now: Instant) {
        let is_known = self.refusal.is_believed(now);
        let most = if is_known { usize::MAX } else { self.free_permits.max(1) as usize };
        let mut woken = 0;
        while woken < most
            && let Some(next) = self.waiters.pop_front()
        {
            let wakeup =
                Wakeup { queues: Arc::clone(queues), name: name.to_owned(), was_received: false };
            match next.send(wakeup) {
                Ok(()) => woken += 1,
                Err(mut unreceived) => unreceived.was_received = true,
            }
        }
    }
}

impl Drop for Wakeup {
    fn drop(&mut self) {
        if self.was_received {
            return;
        }
        if let Some(queue) = self.queues.lock().by_name.get_mut(&self.name) {
            queue.wake(&self.queues, &self.name, Instant::now());
        }
    }
}

impl Attempt {
    /// Reports an admission that left `remaining` permits of the rate. If it left none, `next` is
    /// the wait until one is free.
    pub(super) fn admitted(self, remaining: u64, next: Duration, rate: u64) {
        if remaining == 0 && !next.is_zero() {
            self.record_refusal(1, next, rate);
        } else if let Some(queue) = self.queues.lock().by_name.get_mut(&self.name) {
            queue.free_permits = remaining;
        }
    }

    /// Reports a refusal for `wait` under a rate.
    pub(super) fn refused(self, wait: Duration, rate: u64) {
        self.record_refusal(self.permits, wait, rate);
    }

    /// Records that this number of permits is not free for `wait`.
    fn record_refusal(&self, permits: u32, wait: Duration, rate: u64) {
        let now = Instant::now();
        let mut state = self.queues.lock();
        let State { by_name, sweep_at, next_sweep } = &mut *state;
        if by_name.len() >= (*sweep_at).max(SWEEP_FROM) && next_sweep.is_none_or(|next| now >= next)
        {
            by_name.retain(|_, queue| !queue.is_idle(now));
            (*sweep_at, *next_sweep) =
                ((2 * by_name.len()).min(MAX_QUEUES), Some(now + IDLE_LIFETIME));
        }
        let is_new = !by_name.contains_key(&self.name);
        if is_new && (by_name.len() >= MAX_QUEUES || self.name.len() > MAX_NAME_LENGTH) {
            return;
        }
        let refusal = KnownRefusal { permits, until: now + wait, at: now, rate };
        let queue = by_name.entry(self.name.clone()).or_insert_with(|| Queue {
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
        let mut state = self.queues.lock();
        if let Some(queue) = state.by_name.get_mut(&self.name) {
            if self.is_counted {
                queue.requested_permits =
                    queue.requested_permits.saturating_sub(self.permits.into());
            }
            queue.wake(&self.queues, &self.name, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests;
