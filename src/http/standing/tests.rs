use super::*;

#[test]
fn units_that_stay_free_are_not_offered() {
    let fields = RateLimitHeaders::default();
    let quota = crate::core::Quota::per_hour(100);
    let policy = PolicyReport::new("api", quota).with_report(30, Duration::from_secs(9));
    for (kept, left) in [(0, 30), (20, 10), (40, 0)] {
        let policy = policy.with_kept_free(kept);
        let standing = fields.standing(&Decision::admitted(), &policy).expect("a standing");
        assert_eq!((standing.limit, standing.remaining), (100, left));
    }
}

// Case 114.
#[test]
fn seconds_are_rounded_up_and_never_zero() {
    let table = [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (12_300, 13)];
    for (millis, seconds) in table {
        assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
    }
    assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
}
