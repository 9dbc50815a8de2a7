//! A copy of a decision for handlers and outer layers.

use std::fmt;
use std::ops::Deref;

use super::Decision;

/// A [`Decision`] that can be cloned, since it holds no
/// [`Reservation`](crate::limiter::Reservation).
///
/// [`HttpResponder::report_in_request`](crate::HttpResponder::report_in_request) adds it to
/// requests, for handlers. [`report_in_response`](crate::HttpResponder::report_in_response) adds it
/// to responses, for outer layers. With axum it is `Extension<DecisionReport>`. It has the getters
/// of [`Decision`].
///
/// If a request was not limited, its [`origin`](Decision::origin) says so:
/// [`Origin::Exempt`](crate::limiter::Origin::Exempt) or
/// [`Origin::Off`](crate::limiter::Origin::Off). A refusal without a decision (a 503 or a 400) has
/// no report. With two layers on one request, the request has the report of the inner layer, and
/// the response that of the outer layer. [What callers see][callers] has an example.
///
/// [callers]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/what_callers_see/
pub struct DecisionReport(Decision);

impl From<&Decision> for DecisionReport {
    fn from(decision: &Decision) -> Self {
        Self(decision.without_reservation())
    }
}

/// Drops the reservation, if the decision has one: what was taken stays taken.
impl From<Decision> for DecisionReport {
    fn from(mut decision: Decision) -> Self {
        drop(decision.take_reservation());
        Self(decision)
    }
}

impl Deref for DecisionReport {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.0
    }
}

impl Clone for DecisionReport {
    fn clone(&self) -> Self {
        Self::from(&self.0)
    }
}

impl fmt::Debug for DecisionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
