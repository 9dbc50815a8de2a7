//! Limiters over different keys in one call: per user *and* for everybody.
//!
//! The members' algorithms become one tuple, and each member keeps its own keys, so that it can be
//! asked alone as well. A cluster runs a script on keys of one hash slot only, and a call has one
//! cost for all its keys. Where slots or costs differ, the members are asked in turn, as
//! [`AllInTurn`] does.

mod future;

use std::fmt;

pub use self::future::AllAtOnceFuture;
use self::future::StatedCosts;
use super::request::Op;
use super::{Members, Redis, RedisFuture};
use crate::algorithm::{Check, InLua};
use crate::limiter::all_in_turn::AllInTurn;
use crate::limiter::named::one_key;
use crate::limiter::{Limiter, MemberCharges, Operation, Parts, timeout};
use crate::quota::{Quota, Quotas};
use crate::{Charge, Error, ErrorKind, Owner, Reservation};

/// Limiters in one Redis over different keys, in one call, all or nothing: per user *and* for
/// everybody.
///
/// ```no_run
/// use tower_sluice::algorithm::{FixedWindow, TokenBucket};
/// use tower_sluice::{Charge, Pool, Quota, Redis, AllAtOnce};
///
/// # fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::connect("redis://127.0.0.1:6379")?;
/// let user = Redis::new("user", TokenBucket::new(Quota::per_second(10)), pool.clone());
/// let everybody = Redis::new("everybody", FixedWindow::new(Quota::per_hour(100_000)), pool);
/// let api = AllAtOnce::new((user, everybody), |charge| [charge.clone(), Charge::new("all")]);
/// # Ok(()) }
/// ```
///
/// Each member keeps its own keys, so it can be asked alone as well. The closure returns each
/// member's key, and its quota if it has one of its own. [`of_parts`](AllAtOnce::of_parts) takes
/// both from a charge of several keys. The charge's `max_wait` and deadline hold for all. The
/// decision names the limiter and the quota that refuses or delays. Everything else is as for a
/// tuple of algorithms over one key.
///
/// A member that states no cost takes that of the charge; a peek takes nothing of any of them. One
/// call has one cost, and in a cluster keys of one hash slot. Where costs or slots differ, the
/// members are asked in turn, as [`AllInTurn`] does, in more round trips and without reserved
/// waits.
pub struct AllAtOnce<A: InLua, const N: usize, F> {
    /// The owner of reservations where all members state their own costs.
    owner: Owner,
    in_one_call: Redis<A>,
    in_turn: AllInTurn<N, F>,
}

impl<A: InLua, const N: usize, F> AllAtOnce<A, N, F>
where
    F: Fn(&Charge) -> [Charge; N],
{
    /// The members, and a closure that returns the key of each.
    ///
    /// The time for a decision, the clock and the settings of batches are those of the first
    /// member. In one call the order means nothing else. Where members are asked in turn, put first
    /// the one with the fewest units for one caller: see [`AllInTurn`].
    ///
    /// # Panics
    ///
    /// If they are not over one [`Pool`](crate::Pool).
    #[must_use]
    pub fn new<T: Members<N, Algorithm = A>>(members: T, keys: F) -> Self {
        Self::asking(members, keys)
    }
}

impl<A: InLua, const N: usize> AllAtOnce<A, N, Parts> {
    /// The members, each of which is asked about its part of a charge of
    /// [`several`](Charge::several) keys.
    ///
    /// ```no_run
    /// use tower_sluice::algorithm::{FixedWindow, TokenBucket};
    /// use tower_sluice::{AllAtOnce, Pool, Quota, RateLimitLayer, Redis, by_head};
    ///
    /// # fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::connect("redis://127.0.0.1:6379")?;
    /// let user = Redis::new("user", TokenBucket::new(Quota::per_second(10)), pool.clone());
    /// let everybody = Redis::new("everybody", FixedWindow::new(Quota::per_hour(100_000)), pool);
    /// let both = AllAtOnce::of_parts((user, everybody));
    /// let layer = RateLimitLayer::new(both, by_head(|head| (head.header("x-user"), "all")));
    /// # let _ = layer;
    /// # Ok(()) }
    /// ```
    ///
    /// A charge with more or fewer parts is an error of kind
    /// [`Configuration`](ErrorKind::Configuration). Where a part is absent, the other members are
    /// asked in turn; one that is left alone reserves waits as before.
    ///
    /// # Panics
    ///
    /// If they are not over one [`Pool`](crate::Pool).
    #[must_use]
    pub fn of_parts<T: Members<N, Algorithm = A>>(members: T) -> Self {
        Self::asking(members, Parts)
    }
}

impl<A: InLua, const N: usize, F: MemberCharges<N>> AllAtOnce<A, N, F> {
    fn asking<T: Members<N, Algorithm = A>>(members: T, keys: F) -> Self {
        let in_turn = AllInTurn::asking(members.boxed_members(), keys);
        Self { owner: Owner::new(), in_one_call: members.joined(), in_turn }
    }

    /// Refunds all of a reservation, and returns how many units: the most that one of the members
    /// could.
    ///
    /// # Errors
    ///
    /// If the reservation is another limiter's, or one that was made in turn; or if Redis cannot be
    /// asked.
    pub async fn refund_confirmed(&self, reservation: Reservation) -> Result<u64, Error> {
        self.in_one_call.refund_confirmed(reservation).await
    }

