use super::super::{Check, Verdict};
use super::*;

const T0: i64 = 1_767_225_600_000_000;
const SECOND: i64 = 1_000_000;
const FIVE: Quota = Quota::per_second(5);

/// A key, and the rule of its budget.
struct BudgetKey {
    rule: Rule,
    state: Option<State>,
}

impl BudgetKey {
    fn of(budget: Budget) -> Self {
        Self { rule: budget.rule(budget.quota()).unwrap(), state: None }
    }

    fn check(&mut self, at: i64, cost: i64, max_wait: i64) -> Verdict {
        Budget::step(&self.rule, &mut self.state, T0 + at, Check::new(cost, max_wait)).verdict
    }

    /// Holds units that fit at once, and returns the mark of them.
    fn hold(&mut self, at: i64, cost: i64) -> Mark {
        let check = Check::new(cost, 0);
        let held = Budget::step(&self.rule, &mut self.state, T0 + at, check);
        assert_eq!(held.verdict, Verdict::Allow);
        held.mark.unwrap()
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
    let mut key = BudgetKey::of(Budget::new(Quota::per_day(10_000)));
    let held: Vec<_> = (0..8).map(|_| key.hold(0, 1_000)).collect();
    assert_eq!(key.report(0).0, 2_000);
    for mark in &held {
        assert_eq!(key.settle(0, 1_000, 100, mark), Some(900));
    }
    assert_eq!(key.report(0).0, 9_200);
}

#[test]
fn only_a_settlement_makes_room_for_more_than_is_not_held() {
    let mut key = BudgetKey::of(Budget::new(FIVE));
    let mark = key.hold(0, 4);
    // 200 ms if all four were spent now. They are not, so nothing refills, and no wait is
    // reserved.
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
    let mut key = BudgetKey::of(Budget::new(FIVE));
    let spent = key.hold(0, 3);
    key.settle(0, 3, 3, &spent);
    let held = key.hold(0, 2);
    assert_eq!(key.check(0, 1, SECOND), Verdict::Wait(200_000));
    assert_eq!(key.settle(0, 2, 0, &held), Some(2));
    assert_eq!(key.check(0, 1, SECOND), Verdict::Allow);
}

#[test]
fn a_settlement_that_comes_twice_changes_nothing() {
    let mut key = BudgetKey::of(Budget::new(FIVE));
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
    // The earliest and the latest instant of an era: units are held until the next era is over.
    for since in [0, 2 * SECOND - 1] {
        let mut key = BudgetKey::of(budget);
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

/// A charge finds the same state, with or without earlier charges that only look.
#[test]
fn what_counts_as_spent_refills_although_nobody_looks() {
    let mut key = BudgetKey::of(Budget::new(FIVE).max_hold(Duration::from_secs(1)));
    key.hold(0, 5);
    let mut looked_at = BudgetKey { rule: key.rule, state: key.state };
    for at in 1..=30 {
        looked_at.check(at * 100_000, 1, 0);
    }
    assert_eq!(key.check(3 * SECOND, 5, 0), Verdict::Allow);
    // The charge took some of the units that had refilled.
    assert_eq!(looked_at.report(3 * SECOND).0, 0);
}

#[test]
fn more_than_was_held_is_owed_and_what_may_not_be_owed_is_told() {
    let mut key = BudgetKey::of(Budget::new(FIVE));
    let mark = key.hold(0, 1);
    assert_eq!(key.settle(0, 1, 11, &mark), Some(0));
    assert_eq!(key.report(0), (0, 2_200_000));
    assert_eq!(key.check(0, 1, 0), Verdict::Deny(1_400_000));
    let mark = key.hold(2_200_000, 1);
    let most = 5 * (365 * 86_400 + 1);
    assert_eq!(key.settle(2_200_000, 1, 1 << 53, &mark), Some(most - (1 << 53)));
    assert_eq!(key.report(2_200_000), (0, (365 * 86_400 + 1) * SECOND));
}

/// A settlement takes all that a charge held, whatever may be owed.
#[test]
fn what_may_be_owed_bounds_only_what_was_used_beyond_the_charge() {
    let debt = Duration::from_millis(400);
    let mut key = BudgetKey::of(Budget::new(FIVE).max_debt(debt));
    let held = [3, 2].map(|cost| key.hold(0, cost));
    // Of what is free in the end, 5 and 2 more, the other holds 2.
    assert_eq!(key.settle(0, 3, 9, &held[0]), Some(-4));
    assert_eq!(key.report(0), (0, 1_400_000));
    assert_eq!(key.settle(0, 2, 2, &held[1]), Some(0));
    assert_eq!(key.report(0), (0, 1_400_000));
    let waited = Check::new(1, 60 * SECOND);
    let slot = Budget::step(&key.rule, &mut key.state, T0, waited);
    assert_eq!(slot.verdict, Verdict::Wait(600_000));
    // A wait may have left more than a debt may: it is settled all the same.
    assert_eq!(key.settle(0, 1, 2, &slot.mark.unwrap()), Some(-1));
    assert_eq!(key.report(0), (0, 1_600_000));
}

/// Units that nobody settles count as spent later, on top of a debt.
#[test]
fn what_others_hold_beside_a_debt_is_not_cut_when_their_time_is_over() {
    let quota = Quota::per_day(10);
    let day = 86_400 * SECOND;
    let mut key = BudgetKey::of(Budget::new(quota));
    let (mark, _) = (key.hold(0, 5), key.hold(0, 5));
    assert_eq!(key.settle(0, 5, 10, &mark), Some(0));
    assert_eq!(key.report(0), (0, day + day / 2));
    assert_eq!(key.check(120 * SECOND, 1, 0), Verdict::Deny(day / 2 + day / 10 - 120 * SECOND));
}

/// What others hold for now makes nothing that was used cheaper.
#[test]
fn more_than_was_held_is_owed_beside_units_that_others_hold() {
    let mut key = BudgetKey::of(Budget::new(FIVE).horizon(Duration::ZERO));
    let (mark, other) = (key.hold(0, 1), key.hold(0, 4));
    assert_eq!(key.settle(0, 1, 5, &mark), Some(0));
    assert_eq!(key.settle(0, 4, 0, &other), Some(4));
    assert_eq!(key.report(0), (0, SECOND));
}

#[test]
fn nobody_waits_longer_than_a_hold_lasts() {
    let mut key = BudgetKey::of(Budget::new(FIVE).max_hold(Duration::from_secs(1)));
    let mark = key.hold(0, 5);
    assert_eq!(key.settle(0, 5, 15, &mark), Some(0));
    assert_eq!(key.report(0), (0, 3 * SECOND));
    assert_eq!(key.check(0, 1, 60 * SECOND), Verdict::Deny(2_200_000));
    assert_eq!(key.check(0, 0, 0), Verdict::Deny(2 * SECOND));
    assert_eq!(key.check(1_200_000, 1, 60 * SECOND), Verdict::Wait(SECOND));
}

// Case 63.
#[test]
fn thirds_of_a_microsecond_are_kept() {
    let quota = Quota::new(3, Duration::from_micros(10)).burst(2);
    let mut key = BudgetKey::of(Budget::new(quota));
    for _ in 0..2 {
        let mark = key.hold(0, 1);
        assert_eq!(key.settle(0, 1, 1, &mark), Some(0));
    }
    // Full again at 6 2/3.
    assert_eq!(key.report(0), (0, 7));
    assert_eq!(key.check(0, 1, 0), Verdict::Deny(4));
    assert_eq!(key.check(3, 1, 0), Verdict::Deny(1));
    let mark = key.hold(4, 1);
    // As if the held unit were spent at 4: the charge fits when 3 1/3 of 6 1/3 are over.
    assert_eq!(key.check(4, 1, 0), Verdict::Deny(3));
    assert_eq!(key.check(4, 2, 0), Verdict::Deny(6));
    assert_eq!(key.settle(4, 1, 0, &mark), Some(1));
    assert_eq!(key.check(4, 1, 0), Verdict::Allow);
}

// Cases 50 and 67.
#[test]
fn clock_set_back_locks_for_capacity_and_horizon_at_most() {
    let mut key = BudgetKey::of(Budget::new(FIVE));
    let mark = key.hold(0, 5);
    // Set back by less than an era: the units are held as before.
    assert_eq!(key.report(-60 * SECOND), (0, SECOND));
    assert_eq!(Budget::clamp(&key.rule, key.state.as_ref().unwrap(), T0 - 60 * SECOND), None);
    // Set back by more: they count as spent, and are not settled.
    let hour = -3_600 * SECOND;
    assert_eq!(key.settle(hour, 5, 0, &mark), None);
    assert_eq!(key.check(hour, 1, 0), Verdict::Deny(200_000));
    assert_eq!(key.check(hour + SECOND, 5, 0), Verdict::Allow);

    let far = State { full: T0 + 3_600 * SECOND, ..State::new(&key.rule, T0) };
    let mut state = Some(far);
    let peek = Budget::step(&key.rule, &mut state, T0, Check::new(0, 0));
    assert_eq!((&peek.mark, &state), (&None, &Some(far)));
    let step = Budget::step(&key.rule, &mut state, T0, Check::new(1, 0));
    assert_eq!(step.verdict, Verdict::Deny(60_200_000));
    assert_eq!(state, Some(State { full: T0 + 61 * SECOND, ..far }));
}

#[test]
fn a_lower_quota_finds_more_held_than_it_has() {
    let mut key = BudgetKey::of(Budget::new(FIVE));
    let mark = key.hold(0, 5);
    key.rule = Budget::new(FIVE).rule(Quota::per_second(2)).unwrap();
    assert_eq!(key.report(0), (0, SECOND));
    assert_eq!(key.check(0, 1, SECOND), Verdict::Deny(SECOND));
    assert_eq!(key.settle(0, 5, 1, &mark), Some(4));
    assert_eq!(key.report(0), (1, 500_000));
}

/// A cut state is cut no further by the next charge, even if its held units make it owe.
#[test]
fn a_smaller_quota_without_debts_cuts_once() {
    let hold = Duration::from_millis(300);
    let budget = Budget::new(Quota::new(3, Duration::from_millis(900)).burst(12));
    let mut key = BudgetKey::of(budget.max_hold(hold).max_debt(Duration::ZERO));
    key.hold(0, 6);
    key.hold(600_000, 3);
    key.rule = budget
        .max_hold(hold)
        .max_debt(Duration::ZERO)
        .rule(Quota::new(6, Duration::from_millis(900)))
        .unwrap();
    let first = key.check(600_000, 3, 0);
    assert_eq!(first, Verdict::Deny(1_200_000));
    assert_eq!(key.check(600_000, 3, 0), first);
}
