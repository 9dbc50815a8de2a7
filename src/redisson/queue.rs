//! Who of this process asks for a limiter that others wait for.
//!
//! The format reserves nothing, so everybody who was refused asks again, and of many who wait for one permit all but one
//! would ask in vain. Those who would wait therefore share what is known: while the last refusal holds, and is no older
//! than a second, they come back when it ends without asking; after that one asks, or as many as were left room for, and
//! the others wait for the word. Who would not wait so long always asks.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// How long a refusal is taken for granted: permits may be given back, or the rate be raised, by others.
const FRESH: Duration = Duration::from_secs(1);

/// How long a queue is kept that nobody stands in: those whose pause is over come back soon after.
const LINGER: Duration = Duration::from_secs(2);

/// Names that are longer have no queue, or many of them would be a burden to keep.
const LONGEST: usize = 1_024;

/// So many queues are kept before idle ones are looked for, and so many at the most.
const FEW: usize = 64;
const MOST: usize = 65_536;

/// The queues of one limiter, by the name that is asked for.
#[derive(Default)]
pub(super) struct Queues {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_name: HashMap<String, Queue>,
    /// Idle queues are looked for when there are so many, and not before then.
    sweep: usize,
    rest: Option<Instant>,
}

struct Queue {
    /// So many permits do not fit before this instant.
    refused: u32,
    until: Instant,
    /// When that was told, and of which rate: more than that never fits.
    heard: Instant,
    rate: u64,
    /// The permits that were free when somebody was last admitted.
    free: u64,
    /// The permits that are being asked for.
    asked: u64,
    /// Those who wait for the word.
    waiting: VecDeque<oneshot::Sender<Word>>,
}

/// The word that one may ask, or hear what is known. Passed on to the next if its bearer is gone.
struct Word {
    queues: Arc<Queues>,
    name: String,
    is_taken: bool,
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
    /// Waits for a turn to ask for permits of `name`, for somebody whose patience ends then, if it does; he who is held
    /// up until `end` asks himself.
    pub(super) async fn turn(
        self: &Arc<Self>,
        name: &str,
        permits: u32,
        patience: Option<Instant>,
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
                if state.by_name.get(name).is_some_and(|queue| queue.is_idle(now)) {
                    state.by_name.remove(name);
                }
                let Some(queue) = state.by_name.get_mut(name) else { return asker(false) };
                // A refusal is always Redis' own: who would not wait so long asks, and is not held up for it.
                if permits >= queue.refused && patience.is_some_and(|end| end < queue.until) {
                    return asker(queue.count(permits));
                }
                if let Some(wait) = queue.wait(permits, now) {
                    return Turn::Later(wait.min(queue.heard + FRESH - now));
                }
                if queue.asked == 0 || queue.asked + u64::from(permits) <= queue.free || now >= end
                {
                    return asker(queue.count(permits));
                }
                let (sender, word) = oneshot::channel();
                while queue.waiting.front().is_some_and(oneshot::Sender::is_closed) {
                    queue.waiting.pop_front();
                }
                queue.waiting.push_back(sender);
                word
            };
            // However it ends, the queue says what to do.
            if let Ok(Ok(mut word)) = timeout_at(end, word).await {
                word.is_taken = true;
            }
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

    /// How long permits are known not to be free.
    fn wait(&self, permits: u32, now: Instant) -> Option<Duration> {
        let is_known = now < self.until && now < self.heard + FRESH;
        let is_meant = permits >= self.refused && u64::from(permits) <= self.rate;
        (is_known && is_meant).then(|| self.until - now)
    }

    fn is_idle(&self, now: Instant) -> bool {
        let nobody = self.asked == 0 && self.waiting.iter().all(oneshot::Sender::is_closed);
        nobody && now >= self.until.max(self.heard + FRESH) + LINGER
    }

    /// Gives the word to those who may ask or be told now; the others wait on.
    fn give_word(&mut self, queues: &Arc<Queues>, name: &str, now: Instant) {
        let is_known = now < self.until.min(self.heard + FRESH);
        let most = if is_known { usize::MAX } else { self.free.max(1) as usize };
        let mut given = 0;
        while given < most
            && let Some(next) = self.waiting.pop_front()
        {
            let word = Word { queues: Arc::clone(queues), name: name.to_owned(), is_taken: false };
            match next.send(word) {
                Ok(()) => given += 1,
                Err(mut unheard) => unheard.is_taken = true,
            }
        }
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        if let Some(queue) = self.queues.lock().by_name.get_mut(&self.name) {
            queue.give_word(&self.queues, &self.name, Instant::now());
        }
    }
}

impl Asker {
    /// Was admitted, and so many permits of the rate are left; if none is, the next comes free after so long.
    pub(super) fn admitted(self, left: u64, next: Duration, rate: u64) {
        if left == 0 && !next.is_zero() {
            return self.learned(1, next, rate);
        }
        if let Some(queue) = self.queues.lock().by_name.get_mut(&self.name) {
            queue.free = left;
        }
    }

    /// Was refused for so long under a rate.
    pub(super) fn refused(self, wait: Duration, rate: u64) {
        let permits = self.permits;
        self.learned(permits, wait, rate);
    }

    /// So many permits are not free for so long.
    fn learned(self, permits: u32, wait: Duration, rate: u64) {
        let now = Instant::now();
        let mut state = self.queues.lock();
        let State { by_name, sweep, rest } = &mut *state;
        if by_name.len() >= (*sweep).max(FEW) && rest.is_none_or(|rest| now >= rest) {
            by_name.retain(|_, queue| !queue.is_idle(now));
            (*sweep, *rest) = ((2 * by_name.len()).min(MOST), Some(now + LINGER));
        }
        let is_new = !by_name.contains_key(&self.name);
        if is_new && (by_name.len() >= MOST || self.name.len() > LONGEST) {
            return;
        }
        let queue = by_name.entry(self.name.clone()).or_insert_with(|| Queue {
            refused: permits,
            until: now,
            heard: now,
            rate,
            free: 0,
            asked: 0,
            waiting: VecDeque::new(),
        });
        (queue.free, queue.rate) = (0, rate);
        // A refusal of fewer permits that still holds says more.
        if queue.wait(permits, now).is_none() || permits <= queue.refused {
            (queue.refused, queue.until, queue.heard) = (permits, now + wait, now);
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let mut state = self.queues.lock();
        if let Some(queue) = state.by_name.get_mut(&self.name) {
            if self.is_counted {
                queue.asked = queue.asked.saturating_sub(self.permits.into());
            }
            queue.give_word(&self.queues, &self.name, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests;