    /// Asks in one call. If that is not possible, returns the members' charges, to be asked in
    /// turn.
    fn ask(
        &self,
        charge: &Charge,
        op: impl Fn(Check) -> Op,
    ) -> Result<AllAtOnceFuture<A>, [Option<Charge>; N]> {
        let inner = &self.in_one_call.inner;
        let failed = |error| AllAtOnceFuture::in_one_call(RedisFuture::failed(inner, error), None);
        let charges = match self.in_turn.member_charges(charge) {
            Ok(charges) => charges,
            Err(error) => return Ok(failed(error)),
        };
        let present: Vec<&Charge> = charges.iter().flatten().collect();
        // A key that is too long is refused before it is digested.
        if let Err(error) = present.iter().try_for_each(|charge| one_key(charge).map(drop)) {
            return Ok(failed(error));
        }
        let config = inner.batcher.config();
        let key_suffixes = config.key_suffixes(present.iter().copied());
        let is_alike = |one: &&Charge| {
            let first = present[0];
            one.get_cost() == first.get_cost() && one.inherits_cost() == first.inherits_cost()
        };
        let can_ask_in_one_call = present.len() == N
            && present.iter().all(is_alike)
            && config.share_a_call(&key_suffixes);
        if !can_ask_in_one_call {
            let deadline = timeout::deadline(charge, inner.decision_timeout).into_std();
            return Err(charges.map(|one| one.map(|one| one.with_deadline(deadline))));
        }
        let inherits_cost = present[0].inherits_cost();
        let joined = charge.clone().with_key_of(present[0]).cost(present[0].get_cost());
        let asked = match self.charge_with_quotas(joined, &present, &key_suffixes) {
            Ok(charge) => inner.ask_keys(key_suffixes.concat(), &charge, op),
            Err(error) => RedisFuture::failed(inner, error),
        };
        let stated = Some((self.owner, charge.get_cost())).filter(|_| !inherits_cost);
        Ok(AllAtOnceFuture::in_one_call(asked, stated))
    }

    /// The charge with the quotas of the members' charges.
    fn charge_with_quotas(
        &self,
        charge: Charge,
        charges: &[&Charge],
        key_suffixes: &[String],
    ) -> Result<Charge, Error> {
        let key_prefixes = &self.in_one_call.inner.batcher.config().key_prefixes;
        let keys: Vec<_> = key_prefixes.iter().zip(key_suffixes).collect();
        if (1..N).any(|index| keys[..index].contains(&keys[index])) {
            return Err(Error::new(ErrorKind::Request, "one key is charged twice"));
        }
        if charges.iter().all(|charge| charge.get_quota().is_none()) {
            return Ok(charge);
        }
        let own = self.in_one_call.inner.named.quota().as_slice();
        let quotas = charges
            .iter()
            .zip(own)
            .map(|(charge, own)| charge.get_quota().map_or(Ok(*own), Quotas::one))
            .collect::<Result<Vec<Quota>, _>>()
            .map_err(|error| {
                Error::new(ErrorKind::Configuration, "a member takes one quota").with_source(error)
            })?;
        Ok(charge.quota(Quotas::from(quotas.as_slice())))
    }
}

impl<A: InLua, const N: usize, F: MemberCharges<N>> Limiter for AllAtOnce<A, N, F> {
    type Future = AllAtOnceFuture<A>;

    fn check(&self, charge: &Charge) -> AllAtOnceFuture<A> {
        match self.ask(charge, |Check { cost, max_wait }| Op::Check { cost, max_wait }) {
            Ok(decision) => decision,
            Err(charges) => AllAtOnceFuture::in_turn(self.in_turn.ask(charges, charge.get_cost())),
        }
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<(), Reservation> {
        if reservation.owner() == self.owner {
            // Stated costs stay, unless all is refunded.
            let (cost, charged) = (reservation.cost(), reservation.charged());
            let StatedCosts(taken) = reservation.into_payload()?;
            let settled = if actual == 0 { self.in_one_call.settle(taken, 0) } else { Ok(()) };
            let unsettled = |taken| Reservation::new(self.owner, cost, StatedCosts(taken));
            return settled.map_err(|taken| unsettled(taken).with_charged(charged));
        }
        let settled = self.in_one_call.settle(reservation, actual);
        settled.or_else(|reservation| self.in_turn.settle(reservation, actual))
    }

    fn can_take_more(&self) -> bool {
        self.in_one_call.can_take_more()
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<AllAtOnceFuture<A>> {
        let asked = match operation {
            Operation::Estimate => {
                self.ask(charge, |Check { cost, max_wait }| Op::Estimate { cost, max_wait })
            }
            Operation::Penalize => self.ask(charge, |Check { cost, .. }| Op::Penalize { cost }),
            // A reset has no cost, so costs cannot differ.
            Operation::Reset => self.ask(&charge.clone().peek(), |_| Op::Reset),
        };
        match asked {
            Ok(decision) => Some(decision),
            Err(charges) => {
                self.in_turn.operate_each(operation, &charges).map(AllAtOnceFuture::in_turn)
            }
        }
    }
}

impl<A: InLua, const N: usize, F> Clone for AllAtOnce<A, N, F> {
    fn clone(&self) -> Self {
        Self {
            owner: self.owner,
            in_one_call: self.in_one_call.clone(),
            in_turn: self.in_turn.clone(),
        }
    }
}

impl<A: InLua, const N: usize, F> fmt::Debug for AllAtOnce<A, N, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllAtOnce").field("in_one_call", &self.in_one_call).finish_non_exhaustive()
    }
}
