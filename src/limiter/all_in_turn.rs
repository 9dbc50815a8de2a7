//! Limiters over different keys, asked in turn.

mod members;
mod reservations;

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use self::members::{Member, PolicyCounts, compare_tightness, joined, refused};
use self::reservations::{MemberReservation, MemberReservations, TentativeReservations};
use super::acquire::too_long_a_wait;
use super::named::check_key;
use super::timeout::after_other_calls;
use super::{Boxed, BoxedFuture, Limiter, MemberCharges, Operation, Parts};
use crate::settlement::Settlement;
use crate::{Charge, Decision, Error, ErrorKind, Outcome, Owner, Reservation};

/// Limiters over different keys, asked one after another, all or nothing: per user *and* for
/// everybody.
///
/// The members may be of any type. Where all are in one Redis, [`AllAtOnce`](crate::AllAtOnce) asks
/// them in one call, exactly, and reserves waits.
///
/// ```
/// use tower_sluice::algorithm::TokenBucket;
/// use tower_sluice::{AllInTurn, Charge, Limiter, LimiterExt, Memory, Quota};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let user = Memory::new("user", TokenBucket::new(Quota::per_hour(3)));
/// let everybody = Memory::new("everybody", TokenBucket::new(Quota::per_hour(4)));
/// let api = AllInTurn::new([user.boxed(), everybody.boxed()], |charge| {
///     [charge.clone(), Charge::new("all")]
/// });
/// assert!(api.check(&Charge::new("alice").cost(3)).await?.is_admitted());
/// let refused = api.check(&Charge::new("bob").cost(2)).await?;
/// assert_eq!(refused.limiter(), Some("everybody"));
/// assert!(api.check(&Charge::new("bob")).await?.is_admitted());
/// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
/// ```
///
/// [`of_parts`](AllInTurn::of_parts) gives each member its part of a charge of several keys. With
/// [`new`](AllInTurn::new), a closure returns each member's charge.
///
/// Each states a key, and may state a cost and a quota. A member that states no cost takes that of
/// the charge. A clone of the charge states none. A stated cost of 0 counts as 1; a peek of the
/// charge takes nothing of any of them. When a reservation is [settled](Limiter::settle), the
/// members that state no cost follow the actual one, and the others keep theirs; a settlement to 0
/// refunds all.
///
/// A member whose part is a peek takes nothing. It refuses all the same where its key is blocked or
/// owes units.
///
/// A quota of the charge that no member is given is an error of kind [`Configuration`].
///
/// # Order, waits, refunds
///
/// Put first the member that a single caller exhausts soonest, such as the limit of a user. Then a
/// caller that asks too much is refused before the limit that all share is touched. The others are
/// peeked at before; one with too little left is asked first. When a later member refuses all the
/// same, what the earlier ones took is refunded, as far as their algorithms can.
///
/// Nothing is reserved: a slot that one limiter reserved would be no slot of the others. A charge
/// is admitted now, or refused with the time to come back: that of the member that refuses longest.
/// So when one refuses, those that nobody has asked are asked for an
/// [estimate](crate::LimiterExt::estimate). The decision [reports](Decision::policies) the policies
/// of all members that the charge takes from.
///
/// Each member keeps to its own deadline, in each call: one that is peeked at before is asked twice.
/// Inside of a [`timeout`](crate::LimiterExt::timeout), the error is of kind [`Saturation`] if the
/// time ends after at least one of them has answered: calls in turn took that time, and no store
/// need be away. Where one of several stores may be away alone, give that limiter a shorter time and
/// a fallback of its own: `limiter.timeout(short).or_else(fallback)`. Without the shorter time it
/// would use up that of the others.
///
/// [`Configuration`]: crate::ErrorKind::Configuration
/// [`Saturation`]: crate::ErrorKind::Saturation
pub struct AllInTurn<const N: usize, F> {
    owner: Owner,
    limiters: Arc<[Boxed; N]>,
    policies: Arc<PolicyCounts<N>>,
    keys: Arc<F>,
}

impl<const N: usize, F> AllInTurn<N, F>
where
    F: Fn(&Charge) -> [Charge; N],
{
    /// The limiters, in the order in which they are asked, and what each is asked about a charge.
    #[must_use]
    pub fn new(limiters: [Boxed; N], keys: F) -> Self {
        Self::asking(limiters, keys)
    }
}

