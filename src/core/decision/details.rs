//! The details of a decision besides its outcome: owned, or shared by its reports.

use std::sync::Arc;
use std::time::Duration;

use super::policy_report::Policy;
use crate::core::reservation::Reservation;
use crate::core::waiters::Waiters;
use crate::core::{Error, Outcome, Quota};

/// All that a limiter reports besides the outcome.
#[derive(Default)]
pub(crate) struct Details {
    pub(crate) limiter: Option<Arc<str>>,
    pub(crate) quota: Option<Quota>,
    pub(crate) remaining: Option<u64>,
    pub(crate) reset_after: Option<Duration>,
    pub(crate) decided_at: Option<Duration>,
    /// The time from the decision to this answer, if the decision is repeated.
    pub(crate) age: Duration,
    pub(crate) batch_position: u16,
    /// True if the units of the only policy come back one by one.
    pub(crate) refills: bool,
    /// The place of the only policy among all policies of its limiter.
    pub(crate) place: usize,
    /// All policies. `None`: there is one policy, as the fields above say.
    pub(crate) policies: Option<Arc<[Policy]>>,
    pub(crate) retried_for: Duration,
    /// The units of a penalty that could not be taken.
    pub(crate) not_taken: u64,
    pub(crate) reservation: Option<Reservation>,
    /// The result that would have counted without a shadow. Boxed, since few decisions have it.
    pub(crate) shadowed: Option<Box<Result<Outcome, Error>>>,
    /// The error of the limiter that could not decide, if a fallback decided. Boxed for the same
    /// reason.
    pub(crate) fallback_cause: Option<Box<Error>>,
    /// The line in which the request waits.
    pub(crate) waiters: Option<Arc<dyn Waiters>>,
}

/// The details of a decision, on the heap so that futures and results are small.
pub(super) enum HeldDetails {
    /// The details of the decision itself, which holds the reservation.
    Own(Box<Details>),
    /// The details of its reports, which hold no reservation.
    Shared(Arc<Details>),
}

impl Details {
    pub(super) fn without_reservation(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            policies: self.policies.clone(),
            reservation: None,
            shadowed: self.shadowed.clone(),
            fallback_cause: self.fallback_cause.clone(),
            waiters: None,
            ..*self
        }
    }
}

impl HeldDetails {
    #[inline]
    pub(super) fn new(details: Details) -> Self {
        Self::Own(Box::new(details))
    }

    #[inline]
    pub(super) fn get(&self) -> &Details {
        match self {
            Self::Own(own) => own,
            Self::Shared(shared) => shared,
        }
    }

    /// Returns the details for a change. Existing reports keep the old ones.
    pub(super) fn own(&mut self) -> &mut Details {
        if let Self::Shared(shared) = self {
            *self = Self::new(shared.without_reservation());
        }
        let Self::Own(own) = self else { unreachable!("they were made its own") };
        own
    }

    /// Returns the details if they are not shared: shared details have no reservation.
    #[inline]
    pub(super) fn unshared(&mut self) -> Option<&mut Details> {
        match self {
            Self::Own(own) => Some(own),
            Self::Shared(_) => None,
        }
    }

    /// Returns the details of a report.
    pub(super) fn to_shared(&self) -> Self {
        Self::Shared(match self {
            Self::Shared(shared) => Arc::clone(shared),
            Self::Own(own) => Arc::new(own.without_reservation()),
        })
    }
}
