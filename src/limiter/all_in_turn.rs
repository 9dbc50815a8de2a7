//! A combination of limiters over different keys, which are asked one after another.

use std::array;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::charge_numbers::check_key;
use super::combination::decided::{Part, PartsDecision, compare_tightness};
use super::combination::held_reservations::HeldReservations;
use super::combination::in_turn::{EachAlone, Rules, decide, operate};
use super::futures::BoxedFuture;
use super::{Boxed, Limiter, MemberCharges, Operation, Parts};
use crate::core::reservation::{Owner, Reservation};
use crate::core::settlement::{Renewal, Settlement};
use crate::core::{Charge, Decision, Error, ErrorKind};

/// Asks several limiters one after another, all or nothing: a limit per user *and* one for all
/// users.
///
/// The members may be of any type and have different keys. Each member costs a call. If all members
/// are in one Redis, use [`AllAtOnce`](crate::redis::AllAtOnce), which asks them in one call and
/// reserves waits.
///
/// [`of_parts`](AllInTurn::of_parts) gives each member its part of a charge of several keys. With
/// [`new`](AllInTurn::new), a closure returns each member's charge:
/// `AllInTurn::new([user, everybody], |charge| [charge.clone(), Charge::new("all")])`. The guide
/// has [several limits][several].
///
/// # Keys, costs, quotas
///
/// A member's charge states a key, and may state a cost and a quota:
///
/// | the member's charge | takes | after a [settlement](Limiter::settle) |
/// |---|---|---|
/// | has no cost, such as a clone of the whole | the cost of the whole | the actual cost |
/// | states a cost; 0 counts as 1 | its own cost | its own cost; nothing if the actual cost is 0 |
/// | is the only one that states a cost; the whole states none | its own cost | the actual cost; the others keep theirs |
/// | is a peek | nothing; but a key that is blocked or owes units refuses | nothing |
///
/// A peek of the whole charge takes nothing from any member. If the whole charge states a quota, a
/// member's charge must state it; otherwise it is an error of kind [`Configuration`].
///
/// # Order, waits, refunds
///
/// **Order.** Put the member first that a single caller exhausts soonest, such as the limit of a
/// user: then a caller that asks too often does not use the shared limit.
///
/// **Refunds.** Before anything is taken, all members are peeked at, at the same time. One that
/// will refuse is asked first. If a later member still refuses, the units of the earlier members
/// are refunded, as far as their algorithms can.
///
/// **Waits.** Nothing is reserved. A charge is admitted now, or refused with a time to come back:
/// that of the member that refuses longest. One that may wait asks again while only units of a
/// [`Concurrency`](crate::algorithm::Concurrency) are missing, as there. The decision
/// [reports](Decision::policies) the policies of all members from which the charge takes units.
///
/// **Deadlines.** Each check of a member has that member's own deadline. Inside of a
/// [`timeout`](crate::LimiterExt::timeout), the error is of kind [`Saturation`] if the time ends
/// after at least one member has answered. Give a member with its own store a shorter time and a
/// fallback.
///
/// [several]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/several_limits/
///
/// [`Configuration`]: crate::ErrorKind::Configuration
/// [`Saturation`]: crate::ErrorKind::Saturation
pub struct AllInTurn<const N: usize, F> {
    owner: Owner,
    limiters: Arc<[Boxed; N]>,
    policies: Arc<PolicyCounts<N>>,
    keys: Arc<F>,
}

/// The cost of a charge of several members: that of those whose cost a settlement states.
pub(crate) fn whole_cost(charge: &Charge, members: &[Option<Charge>]) -> u64 {
    let settled = members.iter().flatten().find(|member| member.is_settled);
    settled.unwrap_or(charge).units()
}

/// The number of policies of each member: one, until a decision shows more. So a policy keeps its
/// place even if members before it are not asked.
struct PolicyCounts<const N: usize>([AtomicUsize; N]);

impl<const N: usize> PolicyCounts<N> {
    /// Returns the same decision with the places of its policies. A decision about several parts
    /// already has them.
    fn placed(&self, decision: PartsDecision) -> PartsDecision {
        let &[Part { place, .. }] = &decision.parts[..] else { return decision };
        decision.map(|decision| {
            self.0[place].fetch_max(decision.policy_count(), Relaxed);
            decision.behind(self.0[..place].iter().map(|count| count.load(Relaxed)).sum())
        })
    }
}

impl<const N: usize, F> AllInTurn<N, F>
where
    F: Fn(&Charge) -> [Charge; N],
{
    /// A combination that asks each limiter, in this order, about the charge that `keys` returns
    /// for it.
    #[must_use]
    pub fn new(limiters: [Boxed; N], keys: F) -> Self {
        Self::asking(limiters, keys)
    }
}

