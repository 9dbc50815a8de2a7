//! The state that the clones of a leased limiter share: the inner limiter, and the leased keys in
//! shards.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::LeaseSettings;
use super::leased_key::{KeyAnswer, LeaseWaiters, LeasedKey, WaiterAnswer, end_waits};
use super::stock::{Ended, LeasedName, Order, Stock};
use crate::core::mark::Births;
use crate::core::reservation::Owner;
use crate::core::settlement::{Settled, Settlement};
use crate::core::sync::atomic::Ordering::Relaxed;
use crate::core::sync::{Mutex, MutexGuard, lock};
use crate::core::{Charge, Decision, Outcome, digest};
use crate::limiter::charge_numbers::units;
use crate::limiter::shards::Shards;
use crate::limiter::{Limiter, Operation};

pub(super) struct Leases<L: Limiter> {
    pub(super) inner: Arc<L>,
    pub(super) settings: LeaseSettings,
    pub(super) owner: Owner,
    /// The task that sweeps, while there is a key.
    pub(super) sweeper: Mutex<Option<AbortHandle>>,
    hasher: RandomState,
    shards: Shards<LeaseShard<L>>,
}

impl<L: Limiter> Leases<L> {
    pub(super) fn new(inner: Arc<L>, settings: LeaseSettings) -> Self {
        Self {
            inner,
            settings,
            owner: Owner::new(),
            sweeper: Mutex::new(None),
            hasher: RandomState::new(),
            shards: Shards::new(settings.max_keys, LeaseShard::new),
        }
    }

    /// Takes the units of a charge from a lease, or lets it wait for a refill, or ask the inner
    /// limiter. Also returns the order of a refill, if one must be started.
    pub(super) fn ask(&self, charge: &Charge) -> (KeyAnswer<L>, Option<Order>) {
        let now = Instant::now();
        let (hash, name) = self.name(charge.key());
        let (mut ended, mut waiters) = (Ended::new(), LeaseWaiters::new());
        let mut shard = self.shard(hash);
        let may_refill = shard.may_refill(now);
        let key = shard.key(hash, &name).filter(|key| key.has_quota_of(charge));
        let asked = match key {
            Some(key) => key.ask(charge, now, &self.settings, may_refill, &mut ended),
            None => {
                waiters = shard.begin(hash, &name, charge, now, &self.settings, &mut ended);
                (KeyAnswer::AsksAlone, None)
            }
        };
        drop(shard);
        end_waits(waiters, None);
        asked
    }

    pub(super) fn note(&self, charge: &Charge, answer: &Decision) {
        let admitted = if answer.outcome() == Outcome::Allow { charge.units() } else { 0 };
        let (hash, name) = self.name(charge.key());
        self.with_key(hash, &name, |key, _| {
            if key.has_quota_of(charge) {
                key.note(admitted, answer.remaining(), Instant::now(), &self.settings);
            }
        });
    }

    pub(super) fn abandon(&self, receiver: &mut oneshot::Receiver<WaiterAnswer<L>>) {
        receiver.close();
        if let Ok(WaiterAnswer::Granted(grant)) = receiver.try_recv() {
            self.put_back(&grant.stock, grant.cost);
        }
    }

    /// Puts units back into their lease while it is valid. Otherwise they are refunded with the
    /// rest. Returns their number, or 0 if the rest was already refunded.
    pub(super) fn put_back(&self, stock: &Arc<Stock<L>>, units: u64) -> u64 {
        let LeasedName { text, hash, .. } = &stock.order.name;
        let put_back = |key: &mut LeasedKey<L>| key.put_back(stock, units, Instant::now());
        match self.with_key(*hash, text, |key, _| put_back(key)) {
            Some(true) => units,
            _ => stock.put_back(units),
        }
    }

    fn take_more(&self, stock: &Stock<L>, units: u64) -> bool {
        let Order { name: LeasedName { text, hash, .. }, generation, .. } = &stock.order;
        let grant = self.with_key(*hash, text, |key, ended| {
            let now = Instant::now();
            if key.generation != *generation || key.stocks.have_other_births(stock) {
                return None;
            }
            key.stocks.end_expired(now, ended);
            key.stocks.take(units, now, ended)
        });
        grant.flatten().is_some()
    }

    pub(super) fn end_key(&self, key: &str) {
        let (hash, name) = self.name(key);
        self.with_key(hash, &name, |key, ended| key.stocks.end_all(ended));
    }

