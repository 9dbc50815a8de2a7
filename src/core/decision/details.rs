//! The details of a decision besides its outcome.

use std::sync::Arc;
use std::time::Duration;

use super::policy_report::DecidedPolicy;
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
    pub(crate) policies: Option<Arc<[DecidedPolicy]>>,
    /// The units of a penalty that could not be taken.
    pub(crate) not_taken: u64,
    pub(crate) reservation: Option<Reservation>,
    /// Boxed, since few decisions have it.
    pub(crate) rare: Option<Box<RareDetails>>,
    /// The line in which the request waits.
    pub(crate) waiters: Option<Arc<dyn Waiters>>,
}

/// The details of charges that leave units free, of paused keys, and of wrappers of a limiter.
#[derive(Clone, Default)]
pub(crate) struct RareDetails {
    /// The units that the charge leaves free.
    pub(crate) kept_free: u64,
    /// The time until the pause of the key ends. 0: it is not paused.
    pub(crate) paused_for: Duration,
    pub(crate) is_blocked: bool,
    pub(crate) retried_for: Duration,
    /// The result that would have counted without a shadow.
    pub(crate) shadowed: Option<Result<Outcome, Error>>,
    /// The error of the limiter that could not decide, if a fallback decided.
    pub(crate) fallback_cause: Option<Error>,
}

impl RareDetails {
    /// Returns `None` for none of them, as it mostly is.
    #[inline]
    pub(crate) fn of(kept_free: u64, paused_for: Duration, is_blocked: bool) -> Option<Box<Self>> {
        let is_any = kept_free > 0 || !paused_for.is_zero() || is_blocked;
        is_any.then(|| Box::new(Self { kept_free, paused_for, is_blocked, ..Self::default() }))
    }
}
