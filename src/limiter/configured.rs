//! The common part of all limiters that run an algorithm. It converts a charge to numbers, and an
//! answer to a decision.

use std::borrow::Cow;
use std::convert::identity;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use super::charge_numbers::{check_range, duration, micros, units};
use super::line::{LineId, Lines, Place, ResetsSeen, SettleUnits, Slot};
use super::operate::AllHeld;
use super::queues::{QueuePlace, QueueTerms, SHORTEST_PAUSE};
use crate::algorithm::{Algorithm, Check, InLua, QuotaAnswer, Ruling, ScriptPart, Verdict};
use crate::core::charge::{KeepFree, Key};
use crate::core::decision::{
    DecidedPolicy, Details, Figures, KEEPS_NAME, Origin, RareDetails, distinct_names,
};
use crate::core::mark::Mark;
use crate::core::quota::{CostAndWait, Quota, QuotaError, Quotas};
use crate::core::reservation::{Owner, Reservation, ReservedUnits};
use crate::core::settlement::{Renewal, Settlement};
use crate::core::waiters::{RenewedMark, Turn};
use crate::core::{Charge, Decision, Error, ErrorKind, Outcome};

/// A limiter's algorithm, with its names and the rule of its quota.
#[derive(Clone, Debug)]
pub(crate) struct ConfiguredAlgorithm<A: Algorithm> {
    pub(crate) owner: Owner,
    /// One name for each quota, or a single name.
    names: Vec<Arc<str>>,
    policies: Vec<(usize, Arc<str>)>,
    pub(crate) algorithm: A,
    pub(crate) quota: Quotas,
    pub(crate) own_rule: A::Rule,
    pub(crate) lines: Arc<Lines>,
}

#[derive(Debug)]
pub(crate) struct Provenance {
    /// The instant of the decision, in µs since the Unix epoch.
    pub(crate) now: i64,
    pub(crate) batch_position: u16,
    pub(crate) origin: Origin,
}

impl<A: Algorithm> ConfiguredAlgorithm<A> {
    /// # Errors
    ///
    /// If the algorithm cannot follow its own quota, or the name is empty.
    pub(crate) fn new(name: Arc<str>, algorithm: A) -> Result<Self, QuotaError> {
        if name.is_empty() {
            return Err(QuotaError("a limiter needs a name"));
        }
        Self::named(vec![name], algorithm)
    }

    pub(crate) fn named(names: Vec<Arc<str>>, algorithm: A) -> Result<Self, QuotaError> {
        let quota = algorithm.quota();
        let own_rule = algorithm.rule(quota.clone())?;
        let policies = (0..).zip(distinct_names(&names, quota.as_slice().len())).collect();
        let (owner, lines) = (Owner::new(), Arc::default());
        Ok(Self { owner, names, policies, algorithm, quota, own_rule, lines })
    }

