//! The answer to a charge.

use std::sync::Arc;
use std::time::Duration;

use crate::{Quota, Reservation};

/// What a limiter decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Go now.
    Allow,
    /// A slot is reserved: sleep this long, then go, and do not ask again. In the answer to an
    /// [`estimate`](crate::LimiterExt::estimate) it is what a check would reserve.
    Wait(Duration),
    /// Nothing is taken, and nothing can be reserved: ask again after this long.
    Retry(Duration),
    /// Nothing is taken.
    Deny {
        /// The time after which the charge would be admitted at once; `None` if it can never fit.
        retry_after: Option<Duration>,
    },
}

/// Where a decision was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The shared store.
    Store,
    /// This process.
    Local,
    /// Earlier, by the limiter inside of a [`DenyCache`](crate::DenyCache), which repeats the
    /// refusal.
    Cache,
    /// Nowhere: [`FailOpen`](crate::FailOpen) admitted because the store was away.
    FailOpen,
}

/// The answer to a charge: an [`Outcome`], and a report of the key's state.
///
/// Not `Clone`: it holds the one [`Reservation`] of what was taken.
#[derive(Debug)]
pub struct Decision {
    outcome: Outcome,
    origin: Origin,
    limiter: Option<Arc<str>>,
    quota: Option<Quota>,
    remaining: Option<u64>,
    reset_after: Option<Duration>,
    decided_at: Option<Duration>,
    batch_position: u16,
    retried_for: Duration,
    reservation: Option<Reservation>,
}

impl Decision {
    /// A decision of this process with an outcome and no report, for limiters of your own.
    #[must_use]
    pub fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            origin: Origin::Local,
            limiter: None,
            quota: None,
            remaining: None,
            reset_after: None,
            decided_at: None,
            batch_position: 0,
            retried_for: Duration::ZERO,
            reservation: None,
        }
    }

    /// What was decided.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the charge goes through, at once or after a reserved wait.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        matches!(self.outcome, Outcome::Allow | Outcome::Wait(_))
    }

    /// The time after which a refused charge would be admitted at once. `None` if it was admitted,
    /// or if it can never fit.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.outcome {
            Outcome::Deny { retry_after } => retry_after,
            Outcome::Retry(pause) => Some(pause),
            _ => None,
        }
    }

    /// Where it was decided.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The name of the limiter that decided, if it has one.
    #[must_use]
    pub fn limiter(&self) -> Option<&str> {
        self.limiter.as_deref()
    }

    /// The quota that decided: of several the one that refuses or delays, else the one with least
    /// left.
    #[must_use]
    pub fn quota(&self) -> Option<Quota> {
        self.quota
    }

    /// The units that would be admitted right now, after this decision.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// The time until the whole quota is there again, reservations included.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        self.reset_after
    }

    /// When it was decided, since the Unix epoch, by the clock that decided.
    #[must_use]
    pub fn decided_at(&self) -> Option<Duration> {
        self.decided_at
    }

    /// Its position, from 0, among the decisions that were made at that instant, in one batch.
    #[must_use]
    pub fn batch_position(&self) -> u16 {
        self.batch_position
    }

    /// How long an admitted charge was delayed: the reserved wait, or, where nothing can be
    /// reserved, the time from the first attempt to the one that was admitted. Behind a layer, a
    /// responder sees it in [`annotate`](crate::Respond::annotate).
    #[must_use]
    pub fn waited(&self) -> Duration {
        match self.outcome {
            Outcome::Wait(wait) => wait,
            _ => self.retried_for,
        }
    }

    /// What was taken. `None` if nothing was, or if it was handed out already.
    #[must_use]
    pub fn reservation(&self) -> Option<&Reservation> {
        self.reservation.as_ref()
    }

    /// Hands out what was taken, once: to be settled with [`Limiter::settle`]. `None` if
    /// nothing was taken.
    ///
    /// [`Limiter::settle`]: crate::Limiter::settle
    pub fn take_reservation(&mut self) -> Option<Reservation> {
        self.reservation.take()
    }

    /// Sets where it was decided. Default: [`Origin::Local`].
    #[must_use]
    pub fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// Names the limiter and the quota that it decided by.
    #[must_use]
    pub fn with_limiter(mut self, name: Arc<str>, quota: Quota) -> Self {
        self.limiter = Some(name);
        self.quota = Some(quota);
        self
    }

    /// Sets what is left of the quota, and the time until all of it is there again.
    #[must_use]
    pub fn with_report(mut self, remaining: u64, reset_after: Duration) -> Self {
        self.remaining = Some(remaining);
        self.reset_after = Some(reset_after);
        self
    }

    /// Sets when it was decided, and its position in the batch of that instant: 0 for one alone.
    #[must_use]
    pub fn with_instant(mut self, decided_at: Duration, batch_position: u16) -> Self {
        self.decided_at = Some(decided_at);
        self.batch_position = batch_position;
        self
    }

    /// Adds what was taken. Default: nothing, which is right for a refusal and for a peek.
    #[must_use]
    pub fn with_reservation(mut self, reservation: Reservation) -> Self {
        self.reservation = Some(reservation);
        self
    }

    /// What was taken.
    pub(crate) fn reservation_mut(&mut self) -> Option<&mut Reservation> {
        self.reservation.as_mut()
    }

    /// The same denial `later`: the charge waits for less time now, and nothing else has changed.
    pub(crate) fn repeated(&self, later: Duration) -> Self {
        let left = |time: Duration| time.saturating_sub(later);
        Self {
            outcome: Outcome::Deny { retry_after: self.retry_after().map(left) },
            origin: Origin::Cache,
            limiter: self.limiter.clone(),
            quota: self.quota,
            remaining: self.remaining,
            reset_after: self.reset_after.map(left),
            decided_at: self.decided_at,
            batch_position: self.batch_position,
            retried_for: Duration::ZERO,
            reservation: None,
        }
    }

    /// Sets how long it was delayed before the attempt that was admitted.
    pub(crate) fn after(mut self, retried_for: Duration) -> Self {
        self.retried_for = retried_for;
        self
    }

    /// The same answer once more, for others who get a part of what was taken.
    pub(crate) fn without_reservation(&self) -> Self {
        Self { limiter: self.limiter.clone(), reservation: None, ..*self }
    }

    /// The denial that an [`Outcome::Retry`] becomes when no time to wait is left.
    pub(crate) fn denied(mut self) -> Self {
        if let Outcome::Retry(pause) = self.outcome {
            self.outcome = Outcome::Deny { retry_after: Some(pause) };
        }
        self
    }
}

impl From<Outcome> for Decision {
    fn from(outcome: Outcome) -> Self {
        Self::new(outcome)
    }
}
