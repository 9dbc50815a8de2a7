//! Waiters that hang up break no bound and no order, whatever the algorithm.
//!
//! Random histories over the Rust side alone, so that no server is needed; `twins.rs` shows that
//! the scripts refund alike.

use std::time::Duration;

use tower_sluice::Quota;
use tower_sluice::algorithm::{
    Algorithm, Check, FixedWindow, IntoAlgorithm, Mark, Refund, SlidingCounter, SlidingLog,
    SlidingWindow, SmoothBursty, TokenBucket, Verdict,
};

use support::dice::{Dice, step};

const SECOND: Duration = Duration::from_secs(1);
const START: u64 = 1_767_225_600_000_000;

/// Waiters of several quotas hang up, the latest first: from then on every charge is decided as
/// though they had never come.
fn hang_up<A: Algorithm>(algorithm: impl IntoAlgorithm<Algorithm = A>, histories: u64) {
    let algorithm = algorithm.into_algorithm();
    let name = format!("{algorithm:?}");
    let rule = algorithm.rule(algorithm.quota()).expect("a rule");
    let quotas = algorithm.quota();
    let mut waiters = 0;
    for history in 1..=histories {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15 ^ history);
        let mut now = START as i64;
        let mut state: Option<A::State> = None;
        for _ in 0..12 {
            for _ in 0..dice.below(8) {
                now += step(&mut dice, &quotas);
                let check = Check::new(dice.pick(&[1, 1, 2, 3]), 0);
                A::step(&rule, &mut state, now, check);
            }
            // Those who go at once come either way.
            let mut waited = Vec::new();
            let mut control = state.clone();
            for _ in 0..dice.below(8) {
                let check = Check::new(dice.pick(&[1, 1, 2]), 60_000_000);
                let mut next = state.clone();
                let answer = A::step(&rule, &mut next, now, check);
                if let Verdict::Wait(wait) = answer.verdict {
                    waited.push((now + wait, check.cost, answer.mark.expect("reserved")));
                } else if waited.is_empty() {
                    A::step(&rule, &mut control, now, check);
                } else {
                    break;
                }
                state = next;
                now += i64::from(dice.below(4) == 0 && waited.is_empty());
            }
            waiters += waited.len();
            let due = waited.first().map_or(now, |waited| waited.0);
            now += dice.pick(&[0, 1, (due - now) / 2, due - now - 1]).max(0);
            for (_, cost, mark) in waited.iter().rev() {
                let units = A::refund(&rule, &mut state, now, &Refund::of_all(*cost, mark));
                assert_eq!(units, Some(*cost), "{name}, history {history}");
            }
            let mut later = now;
            let (mut after, mut control) = (state.clone(), control);
            for _ in 0..12 {
                let max_wait = dice.pick(&[0, 60_000_000]);
                let check = Check::new(dice.pick(&[0, 1, 2, 3]), max_wait);
                let told = [&mut after, &mut control].map(|state| {
                    let told = A::step(&rule, state, later, check);
                    (told.verdict, told.report)
                });
                assert_eq!(told[0], told[1], "{name}, history {history}, {} waited", waited.len());
                later += step(&mut dice, &quotas);
            }
        }
    }
    println!("twins algorithm={name} waiters={waiters}");
}

/// The promise of a quota about the grants that stand, ordered by instant.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// So many units in any stretch, and so many at once.
    Rate(Quota),
    /// So many units in each period of the clock.
    Periods(Quota),
    /// So many units in any period.
    Any(Quota, i128),
}

