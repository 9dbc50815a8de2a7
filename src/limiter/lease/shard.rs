//! A shard: some of the leased keys, under their own lock.

use hashbrown::HashTable;
use tokio::time::Instant;

use super::key::LeasedKey;
use super::leases::Unspent;
use super::name::Name;
use super::queue::Queue;
use super::settings::Settings;
use super::stocks::Ended;
use crate::Charge;
use crate::limiter::Limiter;

/// Some of the keys, under their own lock.
pub(super) struct Shard<L: Limiter> {
    keys: HashTable<LeasedKey<L>>,
    max_keys: usize,
    last_generation: u64,
    /// The last generation that a reset may have forgotten. Units that were ordered under it or an
    /// older one, and are not spent, are not refunded either.
    last_forgotten: u64,
    /// The resets under way. Until they end there is no refill: the store could decide it before
    /// the reset, and its units could be spent after the reset.
    resets: usize,
    no_refills_until: Option<Instant>,
    next_sweep: Instant,
}

impl<L: Limiter> Shard<L> {
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

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key of this name, whose hash is `hash`.
    pub(super) fn key(&mut self, hash: u64, name: &str) -> Option<&mut LeasedKey<L>> {
        self.keys.find_mut(hash, |key| key.is_called(name))
    }

    pub(super) fn keys(&mut self) -> impl Iterator<Item = &mut LeasedKey<L>> {
        self.keys.iter_mut()
    }

    pub(super) fn may_refill(&self, now: Instant) -> bool {
        self.resets == 0 && self.no_refills_until.is_none_or(|until| until <= now)
    }

    /// Returns true if a reset may have forgotten the units that were ordered under a generation.
    pub(super) fn is_forgotten(&self, generation: u64) -> bool {
        generation <= self.last_forgotten
    }

    /// Begins to watch the key of a charge under its quota, if there is room. Returns the callers
    /// that wait for units under another quota.
    pub(super) fn begin(
        &mut self,
        hash: u64,
        name: &str,
        charge: &Charge,
        now: Instant,
        settings: &Settings,
        ended: &mut Ended<L>,
    ) -> Queue<L> {
        let mut waiters = Queue::default();
        if let Some(mut key) = self.remove(hash, name) {
            key.end_all(ended);
            waiters = key.dismiss(None, now);
        } else if self.keys.len() >= self.max_keys && self.next_sweep <= now {
            self.sweep(now, settings, ended);
            self.next_sweep = now + settings.validity;
        }
        if self.keys.len() < self.max_keys {
            self.last_generation += 1;
            let name = Name { text: name.into(), hash };
            let quota = charge.get_quota().cloned();
            let key = LeasedKey::new(name, self.last_generation, quota, now);
            self.keys.insert_unique(hash, key, |key| key.name.hash);
        }
        waiters
    }

    /// Begins a reset: removes the key. Until the reset ends, nothing is refilled.
    pub(super) fn begin_reset(
        &mut self,
        hash: u64,
        name: &str,
        unspent: Unspent,
    ) -> Option<LeasedKey<L>> {
        self.resets += 1;
        if let Unspent::IsForgotten = unspent {
            self.last_forgotten = self.last_generation;
        }
        self.remove(hash, name)
    }

    /// Ends a reset. If it may still be under way in the store, refills wait until an instant.
    pub(super) fn end_reset(&mut self, no_refills_until: Option<Instant>) {
        self.resets -= 1;
        self.no_refills_until = no_refills_until.or(self.no_refills_until);
    }

    pub(super) fn sweep(
        &mut self,
        now: Instant,
        settings: &Settings,
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
