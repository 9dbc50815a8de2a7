//! The decisions about the parts of a charge, which become one decision.

use std::cmp::{Ordering, Reverse};
use std::time::Duration;
use std::{iter, mem};

use super::held_reservations::{By, Charges, HeldReservations, Tentative};
use crate::core::decision::{DecidedPolicy, Origin, make_distinct};
use crate::core::reservation::{Owner, Reservation};
use crate::core::settlement::{Renewal, Settlement};
use crate::core::{Charge, Decision, Error, ErrorKind, Outcome};
use crate::limiter::Boxed;

/// A limit that decides about a request, and the charge of the request under it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Part {
    /// The place of the limit among all parts of the request. Reports have this order.
    pub place: usize,
    /// The limiter that is asked if this part is asked alone.
    pub limiter: Boxed,
    /// The charge, with its own key, cost and longest wait.
    pub charge: Charge,
}

/// The decision about one part, or about several parts that were asked at once.
pub(crate) struct PartsDecision {
    pub(crate) parts: Vec<Part>,
    pub(crate) decision: Decision,
    taken: Vec<u64>,
}

/// The decisions about the parts of a request, and the units that they took. When it is dropped,
/// these units are given back, unless [`into_decision`](Decided::into_decision) made one decision
/// of it.
#[derive(Default)]
#[must_use = "the units that it took are given back when it is dropped"]
pub struct Decided {
    pub(super) decisions: Vec<PartsDecision>,
    pub(super) taken: Tentative,
}

impl Part {
    /// A part at this place among the parts of a request.
    pub fn new(place: usize, limiter: Boxed, charge: Charge) -> Self {
        Self { place, limiter, charge }
    }
}

impl PartsDecision {
    /// Splits the decision that `by` made about these parts from its reservation.
    pub(super) fn of(by: By, parts: Vec<Part>, mut decision: Decision) -> (Self, Tentative) {
        let reservation = decision.take_reservation();
        let taken = match (&parts[..], &reservation) {
            (_, None) => Vec::new(),
            ([_], Some(reservation)) => vec![reservation.cost()],
            (several, Some(_)) => several.iter().map(|part| part.charge.units()).collect(),
        };
        let charges = Charges::new(parts.iter().map(|part| (part.place, &part.charge)));
        (Self { parts, decision, taken }, Tentative::new(by, charges, reservation))
    }

    pub(super) fn untaken(parts: Vec<Part>, decision: Decision) -> Self {
        Self { parts, decision, taken: Vec::new() }
    }

    pub(crate) fn map(self, change: impl FnOnce(Decision) -> Decision) -> Self {
        Self { decision: change(self.decision), ..self }
    }

    fn place(&self) -> usize {
        self.parts[0].place
    }

    fn has_cost(&self) -> bool {
        self.parts.iter().any(|part| part.charge.units() > 0)
    }

    fn policies(&self) -> impl Iterator<Item = (usize, DecidedPolicy)> {
        // One part may have several policies.
        let last = self.parts.len() - 1;
        let policies = self.decision.to_policies().into_iter().enumerate();
        policies.map(move |(index, policy)| (self.parts[index.min(last)].place, policy))
    }

    fn each(&self) -> impl Iterator<Item = (&Part, Outcome, &Decision)> {
        let Self { parts, decision, .. } = self;
        // A decision that no limiter made, such as one of `FailOpen`, counts for all parts.
        let is_each = parts.len() > 1 && decision.policies().count() == parts.len();
        let own = decision.policies().map(|policy| policy.outcome()).filter(move |_| is_each);
        let outcomes = own.chain(iter::repeat(decision.outcome()));
        parts.iter().zip(outcomes).map(move |(part, outcome)| (part, outcome, decision))
    }

    /// Returns true if the only part makes the caller ask again within its longest wait. No other
    /// part is asked until then.
    pub(super) fn asks_again(&self) -> bool {
        let most = self.max_wait();
        matches!(self.decision.outcome(), Outcome::Retry(pause) if pause <= most && !most.is_zero())
    }

