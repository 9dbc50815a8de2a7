use super::super::{Check, Verdict};
use super::*;

const T0: i64 = 1_767_225_600_000_000;
const FOR_EVER: i64 = 1 << 50;

/// One limiter, called with ms: the wait in ms if it was granted, else the time until it would
/// go at once.
struct BurstyPace(SmoothBursty, Quota, Option<State>);

impl BurstyPace {
    fn of(algorithm: SmoothBursty) -> Self {
        Self(algorithm.horizon(Duration::from_secs(86_400)), algorithm.quota, None)
    }

    fn timeout(&mut self, at: i64, cost: i64, max_wait: i64) -> Result<i64, i64> {
        let rule = self.0.rule(self.1).unwrap();
        let check = Check::new(cost, max_wait * 1_000);
        let step = SmoothBursty::step(&rule, &mut self.2, T0 + at * 1_000, check);
        match step.verdict {
            Verdict::Allow => Ok(0),
            Verdict::Wait(wait) => Ok(wait / 1_000),
            Verdict::Deny(wait) => Err(wait / 1_000),
            Verdict::Never => Err(i64::MAX),
        }
    }

    fn acquire(&mut self, at: i64, cost: i64) -> i64 {
        self.timeout(at, cost, FOR_EVER / 1_000).unwrap()
    }
}

fn empty(limit: u64) -> BurstyPace {
    BurstyPace::of(SmoothBursty::new(Quota::per_second(limit)).start_empty())
}

#[test]
fn guava_1_empty_each_waits_for_the_one_before() {
    let mut pace = empty(5);
    let waits: Vec<_> = [0, 0, 0, 0, 500].map(|at| pace.acquire(at, 1)).into();
    assert_eq!(waits, [0, 200, 400, 600, 300]);
}

#[test]
fn guava_2_what_is_stored_goes_at_once() {
    let mut pace = empty(5);
    assert_eq!(pace.acquire(0, 0), 0);
    pace.2 = Some(State {
        credit: 0,
        next: T0,
        unit: Unit { numerator: 200_000, denominator: 1 },
        last: T0,
    });
    let waits: Vec<_> =
        [(2_000, 3), (2_000, 4), (2_000, 1), (3_000, 1)].map(|(at, n)| pace.acquire(at, n)).into();
    assert_eq!(waits, [0, 0, 400, 0]);
}

#[test]
fn guava_3_the_test_ignores_the_cost() {
    let mut pace = empty(2);
    assert_eq!(pace.acquire(0, 4), 0);
    assert_eq!(pace.timeout(400, 1, 1_500), Err(1_600));
    assert_eq!(pace.timeout(500, 1, 1_500), Ok(1_500));
    assert_eq!(pace.timeout(500, 1, 0), Err(2_000));
}

#[test]
fn guava_4_another_rate_keeps_the_stored_time() {
    let mut pace = empty(10);
    pace.2 = Some(State {
        credit: 0,
        next: T0,
        unit: Unit { numerator: 100_000, denominator: 1 },
        last: T0,
    });
    pace.1 = Quota::per_second(4);
    let waits: Vec<_> = [1, 3, 1].map(|n| pace.acquire(500, n)).into();
    assert_eq!(waits, [0, 0, 500]);
    assert_eq!(pace.2.unwrap().next, T0 + 1_250_000);
}

#[test]
fn guava_5_thirds_of_a_microsecond_stay_owed() {
    let mut pace = empty(3);
    assert_eq!(pace.acquire(0, 1), 0);
    assert_eq!(pace.2.unwrap().next, T0 + 333_333);
    assert_eq!(pace.acquire(1_000, 3), 0);
    assert_eq!(pace.2.unwrap().next, T0 + 1_333_333);
}

#[test]
fn own_cost_1_each_waits_for_its_own() {
    let mut pace = BurstyPace::of(SmoothBursty::new(Quota::per_second(5)).wait_for_own_cost());
    assert_eq!(pace.0.cache(0.6), Duration::from_millis(600));
    let answers: Vec<_> = (0..10).map(|_| pace.timeout(0, 1, 600)).collect();
    let waits = [0, 0, 0, 0, 0, 200, 400, 600].map(Ok);
    assert_eq!(answers[..8], waits);
    assert_eq!(answers[8..], [Err(800); 2]);
}

#[test]
fn own_cost_2_one_every_50_ms() {
    let mut pace = BurstyPace::of(SmoothBursty::new(Quota::per_second(5)).wait_for_own_cost());
    let answers: Vec<_> = (0..14).map(|k| pace.timeout(k * 50, 1, 500)).collect();
    assert_eq!(answers[..6], [Ok(0); 6]);
    let rest = [Ok(100), Ok(250), Ok(400), Err(550), Ok(500), Err(650), Err(600), Err(550)];
    assert_eq!(answers[6..], rest);
}

#[test]
fn what_a_floor_left_owed_is_owed_still_when_the_store_would_be_full() {
    let quota = Quota::per_second(3);
    let rule = SmoothBursty::new(quota).rule(quota).unwrap();
    let mut state = None;
    SmoothBursty::step(&rule, &mut state, T0, Check::new(4, 0));
    let [second, more] =
        [1_333_333, 1_333_334].map(|after| SmoothBursty::report(&rule, state.as_ref(), T0 + after));
    assert_eq!((second.remaining, second.reset_after), (2, 1));
    assert_eq!((more.remaining, more.reset_after), (3, 0));
}

