use super::*;
use crate::algorithm::{Check, Verdict};

const T0: i64 = 1_767_225_600_000_000;
const SECOND: i64 = 1_000_000;
const FIVE: Quota = Quota::per_second(5);

/// A key, and the rule of its budget.
struct Key {
    rule: Rule,
    state: Option<State>,
}

impl Key {
    fn of(budget: Budget) -> Self {
        Self { rule: budget.rule(budget.quota()).unwrap(), state: None }
    }

    fn check(&mut self, at: i64, cost: i64, max_wait: i64) -> Verdict {
        Budget::step(&self.rule, &mut self.state, T0 + at, Check { cost, max_wait }).verdict
    }

    /// Holds units that fit at once, and returns the mark of them.
    fn hold(&mut self, at: i64, cost: i64) -> Mark {
        assert_eq!(self.check(at, cost, 0), Verdict::Allow);
        Budget::mark(self.state.as_ref().unwrap())
    }

    fn settle(&mut self, at: i64, cost: i64, used: i64, mark: &Mark) -> Option<i64> {
        let refund = Refund { units: cost - used, cost, mark };
        Budget::settle(&self.rule, &mut self.state, T0 + at, &refund)
    }

    fn report(&self, at: i64) -> (i64, i64) {
        let report = Budget::report(&self.rule, self.state.as_ref(), T0 + at);
        (report.remaining, report.reset_after)
    }
}

#[test]
fn what_was_not_used_is_free_at_once_whoever_came_in_between() {
    let mut key = Key::of(Budget::new(Quota::per_day(10_000)));
    let held: Vec<_> = (0..8).map(|_| key.hold(0, 1_000)).collect();
    assert_eq!(key.report(0).0, 2_000);
    for mark in &held {
        assert_eq!(key.settle(0, 1_000, 100, mark), Some(900));
    }
    assert_eq!(key.report(0).0, 9_200);
}

#[test]
fn only_a_settlement_makes_room_for_more_than_is_not_held() {
    let mut key = Key::of(Budget::new(FIVE));
    let mark = key.hold(0, 4);
    // 200 ms if all four were spent now. They are not, so nothing refills, and nobody waits.
    assert_eq!(key.check(0, 2, 60 * SECOND), Verdict::Deny(200_000));
    assert_eq!(key.check(10 * SECOND, 2, 60 * SECOND), Verdict::Deny(200_000));
    assert_eq!(key.report(10 * SECOND), (1, 800_000));
    assert_eq!(key.settle(10 * SECOND, 4, 4, &mark), Some(0));
    assert_eq!(key.check(10 * SECOND, 2, 60 * SECOND), Verdict::Wait(200_000));
    assert_eq!(key.check(10 * SECOND, 6, 60 * SECOND), Verdict::Never);
}

/// The caller of a reserved slot knows its instant already.
#[test]
fn what_a_settlement_frees_goes_to_the_next_charge_and_not_to_who_waits() {
    let mut key = Key::of(Budget::new(FIVE));
    let spent = key.hold(0, 3);
    key.settle(0, 3, 3, &spent);
    let held = key.hold(0, 2);
    assert_eq!(key.check(0, 1, SECOND), Verdict::Wait(200_000));
    assert_eq!(key.settle(0, 2, 0, &held), Some(2));
    assert_eq!(key.check(0, 1, SECOND), Verdict::Allow);
}

#[test]
fn a_settlement_that_comes_twice_changes_nothing() {
    let mut key = Key::of(Budget::new(FIVE));
    let mark = key.hold(0, 3);
    assert_eq!(key.settle(0, 3, 1, &mark), Some(2));
    let settled = key.state;
    for used in [0, 1, 3, 9] {
        assert_eq!(key.settle(0, 3, used, &mark), None);
        assert_eq!(key.state, settled);
    }
}

#[test]
fn what_nobody_settles_counts_as_spent_after_one_to_two_holds() {
    let budget = Budget::new(FIVE.burst(60)).max_hold(Duration::from_secs(2));
    // Held as early, and as late, as an era has it: until it and the next one are over.
    for since in [0, 2 * SECOND - 1] {
        let mut key = Key::of(budget);
        let mark = key.hold(since, 10);
        assert_eq!(key.report(4 * SECOND - 1).0, 50);
        assert_eq!(key.report(4 * SECOND), (50, 2 * SECOND));
        assert_eq!(key.report(4 * SECOND + 200_000), (51, 1_800_000));
        let expires_at = Budget::expires_at(&key.rule, key.state.as_ref().unwrap());
        assert_eq!(expires_at, T0 + 6 * SECOND);
        assert_eq!(key.report(6 * SECOND), (60, 0));
        // Too late: it counts as spent.
        let before = key.state;
        assert_eq!(key.settle(4 * SECOND, 10, 0, &mark), None);
        assert_eq!(key.state, before);
        assert_eq!(key.settle(4 * SECOND - 1, 10, 0, &mark), Some(10));
        assert_eq!(key.report(4 * SECOND), (60, 0));
    }
}

