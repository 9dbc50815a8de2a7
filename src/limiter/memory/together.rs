//! Limiters of this process over different keys, all or nothing, where only the request says which
//! they are, and each charge has a cost and a longest wait of its own.

use std::borrow::Cow;
use std::sync::MutexGuard;

use super::Memory;
use super::shard::Shard;
use super::store::local_provenance;
use crate::algorithm::{Algorithm, Mark, OwnTerms, Refund, sealed::Single};
use crate::charge::Key;
use crate::limiter::named::{NamedAlgorithm, check_key, expect_valid_quota, units};
use crate::limiter::on_own_terms::{member_of, whole};
use crate::quota::Quotas;
use crate::settlement::Settlement;
use crate::{Charge, Decision, Error, ErrorKind, Reservation, digest};

/// Two to eight limiters of one process.
#[derive(Clone)]
pub(crate) struct Together<A: Algorithm + Single> {
    members: Vec<Memory<A>>,
    named: NamedAlgorithm<Vec<OwnTerms<A>>>,
}

/// What was taken.
struct Taken {
    names: Vec<String>,
    quota: Quotas,
    mark: Mark,
}

/// The shards of some keys, locked, in the order of the keys.
struct Locked<'a, A: Algorithm> {
    shards: Vec<MutexGuard<'a, Shard<A::State>>>,
    keys: Vec<(u64, &'a [u8])>,
    now: i64,
}

impl<A: Algorithm + Single> Together<A> {
    /// The limiters, each of its own keys.
    pub(crate) fn new(members: &[&Memory<A>]) -> Self {
        let names = members.iter().map(|one| one.store.named.name().clone()).collect();
        let algorithms =
            members.iter().map(|one| OwnTerms(one.store.named.algorithm().clone())).collect();
        // Each member's algorithm follows its quota, and a list asks for no more.
        let named = NamedAlgorithm::named(names, algorithms);
        let named = expect_valid_quota(members[0].store.named.name(), named).keeping_names();
        Self { members: members.iter().map(|one| (*one).clone()).collect(), named }
    }

    /// Takes what each charge asks for, or nothing. Each says how many units it is and how long it
    /// may wait.
    pub(crate) fn check(&self, charges: &[Charge]) -> Result<Decision, Error> {
        charges.iter().try_for_each(|charge| check_key(charge.key()))?;
        let whole = whole(charges, self.named.quota());
        let parsed = self.named.read(&whole)?;
        let names: Vec<Cow<'_, str>> =
            charges.iter().map(|charge| digest::short(charge.key())).collect();
        let mut locked = self.lock(names.iter().map(|name| &**name))?;
        let now = locked.now;
        let mut states = Some(locked.states()?);
        let answer = Vec::<OwnTerms<A>>::step(&parsed.rule, &mut states, now, parsed.check);
        if let Some(mark) = &answer.mark {
            locked.store(&parsed.rule, states.unwrap_or_default())?;
            drop(locked);
            let names = names.into_iter().map(Cow::into_owned).collect();
            let quota = parsed.quota.clone().unwrap_or_else(|| self.named.quota().clone());
            let taken = Taken { names, quota, mark: mark.clone() };
            let cost = parsed.check.cost;
            let from = local_provenance(now);
            let mut decision =
                self.named.decision(parsed.quota, cost, answer, from, Key::Constant(""));
            return Ok(match decision.take_reservation() {
                None => decision,
                Some(own) => {
                    let reservation = Reservation::new(own.owner(), own.cost(), taken);
                    decision.with_reservation(reservation.with_held(own.is_held()))
                }
            });
        }
        let (cost, from) = (parsed.check.cost, local_provenance(now));
        Ok(self.named.decision(parsed.quota, cost, answer, from, Key::Constant("")))
    }

