//! Limiters over different keys in one call.

use std::future::ready;
use std::sync::{Arc, OnceLock};

use super::redis_limiter::Redis;
use super::script::{key_suffixes, local_names};
use crate::algorithm::{AnyAlgorithm, InLua};
use crate::core::quota::QuotaError;
use crate::core::reservation::{Owner, Reservation};
use crate::core::settlement::{Renewal, Settlement};
use crate::core::{Charge, Error, ErrorKind};
use crate::limiter::charge_numbers::one_key;
use crate::limiter::combination::at_once::{AtATime, AtOnce, Connecting, Together};
use crate::limiter::combination::whole_charge::{of_alike, of_each, settle_each};
use crate::limiter::configured::{ConfiguredAlgorithm, expect_valid_quota};
use crate::limiter::futures::BoxedFuture;
use crate::limiter::line::SettleUnits;
use crate::limiter::{Limiter, Operation};

/// The most local variables that the algorithms of one script may declare. The loop around them
/// needs the rest of the 200.
const MAX_LOCAL_NAMES: usize = 136;

type List = ConfiguredAlgorithm<Vec<AnyAlgorithm>>;

/// Two to eight limiters over one pool, for which one call decides, all or nothing.
///
/// If all charges have the same cost and longest wait, their algorithms become a list like that of
/// a limiter over one key. The charges of a [`Together`] always have their own.
pub(crate) struct OneCall {
    /// All limiters of the combination. The settings are those of the first.
    all: Box<[Redis<AnyAlgorithm>]>,
    /// The places of the limiters that this call asks.
    places: Box<[usize]>,
    is_together: bool,
    alike: OnceLock<Redis<Vec<AnyAlgorithm>>>,
    /// The limiter for different costs. `None` if one script is too small for the members. Without
    /// it, a request of 20 policies takes 40 calls in place of 8, and no request of policies waits.
    each: OnceLock<Option<Redis<Vec<AnyAlgorithm>>>>,
}

impl OneCall {
    /// The limiters at `places` among `all` members of a combination.
    pub(super) fn of_members(all: &[Redis<AnyAlgorithm>], places: &[usize]) -> Self {
        Self {
            all: all.into(),
            places: places.into(),
            is_together: false,
            alike: OnceLock::new(),
            each: OnceLock::new(),
        }
    }

    /// Returns the limiter for charges with the same cost and longest wait.
    pub(super) fn alike(&self) -> &Redis<Vec<AnyAlgorithm>> {
        self.alike.get_or_init(|| self.join(self.list(Ok)))
    }

    fn each(&self) -> Option<&Redis<Vec<AnyAlgorithm>>> {
        let joined = || {
            let list = self.list(List::at_own_costs);
            (local_names(&list.parts()) <= MAX_LOCAL_NAMES).then(|| self.join(list))
        };
        self.each.get_or_init(joined).as_ref()
    }

    fn list(&self, costs: impl FnOnce(List) -> Result<List, QuotaError>) -> List {
        let names: Vec<_> = self.all.iter().map(|one| one.inner.named.name().clone()).collect();
        let algorithms = self.members().map(|one| one.inner.named.algorithm).collect();
        // Each member's algorithm follows its quota, and a list has no other conditions.
        let list = List::of_members(&names, &self.places, algorithms).and_then(costs);
        let list = expect_valid_quota(&names[self.places[0]], list);
        if self.is_together { list.keeping_names() } else { list }
    }

    fn join(&self, list: List) -> Redis<Vec<AnyAlgorithm>> {
        join(&self.all.iter().collect::<Vec<_>>(), &self.places, list)
    }

    fn members(&self) -> impl Iterator<Item = &Redis<AnyAlgorithm>> {
        self.places.iter().map(|place| &self.all[*place])
    }

    /// Asks about all charges in one call.
    ///
    /// # Errors
    ///
    /// The number to ask at a time instead, if no call can decide about all. Their keys may be in
    /// different slots of a cluster, one script may be too small for them, or some may take
    /// nothing. A script would also write those that take nothing.
    pub(super) fn ask(
        &self,
        operation: Option<Operation>,
        charges: &[&Charge],
    ) -> Result<BoxedFuture, AtATime> {
        let failed = |error| -> BoxedFuture { Box::pin(ready(Err(error))) };
        // A key that is too long is rejected before it is hashed.
        if let Err(error) = charges.iter().try_for_each(|charge| one_key(charge).map(drop)) {
            return Ok(failed(error));
        }
        let keyed = || {
            self.members().zip(charges).map(|(one, charge)| (one.inner.batcher.config(), charge))
        };
        let suffixes: Vec<_> =
            keyed().map(|(config, charge)| config.buckets[0].suffix(charge.key())).collect();
        if !self.all[0].inner.batcher.config().share_a_call(&suffixes) {
            return Err(AtATime(1));
        }
        let keys: Vec<_> =
            keyed().map(|(config, _)| &config.key_prefixes[0]).zip(&suffixes).collect();
        if (1..keys.len()).any(|index| keys[..index].contains(&keys[index])) {
            return Ok(failed(Error::new(ErrorKind::Request, "one key is charged twice")));
        }
        let asked = |charge: &Charge| (charge.units(), charge.longest_wait().unwrap_or_default());
        let are_alike = charges.iter().all(|charge| asked(charge) == asked(charges[0]));
        let (inner, whole) = if are_alike && !self.is_together {
            let inner = &self.alike().inner;
            (inner, of_alike(charges, &inner.named.quota))
        } else {
            let free = charges.iter().filter(|charge| charge.units() == 0).count();
            if (1..charges.len()).contains(&free) {
                return Err(AtATime(1));
            }
            let inner = &self.each().ok_or(AtATime(charges.len().div_ceil(2)))?.inner;
            (inner, of_each(charges, &inner.named.quota))
        };
        Ok(match whole {
            Ok(whole) => Box::pin(inner.ask_keys(Ok(suffixes.concat()), operation, &whole)),
            Err(error) => failed(error),
        })
    }
}

