//! Limiters of this process over different keys, all or nothing. The request determines the
//! limiters, and each charge has its own cost and longest wait.

use std::borrow::Cow;
use std::future::ready;
use std::ptr;
use std::sync::Arc;

use super::Memory;
use super::key_shard::{KeyState, Shard};
use super::key_store::local_provenance;
use crate::algorithm::{Algorithm, AnyAlgorithm};
use crate::core::charge::Key;
use crate::core::mark::Mark;
use crate::core::reservation::{Reservation, ReservedUnits};
use crate::core::settlement::{Renewal, Settlement};
use crate::core::sync::{MutexGuard, lock};
use crate::core::{Charge, Decision, Error, ErrorKind, digest};
use crate::limiter::charge_numbers::check_key;
use crate::limiter::combination::at_once::{AtATime, AtOnce, Together};
use crate::limiter::combination::whole_charge::{of_each, settle_each};
use crate::limiter::configured::{ConfiguredAlgorithm, expect_valid_quota};
use crate::limiter::futures::BoxedFuture;
use crate::limiter::line::SettleUnits;
use crate::limiter::queues::QueueTerms;

type Each = Vec<AnyAlgorithm>;
type State = <AnyAlgorithm as Algorithm>::State;

/// Two to eight different limiters of one process.
#[derive(Clone)]
pub(super) struct OneLock {
    members: Vec<Memory<AnyAlgorithm>>,
    named: ConfiguredAlgorithm<Each>,
}

/// The shards of some keys, locked, in the order of the keys.
struct Locked<'a> {
    shards: Vec<MutexGuard<'a, Shard<State>>>,
    keys: Vec<(u64, &'a [u8])>,
    now: i64,
}

impl OneLock {
    pub(super) fn new(members: &[&Memory<AnyAlgorithm>]) -> Self {
        let names = members.iter().map(|one| one.store.named.name().clone()).collect();
        let algorithms = members.iter().map(|one| one.store.named.algorithm).collect();
        // Each member's algorithm follows its quota, and a list has no other conditions.
        let named = ConfiguredAlgorithm::named(names, algorithms);
        let named = named.and_then(ConfiguredAlgorithm::at_own_costs);
        let named = expect_valid_quota(members[0].store.named.name(), named).keeping_names();
        let named = named.asking_several(members.iter().map(|one| &one.store.named));
        Self { members: members.iter().map(|one| (*one).clone()).collect(), named }
    }

    /// Takes the units of all charges, or nothing. Each charge has its own cost and longest wait.
    pub(super) fn decide(&self, charges: &[&Charge]) -> Result<Decision, Error> {
        charges.iter().try_for_each(|charge| check_key(charge.key()))?;
        let whole = of_each(charges, &self.named.quota)?;
        let check = self.named.read(&whole)?;
        let rule = self.named.rule(whole.own_quota())?;
        let names: Vec<Cow<'_, str>> =
            charges.iter().map(|charge| digest::short(charge.key())).collect();
        let store = || Arc::new(self.clone()) as Arc<dyn SettleUnits>;
        let (key, quota) = (|| one_name(&names), whole.own_quota());
        if let Some(decision) = self.named.take_spare(key, quota, check, store) {
            return Ok(decision);
        }
        let is_new = charges.iter().all(|charge| charge.retried_for().is_zero());
        if is_new
            && let Some(decision) = self.named.join_queue(&key(), || QueueTerms::of(&whole), check)
        {
            return Ok(decision);
        }
        let known = self.named.lines.known();
        let mut locked = self.lock(&names)?;
        let now = locked.now;
        let paused = locked.each(|kept| kept.pause_end(now).unwrap_or(0))?;
        let check = check.paused_until(&paused);
        let block_ends = locked.each(|kept| kept.block_end(now).unwrap_or(0))?;
        if block_ends.iter().any(|end| *end > 0) {
            let states = locked.each(|kept| kept.state.clone())?;
            let answer = Each::blocked(&rule, Some(&states), now, check, &block_ends);
            let from = local_provenance(now);
            let (quota, key) = (quota.cloned(), Key::Constant(""));
            return Ok(self.named.decision(quota, (0, &whole.keep_free), answer, from, key));
        }
        let has_room = locked.has_room();
        // States are taken out, since a log is long. Without room for all, they are copied, since
        // none can be stored.
        let mut states = Some(locked.each(|kept| match has_room {
            true => kept.state.take(),
            false => kept.state.clone(),
        })?);
        let mut answer = Each::step(&rule, &mut states, now, check);
        let changed = answer.mark.is_some();
        if let Some(mark) = answer.mark.take() {
            answer.mark = Some(mark.with_births(&locked.each(|kept| kept.birth())?));
        }
        locked.store(&rule, states.unwrap_or_default(), changed, has_room)?;
        drop(locked);
        let (asked, from) = ((check.cost, &whole.keep_free), local_provenance(now));
        let key = Key::Owned(key());
        self.named.note_pause(key.as_str(), &answer, now);
        let mut decision = self.named.decision(quota.cloned(), asked, answer, from, key);
        self.named.line_up(&mut decision, &whole.keep_free, known, store);
        Ok(match self.named.may_queue(check) {
            true => {
                let terms = QueueTerms::of(&whole);
                self.named.queue_up(decision, (&one_name(&names), terms), check.max_wait)
            }
            false => decision,
        })
    }