    /// Returns true if the only part reserved a longer wait than requested.
    pub(super) fn waits_too_long(&self) -> bool {
        self.parts.len() == 1
            && matches!(self.decision.outcome(), Outcome::Wait(wait) if wait > self.max_wait())
    }

    fn max_wait(&self) -> Duration {
        self.parts[0].charge.longest_wait().unwrap_or_default()
    }

    fn given_back(self) -> Self {
        let Self { parts, decision, taken } = self;
        Self { parts, decision: decision.given_back(&taken), taken: Vec::new() }
    }
}

impl Decided {
    /// One decision about these parts, for example in place of a store that failed. The limiter of
    /// the only part settles the reservation of the decision; several parts take nothing.
    pub fn new(parts: Vec<Part>, mut decision: Decision) -> Self {
        let Some(first) = parts.first() else { return Self::default() };
        let by = By::Alone(first.limiter.clone());
        if parts.len() > 1 {
            decision.take_reservation();
        }
        let (own, taken) = PartsDecision::of(by, parts, decision);
        Self { decisions: vec![own], taken }
    }

    /// Returns each part with its own outcome, in the order of their places. The decision may be
    /// about several parts, and tells why and by what it was made.
    pub fn each(&self) -> impl Iterator<Item = (&Part, Outcome, &Decision)> {
        let mut all: Vec<_> = self.decisions.iter().flat_map(PartsDecision::each).collect();
        all.sort_by_key(|(part, ..)| part.place);
        all.into_iter()
    }

    /// Returns the outcome for the request: the tightest of all. It is admitted without parts.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let decisions = self.decisions.iter().map(|one| &one.decision);
        decisions
            .min_by(|one, other| compare_tightness(one, other))
            .map_or(Outcome::Allow, Decision::outcome)
    }

    /// Changes each decision.
    pub fn map(mut self, mut change: impl FnMut(Decision) -> Decision) -> Self {
        let decisions = mem::take(&mut self.decisions);
        self.decisions = decisions.into_iter().map(|one| one.map(&mut change)).collect();
        self
    }

    /// Adds the decisions about other parts, with the units that they took.
    pub fn extend(&mut self, mut others: Self) {
        self.decisions.append(&mut others.decisions);
        self.hold(others);
    }

    /// Adds only the units that others took, for limits that do not count, such as those in a
    /// shadow. They are settled together with the own ones.
    pub fn hold(&mut self, others: Self) {
        self.taken.extend(others.taken);
    }

    pub(super) fn given_back(self) -> Self {
        let decisions = self.decisions.into_iter().map(PartsDecision::given_back).collect();
        Self { decisions, taken: Tentative::default() }
    }

    /// Joins all to one decision, with a report of each part in the order of their places. Its
    /// reservation has this owner and this cost: settle it with [`settle`].
    ///
    /// # Errors
    ///
    /// An error of kind [`Configuration`](ErrorKind::Configuration) if there is no part.
    pub fn into_decision(self, owner: Owner, cost: u64) -> Result<Decision, Error> {
        let cause = self.decisions.iter().find_map(|one| one.decision.fallback_cause().cloned());
        let named = |one: PartsDecision| one.map(Decision::keeping_name);
        let decision = self.into_named(owner, cost, named)?.keeping_name();
        Ok(match cause {
            Some(cause) if decision.fallback_cause().is_none() => {
                decision.with_fallback_cause(cause)
            }
            _ => decision,
        })
    }

    /// Joins all to one decision, after `named` has set the places of its policies.
    pub(crate) fn into_named(
        self,
        owner: Owner,
        cost: u64,
        named: impl FnMut(PartsDecision) -> PartsDecision,
    ) -> Result<Decision, Error> {
        let nobody = || Error::new(ErrorKind::Configuration, "there is no limiter to ask");
        let decision =
            joined(self.decisions.into_iter().map(named).collect()).ok_or_else(nobody)?;
        Ok(match self.taken.keep().into_reservation(owner, cost) {
            Some(reservation) => decision.with_reservation(reservation),
            None => decision,
        })
    }
}

