//! The answer to a charge.

mod decided_policies;
mod details;
mod done;
mod outcome;
mod policy_report;
mod report;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::details::{Details, RareDetails};
pub use self::done::Done;
pub use self::outcome::{Origin, Outcome};
pub(crate) use self::policy_report::{
    DecidedPolicy, Figures, KEEPS_NAME, MAX_POLICY_NAME, Terms, distinct_names, is_policy_name,
    is_policy_name_byte, make_distinct,
};
pub use self::policy_report::{PolicyReport, QuotaUnit};
pub use self::report::DecisionReport;
use crate::core::reservation::Reservation;
use crate::core::waiters::{Turn, Waiters};
use crate::core::{Error, Quota};

/// The shortest time after which a refused caller is to ask again for units that others hold.
const SHORTEST_GUESS: Duration = Duration::from_secs(1);

/// The answer to a charge: an [`Outcome`], and a report of the key's state.
///
/// It is not `Clone`, since it holds the [`Reservation`] of the units taken.
/// [`into_reservation`](Decision::into_reservation) returns that, for a cost that is known only
/// afterwards: [`Budget`](crate::algorithm::Budget) has an example.
#[must_use = "a decision may be a refusal: look at `is_admitted()` or `outcome()`"]
pub struct Decision {
    outcome: Outcome,
    origin: Origin,
    /// True if this denial was an [`Outcome::Retry`], which does not say how long the denial holds.
    pub(crate) was_retry: bool,
    /// `None` if only the outcome is known.
    /// On the heap, so that futures and results are small.
    details: Option<Box<Details>>,
}

impl Decision {
    /// A decision of this process with an outcome and without a report, for limiters of your own.
    #[inline]
    pub fn new(outcome: Outcome) -> Self {
        Self { outcome, origin: Origin::Local, was_retry: false, details: None }
    }