    fn settle_each(
        &self,
        (cost, reserved): (u64, &ReservedUnits),
        actual: &dyn Fn(usize, u64) -> u64,
    ) -> Settlement {
        let stores = self.members.iter().map(|one| &*one.store as &dyn SettleUnits);
        let stores = stores.zip(names_of(reserved.key.as_str()));
        settle_each(stores, (cost, reserved), &self.named.quota, actual)
    }

    fn renew_each(
        &self,
        reserved: &ReservedUnits,
        cost: i64,
        mark: &Mark,
    ) -> Result<(Mark, bool), Error> {
        let quotas = reserved.quota.as_ref().unwrap_or(&self.named.quota);
        let names = names_of(reserved.key.as_str());
        let (mut marks, mut are_held) = (Vec::new(), true);
        for (index, (one, name)) in self.members.iter().zip(names).enumerate() {
            let cost = quotas.stated(index).map_or(cost, |own| own.cost);
            let quota = quotas.as_slice().get(index).map(|quota| (*quota).into());
            let part =
                ReservedUnits { key: Key::Owned(name.to_owned()), quota, mark: mark.of(index) };
            let (next, is_held) = match one.store.named.holds() {
                true => one.store.renew(&part, cost, &part.mark)?,
                false => (part.mark, true),
            };
            marks.push(next);
            are_held &= is_held;
        }
        Ok((Mark::from(marks).with_births(mark.births()), are_held))
    }

    /// Locks the shards of these keys. Every caller locks them in the same order, so there is no
    /// deadlock.
    fn lock<'a>(&'a self, names: &'a [Cow<'_, str>]) -> Result<Locked<'a>, Error> {
        let members = self.members.iter().zip(names);
        let places: Vec<_> = members.map(|(one, name)| one.store.place(name)).collect();
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_unstable_by_key(|index| ptr::from_ref(places[*index].0));
        if order.windows(2).any(|pair| ptr::eq(places[pair[0]].0, places[pair[1]].0)) {
            return Err(Error::new(ErrorKind::Configuration, "one limiter is asked twice"));
        }
        let mut shards: Vec<Option<MutexGuard<'_, _>>> = places.iter().map(|_| None).collect();
        for index in order {
            shards[index] = Some(lock(places[index].0));
        }
        let mut shards: Vec<_> = shards.into_iter().flatten().collect();
        // Read under the locks: otherwise a decision that overtakes this one would be in its
        // future.
        let now = self.members[0].store.clock().now()?;
        shards.iter_mut().for_each(|shard| shard.maintain(now));
        let keys = places.iter().zip(names).map(|((_, hash), name)| (*hash, name.as_bytes()));
        Ok(Locked { shards, keys: keys.collect(), now })
    }
}