impl<const N: usize> AllInTurn<N, Parts> {
    /// The limiters, in the order in which they are asked, each about its part of a charge of
    /// [`several`](Charge::several) keys.
    ///
    /// ```
    /// use tower_sluice::algorithm::TokenBucket;
    /// use tower_sluice::{AllInTurn, Charge, Limiter, LimiterExt, Memory, Quota};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// let user = Memory::new("user", TokenBucket::new(Quota::per_hour(3)));
    /// let address = Memory::new("address", TokenBucket::new(Quota::per_hour(4)));
    /// let both = AllInTurn::of_parts([user.boxed(), address.boxed()]);
    /// assert!(both.check(&Charge::new(("alice", "192.0.2.1")).cost(3)).await?.is_admitted());
    /// let refused = both.check(&Charge::new(("bob", "192.0.2.1")).cost(2)).await?;
    /// assert_eq!(refused.limiter(), Some("address"));
    /// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
    /// ```
    ///
    /// A charge with more or fewer parts is an error of kind
    /// [`Configuration`]. A member whose part is absent is not asked; one
    /// that is left alone may reserve a wait.
    ///
    /// [`Configuration`]: crate::ErrorKind::Configuration
    #[must_use]
    pub fn of_parts(limiters: [Boxed; N]) -> Self {
        Self::asking(limiters, Parts)
    }
}

impl<const N: usize, F: MemberCharges<N>> AllInTurn<N, F> {
    pub(super) fn asking(limiters: [Boxed; N], keys: F) -> Self {
        const { assert!(N > 0, "at least one limiter") }
        let (policies, keys) = (Arc::default(), Arc::new(keys));
        Self { owner: Owner::new(), limiters: Arc::new(limiters), policies, keys }
    }

    /// The charge of each member that is asked.
    pub(super) fn member_charges(&self, charge: &Charge) -> Result<[Option<Charge>; N], Error> {
        let charges = self.keys.member_charges(&charge.for_members())?;
        let has_quota = |charge: &Charge| charge.get_quota().is_some();
        // Nobody would follow it.
        if has_quota(charge) && !charges.iter().flatten().any(has_quota) {
            let message =
                "a quota belongs to a member's charge, and no member is given that of the whole";
            return Err(Error::new(ErrorKind::Configuration, message));
        }
        Ok(charges.map(|member| member.map(|member| member.for_member_of(charge))))
    }
}

impl<const N: usize, F> AllInTurn<N, F> {
    /// Asks each member about its charge.
    pub(super) fn ask(&self, charges: [Option<Charge>; N], cost: u64) -> BoxedFuture {
        let mut tentative = TentativeReservations {
            limiters: Arc::clone(&self.limiters),
            reservations: Vec::new(),
        };
        let (owner, policies) = (self.owner, Arc::clone(&self.policies));
        Box::pin(async move {
            let mut members: Vec<Member> = Member::of_charges(charges);
            // Whatever the members would answer, the request is wrong.
            let with_key = members.iter().filter(|member| !member.charge.has_parts());
            with_key.map(|member| member.charge.key()).try_for_each(check_key)?;
            if let [Member { index, charge, .. }] = &members[..] {
                let decision = tentative.limiters[*index].check(charge).await?;
                let decision = policies.placed(*index, decision);
                let inherits_cost = charge.inherits_cost();
                return Ok(wrap_reservation(decision, owner, cost, inherits_cost));
            }
            for member in &mut members {
                member.charge.set_max_wait(Duration::ZERO);
            }
            let mut answered = false;
            // A member that will refuse is asked first, so that seldom anything has to be refunded.
            for place in 1..members.len() {
                let Member { index, charge, answer, .. } = &mut members[place];
                if charge.get_cost() == 0 {
                    continue;
                }
                let peek = charge.clone().peek();
                let peeking = tentative.limiters[*index].check(&peek);
                let peeked = after_others(peeking, &peek, &mut answered).await?;
                match peeked.remaining().is_some_and(|left| left < charge.get_cost()) {
                    true => members[..=place].rotate_right(1),
                    false => *answer = Some(peeked),
                }
            }
            for place in 0..members.len() {
                let Member { index, charge, answer, taken } = &mut members[place];
                let decision = tentative.limiters[*index].check(charge);
                let decision = after_others(decision, charge, &mut answered).await?;
                let mut decision = decision.without_retry();
                if !decision.is_admitted() {
                    *answer = Some(decision);
                    return refused(&tentative.limiters[..], members, &policies).await;
                }
                let inherits_cost = charge.inherits_cost();
                *taken = decision.reservation().map_or(0, Reservation::cost);
                let member = |reservation| MemberReservation { reservation, inherits_cost };
                tentative.reservations.extend(decision.take_reservation().map(member));
                if matches!(decision.outcome(), Outcome::Wait(wait) if !wait.is_zero()) {
                    return Err(too_long_a_wait());
                }
                *answer = Some(decision);
            }
            let reservations = MemberReservations(std::mem::take(&mut tentative.reservations));
            let decision = joined(members, &policies)?;
            if reservations.0.is_empty() {
                return Ok(decision);
            }
            Ok(decision.with_reservation(reservations.into_reservation(owner, cost)))
        })
    }
}

