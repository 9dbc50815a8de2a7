//! The embedded limiter: the same algorithms, decided in this process.
//!
//! For tests, for a single instance, and as the share that a process falls back to while the store is
//! away. It is bounded and honest: keys that are as good as new are dropped as time passes, and when
//! it is full of live ones it answers with a capacity error instead of forgetting anybody's debt.
//!
//! Its clock is tokio's, so that a test with paused time decides what it says.
//!
//! ```
//! use tower_sluice::{Charge, Limiter, Memory, Outcome, Quota, algorithm::TokenBucket};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
//! # runtime.block_on(async {
//! let limiter = Memory::new("login", TokenBucket::new(Quota::per_minute(5).burst(1)));
//! let first = limiter.check(&Charge::new("alice")).await?;
//! let second = limiter.check(&Charge::new("alice")).await?;
//! assert_eq!(first.outcome(), Outcome::Allow);
//! assert!(second.retry_after().is_some_and(|wait| wait.as_secs() >= 11));
//! # Ok::<(), tower_sluice::Error>(()) }).unwrap();
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::future::{Ready, ready};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::terms::{Answer, Clock, Terms, followed, instant};
use super::{Limiter, Operation};
use crate::algorithm::{Algorithm, Left, Redisson, Step, Verdict};
use crate::charge::Key;
use crate::quota::QuotaError;
use crate::{Booking, Charge, Class, Decision, Error, Origin};

const CAPACITY: usize = 100_000;
const SHARDS: usize = 16;
const SMALLEST_SHARD: usize = 256;

/// A limiter in this process. Share it in an [`Arc`].
pub struct Memory<A: Algorithm> {
    terms: Terms<A>,
    clock: Clock,
    /// Whether the clock can only go forward, so that what is as good as new stays so.
    steady: bool,
    hasher: RandomState,
    shards: Box<[Mutex<Shard<A::State>>]>,
}

impl<A: Algorithm> Memory<A> {
    /// A limiter called `name`, for up to 100,000 live keys.
    ///
    /// # Panics
    ///
    /// If the name is empty, or where [`Memory::try_new`] returns an error.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, algorithm: A) -> Self {
        followed(Self::try_new(name, algorithm))
    }

    /// The same, for a quota that comes from a file or a user.
    ///
    /// # Errors
    ///
    /// If the algorithm cannot follow its quota: a window with a burst, or a limit that it cannot compute with exactly.
    ///
    /// # Panics
    ///
    /// If the name is empty.
    pub fn try_new(name: impl Into<Arc<str>>, algorithm: A) -> Result<Self, QuotaError> {
        let began =
            (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), Instant::now());
        Ok(Self {
            terms: Terms::new(name.into(), algorithm)?,
            clock: Arc::new(move || began.0 + began.1.elapsed()),
            steady: true,
            hasher: RandomState::new(),
            shards: shards(CAPACITY),
        })
    }

    /// Sets how many live keys are held, at least 1, and forgets all that are. Default: 100,000.
    ///
    /// Keys are spread over up to 16 shards of equal size, so a large memory can be full a few per
    /// cent early.
    #[must_use]
    pub fn capacity(mut self, keys: usize) -> Self {
        self.shards = shards(keys.max(1));
        self
    }

    /// Decides by `clock`, the time since the Unix epoch. Default: tokio's.
    ///
    /// Such a clock may step back, to when a key was not yet as good as new: keys are dropped only where the memory is
    /// full.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        (self.clock, self.steady) = (Arc::new(clock), false);
        self
    }

    /// The keys held, those included that are as good as new and not yet dropped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).entries.len()).sum()
    }

    /// Whether no key is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives a booking back, and tells how many units that were: 0 if others were decided on it since.
    ///
    /// # Errors
    ///
    /// If the booking is another limiter's.
    pub fn give_back(&self, booking: Booking) -> Result<u64, Error> {
        if booking.owner != self.terms.owner {
            return Err(Error::new(Class::Request, "the booking is another limiter's"));
        }
        let rule = self.terms.rule(&booking.quota)?;
        let now = instant((self.clock)())?;
        let Booking { key, cost, left, .. } = booking;
        let mut shard = self.shard(key.as_str());
        let (units, _) = shard.update(key.as_str(), now, |state| {
            let units = A::refund(&rule, state, now, cost.cast_signed(), &left);
            let changed = state.as_ref().filter(|_| units.is_some());
            (units.unwrap_or(0), changed.map(|state| A::old(&rule, state)))
        })?;
        Ok(units.cast_unsigned())
    }

    fn change(&self, operation: Operation, charge: &Charge) -> Result<Decision, Error> {
        let question = self.terms.read(charge)?;
        let now = instant((self.clock)())?;
        let mut shard = self.shard(charge.key());
        let (Step { verdict, report, by, .. }, _) = shard.update(charge.key(), now, |state| {
            if operation == Operation::Reset {
                *state = None;
                let report = A::report(&question.rule, None, now);
                let by = A::tightest(&question.rule, None, now);
                return (Step { verdict: Verdict::Allow, report, changed: true, by }, None);
            }
            let step = A::penalize(&question.rule, state, now, question.ask.cost);
            let changed = state.as_ref().filter(|_| step.changed);
            (step, changed.map(|state| A::old(&question.rule, state)))
        })?;
        drop(shard);
        let left = Left::default();
        let answer = Answer { verdict, report, by, left, now, place: 0, origin: Origin::Local };
        Ok(self.terms.decision(question.quota, 0, answer, Key::Constant("")))
    }

    fn decide(&self, charge: &Charge) -> Result<Decision, Error> {
        let question = self.terms.read(charge)?;
        let now = instant((self.clock)())?;
        let mut shard = self.shard(charge.key());
        if self.steady {
            shard.collect(now, 2);
        }

        let ((step, left), key) = shard.update(charge.key(), now, |state| {
            let step = A::step(&question.rule, state, now, question.ask);
            let changed = state.as_ref().filter(|_| step.changed);
            let left = changed.map(A::left).unwrap_or_default();
            ((step, left), changed.map(|state| A::old(&question.rule, state)))
        })?;
        drop(shard);

        let Step { verdict, report, by, .. } = step;
        let key = key.map_or(Key::Constant(""), Key::Shared);
        let answer = Answer { verdict, report, by, left, now, place: 0, origin: Origin::Local };
        Ok(self.terms.decision(question.quota, question.ask.cost, answer, key))
    }

    fn shard(&self, key: &str) -> MutexGuard<'_, Shard<A::State>> {
        let hash = self.hasher.hash_one(key) as usize;
        lock(&self.shards[hash % self.shards.len()])
    }
}

