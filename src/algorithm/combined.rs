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

/// The index of the quota that fits last, or never; `None` if all fit now.
#[inline]
pub(super) fn blocking_quota(
    now: i64,
    fits: impl IntoIterator<Item = Option<i64>>,
) -> Option<usize> {
    let (mut latest, mut quota_index) = (now, None);
    for (index, fit) in fits.into_iter().enumerate() {
        match fit {
            None => return Some(index),
            Some(instant) if instant > latest => (latest, quota_index) = (instant, Some(index)),
            Some(_) => {}
        }
    }
    quota_index
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

/// The index of the first quota with the fewest units left.
#[inline]
pub(super) fn tightest(reports: impl IntoIterator<Item = Report>) -> usize {
    let remaining = reports.into_iter().map(|one| one.remaining).enumerate();
    remaining.min_by_key(|(_, remaining)| *remaining).map_or(0, |(index, _)| index)
}

/// The most that one of them gave back; `None` if none gave anything.
#[inline]
pub(super) fn refunded(given: impl IntoIterator<Item = Option<i64>>) -> Option<i64> {
    given.into_iter().fold(None, Option::max)
}
