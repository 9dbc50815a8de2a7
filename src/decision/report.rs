//! A decision for those who read it after it was made.

use std::fmt;
use std::ops::Deref;

use super::Decision;
use super::details::Held;

/// A [`Decision`] that can be cloned, since it holds no
/// [`Reservation`](crate::limiter::Reservation). Clones share what they say.
///
/// [`HttpResponder::report_in_request`](crate::HttpResponder::report_in_request) leaves it for
/// handlers, and [`report_in_response`](crate::HttpResponder::report_in_response) for layers
/// outside. With axum it is `Extension<DecisionReport>`. It reads as the decision does.
///
/// Its [`origin`](Decision::origin) says where a request was not limited:
/// [`Origin::Exempt`](crate::limiter::Origin::Exempt) or
/// [`Origin::Off`](crate::limiter::Origin::Off). A refusal about which nothing was decided has no
/// report: a 503, or a 400. Of two layers on one request the inner one's is in the request, and the
/// outer one's in the response.
///
/// ```
/// use http::Response;
/// use tower_sluice::respond::DecisionReport;
///
/// fn log<B>(response: &Response<B>) {
///     if let Some(decision) = response.extensions().get::<DecisionReport>() {
///         println!("{:?} by {:?}", decision.outcome(), decision.limiter());
///     }
/// }
/// # log(&Response::new(()));
/// ```
pub struct DecisionReport(Decision);

impl DecisionReport {
    /// The report of a decision that makes several: the details are copied for the first one.
    pub(crate) fn of(decision: &mut Decision) -> Self {
        let details = decision.details.as_mut().map(Held::share);
        Self(Decision { details, ..*decision })
    }
}

impl From<&Decision> for DecisionReport {
    fn from(decision: &Decision) -> Self {
        Self(decision.to_shared())
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
