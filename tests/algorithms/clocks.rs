//! Clocks that step, swing, stand still or begin at 0: what they can give, and what they lock.

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

/// No instant stands for "there is none": histories from the epoch's begin on are decided as
/// later ones, on the server and in memory.
#[cfg(feature = "redis")]
mod from_the_epochs_begin {
    use super::*;
    use support::Server;
    use support::dice::{Dice, step};
    use tower_sluice::algorithm::{InLua, IntoAlgorithm, SmoothBursty, SmoothWarmingUp};
    use tower_sluice::limiter::Reservation;
    use tower_sluice::{Decision, Redis};

    const SECOND: u64 = 1_000_000;
    /// A multiple of every period here, so that windows and cells begin alike.
    const LATER: u64 = 1_767_225_600_000_000;

    /// Runs histories on clocks that begin at `begin`, and at the same place in a later period.
    async fn run<A: InLua>(server: &Server, algorithm: A, begin: u64) {
        let since = Clock::default();
        let pool = server.pool();
        let pairs = [0, LATER].map(|base| {
            let clock = || {
                let since = Arc::clone(&since);
                move || Duration::from_micros(base + since.load(Relaxed))
            };
            let name = format!("{algorithm:?} {begin} {base}");
            let redis = Redis::new(&*name, algorithm.clone(), pool.clone()).clock(clock());
            let memory = Memory::new(name, algorithm.clone()).clock(clock());
            (redis.decision_timeout(Duration::from_secs(30)), memory)
        });
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
        let quotas = algorithm.quota();
        for history in 0..8 {
            since.store(begin, Relaxed);
            let mut waiting: Vec<Vec<Reservation>> = Vec::new();
            for asked in 0..16 {
                let place = format!("{algorithm:?}, {begin}, history {history}, step {asked}");
                let some = dice.below(2) == 0;
                since.fetch_add(
                    if some { step(&mut dice, &quotas).unsigned_abs() } else { 0 },
                    Relaxed,
                );
                if dice.below(3) == 0
                    && let Some(reservations) = waiting.pop()
                {
                    let mut reservations = reservations.into_iter();
                    let mut next = || reservations.next().expect("one of each");
                    let mut units = Vec::new();
                    for (redis, memory) in &pairs {
                        units.push(
                            redis.settle(next(), 0).expect("its own").await.expect("refunded"),
                        );
                        units.push(
                            memory.settle(next(), 0).expect("its own").await.expect("refunded"),
                        );
                    }
                    assert_eq!(units, [units[0]; 4], "{place}");
                    continue;
                }
                let charge = Charge::new(history.to_string()).cost(dice.pick(&[0, 1, 1, 3, 5, 6]));
                let charge = charge.max_wait(Duration::from_micros(dice.pick(&[0, SECOND])));
                let mut decisions = Vec::new();
                for (redis, memory) in &pairs {
                    let decision = redis.check(&charge).await;
                    decisions.push(decision.unwrap_or_else(|error| panic!("{place}: {error}")));
                    decisions.push(memory.check(&charge).await.expect("a decision"));
                }
                let said = decisions.iter().map(|decision| {
                    (decision.outcome(), decision.remaining(), decision.reset_after())
                });
                let said: Vec<_> = said.collect();
                assert_eq!(said, [said[0]; 4], "{place}: {charge:?}");
                let taken = decisions.iter_mut().map(Decision::take_reservation);
                waiting.extend(taken.collect::<Option<Vec<_>>>());
            }
        }
    }

    /// On clocks at the begin of a period, right after it, and at its end.
    async fn every_begin<A: InLua>(server: &Server, algorithm: impl IntoAlgorithm<Algorithm = A>) {
        let algorithm = algorithm.into_algorithm();
        for begin in [0, 1, SECOND - 1] {
            run(server, algorithm.clone(), begin).await;
        }
    }

    // Case 162.
    #[tokio::test]
    async fn decisions_are_those_of_any_other_instant() {
        let server = Server::start();
        let five = Quota::per_second(5);
        let three = Quota::new(3, Duration::from_millis(500));
        let quick = TokenBucket::new(Quota::per_second(3_000_000).burst(5));
        let warming_up = SmoothWarmingUp::new(five, Duration::from_secs(1));
        every_begin(&server, TokenBucket::new(five)).await;
        every_begin(&server, quick).await;
        every_begin(&server, FixedWindow::new(five)).await;
        every_begin(&server, FixedWindow::new(five).anchored()).await;
        every_begin(&server, SlidingLog::new(five)).await;
        every_begin(&server, SlidingWindow::new(five)).await;
        every_begin(&server, SlidingCounter::new(five)).await;
        every_begin(&server, SmoothBursty::new(five)).await;
        every_begin(&server, SmoothBursty::new(five).wait_for_own_cost()).await;
        every_begin(&server, warming_up).await;
        every_begin(&server, warming_up.wait_for_own_cost()).await;
        every_begin(&server, (SlidingLog::new(five), quick)).await;
        every_begin(&server, (SlidingLog::new(five), SlidingLog::new(three))).await;
        every_begin(&server, (TokenBucket::new(three), FixedWindow::new(five))).await;
        every_begin(&server, (SlidingWindow::new(five), SlidingCounter::new(three))).await;
        every_begin(&server, (SlidingWindow::new(three), SlidingCounter::new(five))).await;
        every_begin(&server, (FixedWindow::new(three).anchored(), warming_up)).await;
        every_begin(&server, (FixedWindow::new(three), SmoothBursty::new(five))).await;
    }
}