    /// Calls `change` with the key of a name, if it is watched. Then refunds the leases that
    /// `change` ended.
    pub(super) fn with_key<T>(
        &self,
        hash: u64,
        name: &str,
        change: impl FnOnce(&mut LeasedKey<L>, &mut Ended<L>) -> T,
    ) -> Option<T> {
        let mut ended = Ended::new();
        // The lock is released before these leases are dropped.
        self.shard(hash).key(hash, name).map(|key| change(key, &mut ended))
    }

    pub(super) fn end_all(&self) {
        for mut shard in self.shards.each() {
            let mut ended = Ended::new();
            shard.keys.iter_mut().for_each(|key| key.stocks.end_all(&mut ended));
            drop(shard);
        }
    }

    /// Ends the leases of one key, and starts no lease until its reset or block has ended. A reset
    /// forgets the unspent units; otherwise they are returned.
    pub(super) fn begin_reset(&self, key: &str, is_reset: bool) {
        let (hash, name) = self.name(key);
        let (mut ended, mut waiters) = (Ended::new(), LeaseWaiters::new());
        let mut shard = self.shard(hash);
        if let Some(mut key) = shard.begin_reset(hash, &name, is_reset) {
            key.stocks.end_all(&mut ended);
            waiters = key.dismiss(None, Instant::now());
        }
        drop(shard);
        if is_reset {
            ended.iter().for_each(|one| one.stock.forget());
        }
        end_waits(waiters, None);
    }

    /// Ends a reset. If the store may still run it, refills wait longer.
    pub(super) fn end_reset(&self, key: &str, is_done: bool) {
        let no_refills_until = (!is_done).then(|| Instant::now() + self.settings.validity);
        self.shard(self.name(key).0).end_reset(no_refills_until);
    }

    /// Ends expired leases, and drops idle keys. Returns the instant of the next sweep. `None` if
    /// there is no key.
    pub(super) fn sweep(&self, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for mut shard in self.shards.each() {
            let mut ended = Ended::new();
            let of_shard = shard.sweep(now, &self.settings, &mut ended);
            drop(shard);
            next = next.into_iter().chain(of_shard).min();
        }
        next
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.each().all(|shard| shard.keys.is_empty())
    }

    /// Returns the name under which a key is kept, and its hash.
    pub(super) fn name<'a>(&self, key: &'a str) -> (u64, Cow<'a, str>) {
        let name = digest::short(key);
        (self.hasher.hash_one(&*name), name)
    }

    pub(super) fn shard(&self, hash: u64) -> MutexGuard<'_, LeaseShard<L>> {
        lock(self.shards.of(hash))
    }
}

impl<L> Leases<L>
where
    L: Limiter + Send + Sync + 'static,
    L::Future: Send + 'static,
{
    /// Settles units of a stock, of which `actual` were used. `None` if it cannot settle them.
    ///
    /// Unused units are put back into the lease, or refunded with the rest of it. Missing units are
    /// taken from a lease, or from the inner limiter.
    pub(super) fn settle(
        &self,
        stock: &Arc<Stock<L>>,
        cost: u64,
        actual: u64,
    ) -> Option<Settlement> {
        let name = &stock.order.name;
        match actual.cmp(&cost) {
            Ordering::Less => {
                return Some(Settlement::gave_back(self.put_back(stock, cost - actual)));
            }
            Ordering::Equal => {}
            Ordering::Greater if stock.births.is_none() && name.is_reset.load(Relaxed) => {
                return Some(Settlement::from(Ok(Settled::not_taken(actual - cost))));
            }
            Ordering::Greater if self.take_more(stock, actual - cost) => {}
            Ordering::Greater => {
                // The inner limiter would reject a larger penalty, and take nothing.
                let more = stock.order.charge.clone();
                let mut more = more.cost(units(actual - cost).cast_unsigned());
                // It is sent after the decision.
                more.deadline = None;
                // The store knows whether the key was reset since.
                let more = match &stock.births {
                    Some(births) => more.with_extension(Births(births.clone())),
                    None => more,
                };
                match (Handle::try_current(), self.inner.operate(Operation::Penalize, &more)) {
                    (Ok(runtime), Some(penalty)) => {
                        let (sender, settlement) = Settlement::begin();
                        runtime.spawn(async move {
                            let not_taken = |decision: Decision| decision.not_taken();
                            sender.end(penalty.await.map(not_taken).map(Settled::not_taken));
                        });
                        return Some(settlement);
                    }
                    _ => return stock.settle_more(actual - cost),
                }
            }
        }
        Some(Settlement::gave_back(0))
    }
}