impl Together {
    /// Limiters of this process. The clock is that of the first: give the others
    /// [its clock](Memory::clock_of). `None` if they are fewer than two or more than
    /// [`MAX`](Together::MAX).
    #[must_use]
    pub fn of_memory(limiters: &[&Memory<AnyAlgorithm>]) -> Option<Self> {
        let is_possible = (2..=Self::MAX).contains(&limiters.len());
        is_possible.then(|| Self(Arc::new(OneLock::new(limiters))))
    }
}

impl AtOnce for OneLock {
    fn members(&self) -> usize {
        self.members.len()
    }

    fn check(&self, charges: &[&Charge]) -> Result<BoxedFuture, AtATime> {
        Ok(Box::pin(ready(self.decide(charges))))
    }

    /// Each limiter settles on its own.
    fn settle(
        &self,
        reservation: Reservation,
        actual: &dyn Fn(usize, u64) -> u64,
    ) -> Result<Settlement, Reservation> {
        let cost = reservation.cost();
        let most = (0..self.members.len()).map(|index| actual(index, cost)).max().unwrap_or(0);
        self.named.settle(reservation, most, |reserved, cost| {
            Ok(self.settle_each((cost, reserved), actual))
        })
    }

    /// Each limiter renews on its own.
    fn renew(&self, reservation: &mut Reservation) -> Option<Renewal> {
        let this = self.clone();
        self.named.renew(reservation, |reserved, cost, mark| async move {
            let (next, is_held) = this.renew_each(&reserved, cost, &mark.get())?;
            mark.set(next);
            Ok(is_held)
        })
    }
}

/// Takes back slots of several keys, whose names are joined.
impl SettleUnits for OneLock {
    fn settle_units(&self, reserved: &ReservedUnits, cost: u64, actual: u64) -> Settlement {
        self.settle_each((cost, reserved), &|_, _| actual)
    }
}

/// Joins several names to one, from which [`names_of`] reads them again.
fn one_name(names: &[Cow<'_, str>]) -> String {
    names.iter().map(|name| format!("{}:{name}", name.len())).collect()
}

fn names_of(joined: &str) -> impl Iterator<Item = &str> + Clone {
    let mut rest = joined;
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_once(':')?;
        let (name, others) = behind.split_at_checked(length.parse().ok()?)?;
        rest = others;
        Some(name)
    })
}

impl Locked<'_> {
    /// Returns true if all keys have a place, or can have one.
    fn has_room(&mut self) -> bool {
        let now = self.now;
        self.shards.iter_mut().zip(&self.keys).all(|(shard, key)| shard.has_room_for(*key, now))
    }

    /// Calls `change` with each key. It may change states, but stores none of a new key.
    fn each<T>(&mut self, change: impl Fn(&mut KeyState<State>) -> T) -> Result<Vec<T>, Error> {
        let pairs = self.shards.iter_mut().zip(&self.keys);
        pairs
            .map(|(shard, key)| shard.update(*key, self.now, |kept| (change(kept), None)))
            .collect()
    }

    /// Stores all states, or none if there is no room for changed ones.
    fn store(
        &mut self,
        rule: &<Each as Algorithm>::Rule,
        states: Vec<Option<State>>,
        changed: bool,
        has_room: bool,
    ) -> Result<(), Error> {
        if !has_room {
            let full = || Error::new(ErrorKind::Capacity, "the memory is full of live keys");
            return if changed { Err(full()) } else { Ok(()) };
        }
        let now = self.now;
        let pairs = self.shards.iter_mut().zip(&self.keys);
        for ((shard, key), (member, state)) in pairs.zip(rule.iter().zip(states)) {
            let Some(state) = state else { continue };
            let expires_at = changed.then(|| AnyAlgorithm::expires_at(&member.rule, &state));
            shard.update(*key, now, |kept| {
                kept.state = Some(state);
                ((), expires_at)
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
