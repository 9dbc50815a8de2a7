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
    /// The units that the charge leaves free.
    pub(crate) kept_free: u64,
    pub(crate) reset_after: Option<Duration>,
    /// The time until the pause of the key ends. 0: it is not paused.
    pub(crate) paused_for: Duration,
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
    /// What wrappers add. Boxed, since few decisions have it.
    pub(crate) by_wrappers: Option<Box<WrapperDetails>>,
    /// The line in which the request waits.
    pub(crate) waiters: Option<Arc<dyn Waiters>>,
}

/// The details that wrappers of a limiter add.
#[derive(Clone, Default)]
pub(crate) struct WrapperDetails {
    pub(crate) retried_for: Duration,
    /// The result that would have counted without a shadow.
    pub(crate) shadowed: Option<Result<Outcome, Error>>,
    /// The error of the limiter that could not decide, if a fallback decided.
    pub(crate) fallback_cause: Option<Error>,
}