    /// Settles what a reservation of these limiters took. Of each, `actual` says what its units
    /// come to in the end. All of it is given back at once; else each is settled on its own.
    pub(crate) fn settle(
        &self,
        reservation: Reservation,
        actual: impl Fn(u64) -> u64,
    ) -> Result<Settlement, Reservation> {
        if reservation.owner() != self.named.owner {
            return Err(reservation);
        }
        let cost = reservation.cost();
        let taken = reservation.into_payload()?;
        Ok(match actual(cost) {
            0 => Settlement::from(self.refund(taken, units(cost))),
            _ => self.settle_each(taken, actual),
        })
    }

    fn refund(&self, taken: Taken, cost: i64) -> Result<u64, Error> {
        let Taken { names, quota, mark } = taken;
        let rule = self.named.rule(&quota)?;
        let mut locked = self.lock(names.iter().map(String::as_str))?;
        let (now, mut states) = (locked.now, Some(locked.states()?));
        let refund = Refund::whole(cost, &mark);
        let units = Vec::<OwnTerms<A>>::refund(&rule, &mut states, now, &refund);
        if units.is_some() {
            locked.store(&rule, states.unwrap_or_default())?;
        }
        Ok(units.unwrap_or(0).cast_unsigned())
    }

    fn settle_each(&self, taken: Taken, actual: impl Fn(u64) -> u64) -> Settlement {
        let Taken { names, quota, mark } = taken;
        let members = self.members.iter().zip(names).enumerate();
        Settlement::all(members.filter_map(|(index, (one, name))| {
            let (cost, payload) = member_of(&quota, &mark, index, Key::Owned(name))?;
            Some(Settlement::from(one.store.settle(&payload, cost, actual(cost))))
        }))
    }

    /// Locks the shards of these keys. Every caller locks them in the same order, so none waits for
    /// another one that waits for it.
    fn lock<'a>(
        &'a self,
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<Locked<'a, A>, Error> {
        let addresses: Vec<_> = self
            .members
            .iter()
            .zip(names.clone())
            .map(|(one, name)| one.store.address(name))
            .collect();
        let mut order: Vec<usize> = (0..addresses.len()).collect();
        order.sort_unstable_by_key(|index| addresses[*index].0);
        let mut shards: Vec<Option<MutexGuard<'_, _>>> = addresses.iter().map(|_| None).collect();
        for index in order {
            shards[index] = Some(self.members[index].store.lock(addresses[index].1));
        }
        let mut shards: Vec<_> = shards.into_iter().flatten().collect();
        // Read under the locks: a decision that overtook this one would lie in its future.
        let (now, is_monotonic) = self.members[0].store.now()?;
        shards.iter_mut().for_each(|shard| shard.maintain(now, is_monotonic));
        let keys = addresses.iter().zip(names).map(|((_, hash), name)| (*hash, name.as_bytes()));
        Ok(Locked { shards, keys: keys.collect(), now })
    }
}

impl<A: Algorithm> Locked<'_, A> {
    fn states(&mut self) -> Result<Vec<Option<A::State>>, Error> {
        let pairs = self.shards.iter_mut().zip(&self.keys);
        pairs
            .map(|(shard, key)| shard.update(*key, self.now, |state| (state.clone(), None)))
            .collect()
    }

    /// Stores all states, or none.
    fn store(
        &mut self,
        rule: &[<OwnTerms<A> as Algorithm>::Rule],
        states: Vec<Option<A::State>>,
    ) -> Result<(), Error>
    where
        A: Single,
    {
        let now = self.now;
        let mut pairs = self.shards.iter_mut().zip(&self.keys);
        if !pairs.all(|(shard, key)| shard.has_room_for(*key, now)) {
            return Err(Error::new(ErrorKind::Capacity, "the memory is full of live keys"));
        }
        let pairs = self.shards.iter_mut().zip(&self.keys);
        for ((shard, key), (rule, state)) in pairs.zip(rule.iter().zip(states)) {
            let Some(state) = state else { continue };
            let expires_at = OwnTerms::<A>::expires_at(rule, &state);
            shard.update(*key, now, |stored| {
                *stored = Some(state);
                ((), Some(expires_at))
            })?;
        }
        Ok(())
    }
}