impl Memory<Redisson> {
    /// Gives back permits of the oldest grants, as [`RRateLimiter::release`](crate::RRateLimiter::release) does, and tells
    /// how many.
    ///
    /// # Errors
    ///
    /// If the clock cannot be.
    pub fn release(&self, key: &str, permits: u64) -> Result<u64, Error> {
        let rule = self.terms.own_rule();
        let now = instant((self.clock)())?;
        let mut rest = i64::try_from(permits).unwrap_or(i64::MAX);
        let mut shard = self.shard(key);
        let (freed, _) = shard.update(key, now, |state| {
            let Some(state) = state else { return (0, None) };
            let mut all = 0;
            loop {
                let (freed, may_be_more) = Redisson::release(rule, state, now, rest);
                (all, rest) = (all + freed, rest - freed);
                if !may_be_more {
                    return (all, Some(Redisson::old(rule, state)));
                }
            }
        })?;
        Ok(freed.cast_unsigned())
    }
}

impl<A: Algorithm> Limiter for Memory<A> {
    type Future = Ready<Result<Decision, Error>>;

    fn check(&self, charge: &Charge) -> Self::Future {
        ready(self.decide(charge))
    }

    fn owe(&self, charge: &Charge) -> bool {
        // Best effort: what cannot be taken would have been an error of the charge itself.
        let _ = self.change(Operation::Penalize, charge);
        true
    }

    fn can_owe(&self) -> bool {
        true
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        Some(ready(self.change(operation, charge)))
    }

    fn refund(&self, booking: Booking) -> Option<Booking> {
        if booking.owner != self.terms.owner {
            return Some(booking);
        }
        // Best effort: a refund that fails is a unit lost, which errs on the safe side.
        let _ = self.give_back(booking);
        None
    }
}

impl<A: Algorithm> fmt::Debug for Memory<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("terms", &self.terms)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// A part of the keys, under a lock of its own.
struct Shard<S> {
    capacity: usize,
    entries: HashMap<Arc<str>, Entry<S>>,
    /// Every key once, by an instant before which it cannot be old.
    ages: BinaryHeap<Reverse<(i64, Arc<str>)>>,
}

struct Entry<S> {
    /// For bookings, which name it.
    key: Arc<str>,
    /// Nothing once it was reset.
    state: Option<S>,
    /// The instant from which on it is as good as new.
    old: i64,
}

impl<S> Shard<S> {
    /// Lets `change` have the state of a key, which tells from when on it is old if it changed. Returns what else
    /// came of it, and the key as it is held if it changed.
    fn update<T>(
        &mut self,
        key: &str,
        now: i64,
        change: impl FnOnce(&mut Option<S>) -> (T, Option<i64>),
    ) -> Result<(T, Option<Arc<str>>), Error> {
        if let Some(entry) = self.entries.get_mut(key) {
            let (told, old) = change(&mut entry.state);
            entry.old = old.unwrap_or(entry.old);
            return Ok((told, old.map(|_| Arc::clone(&entry.key))));
        }
        let mut state = None;
        let (told, old) = change(&mut state);
        let Some(old) = old else { return Ok((told, None)) };
        while self.entries.len() >= self.capacity {
            if self.collect(now, 1) == 0 {
                return Err(Error::new(Class::Capacity, "the memory is full of live keys"));
            }
        }
        let key: Arc<str> = key.into();
        let entry = Entry { key: Arc::clone(&key), state, old };
        self.ages.push(Reverse((old, Arc::clone(&key))));
        self.entries.insert(Arc::clone(&key), entry);
        Ok((told, Some(key)))
    }

    /// Looks at up to `most` keys that may be old, drops those that are, and tells how many it saw.
    fn collect(&mut self, now: i64, most: usize) -> usize {
        for seen in 0..most {
            let Some(Reverse((age, _))) = self.ages.peek() else { return seen };
            if *age > now {
                return seen;
            }
            let Some(Reverse((_, key))) = self.ages.pop() else { return seen };
            match self.entries.get(&key) {
                Some(entry) if entry.old > now => self.ages.push(Reverse((entry.old, key))),
                _ => drop(self.entries.remove(&key)),
            }
        }
        most
    }
}

fn shards<S>(keys: usize) -> Box<[Mutex<Shard<S>>]> {
    let count = (keys / SMALLEST_SHARD).clamp(1, SHARDS);
    let shard = |_| {
        let (entries, ages) = (HashMap::new(), BinaryHeap::new());
        Mutex::new(Shard { capacity: keys.div_ceil(count), entries, ages })
    };
    (0..count).map(shard).collect()
}

/// Nothing panics while a shard is locked, so a poisoned lock protects a whole state all the same.
fn lock<S>(shard: &Mutex<Shard<S>>) -> MutexGuard<'_, Shard<S>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
