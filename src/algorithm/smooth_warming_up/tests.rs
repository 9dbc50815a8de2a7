use super::*;
use crate::algorithm::{Check, Verdict};

const T0: i64 = 1_767_225_600_000_000;

/// One limiter, asked in ms: the wait in µs if it was granted, else the time until it
/// would go at once.
struct Pace(SmoothWarmingUp, Quota, Option<State>);

impl Pace {
    fn of(limit: u64, seconds: u64) -> Self {
        let quota = Quota::per_second(limit);
        let pace = SmoothWarmingUp::new(quota, Duration::from_secs(seconds));
        Self(pace.horizon(Duration::from_secs(86_400)), quota, None)
    }

    fn timeout(&mut self, at: i64, cost: i64, max_wait: i64) -> Result<i64, i64> {
        let rule = self.0.rule(self.1).unwrap();
        let check = Check { cost, max_wait: max_wait * 1_000 };
        let step = SmoothWarmingUp::step(&rule, &mut self.2, T0 + at * 1_000, check);
        match step.verdict {
            Verdict::Allow => Ok(0),
            Verdict::Wait(wait) => Ok(wait),
            Verdict::Deny(wait) => Err(wait),
            Verdict::Never => Err(i64::MAX),
        }
    }

    fn acquire(&mut self, at: i64, cost: i64) -> i64 {
        self.timeout(at, cost, 1 << 40).unwrap()
    }
}

/// Equal to the sequence but for the floor of each step.
fn assert_close(waits: &[i64], sequence: &[i64]) {
    assert_eq!(waits.len(), sequence.len());
    for (wait, right) in waits.iter().zip(sequence) {
        assert!((right * 1_000 - wait).abs() <= 1, "{waits:?}, not {sequence:?}");
    }
}

#[test]
fn guava_1_steps_fall_from_cold_to_stable() {
    let mut pace = Pace::of(5, 4);
    let waits: Vec<_> = (0..13).map(|_| pace.acquire(0, 1)).collect();
    let sequence =
        [0, 580, 1_120, 1_620, 2_080, 2_500, 2_880, 3_220, 3_520, 3_780, 4_000, 4_200, 4_400];
    for (wait, right) in waits.iter().zip(sequence) {
        // A floor for each step so far.
        assert!((right * 1_000 - 12..=right * 1_000).contains(wait), "{waits:?}");
    }
}

#[test]
fn guava_2_above_and_below_the_threshold() {
    let mut pace = Pace::of(5, 4);
    let waits: Vec<_> = [10, 10, 1, 1].map(|n| pace.acquire(0, n)).into();
    assert_close(&waits, &[0, 4_000, 6_000, 6_200]);
}

#[test]
fn guava_3_a_rest_makes_permits_dear_again() {
    let mut pace = Pace::of(5, 4);
    let asks = [(0, 20), (6_000, 1), (9_000, 3), (9_000, 1)];
    let waits: Vec<_> = asks.map(|(at, n)| pace.acquire(at, n)).into();
    assert_close(&waits, &[0, 0, 0, 900]);
    assert!((pace.2.unwrap().next - (T0 + 10_120_000)).abs() <= 1);
}

#[test]
fn guava_4_the_test_ignores_the_cost() {
    let mut pace = Pace::of(10, 2);
    assert_eq!(pace.acquire(0, 5), 0);
    let waits =
        [pace.timeout(1_000, 1, 400), pace.timeout(1_000, 1, 500), Ok(pace.acquire(1_000, 1))];
    assert_close(&waits.map(Result::unwrap), &[250, 440, 610]);
}

#[test]
fn guava_5_another_rate_keeps_the_share_that_is_stored() {
    let mut pace = Pace::of(10, 2);
    assert_eq!(pace.acquire(0, 5), 0);
    pace.1 = Quota::per_second(5);
    let waits = [pace.acquire(2_000, 1), pace.acquire(2_000, 1)];
    assert_close(&waits, &[0, 560]);
    assert!((pace.2.unwrap().next - (T0 + 3_040_000)).abs() <= 1);
}

#[test]
fn own_cost_pays_the_warm_up_too() {
    let mut pace = Pace::of(5, 4);
    pace.0 = pace.0.wait_for_own_cost();
    assert_eq!(pace.0.cache(0.5), Duration::from_secs(2));
    assert_close(&[pace.timeout(0, 1, 500).unwrap_err()], &[580]);
    assert_close(&[pace.acquire(0, 1), pace.acquire(0, 1)], &[580, 1_120]);
}

#[test]
fn a_cold_start_takes_the_warm_up_however_it_is_split() {
    for (limit, factor) in [(5, 3.0), (7, 1.5), (1_000, 10.0), (3, 3.0), (50, 2.0)] {
        let quota = Quota::per_second(limit);
        let pace = SmoothWarmingUp::new(quota, Duration::from_secs(4)).cold_factor(factor);
        let rule = pace.rule(quota).unwrap();
        let above = (rule.most - rule.threshold).floor() as i64;
        for pieces in [1, 2, 3, above.min(7)] {
            let (mut state, mut left) = (None, above);
            for piece in (1..=pieces).rev() {
                let cost = left / piece;
                left -= cost;
                state = Some(SmoothWarmingUp::consume(&rule, state, T0, cost, T0));
            }
            let whole = rule.price(rule.most, above);
            assert!((state.unwrap().next - T0 - whole).abs() <= 2 * pieces, "{limit} {factor}");
        }
    }
}

#[test]
fn refund_restores_the_permits_to_the_last_bit() {
    let quota = Quota::per_second(7);
    let rule = SmoothWarmingUp::new(quota, Duration::from_secs(3)).rule(quota).unwrap();
    let first = SmoothWarmingUp::consume(&rule, None, T0, 3, T0);
    let second = SmoothWarmingUp::consume(&rule, Some(first), T0, 50, T0);
    let back = |state: &mut Option<State>, cost, of: &State| {
        let mark = SmoothWarmingUp::mark(of);
        SmoothWarmingUp::refund(&rule, state, T0, &Refund::whole(cost, &mark))
    };
    let mut state = Some(second);
    assert_eq!(back(&mut state, 3, &first), None);
    assert_eq!(back(&mut state, 50, &second), Some(50));
    let unwound = state.unwrap();
    assert_eq!((unwound.stored, unwound.next), (first.stored, first.next));
    assert_eq!(back(&mut state, 3, &first), Some(3));
}