    /// Reads a charge as numbers.
    #[inline]
    pub(crate) fn read<'a>(&self, charge: &'a Charge) -> Result<Check<'a>, Error> {
        check_range(charge)?;
        let keep_free = charge.keep_free.as_slice();
        if keep_free.len() > 1 && keep_free.len() != self.quota.as_slice().len() {
            let why = "the numbers of quotas and of units that stay free differ";
            return Err(Error::new(ErrorKind::Configuration, why));
        }
        let max_wait = micros(charge.longest_wait().unwrap_or_default());
        Ok(Check::new(charge.units().cast_signed(), max_wait).keeping(keep_free))
    }

    pub(crate) fn check_grant(&self, rule: &A::Rule) -> Result<(), Error> {
        let why = "no units can be granted: all are held until they are released";
        match A::grants(rule) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Configuration, why).with_source(AllHeld)),
        }
    }

    #[inline]
    pub(crate) fn rule(&self, quota: Option<&Quotas>) -> Result<Cow<'_, A::Rule>, Error> {
        let Some(quota) = quota.filter(|quota| **quota != self.quota) else {
            return Ok(Cow::Borrowed(&self.own_rule));
        };
        self.algorithm.rule(quota.clone()).map(Cow::Owned).map_err(|error| {
            Error::new(ErrorKind::Configuration, "the algorithm cannot follow the quota")
                .with_source(error)
        })
    }

    /// The rule of a charge that is settled. An algorithm that cannot follow its quota, of another
    /// limiter of the same keys, settles by its own.
    pub(crate) fn rule_of(&self, quota: Option<&Quotas>) -> Result<Cow<'_, A::Rule>, Error> {
        self.rule(quota).or_else(|_| self.rule(None))
    }

    #[inline]
    pub(crate) fn decision(
        &self,
        quota: Option<Quotas>,
        (cost, keep_free): (i64, &KeepFree),
        answer: Ruling,
        from: Provenance,
        key: Key,
    ) -> Decision {
        let outcome = outcome(answer.verdict);
        let quotas = quota.as_ref().unwrap_or(&self.quota).as_slice();
        let policies = (!answer.members.is_empty())
            .then(|| self.policies(quotas, keep_free, &answer.members, from.now));
        let tightest = policies.as_deref().map_or(0, tightest);
        let name = self.names.get(tightest).unwrap_or(&self.names[0]);
        let is_taken = cost > 0 && matches!(outcome, Outcome::Allow | Outcome::Wait(_));
        // Allocated first, so that the details are written in place: they are long.
        let place = Box::new_uninit();
        let details = Details {
            limiter: Some(Arc::clone(name)),
            quota: Some(self.reported(tightest, quotas, from.now)),
            remaining: Some(answer.report.remaining.cast_unsigned()),
            reset_after: Some(duration(answer.report.reset_after)),
            refills: self.algorithm.refills(0),
            policies,
            age: Duration::ZERO,
            decided_at: Some(duration(from.now)),
            batch_position: from.batch_position,
            not_taken: answer.not_taken.unsigned_abs(),
            reservation: None,
            rare: RareDetails::of(
                keep_free.of(tightest),
                duration(answer.paused_until - from.now),
                answer.is_blocked,
            ),
            waiters: None,
            place: 0,
        };
        let mut details = Box::write(place, details);
        if is_taken {
            let mark = answer.mark.unwrap_or_default();
            // Stated, since another limiter of the same keys may settle it.
            let quota = Some(quota.unwrap_or_else(|| self.quota.clone()));
            let reserved = ReservedUnits { key, quota, mark };
            details.reservation = Some(self.reservation(cost.cast_unsigned(), reserved));
        }
        Decision::with_details(outcome, from.origin, details)
    }

    fn reported(&self, index: usize, quotas: &[Quota], now: i64) -> Quota {
        let index = index.min(quotas.len() - 1);
        self.algorithm.reported(index, quotas[index], now)
    }

    fn policies(
        &self,
        quotas: &[Quota],
        keep_free: &KeepFree,
        members: &[QuotaAnswer],
        now: i64,
    ) -> Arc<[DecidedPolicy]> {
        let each = quotas.iter().zip(members).zip(&self.policies).enumerate();
        each.map(|(index, ((quota, member), (place, name)))| {
            let figures = Figures {
                outcome: outcome(member.verdict),
                remaining: Some(member.report.remaining.cast_unsigned()),
                kept_free: keep_free.of(index),
                reset_after: Some(duration(member.report.reset_after)),
                refills: self.algorithm.refills(index),
                ..Figures::new(self.algorithm.reported(index, *quota, now))
            };
            DecidedPolicy { name: Arc::clone(name), place: *place, figures }
        })
        .collect()
    }

    /// Settles a reservation of this limiter with `settle`, which gets its cost. If a waiter
    /// leaves, its slot is passed on instead.
    ///
    /// # Errors
    ///
    /// The reservation itself, if it belongs to another limiter, or if `settle` fails.
    pub(crate) fn settle(
        &self,
        reservation: Reservation,
        actual: u64,
        settle: impl FnOnce(&ReservedUnits, u64) -> Result<Settlement, Error>,
    ) -> Result<Settlement, Reservation> {
        if reservation.owner() != self.owner {
            return Err(reservation);
        }
        if actual == 0
            && let Some(settlement) = reservation.turn().and_then(Turn::leave)
        {
            return Ok(settlement);
        }
        let (cost, charged) = (reservation.cost(), reservation.charged);
        let reserved = reservation.into_reserved()?;
        let settled = settle(&reserved, cost);
        if self.holds() {
            // A charge that is sent from now on is decided after the settlement.
            self.lines.queues.release(reserved.key.as_str());
        }
        settled.map_err(|_| self.reservation(cost, reserved).with_charged(charged))
    }

    /// Makes the renewal of a reservation of this limiter. `renew` renews units, of which it gets
    /// the cost and the mark.
    pub(crate) fn renew<F>(
        &self,
        reservation: &mut Reservation,
        renew: impl FnOnce(ReservedUnits, i64, Arc<RenewedMark>) -> F,
    ) -> Option<Renewal>
    where
        F: Future<Output = Result<bool, Error>> + Send + 'static,
    {
        let max_hold = duration(A::hold_time(&self.own_rule)?);
        if reservation.owner() != self.owner {
            return None;
        }
        let cost = units(reservation.cost());
        let waited = reservation.turn().map_or(Duration::ZERO, Turn::wait);
        let (reserved, mark) = reservation.renewing()?;
        if mark.get() == Mark::lost() {
            return Some(Renewal::new(max_hold, ready(Ok(false))));
        }
        let renewal = Renewal::new(max_hold, renew(reserved, cost, mark));
        Some(renewal.due_at(self.lines.renewals.next(max_hold, waited)))
    }

    /// Notes for the requests that wait for a key if the answer says that it is paused, or no longer
    /// is. If it is blocked, nobody takes over a slot.
    #[inline]
    pub(crate) fn note_pause(&self, key: &str, answer: &Ruling, now: i64) {
        if answer.is_blocked && self.lines.have_spares() {
            self.lines.drop_spares(key);
        } else if answer.paused_until > now {
            self.lines.pause(key, duration(now), duration(answer.paused_until));
        } else if !answer.is_blocked {
            self.lines.resume(key);
        }
    }

    /// Gives a decision with a reserved wait its place in the line of a key, whose slots `store`
    /// takes back. `known` was read before the store was asked: see [`Lines::known`].
    #[inline]
    pub(crate) fn line_up(
        &self,
        decision: &mut Decision,
        keep_free: &KeepFree,
        known: ResetsSeen,
        store: impl FnOnce() -> Arc<dyn SettleUnits>,
    ) {
        let Outcome::Wait(wait) = decision.outcome() else { return };
        let Some(reservation) = decision.reservation().filter(|_| !wait.is_zero()) else { return };
        let cost = reservation.cost();
        let Some(ReservedUnits { key, quota, mark }) = reservation.reserved() else { return };
        let quota = quota.as_ref().unwrap_or(&self.quota).without_waits();
        let (key, keep_free) = (key.as_str().into(), keep_free.clone());
        let (id, mark) = (LineId { key, quota, cost, keep_free }, mark.clone());
        let slot = Slot::new(decision, wait, mark, known);
        decision.set_turn(Place::new(&self.lines, id, slot, store()));
    }

    #[inline]
    pub(crate) fn may_queue(&self, check: Check<'_>) -> bool {
        check.max_wait > 0 && check.cost > 0 && self.holds()
    }

    pub(crate) fn queue_up(
        &self,
        decision: Decision,
        (key, terms): (&str, QueueTerms),
        max_wait: i64,
    ) -> Decision {
        let into_retry = decision.into_retry(duration(max_wait), SHORTEST_PAUSE);
        into_retry.map_or_else(identity, |mut retry| {
            retry.add_waiters(QueuePlace::new(&self.lines.queues, key, terms));
            retry
        })
    }

    /// Returns the decision about a new charge that may wait and whose key has a queue: it joins
    /// the queue, without a call to the store.
    #[inline]
    pub(crate) fn join_queue(
        &self,
        key: &str,
        terms: impl Fn() -> QueueTerms,
        check: Check<'_>,
    ) -> Option<Decision> {
        if !self.may_queue(check) || !self.lines.queues.rest(key, &terms) {
            return None;
        }
        let terms = terms();
        let quotas = terms.quota.as_ref().unwrap_or(&self.quota).clone();
        let quotas = quotas.as_slice();
        let mut reported = (0..quotas.len()).map(|index| self.reported(index, quotas, 0));
        let at_once = reported.find(|quota| quota.period().is_zero())?;
        // Without an answer of the store, the time until units are free is a guess, too.
        let guess = Duration::from_micros(fastrand::u64(1_000_000..=3_000_000));
        let mut decision = Decision::new(Outcome::Retry(SHORTEST_PAUSE))
            .with_limiter(Arc::clone(self.name()), at_once)
            .with_report(0, guess);
        decision.add_waiters(QueuePlace::new(&self.lines.queues, key, terms));
        Some(decision)
    }

    /// Returns the decision about a charge that can use a spare slot, without a call to the store.
    #[inline]
    pub(crate) fn take_spare(
        &self,
        key: impl FnOnce() -> String,
        quota: Option<&Quotas>,
        check: Check<'_>,
        store: impl FnOnce() -> Arc<dyn SettleUnits>,
    ) -> Option<Decision> {
        if check.cost == 0 || check.max_wait == 0 || !self.lines.have_spares() {
            return None;
        }
        let cost = check.cost.cast_unsigned();
        let quota = quota.unwrap_or(&self.quota);
        // A slot does not say which member it waits for: none waits longer than it states.
        let stated = (0..).map_while(|index| quota.stated(index)).map(|stated| stated.max_wait);
        let max_wait = stated.fold(check.max_wait, i64::min);
        let quota = quota.without_waits();
        let id = LineId { key: key().into(), quota, cost, keep_free: check.keep_free.into() };
        let slot = self.lines.take(&id, duration(max_wait))?;
        let (decision, mark) = slot.decision();
        let (key, quota) = (Key::Owned(id.key.to_string()), Some(id.quota.clone()));
        let reserved = ReservedUnits { key, quota, mark };
        let mut decision = decision.with_reservation(self.reservation(cost, reserved));
        decision.set_turn(Place::new(&self.lines, id, slot, store()));
        Some(decision)
    }

    /// Drops the spare slots of charges that these limiters decide together: see
    /// [`Lines::of_several`].
    pub(crate) fn asking_several<'a, B: Algorithm>(
        self,
        members: impl Iterator<Item = &'a ConfiguredAlgorithm<B>>,
    ) -> Self {
        let lines = Lines::of_several(members.map(|member| &*member.lines));
        Self { lines: Arc::new(lines), ..self }
    }

    /// Forgets the waiting requests, since the keys are forgotten.
    pub(crate) fn forget_all(&mut self) {
        (self.owner, self.lines) = (Owner::new(), Arc::default());
    }

    #[inline]
    fn reservation(&self, cost: u64, reserved: ReservedUnits) -> Reservation {
        Reservation::of_reserved(self.owner, cost, reserved, self.holds())
    }

    /// Returns it with the same name and owner, and another algorithm.
    pub(crate) fn with_algorithm(&self, algorithm: A) -> Result<Self, QuotaError> {
        let named = Self::named(self.names.clone(), algorithm)?;
        Ok(Self { owner: self.owner, ..named })
    }

    /// Makes one for the members at these `places` among limiters with these names.
    pub(crate) fn of_members(
        names: &[Arc<str>],
        places: &[usize],
        algorithm: A,
    ) -> Result<Self, QuotaError> {
        let each = |names: &[Arc<str>]| {
            places.iter().map(|place| Arc::clone(&names[*place])).collect::<Vec<_>>()
        };
        let policies = places.iter().copied().zip(each(&distinct_names(names, names.len())));
        Ok(Self { policies: policies.collect(), ..Self::named(each(names), algorithm)? })
    }

    pub(crate) fn parts(&self) -> Vec<ScriptPart>
    where
        A: InLua,
    {
        let own_costs = self.has_own_costs();
        self.algorithm.parts().into_iter().map(|part| ScriptPart { own_costs, ..part }).collect()
    }

    pub(crate) fn has_own_costs(&self) -> bool {
        self.quota.stated(0).is_some()
    }

    /// Returns it for charges that state a cost and a longest wait for each quota.
    pub(crate) fn at_own_costs(self) -> Result<Self, QuotaError> {
        let one_at_once = CostAndWait { cost: 1, max_wait: 0 };
        let quota =
            Quotas::with_costs(self.quota.as_slice().iter().map(|quota| (*quota, one_at_once)));
        let own_rule = self.algorithm.rule(quota.clone())?;
        Ok(Self { quota, own_rule, ..self })
    }

    /// Returns it with policies that keep their names even if a description has other names.
    pub(crate) fn keeping_names(mut self) -> Self {
        self.policies.iter_mut().for_each(|(place, _)| *place = KEEPS_NAME);
        self
    }

    pub(crate) fn holds(&self) -> bool {
        A::holds(&self.own_rule)
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.names[0]
    }
}

#[inline]
fn outcome(verdict: Verdict) -> Outcome {
    match verdict {
        Verdict::Allow => Outcome::Allow,
        Verdict::Wait(wait) => Outcome::Wait(duration(wait)),
        Verdict::Deny(wait) => Outcome::Deny { retry_after: Some(duration(wait)) },
        Verdict::Never => Outcome::Deny { retry_after: None },
    }
}

fn tightest(policies: &[DecidedPolicy]) -> usize {
    let each = policies.iter().map(|policy| policy.figures).enumerate();
    let tightest = each.min_by(|(_, one), (_, other)| one.compare_tightness(other));
    tightest.map_or(0, |(index, _)| index)
}

/// Unwraps the result of a `try_new`, for the constructor that panics.
///
/// # Panics
///
/// If the algorithm cannot follow its quota. The panic shows the line of the constructor's caller.
#[track_caller]
pub(crate) fn expect_valid_quota<T>(name: &str, made: Result<T, QuotaError>) -> T {
    match made {
        Ok(made) => made,
        Err(error) if name.is_empty() => panic!("{error}"),
        Err(error) => panic!("limiter `{name}`: the algorithm cannot follow its quota: {error}"),
    }
}

#[cfg(test)]
mod tests;
