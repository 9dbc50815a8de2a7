use super::*;
use crate::algorithm::{Check, Ruling, Verdict};

const T0: i64 = 1_767_225_600_000_000;

fn run(quota: Quota, asks: &[(i64, i64, i64)]) -> Vec<(Verdict, i64, i64)> {
    let rule = TokenBucket::new(quota).rule(quota).unwrap();
    let mut state = None;
    let answers = asks.iter().map(|&(at, cost, max_wait)| {
        let Ruling { verdict, report, .. } =
            TokenBucket::step(&rule, &mut state, T0 + at, Check::new(cost, max_wait));
        (verdict, report.remaining, report.reset_after)
    });
    answers.collect()
}

#[test]
fn ten_at_once_are_five_admitted_two_reserved_three_denied() {
    let answers = run(Quota::per_second(5), &[(0, 1, 500_000); 10]);
    let verdicts: Vec<_> = answers.iter().map(|answer| answer.0).collect();
    assert_eq!(verdicts[..5], [Verdict::Allow; 5]);
    assert_eq!(verdicts[5..7], [Verdict::Wait(200_000), Verdict::Wait(400_000)]);
    assert_eq!(verdicts[7..], [Verdict::Deny(600_000); 3]);
    assert_eq!(answers[4], (Verdict::Allow, 0, 1_000_000));
    assert_eq!(answers[9], (Verdict::Deny(600_000), 0, 1_400_000));
}

// Case 63.
#[test]
fn thirds_of_a_microsecond_are_kept() {
    let quota = Quota::new(3, Duration::from_micros(10)).burst(1);
    let answers = run(quota, &[(0, 1, 0), (3, 1, 0), (4, 1, 0), (7, 1, 0), (8, 1, 0)]);
    assert_eq!(
        answers,
        [
            (Verdict::Allow, 0, 4),
            (Verdict::Deny(1), 0, 1),
            // Decided at 4, although 3 1/3 would suffice: full again at 7 1/3.
            (Verdict::Allow, 0, 4),
            (Verdict::Deny(1), 0, 1),
            (Verdict::Allow, 0, 4),
        ]
    );
}

// Case 59.
#[test]
fn cost_over_the_burst_never_fits_and_a_peek_takes_nothing() {
    let answers = run(Quota::per_second(5), &[(0, 6, 1_000_000), (0, 0, 0), (0, 5, 0), (0, 0, 0)]);
    assert_eq!(
        answers,
        [
            (Verdict::Never, 5, 0),
            (Verdict::Allow, 5, 0),
            (Verdict::Allow, 0, 1_000_000),
            (Verdict::Allow, 0, 1_000_000),
        ]
    );
}

// Cases 50 and 67.
#[test]
fn clock_set_back_locks_for_capacity_and_horizon_at_most() {
    let quota = Quota::per_second(5);
    let rule = TokenBucket::new(quota).rule(quota).unwrap();
    let far = State { full: T0 + 3_600_000_000, part: 0, denominator: 1, owes: false };
    let mut state = Some(far);
    let peek = TokenBucket::step(&rule, &mut state, T0, Check::new(0, 0));
    assert_eq!((&peek.mark, &state), (&None, &Some(far)));
    let step = TokenBucket::step(&rule, &mut state, T0, Check::new(1, 0));
    assert_eq!(step.verdict, Verdict::Deny(60_200_000));
    assert_eq!(state, Some(State { full: T0 + 61_000_000, ..far }));
}

#[test]
fn a_debt_lasts_longer_than_the_horizon_and_a_clock_set_back_forgives_none() {
    let quota = Quota::per_hour(10);
    let (rule, hour) = (TokenBucket::new(quota).rule(quota).unwrap(), 3_600_000_000);
    let penalize = |state: &mut Option<State>, at: i64, cost| {
        let answer = TokenBucket::penalize(&rule, state, T0 + at, cost);
        (answer.not_taken, answer.report.reset_after, state.unwrap().owes)
    };
    let deny = |state: &mut Option<State>, at: i64| {
        let check = Check::new(1, i64::MAX);
        TokenBucket::step(&rule, state, T0 + at, check).verdict
    };
    let mut state = None;
    // Within the capacity and the horizon there is no mark.
    assert_eq!(penalize(&mut state, 0, 10), (0, hour, false));
    assert_eq!(penalize(&mut state, 0, 20), (0, 3 * hour, true));
    assert_eq!(deny(&mut state, 0), Verdict::Deny(2 * hour + hour / 10));
    // Set back by an hour, and by two years.
    assert_eq!(deny(&mut state, -hour), Verdict::Deny(3 * hour + hour / 10));
    let (year, mut far) = (365 * 24 * hour, state);
    assert_eq!(deny(&mut far, -2 * year), Verdict::Deny(year + hour / 10));
    assert_eq!(far.map(|state| (state.full, state.owes)), Some((T0 - year + hour, true)));
    // The first write that leaves no debt drops the mark.
    assert_eq!(penalize(&mut state, 3 * hour, 1), (0, hour / 10, false));
    // The answer counts the whole units that may not be owed.
    let most = 10 * (365 * 24 + 1) - 1;
    assert_eq!(penalize(&mut state, 3 * hour, 1 << 53), ((1 << 53) - most, year + hour, true));
    assert_eq!(penalize(&mut state, 3 * hour + hour / 10 - 1, 1).0, 1);
    assert_eq!(penalize(&mut state, 3 * hour + hour / 10, 1).0, 0);
}

#[test]
fn refund_acts_only_on_the_state_that_the_reservation_left() {
    let quota = Quota::new(3, Duration::from_secs(1)).burst(1);
    let rule = TokenBucket::new(quota).rule(quota).unwrap();
    let check = Check::new(1, 1_000_000);
    let mut state = None;
    let [first, second] =
        [0, 1].map(|_| TokenBucket::step(&rule, &mut state, T0, check).mark.unwrap());
    assert_eq!(TokenBucket::refund(&rule, &mut state, T0, &Refund::of_all(1, &first)), None);
    // The slot was rounded up from 333,333 1/3, and so is the state after its refund.
    let unbooked = State { full: T0 + 333_334, part: 0, denominator: 3, owes: false };
    assert_eq!(TokenBucket::refund(&rule, &mut state, T0, &Refund::of_all(1, &second)), Some(1));
    assert_eq!(state.map(|state| state.rebase(&rule)), Some(unbooked.rebase(&rule)));
}
