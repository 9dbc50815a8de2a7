use super::super::Verdict;
use super::*;

const T0: i64 = 1_767_225_600_000_000;
const SECOND: i64 = 1_000_000;

/// A key, and the rule of its limit, whose eras take a second.
struct HeldKey {
    rule: Rule,
    state: Option<State>,
}

impl HeldKey {
    fn of(limit: u64) -> Self {
        let limit = Concurrency::new(limit).max_hold(Duration::from_secs(4));
        Self { rule: limit.rule(limit.quota()).unwrap(), state: None }
    }

    fn check(&mut self, at: i64, cost: i64) -> (Verdict, Option<Mark>) {
        let check = Check::new(cost, 60 * SECOND);
        let answer = Concurrency::step(&self.rule, &mut self.state, T0 + at, check);
        (answer.verdict, answer.mark)
    }

    fn hold(&mut self, at: i64, cost: i64) -> Mark {
        let (verdict, mark) = self.check(at, cost);
        assert_eq!(verdict, Verdict::Allow);
        mark.expect("it was taken")
    }

    fn settle(&mut self, at: i64, cost: i64, used: i64, mark: &Mark) -> Option<i64> {
        let refund = Refund { units: cost - used, cost, mark };
        Concurrency::settle(&self.rule, &mut self.state, T0 + at, &refund)
    }

    fn renew(&mut self, at: i64, cost: i64, mark: &Mark) -> (Mark, bool) {
        Concurrency::renew(&self.rule, &mut self.state, T0 + at, cost, mark)
    }

    fn report(&self, at: i64) -> (i64, i64) {
        let Report { remaining, reset_after } =
            Concurrency::report(&self.rule, self.state.as_ref(), T0 + at);
        (remaining, reset_after)
    }
}

#[test]
fn no_more_than_the_limit_is_held_and_a_release_makes_room() {
    let mut key = HeldKey::of(3);
    let first = key.hold(0, 2);
    let second = key.hold(SECOND, 1);
    assert_eq!(key.report(SECOND), (0, 5 * SECOND));
    assert_eq!(key.check(SECOND, 1).0, Verdict::Deny(PAUSE + (T0 + SECOND) % (2 * PAUSE + 1)));
    assert_eq!(key.check(SECOND, 4).0, Verdict::Never);
    assert_eq!(key.settle(2 * SECOND, 2, 0, &first), Some(2));
    assert_eq!(key.report(2 * SECOND), (2, 4 * SECOND));
    assert_eq!(key.settle(2 * SECOND, 1, 0, &second), Some(1));
    assert_eq!(key.report(2 * SECOND), (3, 0));
}

/// A grant to a tuple writes the keys of all its quotas.
#[test]
fn a_grant_to_other_quotas_leaves_all_units_held_in_the_era_of_now() {
    let mut key = HeldKey::of(3);
    let mark = key.hold(0, 2);
    Concurrency::give(&key.rule, key.state.as_mut().unwrap(), T0 + SECOND, 1);
    assert_eq!(key.state, Some(State { begin: T0 + SECOND, held: [0, 2, 0, 0, 0] }));
    assert_eq!(key.settle(SECOND, 2, 0, &mark), Some(2));
}

#[test]
fn a_settlement_releases_all_units_however_many_were_used() {
    for (used, given_back) in [(0, 2), (1, 1), (2, 0), (9, 0)] {
        let mut key = HeldKey::of(3);
        let mark = key.hold(0, 2);
        assert_eq!(key.settle(0, 2, used, &mark), Some(given_back));
        assert_eq!(key.report(0).0, 3, "{used} used");
        // Nothing of others is released.
        let other = key.hold(0, 1);
        assert_eq!(key.settle(0, 2, used, &mark), None);
        assert_eq!(key.settle(0, 1, 0, &other), Some(1));
    }
}

