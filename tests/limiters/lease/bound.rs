//! The bound: what is admitted until some instant was leased at most the validity before, and by
//! the instants of the leases the inner limiter keeps its bound. So a window of length `T` holds at
//! most what the inner limiter admits in a window of length `T + validity`.

use crate::*;

use support::trial::model::{
    Anchored, Both, Bucket, Bursty, Cells, Counter, Grant, Log, Model, Window,
};

const START: Duration = Duration::from_secs(1_767_225_600);
const VALIDITY: Duration = Duration::from_millis(50);
const PERIOD: Duration = Duration::from_millis(400);

/// One admission: when it was decided, when it was admitted, and its units.
struct Admission {
    leased: i128,
    spent: i128,
    units: i128,
}

#[derive(Debug, Default)]
struct Counts {
    admitted: usize,
    /// Of those that are admitted, the ones whose units were leased before.
    leased: usize,
    refused: usize,
}

/// Random traffic of three processes with leases and one without, over one limiter.
async fn history<A>(algorithm: A, seed: u64) -> (Vec<Admission>, Counts)
where
    A: Algorithm + Send + Sync + 'static,
{
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15 ^ seed);
    let start = Instant::now();
    let memory = Memory::new("api", algorithm).clock(move || START + start.elapsed());
    let lease = || memory.clone().lease(40).valid_for(VALIDITY);
    let mut processes: Vec<Lease<_>> = (0..3).map(|_| lease()).collect();
    let micros = |since: Duration| i128::try_from(since.as_micros()).expect("micros");
    let now = || micros(START + start.elapsed());
    let (mut admissions, mut held) = (Vec::new(), Vec::new());
    let mut counts = Counts::default();
    for _ in 0..2_500 {
        let process = dice.below(processes.len());
        match dice.below(400) {
            0 => advance(Duration::from_micros(dice.below(60_000) as u64)).await,
            1 => sleep(dice.pick(&[VALIDITY, PERIOD, VALIDITY - Duration::from_micros(1)])).await,
            2 => processes[process].end_leases(),
            // A process ends, and another starts.
            3 => processes[process] = lease(),
            4..60 if !held.is_empty() => {
                let (process, admission, reservation) = held.swap_remove(dice.below(held.len()));
                let limiter: &Lease<Memory<A>> = &processes[process];
                let admission: &mut Admission = &mut admissions[admission];
                let actual = dice.below(admission.units as usize + 1) as u64;
                if limiter.settle(reservation, actual).is_ok() {
                    admission.units = actual.into();
                }
            }
            60..200 => advance(Duration::from_micros(dice.below(900) as u64)).await,
            kind => {
                let cost = dice.pick(&[1, 1, 1, 1, 2, 3]);
                let wait = dice.pick(&[0, 0, 0, 5, 200]);
                let charge = Charge::new("key").cost(cost).max_wait(Duration::from_millis(wait));
                let answer = match kind {
                    200..210 => memory.check(&charge).await,
                    _ => processes[process].check(&charge).await,
                };
                let mut decision = answer.expect("a decision");
                let decided = micros(decision.decided_at().expect("told"));
                let spent = match decision.outcome() {
                    Outcome::Allow => now(),
                    Outcome::Wait(wait) => now() + micros(wait),
                    _ => {
                        counts.refused += 1;
                        continue;
                    }
                };
                let leased_at = decided + micros(decision.waited());
                counts.admitted += 1;
                counts.leased += usize::from(leased_at < spent);
                let units = cost.into();
                admissions.push(Admission { leased: leased_at, spent, units });
                if let Some(reservation) = decision.take_reservation()
                    && dice.below(3) == 0
                {
                    held.push((process, admissions.len() - 1, reservation));
                }
            }
        }
    }
    (admissions, counts)
}

async fn holds<A>(name: &str, algorithm: A, model: fn(Quota) -> Box<dyn Model>, quota: Quota)
where
    A: Algorithm + Send + Sync + 'static,
{
    let mut all = Counts::default();
    for seed in 1..=8 {
        let (admissions, counts) = history(algorithm.clone(), seed).await;
        all.admitted += counts.admitted;
        all.leased += counts.leased;
        all.refused += counts.refused;
        let validity = i128::try_from(VALIDITY.as_micros()).unwrap();
        for Admission { leased, spent, .. } in &admissions {
            assert!(
                (*leased..leased + validity).contains(spent),
                "{name} {seed}: {leased} {spent}"
            );
        }
        let mut grants: Vec<Grant> = admissions.iter().map(|one| (one.leased, one.units)).collect();
        grants.retain(|grant| grant.1 > 0);
        grants.sort_unstable();
        assert_eq!(model(quota).excess(&grants), 0, "{name}, history {seed}");
    }
    println!("leases algorithm={name} {all:?}");
    assert!(all.leased * 20 > all.admitted && all.refused * 20 > all.admitted, "{name}: {all:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_over_the_bound_that_is_wider_by_the_validity() {
    let quota = Quota::new(400, PERIOD);
    holds("token_bucket", TokenBucket::new(quota), Bucket::boxed, quota).await;
    holds("fixed_window", FixedWindow::new(quota), Window::boxed, quota).await;
    holds("anchored", FixedWindow::new(quota).anchored(), Anchored::boxed, quota).await;
    holds("sliding_log", SlidingLog::new(quota), Log::boxed, quota).await;
    holds("sliding_window", SlidingWindow::new(quota), Cells::boxed, quota).await;
    holds("sliding_counter", SlidingCounter::new(quota), Counter::boxed, quota).await;
    let several = (TokenBucket::new(quota), TokenBucket::new(Both::faster(quota)));
    holds("several", several.into_algorithm(), Both::uneven, quota).await;
    let bursty = SmoothBursty::new(quota).max_burst(PERIOD);
    holds("smooth_bursty", bursty, Bursty::boxed, quota).await;
}
