//! Joins the answers of several quotas into one decision. Tuples and lists share this arithmetic.

use super::{Algorithm, Refund, Report, Verdict};

/// The earliest instant from `at` on that fits all quotas; `None` if one of them never fits.
///
/// A charge that fits at an instant fits at every later one, so the latest of all is the earliest
/// for all.
#[inline]
pub(super) fn earliest_fit(at: i64, fits: impl IntoIterator<Item = Option<i64>>) -> Option<i64> {
    fits.into_iter().try_fold(at, |latest, one| Some(latest.max(one?)))
}

/// The longest wait of one of the quotas when nothing was taken before.
#[inline]
pub(super) fn least_wait(waits: impl IntoIterator<Item = i64>) -> i64 {
    waits.into_iter().fold(0, i64::max)
}

/// The least that remains, and the latest reset.
#[inline]
pub(super) fn report(reports: impl IntoIterator<Item = Report>) -> Report {
    let none = Report { remaining: i64::MAX, reset_after: 0 };
    reports.into_iter().fold(none, |all, one| Report {
        remaining: all.remaining.min(one.remaining),
        reset_after: all.reset_after.max(one.reset_after),
    })
}

/// The verdict of one quota beside the others: it reserves no wait while others are unsettled.
#[inline]
pub(super) fn beside(is_unsettled: bool, verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Wait(wait) if is_unsettled => Verdict::Deny(wait),
        verdict => verdict,
    }
}

/// The most units that one quota gave back; `None` if none of them gave back any.
#[inline]
pub(super) fn refunded(given: impl IntoIterator<Item = Option<i64>>) -> Option<i64> {
    given.into_iter().fold(None, Option::max)
}

/// Settles a reservation of several quotas, each member on its own. A member that does not hold
/// units takes more even if its key has no state.
pub(super) fn settle<A>(
    rule: &A::Rule,
    state: &mut Option<A::State>,
    now: i64,
    refund: &Refund<'_>,
) -> Option<i64>
where
    A: Algorithm<State: Default>,
{
    if refund.units >= 0 {
        return A::refund(rule, state, now, refund);
    }
    if !A::holds(rule) {
        return A::penalize(rule, state, now, -refund.units).mark.map(|_| 0);
    }
    let is_new = state.is_none();
    state.get_or_insert_default();
    let settled = A::refund(rule, state, now, refund);
    if is_new && settled.is_none() {
        *state = None;
    }
    settled
}