impl Together {
    /// Limiters over one pool, for which one call decides. The decision timeout, the clock and the
    /// settings of batches are those of the first. `None` if they are fewer than two or more than
    /// [`MAX`](Together::MAX), or if they do not share a pool.
    ///
    /// A cluster runs a script only on keys of one hash slot, and one script is too small for some
    /// lists, such as eight token buckets. [`decide`](crate::store::decide) then asks fewer at a
    /// time.
    #[must_use]
    pub fn of_redis(limiters: &[&Redis<AnyAlgorithm>]) -> Option<Self> {
        let pool = |one: &Redis<_>| one.inner.batcher.config().pool.clone();
        let is_one_pool = limiters.iter().all(|one| pool(one).is_same_as(&pool(limiters[0])));
        ((2..=Self::MAX).contains(&limiters.len()) && is_one_pool).then(|| {
            let places: Vec<_> = (0..limiters.len()).collect();
            let all: Vec<_> = limiters.iter().map(|one| (*one).clone()).collect();
            Self(Arc::new(OneCall { is_together: true, ..OneCall::of_members(&all, &places) }))
        })
    }
}

impl AtOnce for OneCall {
    fn members(&self) -> usize {
        self.places.len()
    }

    fn check(&self, charges: &[&Charge]) -> Result<BoxedFuture, AtATime> {
        self.ask(None, charges)
    }

    fn connecting(&self, charge: &Charge) -> Option<Connecting> {
        let first = &self.all[0];
        let connecting = || first.clone().connected(first.deadline(charge));
        (!first.knows_servers()).then(|| Box::pin(connecting()) as _)
    }

    /// Settles all in one call, if all have the same old and new cost, or if all units are
    /// refunded. Otherwise each limiter settles on its own.
    fn settle(
        &self,
        reservation: Reservation,
        actual: &dyn Fn(usize, u64) -> u64,
    ) -> Result<Settlement, Reservation> {
        let Some(one) = self.of_owner(reservation.owner()) else { return Err(reservation) };
        let (list, cost) = (&one.inner.named, reservation.cost());
        let used = actual(0, cost);
        let is_one = (1..self.places.len()).all(|index| actual(index, cost) == used);
        match is_one && (used == 0 || !list.has_own_costs()) {
            true => one.settle(reservation, used),
            // Not 0: the slot of a waiter who uses some of the units is not passed on.
            false => list.settle(reservation, 1, |reserved, cost| {
                let suffixes = key_suffixes(reserved.key.as_str(), self.places.len());
                let stores = self.members().map(|one| &*one.inner as &dyn SettleUnits);
                Ok(settle_each(stores.zip(suffixes), (cost, reserved), &list.quota, actual))
            }),
        }
    }

    fn renew(&self, reservation: &mut Reservation) -> Option<Renewal> {
        self.of_owner(reservation.owner())?.renew(reservation)
    }
}

impl OneCall {
    /// Returns the limiter of all members that has this owner.
    fn of_owner(&self, owner: Owner) -> Option<&Redis<Vec<AnyAlgorithm>>> {
        let both = [self.alike.get(), self.each.get().and_then(Option::as_ref)];
        both.into_iter().flatten().find(|one| one.inner.named.owner == owner)
    }
}

/// Joins the members at `places` in one limiter with the algorithm `named`. Each keeps its own
/// keys. The decision timeout, the clock and the settings of batches are those of the first of all
/// members. The bound of its queue applies to all of them together.
pub(super) fn join<A: InLua, B: InLua>(
    all: &[&Redis<A>],
    places: &[usize],
    named: ConfiguredAlgorithm<B>,
) -> Redis<B> {
    let first = &all[0].inner;
    let config = first.batcher.config();
    let configs = || places.iter().map(|place| all[*place].inner.batcher.config());
    let key_prefixes = configs().flat_map(|one| one.key_prefixes.clone()).collect();
    let named = named.asking_several(places.iter().map(|place| &all[*place].inner.named));
    let joined = Redis::with_key_prefixes(named, key_prefixes, config.pool.clone());
    joined.decision_timeout(first.decision_timeout).configure(|joined| {
        joined.buckets = configs().flat_map(|one| one.buckets.clone()).collect();
        joined.set_max_batch_size(config.max_batch_size);
        joined.clock = config.clock.clone();
        joined.max_in_flight = config.max_in_flight;
        joined.queue_room = Arc::clone(&config.queue_room);
    })
}
