//! The state that the clones of a leased limiter share: the inner limiter, and its leased keys in
//! shards.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::answer::{Answer, Asked};
use super::one_task::OneTask;
use super::queue::Queue;
use super::settings::Settings;
use super::shard::Shard;
use super::stock::Stock;
use super::stocks::{Ended, end};
use crate::limiter::named::units;
use crate::limiter::{Limiter, Operation};
use crate::settlement::Settlement;
use crate::sync::{Mutex, MutexGuard};
use crate::{Charge, Decision, Outcome, Owner, digest};

const MAX_SHARDS: usize = 16;
const MIN_SHARD_SIZE: usize = 256;

pub(super) struct Leases<L: Limiter> {
    pub(super) inner: Arc<L>,
    pub(super) settings: Settings,
    pub(super) owner: Owner,
    pub(super) sweeper: OneTask,
    hasher: RandomState,
    shards: Box<[Mutex<Shard<L>>]>,
}

/// The end of leased units that are not spent.
#[derive(Clone, Copy)]
pub(super) enum Unspent {
    IsForgotten,
    IsReturned,
}

impl<L: Limiter> Leases<L> {
    pub(super) fn new(inner: Arc<L>, settings: Settings) -> Self {
        let count = (settings.max_keys / MIN_SHARD_SIZE).clamp(1, MAX_SHARDS);
        let max_keys = settings.max_keys.div_ceil(count);
        Self {
            inner,
            settings,
            owner: Owner::new(),
            sweeper: OneTask::default(),
            hasher: RandomState::new(),
            shards: (0..count).map(|_| Mutex::new(Shard::new(max_keys))).collect(),
        }
    }

    /// Takes the units of a charge from a lease, or lets it wait for a refill, or ask the inner
    /// limiter.
    pub(super) fn ask(&self, charge: &Charge) -> Asked<L> {
        let now = Instant::now();
        let (hash, name) = self.name(charge.key());
        let mut ended = Ended::new();
        let mut waiters = Queue::default();
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
        waiters.send_away();
        asked
    }

    /// Notes the inner limiter's answer to a charge that asked alone.
    pub(super) fn note(&self, charge: &Charge, answer: &Decision) {
        let admitted = if answer.outcome() == Outcome::Allow { charge.get_cost() } else { 0 };
        let (hash, name) = self.name(charge.key());
        let mut shard = self.shard(hash);
        if let Some(key) = shard.key(hash, &name).filter(|key| key.has_quota_of(charge)) {
            key.note(admitted, answer.remaining(), Instant::now(), &self.settings);
        }
    }

    /// Takes back the units that were granted to a waiter that has left.
    pub(super) fn abandon(&self, receiver: &mut oneshot::Receiver<Answer<L>>) {
        receiver.close();
        if let Ok(Answer::Granted(grant)) = receiver.try_recv() {
            self.put_back(&grant.stock, grant.cost);
        }
    }

    /// Puts units back into their lease while it is valid. Otherwise they are refunded with the
    /// rest. Returns their number, or 0 if the rest was refunded already.
    pub(super) fn put_back(&self, stock: &Arc<Stock<L>>, units: u64) -> u64 {
        let mut shard = self.shard(stock.name.hash);
        let key = shard.key(stock.name.hash, &stock.name.text);
        let is_put_back = key.is_some_and(|key| key.put_back(stock, units, Instant::now()));
        drop(shard);
        if is_put_back { units } else { stock.put_back(units) }
    }

    /// Takes more units of the key of a stock, if a lease has enough.
    fn take_more(&self, stock: &Stock<L>, units: u64) -> bool {
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

    /// Ends the leases of one key, and starts none until its reset or block has ended.
    pub(super) fn begin_reset(&self, key: &str, unspent: Unspent) {
        let (hash, name) = self.name(key);
        let mut ended = Ended::new();
        let mut shard = self.shard(hash);
        let waiters = match shard.begin_reset(hash, &name, unspent) {
            Some(mut key) => {
                key.end_all(&mut ended);
                key.dismiss(None, Instant::now())
            }
            None => Queue::default(),
        };
        drop(shard);
        match unspent {
            Unspent::IsForgotten => ended.iter().for_each(|(stock, _)| stock.forget()),
            Unspent::IsReturned => end(ended),
        }
        waiters.send_away();
    }

    /// Ends a reset. If it may still be under way in the store, refills wait a while longer.
    pub(super) fn end_reset(&self, key: &str, is_done: bool) {
        let no_refills_until = (!is_done).then(|| Instant::now() + self.settings.validity);
        self.shard(self.name(key).0).end_reset(no_refills_until);
    }

    /// Ends the leases that are over, and drops idle keys. Returns the instant of the next sweep.
    /// `None` if there is no key.
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
    pub(super) fn name<'a>(&self, key: &'a str) -> (u64, Cow<'a, str>) {
        let name = digest::short(key);
        (self.hasher.hash_one(&*name), name)
    }

    /// The shard of the names with this hash. Its table uses the highest and the lowest bits.
    pub(super) fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<L>> {
        lock(&self.shards[(hash >> 32) as usize % self.shards.len()])
    }
}

impl<L> Leases<L>
where
    L: Limiter + Send + Sync + 'static,
    L::Future: Send + 'static,
{
    /// Settles units of a stock, of which `actual` were used. `None` if it cannot.
    ///
    /// Unused units are put back into the lease, or refunded with the rest of it. More units are
    /// taken from a lease, or from the inner limiter.
    pub(super) fn settle(
        &self,
        stock: &Arc<Stock<L>>,
        cost: u64,
        actual: u64,
    ) -> Option<Settlement> {
        match actual.cmp(&cost) {
            Ordering::Less => {
                return Some(Settlement::gave_back(self.put_back(stock, cost - actual)));
            }
            Ordering::Equal => {}
            Ordering::Greater if !self.inner.can_take_more() => return None,
            Ordering::Greater if self.take_more(stock, actual - cost) => {}
            Ordering::Greater => {
                // The inner limiter would refuse a larger penalty, and take nothing.
                let more = stock.charge.clone().cost(units(actual - cost).cast_unsigned());
                match (Handle::try_current(), self.inner.operate(Operation::Penalize, &more)) {
                    (Ok(runtime), Some(penalty)) => drop(runtime.spawn(penalty)),
                    _ => return stock.settle_more(actual - cost).then(|| Settlement::gave_back(0)),
                }
            }
        }
        Some(Settlement::gave_back(0))
    }
}

impl<L: Limiter> Drop for Leases<L> {
    fn drop(&mut self) {
        self.sweeper.stop();
        self.end_all();
    }
}

/// Locks a shard even if the lock is poisoned. No code panics while it holds the lock, so the state
/// is consistent.
fn lock<L: Limiter>(shard: &Mutex<Shard<L>>) -> MutexGuard<'_, Shard<L>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
