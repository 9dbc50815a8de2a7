//! Clocks that step, swing or stand still: what they can give, and what they lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tower_sluice::algorithm::{
    Budget, FixedWindow, SlidingCounter, SlidingLog, SlidingWindow, TokenBucket,
};
use tower_sluice::limiter::Boxed;
use tower_sluice::{Charge, Limiter, LimiterExt, Memory, Quota};

const LIMIT: u64 = 10;
const HOUR: Duration = Duration::from_secs(3_600);
/// Well into an hour.
const BEGIN: u64 = 1_767_225_600_000_000 + 1_800_000_000;

/// A clock that is set by hand, in µs.
type Clock = Arc<AtomicU64>;

/// Ten units an hour, by each algorithm that admits at once.
fn limiters(clock: &Clock) -> Vec<Boxed> {
    let quota = || Quota::new(LIMIT, HOUR);
    let read = || support::clock_at(clock);
    vec![
        Memory::new("bucket", TokenBucket::new(quota())).clock(read()).boxed(),
        Memory::new("budget", Budget::new(quota())).clock(read()).boxed(),
        Memory::new("window", FixedWindow::new(quota())).clock(read()).boxed(),
        Memory::new("anchored", FixedWindow::new(quota()).anchored()).clock(read()).boxed(),
        Memory::new("log", SlidingLog::new(quota())).clock(read()).boxed(),
        Memory::new("cells", SlidingWindow::new(quota())).clock(read()).boxed(),
        Memory::new("counter", SlidingCounter::new(quota())).clock(read()).boxed(),
    ]
}

async fn admitted(limiter: &Boxed, asked: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..asked {
        let decision = limiter.check(&Charge::new("key")).await.expect("a decision");
        admitted += u64::from(decision.is_admitted());
    }
    admitted
}

// Case 68.
#[tokio::test(start_paused = true)]
async fn a_clock_set_forward_gives_one_more_quota_at_most() {
    for step in [1, 60, 3_600, 86_400, 86_400 * 365] {
        let clock = Clock::new(BEGIN.into());
        for (number, limiter) in limiters(&clock).iter().enumerate() {
            clock.store(BEGIN, Relaxed);
            assert_eq!(admitted(limiter, 3 * LIMIT).await, LIMIT);
            clock.store(BEGIN + step * 1_000_000, Relaxed);
            let more = admitted(limiter, 3 * LIMIT).await;
            assert!(more <= LIMIT, "{more} from limiter {number} after {step} s");
        }
    }
}

/// A clock that goes back and forth gains what its steps forward are worth, and a quota at most.
// Case 69.
#[tokio::test(start_paused = true)]
async fn a_clock_that_swings_gives_what_its_steps_forward_are_worth() {
    let clock = Clock::new(BEGIN.into());
    for (number, limiter) in limiters(&clock).iter().enumerate() {
        clock.store(BEGIN, Relaxed);
        assert_eq!(admitted(limiter, 3 * LIMIT).await, LIMIT);
        let mut more = 0;
        for swing in 0..100 {
            // Back and forth by 50 ms.
            clock.store(BEGIN + if swing % 2 == 0 { 50_000 } else { 0 }, Relaxed);
            more += admitted(limiter, LIMIT).await;
        }
        // A unit takes six minutes, and fifty steps are worth 2.5 s.
        assert_eq!(more, 0, "limiter {number}");
    }
}

// Case 71.
#[tokio::test(start_paused = true)]
async fn a_clock_that_stands_still_refuses_with_a_finite_wait() {
    let clock = Clock::new(BEGIN.into());
    for limiter in limiters(&clock) {
        assert_eq!(admitted(&limiter, 10 * LIMIT).await, LIMIT);
        let refused = limiter.check(&Charge::new("key")).await.expect("a decision");
        let wait = refused.retry_after().expect("a time to come back");
        assert!(wait <= 2 * HOUR, "{wait:?}");
    }
}
