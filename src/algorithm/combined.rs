//! What several quotas decide together, from what each of them answers: the arithmetic that tuples
//! and lists share.

use super::Report;

/// The earliest instant from `at` on that fits all; `None` if one of them never fits.
///
/// What fits at an instant fits at every later one, so the latest of all is the earliest for all.
#[inline]
pub(super) fn earliest_fit(at: i64, fits: impl IntoIterator<Item = Option<i64>>) -> Option<i64> {
    fits.into_iter().try_fold(at, |latest, one| Some(latest.max(one?)))
}

/// The longest that one of them waits where nothing was taken before.
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

/// The most that one of them gave back; `None` if none gave anything.
#[inline]
pub(super) fn refunded(given: impl IntoIterator<Item = Option<i64>>) -> Option<i64> {
    given.into_iter().fold(None, Option::max)
}
