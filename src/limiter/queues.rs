//! Requests that wait for units which others hold, in a queue for each key.
//!
//! Nobody knows when units are released, so the store reserves no slot. The first request of a
//! queue asks the store again: at once when units of its key are released in this process, and
//! otherwise after pauses that grow from 10 to 250 ms. When it goes or leaves, the next one asks. A
//! new request that may wait joins the end of a queue without asking, so that nobody overtakes.
//! Charges with other quotas, or that leave other numbers of units free, have queues of their own.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use crate::core::Charge;
use crate::core::charge::KeepFree;
use crate::core::quota::Quotas;
use crate::core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::core::sync::{Mutex, lock};
use crate::core::waiters::Waiters;

/// The pause before the first request of a queue asks again.
pub(crate) const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// A time after which a request behind the first one would ask. Its own longest wait ends before.
const FAR: Duration = Duration::from_secs(86_400 * 365);

#[derive(Default)]
pub(crate) struct KeyQueues {
    by_key: Mutex<HashMap<Box<str>, Vec<KeyQueue>>>,
    /// The number of requests in all queues, so that a charge searches only if there are any.
    waiting: AtomicUsize,
}

/// The quota that a charge states, and the units that it leaves free.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct QueueTerms {
    pub(crate) quota: Option<Quotas>,
    pub(crate) keep_free: KeepFree,
}

impl QueueTerms {
    pub(crate) fn of(charge: &Charge) -> Self {
        Self::new(charge.own_quota(), &charge.keep_free)
    }

    /// A request has its place whatever it asks for, and however long it waits.
    pub(crate) fn new(quota: Option<&Quotas>, keep_free: &KeepFree) -> Self {
        Self { quota: quota.map(Quotas::alone), keep_free: keep_free.clone() }
    }
}

/// The requests that wait for units of a key on the same terms, in the order in which they came.
#[derive(Default)]
struct KeyQueue {
    terms: QueueTerms,
    requests: BTreeMap<u64, Option<Waker>>,
    last: u64,
    /// The instant at which the first request asks.
    asks_at: Option<Instant>,
    pause: Duration,
}

/// The place of a request in the queue of its key.
pub(crate) struct QueuePlace {
    queues: Arc<KeyQueues>,
    key: Box<str>,
    terms: QueueTerms,
    /// Its number in the queue, 0 while it is in none.
    number: Mutex<u64>,
}

impl KeyQueues {
    /// Returns true if requests wait for units of a key on these terms, and none of them asks now.
    /// While the first one asks, others may ask behind it: a limiter of the application may have
    /// made its charge anew, so that it is not known as the first one.
    #[inline]
    pub(crate) fn rest(&self, key: &str, terms: impl FnOnce() -> QueueTerms) -> bool {
        if self.waiting.load(Relaxed) == 0 {
            return false;
        }
        let terms = terms();
        let rests = |queue: &KeyQueue| queue.terms == terms && queue.asks_at.is_some();
        lock(&self.by_key).get(key).is_some_and(|queues| queues.iter().any(rests))
    }

    /// Lets the first request of each queue ask now, since units of its key were released.
    pub(crate) fn release(&self, key: &str) {
        if self.waiting.load(Relaxed) == 0 {
            return;
        }
        let mut by_key = lock(&self.by_key);
        let queues = by_key.get_mut(key).into_iter().flatten();
        let wakers: Vec<_> = queues.filter_map(KeyQueue::ask_now).collect();
        drop(by_key);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl KeyQueue {
    fn is_first(&self, number: u64) -> bool {
        self.requests.first_key_value().is_some_and(|(first, _)| *first == number)
    }

    /// Lets the first request ask now, and begins with the shortest pause again. Returns its waker.
    fn ask_now(&mut self) -> Option<Waker> {
        (self.asks_at, self.pause) = (Some(Instant::now()), SHORTEST_PAUSE);
        self.requests.first_entry()?.get_mut().take()
    }

    /// Returns the instant at which the first request asks, after which the next pause begins.
    fn next_ask(&mut self) -> Instant {
        let pause = self.pause;
        *self.asks_at.get_or_insert_with(|| {
            // At least the half of it: processes that ask at the same time do not do so again.
            let jitter = fastrand::f64() / 2.0;
            Instant::now() + pause.mul_f64(1.0 - jitter)
        })
    }
}

impl QueuePlace {
    pub(crate) fn new(queues: &Arc<KeyQueues>, key: &str, terms: QueueTerms) -> Arc<Self> {
        let (queues, number) = (Arc::clone(queues), Mutex::new(0));
        Arc::new(Self { queues, key: key.into(), terms, number })
    }

    fn of<'a>(&self, queues: &'a mut [KeyQueue]) -> Option<&'a mut KeyQueue> {
        queues.iter_mut().find(|queue| queue.terms == self.terms)
    }
}

impl Waiters for QueuePlace {
    fn add(&self) -> usize {
        let mut by_key = lock(&self.queues.by_key);
        let queues = by_key.entry(self.key.clone()).or_default();
        if self.of(queues).is_none() {
            queues.push(KeyQueue { terms: self.terms.clone(), ..KeyQueue::default() });
        }
        let queue = self.of(queues).expect("pushed if there was none");
        if queue.requests.is_empty() {
            queue.pause = SHORTEST_PAUSE;
            queue.next_ask();
        }
        queue.last += 1;
        queue.requests.insert(queue.last, None);
        *lock(&self.number) = queue.last;
        self.queues.waiting.fetch_add(1, Relaxed) + 1
    }

    fn remove(&self) -> Option<Duration> {
        let number = std::mem::take(&mut *lock(&self.number));
        let mut by_key = lock(&self.queues.by_key);
        let queues = by_key.get_mut(&self.key).filter(|_| number > 0)?;
        let queue = self.of(queues)?;
        let was_first = queue.is_first(number);
        let own = queue.requests.remove(&number);
        self.queues.waiting.fetch_sub(usize::from(own.is_some()), Relaxed);
        let next = if was_first { queue.ask_now() } else { None };
        if queue.requests.is_empty() {
            queues.retain(|queue| !queue.requests.is_empty());
            if queues.is_empty() {
                by_key.remove(&self.key);
            }
        }
        // A waker may drop another request of this queue, so it goes after the lock.
        drop(by_key);
        drop(own);
        next.into_iter().for_each(Waker::wake);
        None
    }

    /// Returns the instant at which it asks. That of a request behind the first one is far away.
    fn due(&self, waker: Option<&Waker>) -> Option<std::time::Instant> {
        let number = *lock(&self.number);
        let mut by_key = lock(&self.queues.by_key);
        let queue = self.of(by_key.get_mut(&self.key)?)?;
        let is_first = queue.is_first(number);
        let own = queue.requests.get_mut(&number)?;
        let old = waker.and_then(|waker| own.replace(waker.clone()));
        let due = if is_first { queue.next_ask() } else { Instant::now() + FAR };
        drop(by_key);
        drop(old);
        Some(due.into_std())
    }

    /// Begins the next pause of the first one. One behind it, whose longest wait ends, may not ask.
    fn asks(&self) -> bool {
        let number = *lock(&self.number);
        let mut by_key = lock(&self.queues.by_key);
        let queue = by_key.get_mut(&self.key).and_then(|queues| self.of(queues));
        let queue = queue.filter(|queue| queue.is_first(number));
        queue.is_some_and(|queue| {
            queue.asks_at = None;
            queue.pause = (queue.pause * 2).min(LONGEST_PAUSE);
            true
        })
    }
}
