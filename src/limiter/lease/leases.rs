//! What the clones of a leased limiter share: the inner limiter, and its leased keys in shards.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::answer::{Answer, Asked, Waiter};
use super::refill::{Order, refund};
use super::settings::Settings;
use super::shard::Shard;
use super::stock::Stock;
use super::stocks::Ended;
use super::sweeper::Sweeper;
use crate::limiter::Limiter;
use crate::{Charge, Decision, Error, Outcome, Owner, digest};

const MAX_SHARDS: usize = 16;
const MIN_SHARD_SIZE: usize = 256;

pub(super) struct Leases<L: Limiter> {
    pub(super) inner: Arc<L>,
    pub(super) settings: Settings,
    pub(super) owner: Owner,
    pub(super) sweeper: Sweeper,
    hasher: RandomState,
    shards: Box<[Mutex<Shard<L>>]>,
}

impl<L: Limiter> Leases<L> {
    pub(super) fn new(inner: Arc<L>, settings: Settings) -> Self {
        let count = (settings.max_keys / MIN_SHARD_SIZE).clamp(1, MAX_SHARDS);
        let max_keys = settings.max_keys.div_ceil(count);
        Self {
            inner,
            settings,
            owner: Owner::new(),
            sweeper: Sweeper::default(),
            hasher: RandomState::new(),
            shards: (0..count).map(|_| Mutex::new(Shard::new(max_keys))).collect(),
        }
    }

    /// Takes the units of a charge from a lease, or says who gets them.
    pub(super) fn ask(&self, charge: &Charge) -> Asked<L> {
        let now = Instant::now();
        let (hash, name) = self.name(charge.key());
        let mut ended = Ended::new();
        let mut waiters = VecDeque::new();
        let mut shard = self.shard(hash);
        let may_refill = shard.may_refill(now);
        let key = shard.key(hash, &name).filter(|key| key.has_quota_of(charge));
        let asked = match key {
            Some(key) => key.ask(charge, now, &self.settings, may_refill, &mut ended),
            None => {
                waiters = shard.begin(hash, &name, charge, now, &self.settings, &mut ended);
                Asked::AsksAlone
            }
        };
        drop(shard);
        end(ended);
        send_away(waiters);
        asked
    }

    /// Notes what the inner limiter answered to a charge that asked alone.
    pub(super) fn note(&self, charge: &Charge, answer: &Decision) {
        let admitted = if answer.outcome() == Outcome::Allow { charge.get_cost() } else { 0 };
        let (hash, name) = self.name(charge.key());
        let mut shard = self.shard(hash);
        if let Some(key) = shard.key(hash, &name).filter(|key| key.has_quota_of(charge)) {
            key.note(admitted, answer.remaining(), Instant::now(), &self.settings);
        }
    }

    /// Distributes what a refill brought.
    pub(super) fn land(&self, order: &Order, sent: Instant, answer: Result<Decision, Error>) {
        let now = Instant::now();
        let valid_until = sent + self.settings.validity;
        let (remaining, answer) = match answer {
            Ok(answer) => (answer.remaining(), Ok(answer)),
            Err(error) => (None, Err(error)),
        };
        let is_stock = answer.as_ref().is_ok_and(|answer| answer.outcome() == Outcome::Allow);
        let (stock, answer) = match answer {
            Ok(answer) if is_stock => {
                let inner = Arc::clone(&self.inner);
                (Some(Arc::new(Stock::new(inner, order, sent, valid_until, answer))), None)
            }
            answer => (None, Some(answer)),
        };
        let failure = answer.as_ref().and_then(|answer| answer.as_ref().err().cloned());

        let mut ended = Ended::new();
        let mut shard = self.shard(order.name.hash);
        let is_forgotten = shard.is_forgotten(order.generation);
        let key = shard.key(order.name.hash, &order.name.text);
        let mut answers = Vec::new();
        match (key.filter(|key| key.generation == order.generation), &stock) {
            (Some(key), Some(stock)) => {
                key.end_refill(order.units());
                answers = key.stock_up(stock, remaining, now, &self.settings, &mut ended);
            }
            (Some(key), None) => {
                key.end_refill(order.units());
                let waiters = key.dismiss(remaining, now);
                let answer = || failure.clone().map_or(Answer::AskAlone, Answer::Failed);
                answers = waiters.into_iter().map(|waiter| (waiter, answer())).collect();
            }
            (None, Some(_)) if is_forgotten => {}
            (None, Some(stock)) => ended.push((Arc::clone(stock), order.units())),
            (None, None) => {}
        }
        drop(shard);
        if let Some(stock) = stock.filter(|_| is_forgotten) {
            stock.forget();
        }
        for (waiter, answer) in answers {
            if let Err(Answer::Granted(grant)) = waiter.sender.send(answer) {
                self.put_back(&grant.stock, grant.cost);
            }
        }
        end(ended);
        if let Some(answer) = answer {
            refund(&*self.inner, answer);
        }
    }

