//! Limiters over different keys in one call, where only the request says which they are, and each
//! charge has a cost and a longest wait of its own.
//!
//! `all_at_once.rs` is the same for members that are known when the program is written.

use super::assembly::local_names;
use super::key::key_suffixes;
use super::request::Op;
use super::{Redis, RedisFuture};
use crate::algorithm::{Check, InLua, OwnTerms, sealed::Single};
use crate::charge::Key;
use crate::limiter::Limiter;
use crate::limiter::named::{NamedAlgorithm, check_key, expect_valid_quota};
use crate::limiter::on_own_terms::{member_of, whole};
use crate::{Charge, Reservation};

/// What the algorithms of one script may declare. The loop around them needs the rest of the 200.
const MAX_LOCAL_NAMES: usize = 136;

/// Two to eight limiters in one Redis.
#[derive(Clone)]
pub(crate) struct Together<A: InLua + Single> {
    members: Vec<Redis<A>>,
    joined: Redis<Vec<OwnTerms<A>>>,
}

impl<A: InLua + Single> Together<A> {
    /// The limiters, which are over one pool. The time for a decision and the settings of batches
    /// are those of the first. `None` if they are too many for one script.
    pub(crate) fn new(members: &[&Redis<A>]) -> Option<Self> {
        let first = &members[0].inner;
        let config = first.batcher.config();
        let configs = || members.iter().map(|one| one.inner.batcher.config());
        let names = members.iter().map(|one| one.inner.named.name().clone()).collect();
        let algorithms: Vec<_> =
            members.iter().map(|one| OwnTerms(one.inner.named.algorithm().clone())).collect();
        if local_names(&InLua::parts(&algorithms)) > MAX_LOCAL_NAMES {
            return None;
        }
        // Each member's algorithm follows its quota, and a list asks for no more.
        let named = expect_valid_quota(NamedAlgorithm::named(names, algorithms));
        let key_prefixes = configs().flat_map(|one| one.key_prefixes.clone()).collect();
        let buckets = configs().flat_map(|one| one.buckets.clone()).collect();
        let joined = Redis::under(named, key_prefixes, config.pool.clone());
        let joined = joined.decision_timeout(first.decision_timeout).configure(|joined| {
            joined.buckets = buckets;
            joined.set_max_batch_size(config.max_batch_size);
            joined.clock = config.clock.clone();
            joined.max_in_flight = config.max_in_flight;
            joined.queue_capacity = config.queue_capacity;
        });
        Some(Self { members: members.iter().map(|one| (*one).clone()).collect(), joined })
    }

    /// Takes what each charge asks for, or nothing. Each says how many units it is and how long it
    /// may wait.
    ///
    /// `None` if their keys lie in different slots of a cluster, where no call decides about all.
    pub(crate) fn check(&self, charges: &[Charge]) -> Option<RedisFuture<Vec<OwnTerms<A>>>> {
        let inner = &self.joined.inner;
        let config = inner.batcher.config();
        // A key that is too long is refused before it is digested.
        if let Err(error) = charges.iter().try_for_each(|charge| check_key(charge.key())) {
            return Some(RedisFuture::failed(inner, error));
        }
        let suffixes = config.key_suffixes(charges);
        if !config.share_a_call(&suffixes) {
            return None;
        }
        let whole = whole(charges, inner.named.quota());
        let op = |Check { cost, max_wait }| Op::Check { cost, max_wait };
        Some(inner.ask_keys(suffixes.concat(), &whole, op))
    }

    /// Settles what a reservation of these limiters took. Of each, `actual` says what its units
    /// come to in the end. All of it is given back in one call; else each is settled on its own.
    pub(crate) fn settle(
        &self,
        reservation: Reservation,
        actual: impl Fn(u64) -> u64,
    ) -> Result<(), Reservation> {
        if actual(reservation.cost()) == 0 {
            return self.joined.settle(reservation, 0);
        }
        let (_, payload) = self.joined.inner.named.open(reservation)?;
        let suffixes = key_suffixes(payload.key.as_str(), self.members.len());
        for (index, (one, suffix)) in self.members.iter().zip(suffixes).enumerate() {
            let key = Key::Owned(suffix.to_owned());
            let Some((cost, own)) = member_of(&payload.quota, &payload.mark, index, key) else {
                continue;
            };
            // Best effort, as every settlement is.
            if let Ok(Some(request)) = one.inner.settle(&own, cost, actual(cost)) {
                let _ = one.inner.batcher.send_and_forget(request);
            }
        }
        Ok(())
    }
}
