//! Limiters over different keys, asked in turn.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::too_long_a_wait;
use super::named::check_key;
use super::{Boxed, BoxedFuture, Limiter, Operation};
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
/// The closure returns each member's key, and what else its charge states: a cost, a quota. A
/// member that states no cost takes that of the charge. A clone of the charge states none. A stated
/// cost of 0 counts as 1; a peek of the charge takes nothing of any of them. When a reservation is
/// [settled](Limiter::settle), the members that state no cost follow the actual one, and the others
/// keep theirs; a settlement to 0 refunds all.
///
/// # Order, waits, refunds
///
/// Put first the member that a single caller exhausts soonest, such as the limit of a user. Then a
/// caller that asks too much is refused before the limit that all share is touched. The others are
/// peeked at before; one with too little left is asked first. When a later member refuses all the
/// same, what the earlier ones took is refunded, as far as their algorithms can.
///
/// Nothing is reserved: a slot that one limiter reserved would be no slot of the others. A charge
/// is admitted now, or refused with the time to come back.
///
/// Each member keeps to its own deadline. Inside of a [`timeout`](crate::LimiterExt::timeout), the
/// error is of kind [`Saturation`](ErrorKind::Saturation) if the time ends after at least one of
/// them has answered: calls in turn took that time, and no store need be away. Where one of several
/// stores may be away alone, give that limiter a shorter time and a fallback of its own:
/// `limiter.timeout(short).or_else(fallback)`. Without the shorter time it would use up that of the
/// others.
pub struct AllInTurn<const N: usize, F> {
    owner: Owner,
    limiters: Arc<[Boxed; N]>,
    keys: Arc<F>,
}

impl<const N: usize, F> AllInTurn<N, F>
where
    F: Fn(&Charge) -> [Charge; N],
{
    /// The limiters, in the order in which they are asked, and what each is asked about a charge.
    #[must_use]
    pub fn new(limiters: [Boxed; N], keys: F) -> Self {
        const { assert!(N > 0, "at least one limiter") }
        Self { owner: Owner::new(), limiters: Arc::new(limiters), keys: Arc::new(keys) }
    }

    /// The charge of each member.
    pub(super) fn member_charges(&self, charge: &Charge) -> [Charge; N] {
        (self.keys)(&charge.for_members()).map(|member| member.for_member_of(charge))
    }
}

impl<const N: usize, F> AllInTurn<N, F> {
    /// Asks each member about its charge.
    pub(super) fn ask(&self, charges: [Charge; N], cost: u64) -> BoxedFuture {
        let mut tentative = TentativeReservations {
            limiters: Arc::clone(&self.limiters),
            reservations: Vec::new(),
        };
        let owner = self.owner;
        Box::pin(async move {
            // Whatever the members would answer, the request is wrong.
            charges.iter().try_for_each(|charge| check_key(charge.key()))?;
            let charges = charges.map(|charge| charge.max_wait(Duration::ZERO));
            let mut answered = false;
            // A member that will refuse is asked first, so that seldom anything has to be refunded.
            let mut order: Vec<usize> = (0..N).collect();
            for index in (1..N).filter(|index| charges[*index].get_cost() > 0) {
                let peek = charges[index].clone().peek();
                let left =
                    ask_member(&tentative.limiters[index], &peek, &mut answered).await?.remaining();
                if left.is_some_and(|left| left < charges[index].get_cost()) {
                    order[..=index].rotate_right(1);
                }
            }
            let mut tightest: Option<Decision> = None;
            for index in order {
                let asked = ask_member(&tentative.limiters[index], &charges[index], &mut answered);
                let mut decision = asked.await?.denied();
                if !decision.is_admitted() {
                    return Ok(decision);
                }
                let inherits_cost = charges[index].inherits_cost();
                let member = |reservation| MemberReservation { reservation, inherits_cost };
                tentative.reservations.extend(decision.take_reservation().map(member));
                if matches!(decision.outcome(), Outcome::Wait(wait) if !wait.is_zero()) {
                    return Err(too_long_a_wait());
                }
                // One that passes only in shadow tells most.
                let left = |decision: &Decision| {
                    let passes = matches!(decision.shadowed(), None | Some(Ok(Outcome::Allow)));
                    (passes, decision.remaining().unwrap_or(u64::MAX))
                };
                if tightest.as_ref().is_none_or(|least| left(&decision) < left(least)) {
                    tightest = Some(decision);
                }
            }
            let reservations = MemberReservations(std::mem::take(&mut tentative.reservations));
            let Some(decision) = tightest else {
                return Err(Error::new(ErrorKind::Configuration, "there is no limiter to ask"));
            };
            if reservations.0.is_empty() {
                return Ok(decision);
            }
            Ok(decision.with_reservation(Reservation::new(owner, cost, reservations)))
        })
    }
}