impl<L: Limiter> Drop for Leases<L> {
    fn drop(&mut self) {
        if let Some(sweeper) = lock(&self.sweeper).take() {
            sweeper.abort();
        }
    }
}

/// Some of the keys, under their own lock.
pub(super) struct LeaseShard<L: Limiter> {
    keys: HashTable<LeasedKey<L>>,
    max_keys: usize,
    last_generation: u64,
    /// The last generation that a reset may have forgotten. Unspent units of this generation or an
    /// older one are not refunded.
    last_forgotten: u64,
    /// The number of running resets. Until they end there is no refill: the store could decide it
    /// before the reset, and its units could be spent after the reset.
    resets: usize,
    no_refills_until: Option<Instant>,
    next_sweep: Instant,
}

impl<L: Limiter> LeaseShard<L> {
    pub(super) fn new(max_keys: usize) -> Self {
        Self {
            keys: HashTable::new(),
            max_keys,
            last_generation: 0,
            last_forgotten: 0,
            resets: 0,
            no_refills_until: None,
            next_sweep: Instant::now(),
        }
    }

    /// Returns the key of this name, whose hash is `hash`.
    pub(super) fn key(&mut self, hash: u64, name: &str) -> Option<&mut LeasedKey<L>> {
        self.keys.find_mut(hash, |key| key.is_called(name))
    }

    pub(super) fn may_refill(&self, now: Instant) -> bool {
        self.resets == 0 && self.no_refills_until.is_none_or(|until| until <= now)
    }

    /// Returns true if a reset may have forgotten the units that were ordered under a generation,
    /// unless their key is still there.
    pub(super) fn may_be_forgotten(&self, generation: u64) -> bool {
        generation <= self.last_forgotten
    }

    /// Begins to watch the key of a charge under its quota, if there is room. Returns the callers
    /// that waited for units under another quota.
    pub(super) fn begin(
        &mut self,
        hash: u64,
        name: &str,
        charge: &Charge,
        now: Instant,
        settings: &LeaseSettings,
        ended: &mut Ended<L>,
    ) -> LeaseWaiters<L> {
        let mut waiters = LeaseWaiters::new();
        if let Some(mut key) = self.remove(hash, name) {
            key.stocks.end_all(ended);
            waiters = key.dismiss(None, now);
        } else if self.keys.len() >= self.max_keys && self.next_sweep <= now {
            self.sweep(now, settings, ended);
            self.next_sweep = now + settings.validity;
        }
        if self.keys.len() < self.max_keys {
            self.last_generation += 1;
            let name = LeasedName { text: name.into(), hash, is_reset: Arc::default() };
            let quota = charge.own_quota().cloned();
            let key = LeasedKey::new(name, self.last_generation, quota, now);
            self.keys.insert_unique(hash, key, |key| key.name.hash);
        }
        waiters
    }

    /// Begins a reset or a block: removes the key. Until it ends, nothing is refilled.
    pub(super) fn begin_reset(
        &mut self,
        hash: u64,
        name: &str,
        is_reset: bool,
    ) -> Option<LeasedKey<L>> {
        self.resets += 1;
        let key = self.remove(hash, name);
        if is_reset {
            self.last_forgotten = self.last_generation;
            key.iter().for_each(|key| key.name.is_reset.store(true, Relaxed));
        }
        key
    }

    /// Ends a reset. If the store may still run it, refills wait until the given instant.
    pub(super) fn end_reset(&mut self, no_refills_until: Option<Instant>) {
        self.resets -= 1;
        self.no_refills_until = no_refills_until.or(self.no_refills_until);
    }

    pub(super) fn sweep(
        &mut self,
        now: Instant,
        settings: &LeaseSettings,
        ended: &mut Ended<L>,
    ) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        self.keys.retain(|key| {
            let again_at = key.sweep(now, settings, ended);
            next = next.into_iter().chain(again_at).min();
            again_at.is_some()
        });
        next
    }

    fn remove(&mut self, hash: u64, name: &str) -> Option<LeasedKey<L>> {
        let entry = self.keys.find_entry(hash, |key| key.is_called(name)).ok()?;
        Some(entry.remove().0)
    }
}

#[cfg(all(test, interleavings))]
mod interleavings;