    /// Admits a charge at once, for limiters of your own.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::{Decision, Outcome};
    ///
    /// let admitted = Decision::admitted().with_remaining(4);
    /// assert_eq!((admitted.outcome(), admitted.remaining()), (Outcome::Allow, Some(4)));
    ///
    /// let denied = Decision::denied(Duration::from_secs(3));
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(3)));
    /// ```
    pub fn admitted() -> Self {
        Self::new(Outcome::Allow)
    }

    /// Denies a charge that would be admitted at once after `retry_after`. `None`: the charge can
    /// never fit.
    pub fn denied(retry_after: impl Into<Option<Duration>>) -> Self {
        Self::new(Outcome::Deny { retry_after: retry_after.into() })
    }

    #[inline]
    pub(crate) fn with_details(outcome: Outcome, origin: Origin, details: Box<Details>) -> Self {
        Self { outcome, origin, was_retry: false, details: Some(details) }
    }

    /// Returns the outcome.
    #[must_use]
    #[inline]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns true if the charge goes through, at once or after a reserved wait.
    #[must_use]
    #[inline]
    pub fn is_admitted(&self) -> bool {
        self.outcome.is_admitted()
    }

    /// The time after which a refused charge would be admitted at once. `None` if the charge was
    /// admitted, or can never fit. If held units are missing, nobody knows when they come back, and
    /// it is a guess.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.outcome.retry_after()
    }

    /// Returns the source of the decision.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The name of the limiter that decided, if it has one.
    #[must_use]
    pub fn limiter(&self) -> Option<&str> {
        self.details()?.limiter.as_deref()
    }

    /// The quota of the decision: with several policies, the quota of the
    /// [`tightest`](Decision::tightest) one. For smooth limiters, its burst is the number of
    /// permits that they store.
    #[must_use]
    pub fn quota(&self) -> Option<Quota> {
        self.details()?.quota
    }

    /// The units that would be admitted right now, after this decision. With several policies, the
    /// least number. Policies in a shadow count only if all policies are in a shadow.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.details()?.remaining
    }

    /// The units that the charge [leaves free](crate::Charge::keep_free) of
    /// [`quota`](Decision::quota). They are a part of what remains.
    #[must_use]
    pub fn kept_free(&self) -> u64 {
        self.rare().map_or(0, |rare| rare.kept_free)
    }

    /// The units of a [penalty](crate::LimiterExt::penalize) that could not be taken. With several
    /// limits, the largest number.
    #[must_use]
    pub fn not_taken(&self) -> u64 {
        self.details().map_or(0, |details| details.not_taken)
    }

    /// States the units of a penalty that could not be taken. Default: 0.
    pub fn with_not_taken(mut self, units: u64) -> Self {
        self.details_mut().not_taken = units;
        self
    }

    /// The time until the whole quota is available again, reservations included. With several
    /// policies, the longest time. Policies in a shadow count only if all policies are in a shadow.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        self.details()?.reset_after
    }

    /// The time until the [pause](crate::LimiterExt::pause) of the key ends, if it is paused. With
    /// several keys, the longest time.
    #[must_use]
    pub fn paused_for(&self) -> Option<Duration> {
        self.rare().map(|rare| rare.paused_for).filter(|time| !time.is_zero())
    }

    /// Returns true if the key is [blocked](crate::LimiterExt::block). With several keys, any.
    #[must_use]
    #[doc(alias("banned"))]
    pub fn is_blocked(&self) -> bool {
        self.rare().is_some_and(|rare| rare.is_blocked)
    }

    /// Returns the time of the decision since the Unix epoch, by the clock of the store or process
    /// that decided.
    #[must_use]
    pub fn decided_at(&self) -> Option<Duration> {
        self.details()?.decided_at
    }

    /// The position, from 0, among the decisions of the same instant and batch.
    #[must_use]
    pub fn batch_position(&self) -> u16 {
        self.details().map_or(0, |details| details.batch_position)
    }

    /// Returns the delay of an admitted charge: the reserved wait. If it was checked again, since
    /// nothing could be reserved, or its key was [paused](crate::LimiterExt::pause) meanwhile: the
    /// time from the first attempt to the admitted one, or the last reserved wait. In a layer, a
    /// responder sees it in [`annotate`](crate::respond::Respond::annotate).
    #[must_use]
    pub fn waited(&self) -> Duration {
        match self.outcome {
            Outcome::Wait(wait) => wait,
            _ => self.rare().map_or(Duration::ZERO, |rare| rare.retried_for),
        }
    }

    /// The instant at which an admitted charge goes, since the Unix epoch, by the clock of the
    /// decision: that of the decision, or of the reserved slot.
    #[must_use]
    pub fn slot(&self) -> Option<Duration> {
        let wait = match self.outcome {
            Outcome::Allow => Duration::ZERO,
            Outcome::Wait(wait) => wait,
            _ => return None,
        };
        self.decided_at()?.checked_add(wait)
    }

    /// Returns the result that would have counted without a shadow: the outcome, or the error of a
    /// limiter that could not decide. `None` unless a shadow admitted the charge. A shadow is a
    /// [`Shadow`](crate::limiter::Shadow), a [`Switch`](crate::limiter::Switch) in a shadow, or a
    /// policy in a shadow.
    ///
    /// ```
    /// # use tower_sluice::{Decision, Outcome};
    /// fn would_have_been_refused(decision: &Decision) -> bool {
    ///     matches!(decision.shadowed(), Some(Ok(Outcome::Deny { .. } | Outcome::Retry(_))))
    /// }
    /// # assert!(!would_have_been_refused(&Decision::new(Outcome::Allow)));
    /// ```
    #[must_use]
    pub fn shadowed(&self) -> Option<Result<Outcome, &Error>> {
        let shadowed = self.rare()?.shadowed.as_ref()?;
        Some(shadowed.as_ref().map(|outcome| *outcome))
    }

    /// Returns the error of the limiter that could not decide, if a fallback decided. `None` if no
    /// [`or_else`](crate::LimiterExt::or_else) called its fallback, and no policy's `on_error`
    /// replaced the store.
    ///
    /// If a fallback contains an `or_else` itself, the error of the outer one stays.
    #[must_use]
    pub fn fallback_cause(&self) -> Option<&Error> {
        self.rare()?.fallback_cause.as_ref()
    }

    /// Returns the reservation of the units taken. `None` if nothing was taken, or if the
    /// reservation was already taken out.
    #[must_use]
    #[inline]
    pub fn reservation(&self) -> Option<&Reservation> {
        self.details()?.reservation.as_ref()
    }

    /// Returns the reservation of the units taken, to be settled with [`Limiter::settle`]. `None`
    /// if nothing was taken, or if the reservation was already taken out.
    ///
    /// With a `&mut Decision`, use [`take_reservation`](Decision::take_reservation).
    ///
    /// [`Limiter::settle`]: crate::Limiter::settle
    #[must_use]
    pub fn into_reservation(mut self) -> Option<Reservation> {
        self.take_reservation()
    }

    /// Takes out the reservation of the units taken, once, to be settled with [`Limiter::settle`].
    /// `None` if nothing was taken.
    ///
    /// [`Limiter::settle`]: crate::Limiter::settle
    #[inline]
    pub fn take_reservation(&mut self) -> Option<Reservation> {
        self.details.as_mut()?.reservation.take()
    }

    #[inline]
    pub(crate) fn held_reservation(&mut self) -> Option<&mut Reservation> {
        self.details.as_mut()?.reservation.as_mut().filter(|one| one.is_held())
    }

    pub(crate) fn put_back(&mut self, reservation: Reservation) {
        if let Some(details) = &mut self.details {
            details.reservation = Some(reservation);
        }
    }

    /// Sets the source of the decision. Default: [`Origin::Local`].
    pub fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// Sets the name and the quota of the limiter that decided.
    pub fn with_limiter(mut self, name: Arc<str>, quota: Quota) -> Self {
        let details = self.details_mut();
        (details.limiter, details.quota) = (Some(name), Some(quota));
        self
    }

    /// Sets the units that are left of the quota. Default: unknown.
    pub fn with_remaining(mut self, remaining: u64) -> Self {
        self.details_mut().remaining = Some(remaining);
        self
    }

    /// Sets the units that are left of the quota, and the time until the whole quota is available
    /// again.
    pub fn with_report(self, remaining: u64, reset_after: Duration) -> Self {
        let mut decision = self.with_remaining(remaining);
        decision.details_mut().reset_after = Some(reset_after);
        decision
    }

    /// Sets the time of the decision, and its position in its batch: 0 for a single decision.
    pub fn with_instant(mut self, decided_at: Duration, batch_position: u16) -> Self {
        let details = self.details_mut();
        (details.decided_at, details.batch_position) = (Some(decided_at), batch_position);
        self
    }

    /// Adds the reservation of the units taken. Default: none, which is right for a refusal and for
    /// a peek.
    pub fn with_reservation(mut self, reservation: Reservation) -> Self {
        self.details_mut().reservation = Some(reservation);
        self
    }

    /// States that a fallback decided, because of `error`. Default: no fallback decided.
    pub fn with_fallback_cause(mut self, error: Error) -> Self {
        self.rare_mut().fallback_cause = Some(error);
        self
    }

    /// Returns the time from the decision to this answer, if an earlier decision is repeated.
    pub(crate) fn age(&self) -> Duration {
        self.details().map_or(Duration::ZERO, |details| details.age)
    }

    pub(crate) fn reservation_mut(&mut self) -> Option<&mut Reservation> {
        self.details.as_mut()?.reservation.as_mut()
    }

    /// The same denial, a time `later`: its times are shorter, and nothing else has changed.
    pub(crate) fn repeated(&self, later: Duration) -> Self {
        let retry_after = self.retry_after().map(|time| time.saturating_sub(later));
        let mut repeated = self.without_reservation().later(later, 0);
        (repeated.outcome, repeated.origin) = (Outcome::Deny { retry_after }, Origin::Cache);
        repeated.was_retry = false;
        if !repeated.waited().is_zero() {
            repeated.set_retried_for(Duration::ZERO);
        }
        repeated
    }

    /// The same decision for a charge that takes over the slot `at` that instant, and waits for it
    /// from now on.
    pub(crate) fn waiting_until(&self, at: Duration, wait: Duration) -> Self {
        let decided_at = at.saturating_sub(wait);
        let since = self.decided_at().unwrap_or_default();
        let mut decision = self.repeated(decided_at.saturating_sub(since));
        (decision.outcome, decision.origin) = (Outcome::Wait(wait), self.origin);
        let details = decision.details_mut();
        (details.decided_at, details.age) = (Some(decided_at), Duration::ZERO);
        decision
    }

    /// Sets the instant at which the charge went, if it was before its slot.
    pub(crate) fn move_up_to(&mut self, at: Duration) {
        let wait = at.saturating_sub(self.decided_at().unwrap_or_default());
        if let Outcome::Wait(told) = self.outcome
            && wait < told
        {
            self.outcome = Outcome::Wait(wait);
        }
    }

    pub(crate) fn set_turn(&mut self, turn: Arc<dyn Turn>) {
        let details = self.details_mut();
        let reservation = details.reservation.take();
        details.reservation = reservation.map(|one| one.in_line(Arc::clone(&turn)));
        self.add_waiters(turn);
    }

    /// Turns an answer into an admission at once, as a [`Shadow`](crate::limiter::Shadow) does, for
    /// limiters of your own. The taken units stay taken.
    pub fn in_shadow(answer: Result<Decision, Error>) -> Self {
        let (mut decision, shadowed) = match answer {
            Ok(decision) => {
                let outcome = decision.outcome;
                (decision, Ok(outcome))
            }
            Err(error) => (Self::new(Outcome::Allow).with_origin(Origin::Shadow), Err(error)),
        };
        decision.outcome = Outcome::Allow;
        for policy in decision.details_mut().policies_mut() {
            policy.figures.is_shadow = true;
        }
        // An inner shadow has already set it.
        decision.rare_mut().shadowed.get_or_insert(shadowed);
        decision
    }

    pub(crate) fn add_waiters(&mut self, waiters: Arc<dyn Waiters>) {
        let details = self.details_mut();
        details.waiters = Some(match details.waiters.take() {
            Some(others) => Arc::new((others, waiters)),
            None => waiters,
        });
    }

    pub(crate) fn take_waiters(&mut self) -> Option<Arc<dyn Waiters>> {
        self.details.as_mut()?.waiters.take()
    }

    /// Sets how long the request waited before this attempt, if it asked again because nothing
    /// could be reserved: [`Charge::retried_for`](crate::Charge::retried_for). Default: 0.
    pub fn with_retried_for(mut self, time: Duration) -> Self {
        if !time.is_zero() {
            self.set_retried_for(time);
        }
        self
    }

    pub(crate) fn set_kept_free(&mut self, units: u64) {
        if units != self.kept_free() {
            self.rare_mut().kept_free = units;
        }
    }

    pub(crate) fn set_paused_for(&mut self, time: Duration) {
        self.rare_mut().paused_for = time;
    }

    pub(crate) fn set_blocked(&mut self) {
        self.rare_mut().is_blocked = true;
    }

    pub(crate) fn set_retried_for(&mut self, time: Duration) {
        self.rare_mut().retried_for = time;
    }

    /// A copy of the answer without the reservation, for other callers that get a part of the
    /// units.
    pub(crate) fn without_reservation(&self) -> Self {
        let details = self.details().map(|details| {
            Box::new(Details {
                limiter: details.limiter.clone(),
                policies: details.policies.clone(),
                reservation: None,
                rare: details.rare.clone(),
                waiters: None,
                ..*details
            })
        });
        Self { details, ..*self }
    }

    fn details(&self) -> Option<&Details> {
        self.details.as_deref()
    }

    fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_default()
    }

    fn rare(&self) -> Option<&RareDetails> {
        self.details()?.rare.as_deref()
    }

    fn rare_mut(&mut self) -> &mut RareDetails {
        self.details_mut().rare.get_or_insert_default()
    }

    /// Returns true if one of the limits counts units [at once](crate::Quota::at_once).
    pub(crate) fn is_at_once(&self) -> bool {
        self.policies().any(|policy| policy.quota().period().is_zero())
    }

    /// Turns an [`Outcome::Retry`] into a denial, since no time to wait is left.
    pub(crate) fn without_retry(mut self) -> Self {
        if let Outcome::Retry(pause) = self.outcome {
            // The pause is shorter than what a caller outside of this process should wait: 1 to 3 s,
            // which the microseconds of the clock spread, as for a charge that may not wait.
            let spread = |at: Duration| 2 * u64::from(at.subsec_micros());
            let guess = match self.decided_at() {
                Some(at) => SHORTEST_GUESS + Duration::from_micros(spread(at)),
                None => self.reset_after().unwrap_or(SHORTEST_GUESS),
            };
            let retry_after = if self.is_at_once() { guess } else { pause };
            self.outcome = Outcome::Deny { retry_after: Some(retry_after) };
            self.was_retry = true;
        }
        self
    }

    /// Turns a denial into an [`Outcome::Retry`] if all that refuses it are units that others hold,
    /// and waits that fit into `max_wait`.
    pub(crate) fn into_retry(self, max_wait: Duration, pause: Duration) -> Result<Self, Self> {
        let is_held = |policy: &PolicyReport<'_>| policy.quota().period().is_zero();
        let refuses = |policy: &PolicyReport<'_>| !policy.is_admitted();
        let may_pass = |policy: PolicyReport<'_>| match policy.outcome() {
            Outcome::Deny { retry_after: Some(wait) } => is_held(&policy) || wait <= max_wait,
            _ => false,
        };
        let are_held = self.policies().filter(refuses).any(|policy| is_held(&policy));
        let may_wait = self.paused_for() <= Some(max_wait);
        match may_wait && are_held && self.policies().filter(refuses).all(may_pass) {
            true => Ok(Self { outcome: Outcome::Retry(pause), ..self }),
            false => Err(self),
        }
    }

    /// Turns a wait into a denial, after its units were given back.
    pub(crate) fn without_wait(mut self) -> Self {
        self.outcome = Outcome::Deny { retry_after: Some(self.waited()) };
        self
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("outcome", &self.outcome)
            .field("origin", &self.origin)
            .field("limiter", &self.limiter())
            .field("quota", &self.quota())
            .field("remaining", &self.remaining())
            .field("reset_after", &self.reset_after())
            .field("policies", &self.policies().collect::<Vec<_>>())
            .field("decided_at", &self.decided_at())
            .field("batch_position", &self.batch_position())
            .field("waited", &self.waited())
            .field("reservation", &self.reservation())
            .field("shadowed", &self.shadowed())
            .field("fallback_cause", &self.fallback_cause())
            .finish()
    }
}

impl From<Outcome> for Decision {
    fn from(outcome: Outcome) -> Self {
        Self::new(outcome)
    }
}
