//! A key whose quota changes from charge to charge, as in a rolling deploy. The twins of
//! `tests/algorithms/twins.rs` change quotas in Redis alike.

use tower_sluice::algorithm::Quotas;

use super::*;

/// The begin of a day.
const T0: u64 = 1_767_225_600_000_000;

fn in_memory(algorithm: impl IntoAlgorithm, clock: &Arc<AtomicU64>) -> Boxed {
    Memory::new("changed", algorithm).clock(support::clock_at(clock)).boxed()
}

fn per_hours(hours: u32) -> Quota {
    Quota::new(1_000, hours * HOUR)
}

/// The clock never moves back, so no state is from the future. A cell of a day is longer than the
/// horizon, and begins later in the cells of half a day.
#[tokio::test]
async fn a_shorter_period_clamps_no_good_state() {
    let clock = Arc::new(AtomicU64::new(T0));
    let day = per_hours(24);
    let bursty = SmoothBursty::new(day).max_burst(24 * HOUR);
    let algorithms: [AnyAlgorithm; 9] = [
        SlidingWindow::new(day).into(),
        SlidingLog::new(day).into(),
        SlidingCounter::new(day).into(),
        FixedWindow::new(day).into(),
        FixedWindow::new(day).anchored().into(),
        TokenBucket::new(day).into(),
        Budget::new(day).into(),
        bursty.into(),
        bursty.wait_for_own_cost().into(),
    ];
    // What was charged under the other quota still counts, up to the time of a unit of a bucket.
    let walk = async |limiter: Boxed, quotas: &dyn Fn(u32) -> Quotas, name: &str| {
        for (key, begin) in [0, 1, 45 * 60, 130 * 60].into_iter().enumerate() {
            let begin = T0 + begin * 1_000_000;
            for (step, hours) in [24, 12, 24, 1, 24].into_iter().enumerate() {
                clock.store(begin + step as u64, Relaxed);
                let charge = Charge::new(key.to_string()).quota(quotas(hours));
                let decision = limiter.check(&charge).await.unwrap();
                let place = format!("{name}: {begin} + {step}: {decision:?}");
                assert!(decision.is_admitted(), "{place}");
                let least = if hours == 1 { 900 } else { 990 };
                assert!(decision.remaining() >= Some(least), "{place}");
            }
        }
    };
    for algorithm in algorithms {
        let limiter = in_memory(algorithm, &clock);
        walk(limiter, &|hours| per_hours(hours).into(), &format!("{algorithm:?}")).await;
    }
    let pair = (SlidingWindow::new(day), FixedWindow::new(Quota::per_second(1_000)));
    let limiter = in_memory(pair, &clock);
    let quotas = |hours| (per_hours(hours), Quota::per_second(1_000)).into();
    walk(limiter, &quotas, "a pair").await;
}

/// A limiter that warms up makes callers wait for each unit: under the longest period, a cold unit
/// takes three times the time of a warm one.
#[tokio::test]
async fn a_shorter_period_makes_no_caller_of_a_pace_wait_longer() {
    let clock = Arc::new(AtomicU64::new(T0));
    let pace = SmoothWarmingUp::new(per_hours(24), 24 * HOUR).horizon(HOUR);
    let cold = 3 * 24 * HOUR / 1_000;
    for (name, pace) in [("pace", pace), ("own", pace.wait_for_own_cost())] {
        let limiter = in_memory(pace, &clock);
        for (step, hours) in (1..).zip([24, 12, 24, 1, 24]) {
            clock.store(T0 + u64::from(step), Relaxed);
            let charge = Charge::new("key").quota(per_hours(hours)).max_wait(HOUR);
            let decision = limiter.check(&charge).await.unwrap();
            let place = format!("{name} {step}: {decision:?}");
            assert!(decision.is_admitted() && decision.waited() <= step * cold, "{place}");
        }
    }
}

/// The table of `docs/guide/tiers.md`: 4 of 4 a minute, and then 10 a second.
#[tokio::test]
async fn a_window_finds_the_units_of_a_longer_period() {
    let clock = Arc::new(AtomicU64::new(T0));
    let (minute, second) = (Quota::per_minute(4), Quota::per_second(10));
    let algorithms: [(AnyAlgorithm, u64); 5] = [
        (SlidingWindow::new(minute).into(), 6),
        (SlidingLog::new(minute).into(), 6),
        (SlidingCounter::new(minute).into(), 6),
        (FixedWindow::new(minute).anchored().into(), 6),
        // Its window began with the minute, more than a second ago.
        (FixedWindow::new(minute).into(), 10),
    ];
    for (algorithm, left) in algorithms {
        let limiter = in_memory(algorithm, &clock);
        clock.store(T0 + 31_415_926, Relaxed);
        let alice = || Charge::new("alice");
        assert!(limiter.check(&alice().cost(4)).await.unwrap().is_admitted());
        clock.fetch_add(1, Relaxed);
        let under = limiter.estimate(alice().quota(second)).await.unwrap();
        assert_eq!(under.remaining(), Some(left), "{algorithm:?}");
        assert!(under.is_admitted(), "{algorithm:?}");
        assert_eq!(limiter.peek("alice").await.unwrap().remaining(), Some(0), "{algorithm:?}");
    }
}