/// The first hold keeps its old mark, and takes units of the second, which finds those of the first.
// Case 181.
#[test]
fn each_hold_finds_units_after_a_renewal_whose_answer_got_lost() {
    let mut key = HeldKey::of(6);
    let [first, second] = [2, 1].map(|cost| key.hold(0, cost));
    assert!(key.renew(SECOND, 2, &first).1);
    let third = key.hold(2 * SECOND, 1);
    let (first, is_held) = key.renew(3 * SECOND, 2, &first);
    assert!(is_held);
    let (second, is_held) = key.renew(4 * SECOND, 1, &second);
    assert!(is_held);
    assert_eq!(key.report(4 * SECOND).0, 2);
    for (cost, mark) in [(2, &first), (1, &third), (1, &second)] {
        assert_eq!(key.settle(6 * SECOND, cost, 0, mark), Some(cost));
    }
    assert_eq!(key.report(6 * SECOND).0, 6);
    // A hold whose time is over finds nothing of others.
    let late = key.hold(7 * SECOND, 1);
    key.hold(12 * SECOND, 1);
    assert!(!key.renew(12 * SECOND, 1, &late).1);
}

/// A failover loses the write of a renewal. The hold then takes no units of others.
#[test]
fn units_whose_renewal_got_lost_are_not_those_of_others() {
    let mut key = HeldKey::of(2);
    let mark = key.hold(0, 1);
    let before = key.state;
    let (mark, is_held) = key.renew(2 * SECOND, 1, &mark);
    assert!(is_held);
    key.state = before;
    let (mark, is_held) = key.renew(3 * SECOND, 1, &mark);
    assert!(!is_held);
    let other = key.hold(4 * SECOND, 1);
    assert!(!key.renew(4 * SECOND, 1, &mark).1);
    assert_eq!(key.settle(5 * SECOND, 1, 0, &mark), None);
    assert_eq!(key.settle(5 * SECOND, 1, 0, &other), Some(1));
}

#[test]
fn what_nobody_releases_is_held_for_four_to_five_eras() {
    for at in [0, 1, SECOND - 1] {
        let mut key = HeldKey::of(1);
        let mark = key.hold(at, 1);
        assert_eq!(key.report(5 * SECOND - 1), (0, 1));
        let last = HeldKey { ..key }.settle(5 * SECOND - 1, 1, 0, &mark);
        assert_eq!(last, Some(1));
        assert_eq!(key.settle(5 * SECOND, 1, 0, &mark), None);
        assert_eq!(key.report(5 * SECOND), (1, 0));
    }
}

#[test]
fn units_of_a_clock_that_stepped_back_are_held_as_of_now() {
    let mut key = HeldKey::of(2);
    key.hold(0, 1);
    key.hold(3 * SECOND, 1);
    // By an era at most: held for 1.5 times `max_hold`.
    assert_eq!(key.report(2 * SECOND), (0, 6 * SECOND));
    assert_eq!(Concurrency::clamp(&key.rule, &key.state.unwrap(), T0 + 2 * SECOND), None);
    // By more: a refusal stores that both are held as of now.
    assert!(matches!(key.check(SECOND, 1).0, Verdict::Deny(_)));
    assert_eq!(key.state, Some(State { begin: T0 + SECOND, held: [2, 0, 0, 0, 0] }));
    assert_eq!(key.report(6 * SECOND - 1), (0, 1));
    assert_eq!(key.report(6 * SECOND), (2, 0));
}

#[test]
fn a_penalty_takes_only_what_is_free() {
    let mut key = HeldKey::of(3);
    let mark = key.hold(0, 1);
    let answer = Concurrency::penalize(&key.rule, &mut key.state, T0, 5);
    assert_eq!((answer.not_taken, answer.report.remaining), (3, 0));
    assert_eq!(key.settle(0, 1, 0, &mark), Some(1));
    assert_eq!(key.report(0), (1, 5 * SECOND));
}

#[test]
fn only_the_limit_of_a_quota_counts() {
    let limit = Concurrency::new(3);
    let rule = |quota: Quota| limit.rule(quota);
    assert_eq!(rule(Quota::per_second(3)), rule(Quota::at_once(3)));
    assert_eq!(limit.reported(0, Quota::per_second(3), 0), Quota::at_once(3));
    assert!(rule(Quota::per_second(3).burst(2)).is_err());
    let widths = [0, 1, 4, 5].map(|hold| {
        let limit = limit.max_hold(Duration::from_micros(hold));
        limit.rule(limit.quota()).unwrap().width
    });
    assert_eq!(widths, [1, 1, 1, 2]);
}