/// Asks one member. A deadline that passes after another one has answered says nothing about a
/// store.
async fn ask_member(
    limiter: &Boxed,
    charge: &Charge,
    answered: &mut bool,
) -> Result<Decision, Error> {
    let is_over = || {
        let now = tokio::time::Instant::now().into_std();
        charge.deadline().is_some_and(|deadline| deadline <= now)
    };
    let late = "the time ended before all limiters had decided";
    match limiter.check(charge).await {
        Err(error) if *answered && error.kind() == ErrorKind::Infrastructure && is_over() => {
            Err(Error::new(ErrorKind::Saturation, late).with_source(error))
        }
        answer => {
            *answered = true;
            answer
        }
    }
}

/// What each member took.
struct MemberReservations(Vec<MemberReservation>);

struct MemberReservation {
    reservation: Reservation,
    /// Whether the member states no cost of its own, and takes that of the charge.
    inherits_cost: bool,
}

impl MemberReservations {
    /// Settles each with the limiter that made it, the latest first. A member that states its own
    /// cost keeps it, unless all is refunded. Returns those that no limiter settled.
    fn settle(self, limiters: &[Boxed], actual: u64) -> Vec<MemberReservation> {
        let settle = |MemberReservation { reservation, inherits_cost }| {
            let actual = if inherits_cost || actual == 0 { actual } else { reservation.cost() };
            let unsettled = limiters.iter().try_fold(reservation, |reservation, limiter| {
                match limiter.settle(reservation, actual) {
                    Ok(()) => Err(()),
                    Err(reservation) => Ok(reservation),
                }
            });
            unsettled.ok().map(|reservation| MemberReservation { reservation, inherits_cost })
        };
        self.0.into_iter().rev().filter_map(settle).collect()
    }
}

/// What was taken so far: refunded when dropped, unless all members have admitted.
struct TentativeReservations<const N: usize> {
    limiters: Arc<[Boxed; N]>,
    reservations: Vec<MemberReservation>,
}

impl<const N: usize> Drop for TentativeReservations<N> {
    fn drop(&mut self) {
        MemberReservations(std::mem::take(&mut self.reservations)).settle(&self.limiters[..], 0);
    }
}

impl<const N: usize, F> Limiter for AllInTurn<N, F>
where
    F: Fn(&Charge) -> [Charge; N],
{
    type Future = BoxedFuture;

    fn check(&self, charge: &Charge) -> BoxedFuture {
        self.ask(self.member_charges(charge), charge.get_cost())
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<(), Reservation> {
        let is_more = actual > reservation.cost();
        if reservation.owner() != self.owner || is_more && !self.can_take_more() {
            return Err(reservation);
        }
        let (cost, charged) = (reservation.cost(), reservation.charged());
        let reservations: MemberReservations = reservation.into_payload()?;
        let mut unsettled = reservations.settle(&self.limiters[..], actual);
        if unsettled.is_empty() {
            return Ok(());
        }
        unsettled.reverse();
        let unsettled = MemberReservations(unsettled);
        Err(Reservation::new(self.owner, cost, unsettled).with_charged(charged))
    }

    fn can_take_more(&self) -> bool {
        self.limiters.iter().all(Limiter::can_take_more)
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<BoxedFuture> {
        self.operate_each(operation, &self.member_charges(charge))
    }
}

impl<const N: usize, F> AllInTurn<N, F> {
    /// Changes the key of each member. Returns the decision that refuses longest, else the one that
    /// has least left.
    pub(super) fn operate_each(
        &self,
        operation: Operation,
        charges: &[Charge; N],
    ) -> Option<BoxedFuture> {
        let asked = self.limiters.iter().zip(charges);
        let answers: Vec<_> = asked
            .map(|(limiter, charge)| match operation {
                // In turn no charge waits, so an estimate does not either.
                Operation::Estimate => {
                    limiter.operate(operation, &charge.clone().max_wait(Duration::ZERO))
                }
                _ => limiter.operate(operation, charge),
            })
            .collect::<Option<_>>()?;
        Some(Box::pin(async move {
            let mut tightest: Option<Decision> = None;
            for answer in answers {
                let decision = answer.await?.denied();
                if tightest.as_ref().is_none_or(|least| is_tighter(&decision, least)) {
                    tightest = Some(decision);
                }
            }
            let none = || Error::new(ErrorKind::Configuration, "there is no limiter to ask");
            tightest.ok_or_else(none)
        }))
    }
}

/// Whether a decision refuses where another admits, or refuses longer, or has less left.
fn is_tighter(decision: &Decision, other: &Decision) -> bool {
    let wait = |decision: &Decision| match decision.outcome() {
        Outcome::Deny { retry_after } => retry_after.unwrap_or(Duration::MAX),
        _ => Duration::ZERO,
    };
    let left = |decision: &Decision| decision.remaining().unwrap_or(u64::MAX);
    (Reverse(wait(decision)), left(decision)) < (Reverse(wait(other)), left(other))
}

impl<const N: usize, F> Clone for AllInTurn<N, F> {
    fn clone(&self) -> Self {
        Self {
            owner: self.owner,
            limiters: Arc::clone(&self.limiters),
            keys: Arc::clone(&self.keys),
        }
    }
}

impl<const N: usize, F> fmt::Debug for AllInTurn<N, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllInTurn").field("limiters", &self.limiters).finish_non_exhaustive()
    }
}