impl Bound {
    fn holds(self, grants: &[(i64, i64)]) -> bool {
        let (Bound::Rate(quota) | Bound::Periods(quota) | Bound::Any(quota, _)) = self;
        let (limit, period) = (i128::from(quota.limit()), quota.period().as_micros() as i128);
        let burst = i128::from(quota.burst_size());
        let units = |from: i128, to: i128| -> i128 {
            let within = grants.iter().filter(|(at, _)| (from..=to).contains(&i128::from(*at)));
            within.map(|(_, cost)| i128::from(*cost)).sum()
        };
        grants.iter().all(|(last, _)| {
            let last = i128::from(*last);
            match self {
                Bound::Rate(_) => grants.iter().all(|(first, _)| {
                    let first = i128::from(*first);
                    first > last
                        || units(first, last) * period <= burst * period + limit * (last - first)
                }),
                Bound::Periods(_) => units(last - last % period, last) <= limit,
                Bound::Any(_, times) => units(last - period + 1, last) <= limit * times,
            }
        })
    }
}

/// Waiters of several quotas hang up in any order: what stands keeps every bound, and nobody is
/// reserved before another.
fn hang_up_in_any_order<A: Algorithm>(
    algorithm: impl IntoAlgorithm<Algorithm = A>,
    bounds: &[Bound],
) {
    let algorithm = algorithm.into_algorithm();
    give_back_in_any_order(algorithm.clone(), bounds, false);
    give_back_in_any_order(algorithm, bounds, true);
}

/// The same, and parts of what was taken are given back as well.
fn give_back_in_any_order<A: Algorithm>(algorithm: A, bounds: &[Bound], parts: bool) {
    let name = format!("{algorithm:?}");
    let quotas = algorithm.quota();
    let rule = algorithm.rule(quotas.clone()).expect("a rule");
    for history in 1..=60 {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15 ^ history);
        let mut now = START as i64;
        let mut state: Option<A::State> = None;
        let mut standing: Vec<(i64, i64, Mark)> = Vec::new();
        for _ in 0..80 {
            if dice.below(5) < 2 && !standing.is_empty() {
                let which = match dice.below(3) {
                    0 => dice.below(standing.len()),
                    _ => standing.len() - 1 - dice.below(standing.len().min(4)),
                };
                let (at, cost, mark) = standing[which].clone();
                if parts && cost > 1 && dice.below(2) == 0 {
                    // Also a request that is answered may have cost less. A part is
                    // given back once.
                    let units = 1 + dice.below(cost as usize - 1) as i64;
                    let refund = Refund { units, cost, mark: &mark };
                    let given = A::refund(&rule, &mut state, now, &refund).unwrap_or(0);
                    assert!((0..=units).contains(&given), "{name}, history {history}");
                    standing[which] = (at, cost - given, Mark::default());
                } else if at > now && mark != Mark::default() {
                    // A waiter whose slot has come is not given back.
                    A::refund(&rule, &mut state, now, &Refund::of_all(cost, &mark));
                    standing.remove(which);
                }
                continue;
            }
            now += if dice.below(3) == 0 { step(&mut dice, &quotas) } else { 0 };
            let check = Check::new(dice.pick(&[1, 1, 2, 3]), 60_000_000);
            let answer = A::step(&rule, &mut state, now, check);
            let wait = match answer.verdict {
                Verdict::Allow => 0,
                Verdict::Wait(wait) => wait,
                _ => continue,
            };
            let latest = standing.iter().map(|(at, ..)| *at).max().unwrap_or(0);
            assert!(now + wait >= latest, "{name}, history {history}: before another");
            standing.push((now + wait, check.cost, answer.mark.expect("reserved")));
        }
        let grants: Vec<_> = standing.iter().map(|(at, cost, _)| (*at, *cost)).collect();
        for bound in bounds {
            assert!(bound.holds(&grants), "{name}, history {history}: {bound:?}");
        }
    }
}

