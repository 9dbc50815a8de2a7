//! Limiters over different keys in one call. Each request chooses its limiters, and each charge has
//! a cost and a longest wait of its own.
//!
//! `all_at_once.rs` is the same for members that the program fixes, and that have one cost and one
//! longest wait.

use super::all_at_once::join;
use super::limiter::Redis;
use super::redis_future::RedisFuture;
use super::script::{Op, key_suffixes, local_names};
use crate::algorithm::{Check, InLua, OwnCost, sealed::Single};
use crate::charge::Key;
use crate::limiter::Limiter;
use crate::limiter::named::{NamedAlgorithm, check_key, expect_valid_quota};
use crate::limiter::on_own_terms::{member_of, whole};
use crate::settlement::Settlement;
use crate::{Charge, Reservation};

/// The most local variables that the algorithms of one script may declare. The loop around them
/// needs the rest of the 200.
const MAX_LOCAL_NAMES: usize = 136;

/// Two to eight limiters in one Redis.
#[derive(Clone)]
pub(crate) struct Together<A: InLua + Single> {
    members: Vec<Redis<A>>,
    joined: Redis<Vec<OwnCost<A>>>,
}

impl<A: InLua + Single> Together<A> {
    /// Joins limiters over one pool. The time for a decision and the settings of batches are those
    /// of the first. Returns `None` if they are too many for one script.
    pub(crate) fn new(members: &[&Redis<A>]) -> Option<Self> {
        let names = members.iter().map(|one| one.inner.named.name().clone()).collect();
        let algorithms: Vec<_> =
            members.iter().map(|one| OwnCost(one.inner.named.algorithm().clone())).collect();
        if local_names(&InLua::parts(&algorithms)) > MAX_LOCAL_NAMES {
            return None;
        }
        // Each member's algorithm follows its quota, and a list asks for no more.
        let named = NamedAlgorithm::named(names, algorithms);
        let named = expect_valid_quota(members[0].inner.named.name(), named).keeping_names();
        let places: Vec<_> = (0..members.len()).collect();
        let joined = join(members, &places, named);
        Some(Self { members: members.iter().map(|one| (*one).clone()).collect(), joined })
    }

    /// Takes the units of all charges, or nothing. Each charge has its own cost and longest wait.
    ///
    /// Returns `None` if their keys lie in different slots of a cluster: no call can then decide
    /// about all.
    pub(crate) fn check(&self, charges: &[Charge]) -> Option<RedisFuture<Vec<OwnCost<A>>>> {
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

    /// Settles a reservation of these limiters. `actual` maps the cost of each to the units that
    /// were used. A full refund is one call; otherwise each limiter settles on its own.
    pub(crate) fn settle(
        &self,
        reservation: Reservation,
        actual: impl Fn(u64) -> u64,
    ) -> Result<Settlement, Reservation> {
        if actual(reservation.cost()) == 0 {
            return self.joined.settle(reservation, 0);
        }
        let (_, payload) = self.joined.inner.named.open(reservation)?;
        let suffixes = key_suffixes(payload.key.as_str(), self.members.len());
        let members = self.members.iter().zip(suffixes).enumerate();
        Ok(Settlement::all(members.filter_map(|(index, (one, suffix))| {
            let key = Key::Owned(suffix.to_owned());
            let (cost, own) = member_of(&payload.quota, &payload.mark, index, key)?;
            let settled = one.inner.settle(&own, cost, actual(cost));
            Some(settled.unwrap_or_else(|error| Settlement::from(Err(error))))
        })))
    }
}
