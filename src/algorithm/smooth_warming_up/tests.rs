use super::super::any::AnyState;
use super::super::{AnyAlgorithm, Check, IntoAlgorithm, TokenBucket, Verdict};
use super::*;

const T0: i64 = 1_767_225_600_000_000;

/// One limiter, called with ms: the wait in µs if it was granted, else the time until it would
/// go at once.
struct WarmUpPace(SmoothWarmingUp, Quota, Option<State>);

impl WarmUpPace {
    fn of(limit: u64, seconds: u64) -> Self {
        let quota = Quota::per_second(limit);
        let pace = SmoothWarmingUp::new(quota, Duration::from_secs(seconds));
        Self(pace.horizon(Duration::from_secs(86_400)), quota, None)
    }

    fn timeout(&mut self, at: i64, cost: i64, max_wait: i64) -> Result<i64, i64> {
        let rule = self.0.rule(self.1).unwrap();
        let check = Check::new(cost, max_wait * 1_000);
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

/// Asserts that the waits equal the sequence, except for the rounding of each step.
fn assert_close(waits: &[i64], sequence: &[i64]) {
    assert_eq!(waits.len(), sequence.len());
    for (wait, right) in waits.iter().zip(sequence) {
        assert!((right * 1_000 - wait).abs() <= 1, "{waits:?}, not {sequence:?}");
    }
}

#[test]
fn guava_1_steps_fall_from_cold_to_stable() {
    let mut pace = WarmUpPace::of(5, 4);
    let waits: Vec<_> = (0..13).map(|_| pace.acquire(0, 1)).collect();
    let sequence =
        [0, 580, 1_120, 1_620, 2_080, 2_500, 2_880, 3_220, 3_520, 3_780, 4_000, 4_200, 4_400];
    for (wait, right) in waits.iter().zip(sequence) {
        // One rounding for each step so far.
        assert!((right * 1_000 - 12..=right * 1_000).contains(wait), "{waits:?}");
    }
}

#[test]
fn guava_2_above_and_below_the_threshold() {
    let mut pace = WarmUpPace::of(5, 4);
    let waits: Vec<_> = [10, 10, 1, 1].map(|n| pace.acquire(0, n)).into();
    assert_close(&waits, &[0, 4_000, 6_000, 6_200]);
}

#[test]
fn guava_3_a_rest_makes_permits_dear_again() {
    let mut pace = WarmUpPace::of(5, 4);
    let asks = [(0, 20), (6_000, 1), (9_000, 3), (9_000, 1)];
    let waits: Vec<_> = asks.map(|(at, n)| pace.acquire(at, n)).into();
    assert_close(&waits, &[0, 0, 0, 900]);
    assert!((pace.2.unwrap().next - (T0 + 10_120_000)).abs() <= 1);
}

#[test]
fn guava_4_the_test_ignores_the_cost() {
    let mut pace = WarmUpPace::of(10, 2);
    assert_eq!(pace.acquire(0, 5), 0);
    let waits =
        [pace.timeout(1_000, 1, 400), pace.timeout(1_000, 1, 500), Ok(pace.acquire(1_000, 1))];
    assert_close(&waits.map(Result::unwrap), &[250, 440, 610]);
}

#[test]
fn guava_5_another_rate_keeps_the_share_that_is_stored() {
    let mut pace = WarmUpPace::of(10, 2);
    assert_eq!(pace.acquire(0, 5), 0);
    pace.1 = Quota::per_second(5);
    let waits = [pace.acquire(2_000, 1), pace.acquire(2_000, 1)];
    assert_close(&waits, &[0, 560]);
    assert!((pace.2.unwrap().next - (T0 + 3_040_000)).abs() <= 1);
}

#[test]
fn own_cost_pays_the_warm_up_too() {
    let mut pace = WarmUpPace::of(5, 4);
    pace.0 = pace.0.wait_for_own_cost();
    assert_eq!(pace.0.cache(0.5), Duration::from_secs(2));
    assert_close(&[pace.timeout(0, 1, 500).unwrap_err()], &[580]);
    assert_close(&[pace.acquire(0, 1), pace.acquire(0, 1)], &[580, 1_120]);
}

// Case 163.
#[test]
fn a_charge_that_may_not_wait_for_its_own_cost_never_fits() {
    let quota = Quota::per_second(5);
    let own = SmoothWarmingUp::new(quota, Duration::from_secs(4)).wait_for_own_cost();
    let rule = own.rule(quota).unwrap();
    let verdict = |state: &mut Option<State>, cost, max_wait| {
        SmoothWarmingUp::step(&rule, state, T0, Check::new(cost, max_wait)).verdict
    };
    for (cost, most) in [(1, 199_000), (3, 599_000)] {
        assert_eq!(verdict(&mut None, cost, 0), Verdict::Never);
        assert_eq!(verdict(&mut None, cost, most), Verdict::Never);
    }
    // The charge may come when fewer permits are stored, which take less time.
    assert_eq!(verdict(&mut None, 1, 200_000), Verdict::Deny(580_000));
    let mut state = Some(SmoothWarmingUp::spend(&rule, None, T0, 20, T0));
    state.as_mut().unwrap().next = T0;
    assert_eq!(verdict(&mut state, 1, 200_000), Verdict::Wait(200_000));
    assert_eq!(verdict(&mut state, 0, 0), Verdict::Deny(200_000));
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
                state = Some(SmoothWarmingUp::spend(&rule, state, T0, cost, T0));
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
    let take = |cost| Take { at: T0, cost, now: T0, has_others: false, keep_free: &[] };
    let (first, mark_of_first) = SmoothWarmingUp::consume(&rule, None, take(3));
    let (second, mark) = SmoothWarmingUp::consume(&rule, Some(first), take(50));
    let back = |state: &mut Option<State>, cost, mark: &Mark| {
        SmoothWarmingUp::refund(&rule, state, T0, &Refund::of_all(cost, mark))
    };
    let mut state = Some(second);
    assert_eq!(back(&mut state, 3, &mark_of_first), None);
    assert_eq!(back(&mut state, 50, &mark), Some(50));
    let unwound = state.unwrap();
    assert_eq!((unwound.stored, unwound.next), (first.stored, first.next));
    assert_eq!(back(&mut state, 3, &mark_of_first), Some(3));
}

/// Guava's own `SmoothWarmingUp`, statement by statement, with a clock of the test.
struct Guava {
    warm_up: f64,
    factor: f64,
    stable: f64,
    slope: f64,
    threshold: f64,
    most: f64,
    stored: f64,
    next: i64,
}

impl Guava {
    fn set_rate(&mut self, rate: f64, now: i64) {
        self.resync(now);
        let old = self.most;
        self.stable = 1_000_000.0 / rate;
        let cold = self.stable * self.factor;
        self.threshold = 0.5 * self.warm_up / self.stable;
        self.most = self.threshold + 2.0 * self.warm_up / (self.stable + cold);
        self.slope = (cold - self.stable) / (self.most - self.threshold);
        self.stored = if old == 0.0 { self.most } else { self.stored * self.most / old };
    }

    fn resync(&mut self, now: i64) {
        if now > self.next {
            let more = (now - self.next) as f64 / (self.warm_up / self.most);
            self.stored = self.most.min(self.stored + more);
            self.next = now;
        }
    }

    fn reserve(&mut self, cost: i64, now: i64) {
        self.resync(now);
        let mut take = (cost as f64).min(self.stored);
        let fresh = cost as f64 - take;
        let (above, mut micros) = (self.stored - self.threshold, 0);
        self.stored -= take;
        if above > 0.0 {
            let part = above.min(take);
            let length =
                (self.stable + above * self.slope) + (self.stable + (above - part) * self.slope);
            micros = (part * length / 2.0) as i64;
            take -= part;
        }
        self.next += micros + (self.stable * take) as i64 + (fresh * self.stable) as i64;
    }
}

#[test]
fn a_change_of_the_rate_is_guavas_to_the_last_bit() {
    for (millis, factor) in [(700, 1.5), (700, 3.0), (4_000, 1.7), (1, 10.0), (60_000, 1.0)] {
        let warm_up = Duration::from_millis(millis);
        let pace = |limit| {
            let quota = Quota::per_second(limit);
            SmoothWarmingUp::new(quota, warm_up).cold_factor(factor).rule(quota).unwrap()
        };
        for limits in [[5, 4], [7, 3], [9, 10], [1, 1_000], [13, 17]] {
            let rules = limits.map(pace);
            let mut guava = Guava {
                warm_up: warm_up.as_micros() as f64,
                factor,
                stable: 0.0,
                slope: 0.0,
                threshold: 0.0,
                most: 0.0,
                stored: 0.0,
                next: 0,
            };
            let (mut state, mut now, mut last, mut seed) = (None, T0, 0, 1_u64);
            for step in 0..2_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let dice = |bits: u32, below: u64| (seed >> bits) % below;
                let which = dice(60, 2) as usize;
                now += [0, 0, 1, 140_000, 250_001, 1_000_000, 10_000_000][dice(50, 7) as usize];
                let cost = 1 + dice(40, 9) as i64;
                if which != last || step == 0 {
                    guava.set_rate(limits[which] as f64, now);
                    last = which;
                }
                guava.reserve(cost, now);
                state = Some(SmoothWarmingUp::spend(&rules[which], state, now, cost, now));
                let ours = state.map(|state| (state.stored.to_bits(), state.next));
                let place = format!("{warm_up:?} {factor} {limits:?} step {step}");
                assert_eq!(ours, Some((guava.stored.to_bits(), guava.next)), "{place}");
            }
        }
    }
}

#[test]
fn a_lower_rate_does_not_clamp_what_is_stored() {
    let pace = SmoothWarmingUp::new(Quota::per_second(5), Duration::from_millis(700));
    let mut pace = WarmUpPace(pace.cold_factor(1.5), Quota::per_second(5), None);
    assert_eq!(pace.timeout(0, 1, 0), Ok(0));
    pace.1 = Quota::per_second(4);
    assert_eq!(pace.timeout(10_000, 6, 0), Ok(0));
    assert_eq!(pace.timeout(10_000, 1, 0), Err(1_639_999));
}

#[test]
fn reports_the_whole_permits_that_it_stores_from_integers() {
    let second = Duration::from_secs(1);
    for period in [second, Duration::from_millis(700), 60 * second, Duration::from_micros(7)] {
        for warm_up in [period, 4 * second, Duration::from_micros(1), 86_400 * second] {
            for (thousandths, factor) in
                [(3_000, 3.0), (1_000, 1.0), (1_700, 1.7), (123_456, 123.456)]
            {
                for limit in 1..=200 {
                    let quota = Quota::new(limit, period);
                    let pace = SmoothWarmingUp::new(quota, warm_up).cold_factor(factor);
                    let Ok(rule) = pace.rule(quota) else { continue };
                    // The permits are at most w L / P (1 / 2 + 2 / (1 + factor)).
                    let exact = warm_up.as_micros() * u128::from(limit) * (thousandths + 5_000);
                    let unit = 2 * period.as_micros() * (thousandths + 1_000);
                    let said = u128::from(pace.reported(0, quota, 0).burst_size());
                    let place = format!("{quota:?}, {warm_up:?}, {factor}");
                    let is_least = said == 1 && exact < unit;
                    let is_exact = said * unit <= exact && exact < (said + 1) * unit;
                    assert!(is_least || is_exact, "{place}: {said}");
                    let left = |state| SmoothWarmingUp::report(&rule, state, T0).remaining as u128;
                    assert_eq!(left(None), said, "{place}");
                    let quarter = (said / 4) as i64;
                    let free =
                        State { next: T0, ..SmoothWarmingUp::spend(&rule, None, T0, quarter, T0) };
                    assert_eq!(left(Some(&free)), said - quarter as u128, "{place}");
                }
            }
        }
    }
}

/// The restored state is that of the instant of the charge: it was rounded once more.
#[test]
fn refund_beside_another_quota_leaves_a_bit_of_a_double_at_most() {
    type Both = Vec<AnyAlgorithm>;
    let slow = Quota::per_second(2).burst(1);
    let mut bits = [0; 2];
    for limit in 7..60 {
        let quota = Quota::per_second(limit);
        let warming_up = SmoothWarmingUp::new(quota, Duration::from_secs(limit));
        let (bucket, own) = (TokenBucket::new(slow), warming_up.cold_factor(1.7));
        let rule = (bucket, own).into_algorithm().rule((slow, quota)).unwrap();
        let (bucket, own) = (bucket.rule(slow).unwrap(), own.rule(quota).unwrap());
        let half = (own.most / 2.0) as i64;
        let half = SmoothWarmingUp::spend(&own, None, T0, half, T0);
        for at in (1..100_000).step_by(7_001).map(|at| half.next + at) {
            let before = TokenBucket::spend(&bucket, None, at, 1, at);
            let mut state = Some(vec![Some(before.into()), Some(half.into())]);
            let check = Check::new(1, 1_000_000);
            let reserved = Both::step(&rule, &mut state, at, check);
            assert_eq!(reserved.verdict, Verdict::Wait(500_000));
            let mark = reserved.mark.unwrap();
            let refund = Refund::of_all(1, &mark);
            assert_eq!(Both::refund(&rule, &mut state, at, &refund), Some(1));
            let state = state.unwrap();
            assert_eq!(state[0], Some(before.into()));
            let Some(AnyState::SmoothWarmingUp(left)) = state[1] else { panic!("{state:?}") };
            for later in (at..at + 200_000).step_by(9_001) {
                let [unasked, refunded] =
                    [half, left].map(|state| own.resynced(Some(&state), later));
                assert_eq!(unasked.1, refunded.1);
                let differ = unasked.0.to_bits().abs_diff(refunded.0.to_bits());
                bits[usize::try_from(differ).unwrap()] += 1;
            }
        }
    }
    assert!(bits[1] > 0, "{bits:?}");
}

/// A state is read if the script wrote it: C's `%.17g` of the permits.
#[test]
fn permits_are_read_as_the_script_writes_them() {
    let rule = SmoothWarmingUp::new(Quota::per_second(5), Duration::from_secs(4));
    let rule = rule.rule(Quota::per_second(5)).unwrap();
    let read = |permits: &str| SmoothWarmingUp::stored(&rule, &format!("{permits}:5:1/200000:5"));
    for permits in [
        "0",
        "5.9999999999999991",
        "10",
        "0.10000000000000001",
        "0.00010000000000000002",
        "1.0000000000000001e-05",
        "4.9406564584124654e-324",
        "9007199254740991",
        "4503599627370495.5",
    ] {
        let state = read(permits).unwrap_or_else(|| panic!("{permits}"));
        assert_eq!(Ok(state.stored), permits.parse());
    }
    for spelled in
        ["1.50", "+1", "1e1", "1.", ".5", "01", "1e+1", "0.1", "1e-5", "inf", "nan", "-1", ""]
    {
        assert_eq!(read(spelled), None, "{spelled}");
    }
}