// Case 99.
#[test]
fn waiters_that_hang_up_in_any_order_break_no_bound_and_no_order() {
    use Bound::{Any, Periods, Rate};
    let (fast, slow) = (Quota::per_second(7), Quota::new(9, 4 * SECOND));
    let bucket = |quota: Quota| TokenBucket::new(quota.burst(5));
    for (one, other) in [(fast, slow), (slow, fast), (fast, Quota::new(5, 30 * SECOND))] {
        let rate = Rate(one.burst(5));
        let rates = [rate, Rate(other.burst(5))];
        hang_up_in_any_order(bucket(one), &[rate]);
        hang_up_in_any_order(FixedWindow::new(one), &[Periods(one)]);
        hang_up_in_any_order(SlidingWindow::new(one), &[Any(one, 1)]);
        hang_up_in_any_order(SlidingCounter::new(one), &[Any(one, 2)]);
        hang_up_in_any_order(SlidingLog::new(one), &[Any(one, 1)]);
        hang_up_in_any_order(SmoothBursty::new(one), &[]);
        let own = SmoothBursty::new(one).wait_for_own_cost();
        hang_up_in_any_order(own, &[Rate(one.burst(one.limit() + 1))]);
        hang_up_in_any_order((bucket(one), bucket(other)), &rates);
        hang_up_in_any_order((bucket(one), FixedWindow::new(other)), &[rate, Periods(other)]);
        let anchored = FixedWindow::new(other).anchored();
        hang_up_in_any_order((bucket(one), anchored), &[rate, Any(other, 2)]);
        let windows = (FixedWindow::new(one), FixedWindow::new(other));
        hang_up_in_any_order(windows, &[Periods(one), Periods(other)]);
        hang_up_in_any_order((bucket(one), SlidingWindow::new(other)), &[rate, Any(other, 1)]);
        let cells = (SlidingWindow::new(one).cells(3), SlidingWindow::new(other).cells(60));
        hang_up_in_any_order(cells, &[Any(one, 1), Any(other, 1)]);
        hang_up_in_any_order((bucket(one), SlidingCounter::new(other)), &[rate, Any(other, 2)]);
        let counters = (SlidingCounter::new(one), SlidingCounter::new(other));
        hang_up_in_any_order(counters, &[Any(one, 2), Any(other, 2)]);
        let counted = (SlidingCounter::new(one), FixedWindow::new(other));
        hang_up_in_any_order(counted, &[Any(one, 2), Periods(other)]);
        hang_up_in_any_order((bucket(one), SlidingLog::new(other)), &[rate, Any(other, 1)]);
        let logged = (SlidingLog::new(one), SlidingCounter::new(other));
        hang_up_in_any_order(logged, &[Any(one, 1), Any(other, 2)]);
        hang_up_in_any_order((SmoothBursty::new(one), bucket(other)), &[Rate(other.burst(5))]);
    }
}

#[test]
fn waiters_of_several_quotas_that_hang_up_leave_no_trace() {
    let (fast, slow) = (Quota::per_second(7), Quota::new(9, Duration::from_secs(4)));
    let bucket = |quota: Quota| TokenBucket::new(quota.burst(5));
    for (one, other) in [(fast, slow), (slow, fast), (fast, Quota::new(5, 30 * SECOND))] {
        hang_up((bucket(one), bucket(other)), 60);
        hang_up((bucket(one), FixedWindow::new(other)), 60);
        hang_up((bucket(one), FixedWindow::new(other).anchored()), 60);
        hang_up((FixedWindow::new(one), FixedWindow::new(other).anchored()), 60);
        hang_up((bucket(one), SlidingWindow::new(other)), 60);
        hang_up((SlidingWindow::new(one).cells(3), SlidingWindow::new(other).cells(60)), 60);
        hang_up((bucket(one), SlidingCounter::new(other)), 60);
        hang_up((SlidingCounter::new(one), SlidingCounter::new(other)), 60);
        hang_up((bucket(one), SlidingLog::new(other)), 60);
        hang_up((bucket(one), SmoothBursty::new(other)), 60);
        hang_up((SmoothBursty::new(one).wait_for_own_cost(), bucket(other)), 60);
        let all = (
            (bucket(one), FixedWindow::new(one), SlidingWindow::new(one)),
            (SlidingCounter::new(other), SlidingLog::new(other), SmoothBursty::new(other)),
        );
        hang_up((all.0.0, all.0.1, all.0.2, all.1.0, all.1.1, all.1.2), 60);
    }
}