/// The decision of the only member that was asked, with a reservation of the combination.
fn wrap_reservation(
    mut decision: Decision,
    owner: Owner,
    cost: u64,
    inherits_cost: bool,
) -> Decision {
    match decision.take_reservation() {
        None => decision,
        Some(reservation) => {
            let reservations = vec![MemberReservation { reservation, inherits_cost }];
            let reservations = MemberReservations(reservations);
            decision.with_reservation(reservations.into_reservation(owner, cost))
        }
    }
}

/// The answer of one member, perhaps after another one has answered.
async fn after_others(
    answer: impl Future<Output = Result<Decision, Error>>,
    charge: &Charge,
    answered: &mut bool,
) -> Result<Decision, Error> {
    match answer.await {
        Err(error) if *answered => Err(after_other_calls(error, charge)),
        answer => {
            *answered = true;
            answer
        }
    }
}

impl<const N: usize, F: MemberCharges<N>> Limiter for AllInTurn<N, F> {
    type Future = BoxedFuture;

    fn check(&self, charge: &Charge) -> BoxedFuture {
        match self.member_charges(charge) {
            Ok(charges) => self.ask(charges, charge.get_cost()),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    /// Admits it if each member does.
    fn check_keyless(&self, why: &Error) -> Option<Decision> {
        // Each is asked, so that each counts it.
        let answers: Vec<_> = self.limiters.iter().map(|one| one.check_keyless(why)).collect();
        let admitted: Option<Vec<Decision>> = answers.into_iter().collect();
        admitted?.into_iter().min_by(compare_tightness)
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        let is_more = actual > reservation.cost();
        if reservation.owner() != self.owner || is_more && !self.can_take_more() {
            return Err(reservation);
        }
        let (cost, charged) = (reservation.cost(), reservation.charged());
        let reservations: MemberReservations = reservation.into_payload()?;
        reservations
            .settle(&self.limiters[..], actual)
            .map_err(|unsettled| unsettled.into_reservation(self.owner, cost).with_charged(charged))
    }

    fn can_take_more(&self) -> bool {
        self.limiters.iter().all(Limiter::can_take_more)
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<BoxedFuture> {
        match self.member_charges(charge) {
            Ok(charges) => self.operate_each(operation, &charges),
            Err(error) => Some(Box::pin(ready(Err(error)))),
        }
    }
}

impl<const N: usize, F> AllInTurn<N, F> {
    /// Changes the key of each member. Returns the tightest decision, with the policies of all.
    pub(super) fn operate_each(
        &self,
        operation: Operation,
        charges: &[Option<Charge>; N],
    ) -> Option<BoxedFuture> {
        let is_alone = charges.iter().flatten().count() == 1;
        let asked = self.limiters.iter().zip(charges);
        let answers: Vec<_> = asked
            .filter_map(|(limiter, charge)| Some((limiter, charge.as_ref()?)))
            .map(|(limiter, charge)| match operation {
                // In turn no charge waits, so an estimate does not either.
                Operation::Estimate if !is_alone => {
                    limiter.operate(operation, &charge.clone().max_wait(Duration::ZERO))
                }
                _ => limiter.operate(operation, charge),
            })
            .collect::<Option<_>>()?;
        let mut members = Member::of_charges(charges.clone());
        let policies = Arc::clone(&self.policies);
        Some(Box::pin(async move {
            let mut answered = false;
            for (member, answer) in members.iter_mut().zip(answers) {
                let answer = after_others(answer, &member.charge, &mut answered).await?;
                member.answer = Some(answer.without_retry());
            }
            joined(members, &policies)
        }))
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

impl<const N: usize, F> fmt::Debug for AllInTurn<N, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllInTurn").field("limiters", &self.limiters).finish_non_exhaustive()
    }
}
