//! Who of this process asks for a limiter that others wait for.
//!
//! The format books nothing, so everybody who was refused asks again, and of many who wait for one permit all but one
//! would ask in vain. Those who would wait therefore share what is known: while the last refusal holds they are told the
//! same without asking; after that one asks, or as many as were left room for, and the others wait for the word. Who
//! waits for nothing always asks.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// How long a queue that nobody stands in is kept: those who sleep until its refusal ends come back soon after.
const LINGER: Duration = Duration::from_secs(1);

/// So many queues are kept before idle ones are looked for.
const FEW: usize = 64;

/// The queues of one limiter, by the name that is asked for.
#[derive(Debug, Default)]
pub(super) struct Queues {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_name: HashMap<String, Queue>,
    /// Idle queues are looked for when there are so many.
    sweep: usize,
}

#[derive(Debug)]
struct Queue {
    /// So many permits do not fit before this instant.
    refused: u32,
    until: Instant,
    /// The permits that were free when somebody was last admitted.
    free: u64,
    /// The permits that are being asked for.
    asked: u64,
    /// Those who wait for the word.
    waiting: VecDeque<oneshot::Sender<()>>,
}

/// Whether to ask.
pub(super) enum Turn {
    /// Now; say what came of it.
    Now(Asker),
    /// Not before so long.
    Later(Duration),
}

/// Somebody who asks, and whom others may wait for.
pub(super) struct Asker {
    queues: Arc<Queues>,
    name: String,
    permits: u32,
    /// Whether the queue counts him.
    is_counted: bool,
}

impl Queues {
    /// Waits for a turn to ask for permits of `name`, for somebody who would wait for them so long; he who is held up
    /// until `end` asks himself.
    pub(super) async fn turn(
        self: &Arc<Self>,
        name: &str,
        permits: u32,
        patience: Duration,
        end: Instant,
    ) -> Turn {
        let asker = |is_counted| {
            Turn::Now(Asker {
                queues: Arc::clone(self),
                name: name.to_owned(),
                permits,
                is_counted,
            })
        };
        loop {
            let word = {
                let mut state = self.lock();
                let now = Instant::now();
                let Some(queue) = state.by_name.get_mut(name) else { return asker(false) };
                let pause = queue.until.saturating_duration_since(now);
                if permits >= queue.refused && !pause.is_zero() {
                    if pause <= patience {
                        return Turn::Later(pause);
                    }
                    return asker(queue.count(permits));
                }
                if queue.asked == 0 || queue.asked + u64::from(permits) <= queue.free || now >= end
                {
                    return asker(queue.count(permits));
                }
                let (sender, word) = oneshot::channel();
                queue.waiting.push_back(sender);
                word
            };
            // However it ends, the queue says what to do.
            let _ = timeout_at(end, word).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was refused: permits were given back.
    pub(super) fn forget(&self, name: &str) {
        if let Some(queue) = self.lock().by_name.get_mut(name) {
            queue.until = Instant::now();
        }
    }
}

impl Queue {
    fn count(&mut self, permits: u32) -> bool {
        self.asked += u64::from(permits);
        true
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.asked == 0 && self.waiting.is_empty() && now >= self.until + LINGER
    }

    /// Gives the word to those who may ask or be told now; the others wait on.
    fn give_word(&mut self, now: Instant) {
        let most = if now < self.until { usize::MAX } else { self.free.max(1) as usize };
        let mut given = 0;
        while given < most
            && let Some(next) = self.waiting.pop_front()
        {
            given += usize::from(next.send(()).is_ok());
        }
    }
}

impl Asker {
    /// Was admitted, and so many permits are left.
    pub(super) fn admitted(self, left: u64) {
        if let Some(queue) = self.queues.lock().by_name.get_mut(&self.name) {
            queue.free = left;
        }
    }

    /// Was refused for so long, and will come back.
    pub(super) fn refused(mut self, wait: Duration) {
        let now = Instant::now();
        let mut state = self.queues.lock();
        let State { by_name, sweep } = &mut *state;
        if by_name.len() >= (*sweep).max(FEW) {
            by_name.retain(|_, queue| !queue.is_idle(now));
            *sweep = 2 * by_name.len();
        }
        let queue = by_name.entry(self.name.clone()).or_insert_with(|| Queue {
            refused: self.permits,
            until: now,
            free: 0,
            asked: 0,
            waiting: VecDeque::new(),
        });
        queue.free = 0;
        // A refusal of fewer permits that still holds says more.
        if queue.until <= now || self.permits <= queue.refused {
            (queue.refused, queue.until) = (self.permits, now + wait);
        }
        drop(state);
        self.leave();
    }

    fn leave(&mut self) {
        let mut state = self.queues.lock();
        if let Some(queue) = state.by_name.get_mut(&self.name) {
            if std::mem::take(&mut self.is_counted) {
                queue.asked = queue.asked.saturating_sub(self.permits.into());
            }
            queue.give_word(Instant::now());
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.leave();
    }
}