    /// A refill has ended without an answer.
    pub(super) fn lose(&self, order: &Order) {
        let mut shard = self.shard(order.name.hash);
        let key = shard.key(order.name.hash, &order.name.text);
        let waiters = key.filter(|key| key.generation == order.generation).map(|key| {
            key.end_refill(order.units());
            key.dismiss(None, Instant::now())
        });
        drop(shard);
        send_away(waiters.unwrap_or_default());
    }

    /// Takes back what a waiter was granted that has left.
    pub(super) fn abandon(&self, receiver: &mut oneshot::Receiver<Answer<L>>) {
        receiver.close();
        if let Ok(Answer::Granted(grant)) = receiver.try_recv() {
            self.put_back(&grant.stock, grant.cost);
        }
    }

    /// Puts units back into their lease while it is valid, else they are refunded with the rest.
    pub(super) fn put_back(&self, stock: &Arc<Stock<L>>, units: u64) {
        let mut shard = self.shard(stock.name.hash);
        let key = shard.key(stock.name.hash, &stock.name.text);
        let is_put_back = key.is_some_and(|key| key.put_back(stock, units, Instant::now()));
        drop(shard);
        if !is_put_back {
            stock.put_back(units);
        }
    }

    /// Takes more units of the key of a stock, if a lease has enough.
    pub(super) fn take_more(&self, stock: &Stock<L>, units: u64) -> bool {
        let mut ended = Ended::new();
        let mut shard = self.shard(stock.name.hash);
        let key = shard.key(stock.name.hash, &stock.name.text);
        let grant = key.filter(|key| key.generation == stock.generation).and_then(|key| {
            let now = Instant::now();
            key.end_expired(now, &mut ended);
            key.take(units, now, &mut ended)
        });
        drop(shard);
        end(ended);
        grant.is_some()
    }

    /// Refunds the unspent units of one key.
    pub(super) fn end_key(&self, key: &str) {
        let (hash, name) = self.name(key);
        let mut ended = Ended::new();
        let mut shard = self.shard(hash);
        if let Some(key) = shard.key(hash, &name) {
            key.end_all(&mut ended);
        }
        drop(shard);
        end(ended);
    }

    /// Refunds the unspent units of all keys.
    pub(super) fn end_all(&self) {
        for shard in &self.shards {
            let mut ended = Ended::new();
            let mut shard = lock(shard);
            shard.keys().for_each(|key| key.end_all(&mut ended));
            drop(shard);
            end(ended);
        }
    }

    /// Forgets the leases of one key, and starts none until the reset has ended.
    pub(super) fn begin_reset(&self, key: &str) {
        let (hash, name) = self.name(key);
        let mut ended = Ended::new();
        let mut shard = self.shard(hash);
        let waiters = match shard.begin_reset(hash, &name) {
            Some(mut key) => {
                key.end_all(&mut ended);
                key.dismiss(None, Instant::now())
            }
            None => VecDeque::new(),
        };
        drop(shard);
        ended.iter().for_each(|(stock, _)| stock.forget());
        send_away(waiters);
    }

    /// A reset has ended. Where it may still be under way, refills wait a while longer.
    pub(super) fn end_reset(&self, key: &str, is_done: bool) {
        let no_refills_until = (!is_done).then(|| Instant::now() + self.settings.validity);
        self.shard(self.name(key).0).end_reset(no_refills_until);
    }

    /// Ends the leases that are over, and drops idle keys. Returns when to do so again. `None` if
    /// there is no key.
    pub(super) fn sweep(&self, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for shard in &self.shards {
            let mut ended = Ended::new();
            let of_shard = lock(shard).sweep(now, &self.settings, &mut ended);
            end(ended);
            next = next.into_iter().chain(of_shard).min();
        }
        next
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| lock(shard).is_empty())
    }

    /// The name that a key is kept under, and its hash.
    fn name<'a>(&self, key: &'a str) -> (u64, Cow<'a, str>) {
        let name = digest::short(key);
        (self.hasher.hash_one(&*name), name)
    }

    /// The shard of the names with this hash. Its table uses the highest and the lowest bits.
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<L>> {
        lock(&self.shards[(hash >> 32) as usize % self.shards.len()])
    }
}

impl<L: Limiter> Drop for Leases<L> {
    fn drop(&mut self) {
        self.sweeper.stop();
        self.end_all();
    }
}

/// Refunds what nobody spends any more. Called without a lock, since the inner limiter may be any.
fn end<L: Limiter>(ended: Ended<L>) {
    ended.into_iter().for_each(|(stock, left)| stock.end(left));
}

/// Sends waiters to the inner limiter.
fn send_away<L: Limiter>(waiters: VecDeque<Waiter<L>>) {
    for waiter in waiters {
        let _ = waiter.sender.send(Answer::AskAlone);
    }
}

/// Nothing panics while a shard is locked, so a poisoned lock protects a whole state all the same.
fn lock<L: Limiter>(shard: &Mutex<Shard<L>>) -> MutexGuard<'_, Shard<L>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
