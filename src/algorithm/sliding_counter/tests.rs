use super::super::{Check, Verdict};
use super::*;

/// The start of a second.
const T0: i64 = 1_767_225_600_000_000;

fn run(quota: Quota, asks: &[(i64, i64, i64)]) -> Vec<(Verdict, i64, i64)> {
    let rule = SlidingCounter::new(quota).rule(quota).unwrap();
    let mut state = None;
    let answers = asks.iter().map(|&(at, cost, max_wait)| {
        let step = SlidingCounter::step(&rule, &mut state, T0 + at, Check::new(cost, max_wait));
        (step.verdict, step.report.remaining, step.report.reset_after)
    });
    answers.collect()
}

#[test]
fn the_window_before_weighs_what_is_left_of_it() {
    let answers = run(
        Quota::per_second(10),
        &[
            (900_000, 10, 0),
            (900_000, 1, 0),
            (1_000_000, 1, 0),
            (1_099_999, 1, 0),
            (1_100_000, 1, 0),
            (1_100_000, 1, 0),
            (1_500_000, 0, 0),
        ],
    );
    assert_eq!(
        answers,
        [
            (Verdict::Allow, 0, 1_100_000),
            // Nine of the ten count from a tenth into the next window on.
            (Verdict::Deny(200_000), 0, 1_100_000),
            (Verdict::Deny(100_000), 0, 1_000_000),
            (Verdict::Deny(1), 0, 900_001),
            (Verdict::Allow, 0, 1_900_000),
            (Verdict::Deny(100_000), 0, 1_900_000),
            (Verdict::Allow, 4, 1_500_000),
        ]
    );
}

#[test]
fn a_wait_is_reserved_after_the_latest_admission() {
    let answers = run(Quota::per_second(2), &[(0, 2, 0), (0, 1, 9_000_000), (0, 1, 9_000_000)]);
    assert_eq!(answers[1].0, Verdict::Wait(1_500_000));
    assert_eq!(answers[2].0, Verdict::Wait(2_000_000));
    let answers = run(Quota::per_second(2), &[(0, 2, 0), (0, 2, 9_000_000), (0, 0, 0)]);
    assert_eq!(answers[1].0, Verdict::Wait(2_000_000));
    assert_eq!(answers[2], (Verdict::Deny(2_000_000), 0, 4_000_000));
}

#[test]
fn what_cannot_be_weighed_exactly_is_refused() {
    let rule = |limit| SlidingCounter::new(Quota::per_day(limit)).rule(Quota::per_day(limit));
    assert!(rule(104_000).is_ok());
    assert!(rule(105_000).unwrap_err().to_string().contains("limit * period"));
}

#[test]
fn refund_returns_to_the_window_it_was_counted_in() {
    let quota = Quota::per_second(10);
    let rule = SlidingCounter::new(quota).rule(quota).unwrap();
    let take = |cost| Take { at: T0, cost, now: T0, has_others: false, keep_free: &[] };
    let (first, mark) = SlidingCounter::consume(&rule, None, take(4));
    let later = T0 + 1_000_000;
    let mut state = Some(SlidingCounter::spend(&rule, Some(first), later, 3, later));
    assert_eq!(
        SlidingCounter::refund(&rule, &mut state, T0 + 2_000_000, &Refund::of_all(4, &mark)),
        None
    );
    assert_eq!(
        SlidingCounter::refund(&rule, &mut state, T0 + 1_000_000, &Refund::of_all(4, &mark)),
        Some(4)
    );
    assert_eq!(state.unwrap().previous, 0);
}