debug_by_name!([] Decided: decisions);
debug_by_name!([] PartsDecision: decision);

/// Settles a reservation that [`Decided::into_decision`] made for this owner. `used` returns the
/// units that a part used, from its place and the units that it took. It is best effort: units that
/// no limiter can settle stay taken.
///
/// # Errors
///
/// The reservation itself, if it has another owner.
pub fn settle(
    owner: Owner,
    reservation: Reservation,
    used: impl Fn(usize, u64) -> u64,
) -> Result<Settlement, Reservation> {
    if reservation.owner() != owner {
        return Err(reservation);
    }
    let held = HeldReservations::of(reservation)?;
    Ok(held.settle(|place, _, own| used(place, own)).0)
}

/// Renews the hold of a reservation that [`Decided::into_decision`] made for this owner: see
/// [`Limiter::renew`](crate::Limiter::renew).
pub fn renew(owner: Owner, reservation: &mut Reservation) -> Option<Renewal> {
    HeldReservations::renew(owner, reservation)
}

/// Joins the decisions of all parts, with every policy in the order of the parts' places. `None` if
/// there are no decisions.
///
/// A part that takes nothing is left out, unless it refuses (its key may be blocked), or no part
/// takes anything.
fn joined(mut decisions: Vec<PartsDecision>) -> Option<Decision> {
    if decisions.iter().any(PartsDecision::has_cost) {
        decisions.retain(|one| one.has_cost() || !one.decision.is_admitted());
    }
    // If decisions are equal, the first counts.
    decisions.sort_by_key(PartsDecision::place);
    let mut policies: Vec<_> = decisions.iter().flat_map(PartsDecision::policies).collect();
    policies.sort_by_key(|(place, _)| *place);
    let mut policies: Vec<_> = policies.into_iter().map(|(_, policy)| policy).collect();
    let waits = decisions.iter().filter(|one| !one.decision.waited().is_zero()).count();
    let not_taken = decisions.iter().map(|one| one.decision.not_taken()).max()?;
    let paused_for = decisions.iter().filter_map(|one| one.decision.paused_for()).max();
    let is_blocked = decisions.iter().any(|one| one.decision.is_blocked());
    let decisions = decisions.into_iter().map(|one| one.decision);
    let mut decision = decisions.min_by(compare_tightness)?;
    if waits > 1 {
        // A slot that moves up in the line of one part would be too early for the others.
        decision.take_waiters();
    }
    if policies.len() != decision.policies().count() {
        make_distinct(&mut policies.iter_mut().map(|one| &mut one.name).collect::<Vec<_>>());
        decision.set_policies(policies.into());
    }
    if let Some(time) = paused_for {
        decision.set_paused_for(time);
    }
    if is_blocked {
        decision.set_blocked();
    }
    Some(if not_taken > 0 { decision.with_not_taken(not_taken) } else { decision })
}

/// Compares tightness; `Less` is tighter. The order is: refuses longest, waits longest, was decided
/// by a limiter, passes only because of a shadow, has the tighter policy.
pub(crate) fn compare_tightness(one: &Decision, other: &Decision) -> Ordering {
    let refuses = |decision: &Decision| match decision.outcome() {
        Outcome::Deny { retry_after } => Some(retry_after.unwrap_or(Duration::MAX)),
        Outcome::Retry(pause) => Some(pause),
        _ => None,
    };
    let key = |decision: &Decision| {
        let is_decided = decision.origin() != Origin::FailOpen;
        let passes = matches!(decision.shadowed(), None | Some(Ok(Outcome::Allow)));
        Reverse((refuses(decision), decision.waited(), is_decided, !passes))
    };
    let left = |decision: &Decision| decision.remaining().unwrap_or(u64::MAX);
    key(one).cmp(&key(other)).then_with(|| match (one.tightest(), other.tightest()) {
        (Some(one), Some(other)) => one.compare_tightness(&other),
        _ => left(one).cmp(&left(other)),
    })
}