/// The next charge of a key finds it as every charge before it would have.
#[test]
fn what_counts_as_spent_refills_although_nobody_looks() {
    let mut key = Key::of(Budget::new(FIVE).max_hold(Duration::from_secs(1)));
    key.hold(0, 5);
    let mut looked_at = Key { rule: key.rule, state: key.state };
    for at in 1..=30 {
        looked_at.check(at * 100_000, 1, 0);
    }
    assert_eq!(key.check(3 * SECOND, 5, 0), Verdict::Allow);
    // Of the units that came meanwhile it was given some.
    assert_eq!(looked_at.report(3 * SECOND).0, 0);
}

#[test]
fn more_than_was_held_is_owed_up_to_the_horizon() {
    let mut key = Key::of(Budget::new(FIVE));
    let mark = key.hold(0, 1);
    assert_eq!(key.settle(0, 1, 11, &mark), Some(0));
    assert_eq!(key.report(0), (0, 2_200_000));
    assert_eq!(key.check(0, 1, 0), Verdict::Deny(1_400_000));
    let mark = key.hold(2_200_000, 1);
    assert_eq!(key.settle(2_200_000, 1, 1 << 53, &mark), Some(0));
    assert_eq!(key.report(2_200_000), (0, 61 * SECOND));
}

#[test]
fn nobody_waits_longer_than_a_hold_lasts() {
    let mut key = Key::of(Budget::new(FIVE).max_hold(Duration::from_secs(1)));
    let mark = key.hold(0, 5);
    assert_eq!(key.settle(0, 5, 15, &mark), Some(0));
    assert_eq!(key.report(0), (0, 2 * SECOND));
    assert_eq!(key.check(0, 1, 60 * SECOND), Verdict::Deny(1_200_000));
    assert_eq!(key.check(0, 0, 0), Verdict::Deny(SECOND));
    assert_eq!(key.check(200_000, 1, 60 * SECOND), Verdict::Wait(SECOND));
}

// Case 63.
#[test]
fn thirds_of_a_microsecond_are_kept() {
    let quota = Quota::new(3, Duration::from_micros(10)).burst(2);
    let mut key = Key::of(Budget::new(quota));
    for _ in 0..2 {
        let mark = key.hold(0, 1);
        assert_eq!(key.settle(0, 1, 1, &mark), Some(0));
    }
    // Full again at 6 2/3.
    assert_eq!(key.report(0), (0, 7));
    assert_eq!(key.check(0, 1, 0), Verdict::Deny(4));
    assert_eq!(key.check(3, 1, 0), Verdict::Deny(1));
    let mark = key.hold(4, 1);
    // As if the unit that is held were spent at 4: it fits when 3 1/3 of 6 1/3 are over.
    assert_eq!(key.check(4, 1, 0), Verdict::Deny(3));
    assert_eq!(key.check(4, 2, 0), Verdict::Deny(6));
    assert_eq!(key.settle(4, 1, 0, &mark), Some(1));
    assert_eq!(key.check(4, 1, 0), Verdict::Allow);
}

// Cases 50 and 67.
#[test]
fn clock_set_back_locks_for_capacity_and_horizon_at_most() {
    let mut key = Key::of(Budget::new(FIVE));
    let mark = key.hold(0, 5);
    // By less than an era: the units are held as before.
    assert_eq!(key.report(-60 * SECOND), (0, SECOND));
    assert_eq!(Budget::clamp(&key.rule, key.state.as_ref().unwrap(), T0 - 60 * SECOND), None);
    // By more: they count as spent, and are not settled.
    let hour = -3_600 * SECOND;
    assert_eq!(key.settle(hour, 5, 0, &mark), None);
    assert_eq!(key.check(hour, 1, 0), Verdict::Deny(200_000));
    assert_eq!(key.check(hour + SECOND, 5, 0), Verdict::Allow);

    let far = State { full: T0 + 3_600 * SECOND, ..State::new(&key.rule, T0) };
    let mut state = Some(far);
    let peek = Budget::step(&key.rule, &mut state, T0, Check { cost: 0, max_wait: 0 });
    assert_eq!((&peek.mark, &state), (&None, &Some(far)));
    let step = Budget::step(&key.rule, &mut state, T0, Check { cost: 1, max_wait: 0 });
    assert_eq!(step.verdict, Verdict::Deny(60_200_000));
    assert_eq!(state, Some(State { full: T0 + 61 * SECOND, ..far }));
}

#[test]
fn a_lower_quota_finds_more_held_than_it_has() {
    let mut key = Key::of(Budget::new(FIVE));
    let mark = key.hold(0, 5);
    key.rule = Budget::new(FIVE).rule(Quota::per_second(2)).unwrap();
    assert_eq!(key.report(0), (0, SECOND));
    assert_eq!(key.check(0, 1, SECOND), Verdict::Deny(SECOND));
    assert_eq!(key.settle(0, 5, 1, &mark), Some(4));
    assert_eq!(key.report(0), (1, 500_000));
}
