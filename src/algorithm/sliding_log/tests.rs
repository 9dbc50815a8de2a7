use super::*;
use crate::algorithm::{Check, Verdict};

const T0: i64 = 1_767_225_600_000_000;

/// One log, asked in µs after the start.
struct Log(Rule, Option<State>);

impl Log {
    fn of(quota: Quota) -> Self {
        Self(SlidingLog::new(quota).rule(quota).unwrap(), None)
    }

    fn check(&mut self, at: i64, cost: i64, max_wait: i64) -> (Verdict, i64, i64) {
        let check = Check::new(cost, max_wait);
        let step = SlidingLog::step(&self.0, &mut self.1, T0 + at, check);
        (step.verdict, step.report.remaining, step.report.reset_after)
    }

    fn mark(&self) -> Mark {
        self.1.as_ref().map(State::mark).unwrap_or_default()
    }

    fn refund(&mut self, at: i64, cost: i64, mark: Mark) -> Option<i64> {
        SlidingLog::refund(&self.0, &mut self.1, T0 + at, &Refund::of_all(cost, &mark))
    }

    fn len(&self) -> usize {
        self.1.as_ref().map_or(0, |state| state.members.len())
    }
}

#[test]
fn what_is_taken_comes_back_exactly_a_period_later() {
    let mut log = Log::of(Quota::per_second(5));
    assert_eq!(log.check(0, 3, 0), (Verdict::Allow, 2, 1_000_000));
    assert_eq!(log.check(150_000, 2, 0), (Verdict::Allow, 0, 1_000_000));
    assert_eq!(log.check(999_999, 1, 0), (Verdict::Deny(1), 0, 150_001));
    assert_eq!(log.check(999_999, 4, 0), (Verdict::Deny(150_001), 0, 150_001));
    assert_eq!(log.check(1_000_000, 3, 0), (Verdict::Allow, 0, 1_000_000));
    assert_eq!(log.check(1_000_000, 6, 0), (Verdict::Never, 0, 1_000_000));
    assert_eq!(log.check(2_000_000, 0, 0), (Verdict::Allow, 5, 0));
    assert_eq!(log.len(), 2);
}

#[test]
fn reservations_follow_each_other_and_are_counted_where_they_lie() {
    let mut log = Log::of(Quota::per_second(2));
    let answers = [0; 5].map(|at| log.check(at, 1, 2_000_000).0);
    assert_eq!(
        answers,
        [
            Verdict::Allow,
            Verdict::Allow,
            Verdict::Wait(1_000_000),
            Verdict::Wait(1_000_000),
            Verdict::Wait(2_000_000)
        ]
    );
    assert_eq!(log.check(1_500_000, 0, 0), (Verdict::Deny(500_000), 0, 1_500_000));
    assert_eq!(log.check(2_000_000, 0, 0), (Verdict::Allow, 1, 1_000_000));
}

#[test]
fn refund_is_the_newest_members_while_it_counts() {
    let mut log = Log::of(Quota::per_second(5));
    log.check(0, 2, 0);
    let first = log.mark();
    log.check(10, 3, 0);
    let second = log.mark();
    assert_eq!(log.refund(20, 2, first.clone()), None);
    assert_eq!(log.refund(1_000_010, 3, second.clone()), None);
    assert_eq!(log.refund(1_000_009, 3, second.clone()), Some(3));
    assert_eq!(log.refund(20, 3, second), None);
    assert_eq!(log.check(20, 0, 0), (Verdict::Allow, 3, 999_980));
    assert_eq!(log.refund(20, 2, first.clone()), Some(2));
    assert_eq!(log.check(20, 0, 0), (Verdict::Allow, 5, 0));
}

// Case 67.
#[test]
fn clock_set_back_locks_for_a_period_at_most() {
    let mut log = Log::of(Quota::per_second(5));
    log.check(3_600_000_000, 1, 0);
    assert_eq!(log.check(0, 0, 0), (Verdict::Allow, 0, 1_000_000));
    assert_eq!(log.check(0, 1, 0), (Verdict::Deny(1_000_000), 0, 1_000_000));
    assert_eq!(log.check(1_000_000, 1, 0), (Verdict::Allow, 4, 1_000_000));
}

#[test]
fn large_limits_must_be_asked_for_and_totals_stay_exact() {
    let many = Quota::per_second(10_001);
    let log = SlidingLog::new(many);
    assert!(log.rule(many).unwrap_err().to_string().contains("max_limit"));
    assert!(log.max_limit(10_001).rule(many).is_ok());
    let short = Quota::new(10_000, Duration::from_micros(1));
    let year = Duration::from_secs(365 * 86_400);
    assert!(log.rule(short).is_ok());
    assert!(log.horizon(year).rule(short).unwrap_err().to_string().contains("10^14"));
}

// Case 35.
#[test]
fn no_step_removes_more_than_its_share() {
    let mut log = Log::of(Quota::per_second(1_000));
    (0..999).for_each(|_| _ = log.check(0, 1, 0));
    log.check(1, 1, 0);
    log.check(1_000_000, 1, 0);
    assert_eq!(log.len(), 1_001 - 256);
    (0..3).for_each(|_| _ = log.check(1_000_000, 1, 0));
    assert_eq!(log.len(), 5);
    log.check(2_000_000, 1, 0);
    assert_eq!(log.len(), 1);
}