#[test]
fn own_cost_3_costs_count() {
    let mut pace = BurstyPace::of(SmoothBursty::new(Quota::per_second(5)).wait_for_own_cost());
    let asks = [(0, 3), (0, 4), (0, 1), (100, 1), (400, 1), (2_000, 6)];
    let answers: Vec<_> = asks.map(|(at, n)| pace.timeout(at, n, 500)).into();
    assert_eq!(answers, [Ok(0), Ok(400), Err(600), Ok(500), Ok(400), Ok(200)]);
    assert_eq!(pace.2.unwrap().next, T0 + 2_200_000);
}

// Case 163.
#[test]
fn a_cost_above_the_store_that_may_not_wait_for_the_rest_never_fits() {
    let quota = Quota::per_second(5);
    let own = SmoothBursty::new(quota).wait_for_own_cost();
    let rule = own.rule(quota).unwrap();
    let step = |state: &mut Option<State>, at: i64, cost, max_wait| {
        SmoothBursty::step(&rule, state, T0 + at, Check::new(cost, max_wait)).verdict
    };
    let mut state = None;
    for at in [0, 1, 1_000_000, 100_000_000] {
        assert_eq!(step(&mut state, at, 6, 0), Verdict::Never);
        assert_eq!(step(&mut state, at, 6, 199_999), Verdict::Never);
        assert_eq!(step(&mut state, at, 1_000, FOR_EVER), Verdict::Never, "beyond the horizon");
    }
    assert_eq!(state, None, "nothing is written");
    assert_eq!(step(&mut state, 0, 5, 0), Verdict::Allow);
    // A cost that fits into the store fits later, and so does one that may wait for the rest.
    assert_eq!(step(&mut state, 0, 5, 0), Verdict::Deny(1_000_000));
    assert_eq!(step(&mut state, 0, 6, 200_000), Verdict::Deny(1_200_000));
    assert_eq!(step(&mut state, 0, 6, 199_999), Verdict::Never);
    assert_eq!(step(&mut state, 1_000_000, 6, 200_000), Verdict::Wait(200_000));
    // If no charge waits for its own cost, any cost fits.
    let rule = SmoothBursty::new(quota).rule(quota).unwrap();
    let first = SmoothBursty::step(&rule, &mut None, T0, Check::new(1_000, 0));
    assert_eq!(first.verdict, Verdict::Allow);
}

#[test]
fn own_cost_admits_nine_in_its_first_second() {
    let mut pace = BurstyPace::of(SmoothBursty::new(Quota::per_second(5)).wait_for_own_cost());
    let went: Vec<_> = (0..=1_000).filter(|at| pace.timeout(*at, 1, 0).is_ok()).collect();
    assert_eq!(went, [0, 1, 2, 3, 4, 200, 400, 600, 800, 1_000]);
}

#[test]
fn refund_unwinds_what_was_taken_from_credit_and_time() {
    let quota = Quota::per_second(5);
    let rule = SmoothBursty::new(quota).rule(quota).unwrap();
    let check = Check::new(4, FOR_EVER);
    let mut state = None;
    let [first, second] =
        [0, 1].map(|_| SmoothBursty::step(&rule, &mut state, T0, check).mark.unwrap());
    let mut back = |mark| SmoothBursty::refund(&rule, &mut state, T0, &Refund::of_all(4, mark));
    assert_eq!([back(&first), back(&second)], [None, Some(4)]);
    assert_eq!(back(&first), Some(4));
    let state = state.unwrap();
    assert_eq!((state.credit, state.next), (rule.cap, T0));
}

/// The end of its debt is cut to what is exact, and all else is as without a cut.
#[test]
fn a_charge_whose_debt_is_cut_is_refunded_as_any_other() {
    let quota = Quota::new(1, Duration::from_secs(365 * 86_400));
    let rule = SmoothBursty::new(quota).rule(quota).unwrap();
    let cost = (INEXACT - 1) / rule.unit.numerator;
    for (units, left) in [(cost, T0), (cost - 1, T0 + rule.unit.numerator - 1_000_000)] {
        let mut state = None;
        let check = Check::new(cost, 0);
        let mark = SmoothBursty::step(&rule, &mut state, T0, check).mark.unwrap();
        assert_eq!(state.unwrap().next, INEXACT - 1);
        let refund = Refund { units, cost, mark: &mark };
        assert_eq!(SmoothBursty::refund(&rule, &mut state, T0, &refund), Some(units));
        assert_eq!(state.unwrap().next, left);
    }
}

#[test]
fn a_store_of_less_than_a_permit_is_refused_where_each_pays_for_itself() {
    let quota = Quota::per_minute(5);
    let pace = SmoothBursty::new(quota);
    assert!(pace.rule(quota).is_ok());
    assert!(pace.wait_for_own_cost().rule(quota).is_err());
    assert!(pace.wait_for_own_cost().max_burst(Duration::from_secs(12)).rule(quota).is_ok());
}

#[test]
fn a_refusal_that_keeps_units_free_does_not_repeat_for_ever() {
    // A refusal writes nothing. So a key without a state cannot fill between two of them.
    let algorithm = SmoothBursty::new(Quota::per_second(5)).start_empty();
    let rule = algorithm.rule(algorithm.quota).unwrap();
    let mut state = None;
    let keeping = |cost, keep_free: &'static [i64]| Check::new(cost, 0).keeping(keep_free);
    let verdict = SmoothBursty::step(&rule, &mut state, T0, keeping(3, &[2])).verdict;
    assert_eq!(verdict, Verdict::Allow);
    let verdict = SmoothBursty::step(&rule, &mut state, T0, keeping(1, &[2])).verdict;
    assert_eq!(verdict, Verdict::Deny(200_000));
}