impl<const N: usize> AllInTurn<N, Parts> {
    /// A combination that asks each limiter, in this order, about its part of a charge of
    /// [`several`](Charge::several) keys.
    ///
    /// A charge with more or fewer parts is an error of kind [`Configuration`]. A member whose part
    /// is absent is not asked. If only one part is present, its member may reserve a wait.
    ///
    /// [`Configuration`]: crate::ErrorKind::Configuration
    #[must_use]
    pub fn of_parts(limiters: [Boxed; N]) -> Self {
        Self::asking(limiters, Parts)
    }
}

impl<const N: usize, F: MemberCharges<N>> AllInTurn<N, F> {
    pub(crate) fn asking(limiters: [Boxed; N], keys: F) -> Self {
        const { assert!(N > 0, "at least one limiter") }
        let (policies, keys) = (Arc::default(), Arc::new(keys));
        Self { owner: Owner::new(), limiters: Arc::new(limiters), policies, keys }
    }

    pub(crate) fn member_charges(&self, charge: &Charge) -> Result<[Option<Charge>; N], Error> {
        let charges = self.keys.member_charges(&charge.for_members())?;
        let has_quota = |charge: &Charge| charge.own_quota().is_some();
        // No member would follow that quota.
        if has_quota(charge) && !charges.iter().flatten().any(has_quota) {
            let message = "the charge states a quota, but no member's charge does";
            return Err(Error::new(ErrorKind::Configuration, message));
        }
        Ok(charge.with_members(charges))
    }
}

impl<const N: usize, F> AllInTurn<N, F> {
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    fn parts(&self, charges: [Option<Charge>; N]) -> Vec<Part> {
        let limiters = self.limiters.iter().zip(charges).enumerate();
        let part = |(place, (limiter, charge)): (_, (&Boxed, Option<_>))| {
            Some(Part::new(place, limiter.clone(), charge?))
        };
        limiters.filter_map(part).collect()
    }

    /// Asks each member about its charge, or several members at once if the rules say so.
    pub(crate) fn ask<R: Rules + Send + 'static>(
        &self,
        charges: [Option<Charge>; N],
        cost: u64,
        rules: R,
    ) -> BoxedFuture {
        let (owner, policies) = (self.owner, Arc::clone(&self.policies));
        let parts = self.parts(charges);
        Box::pin(async move {
            // The request is invalid for every possible answer of the members.
            let with_key = parts.iter().filter(|part| !part.charge.has_parts());
            with_key.map(|part| part.charge.key()).try_for_each(check_key)?;
            let decided = decide(parts, &rules).await?;
            decided.into_named(owner, cost, |one| policies.placed(one))
        })
    }

    /// Changes the key of each member. Returns the tightest decision, with the policies of all
    /// members.
    pub(crate) fn operate_each(
        &self,
        operation: Operation,
        charges: [Option<Charge>; N],
    ) -> Option<BoxedFuture> {
        let answers = operate(operation, self.parts(charges))?;
        let (owner, policies) = (self.owner, Arc::clone(&self.policies));
        Some(Box::pin(
            async move { answers.await?.into_named(owner, 0, |one| policies.placed(one)) },
        ))
    }
}

impl<const N: usize, F: MemberCharges<N>> Limiter for AllInTurn<N, F> {
    type Future = BoxedFuture;

    fn keys(&self) -> Option<usize> {
        F::KEYS
    }

    fn check(&self, charge: &Charge) -> BoxedFuture {
        match self.member_charges(charge) {
            Ok(charges) => {
                let cost = whole_cost(charge, &charges);
                self.ask(charges, cost, EachAlone)
            }
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    /// Admits the request if each member admits it.
    fn check_keyless(&self, why: &Error) -> Option<Decision> {
        // All members are asked, so that all of them count it.
        let answers: Vec<_> = self.limiters.iter().map(|one| one.check_keyless(why)).collect();
        let admitted: Option<Vec<Decision>> = answers.into_iter().collect();
        admitted?.into_iter().min_by(compare_tightness)
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        if reservation.owner() != self.owner {
            return Err(reservation);
        }
        let (cost, charged) = (reservation.cost(), reservation.charged);
        let settled = HeldReservations::of(reservation)?.settle_stated(self.owner, cost, actual);
        settled.map_err(|unsettled| unsettled.with_charged(charged))
    }

    fn renew(&self, reservation: &mut Reservation) -> Option<Renewal> {
        HeldReservations::renew(self.owner, reservation)
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<BoxedFuture> {
        match self.member_charges(charge) {
            Ok(charges) => self.operate_each(operation, charges),
            Err(error) => Some(Box::pin(ready(Err(error)))),
        }
    }
}

impl<const N: usize> Default for PolicyCounts<N> {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicUsize::new(1)))
    }
}

impl<const N: usize, F> Clone for AllInTurn<N, F> {
    fn clone(&self) -> Self {
        Self {
            owner: self.owner,
            limiters: Arc::clone(&self.limiters),
            policies: Arc::clone(&self.policies),
            keys: Arc::clone(&self.keys),
        }
    }
}

debug_by_name!([const N: usize, F] AllInTurn<N, F>: limiters);
