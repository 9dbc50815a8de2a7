//! Lua and Rust are twins: on random histories that land on the edges they agree on every field of
//! every decision.
//!
//! One clock drives both, so each step is decided at the same instant by a script on a real server
//! and by `step`, whose state the test keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tower_sluice::algorithm::{
    Answer, AnyAlgorithm, Budget, Check, FixedWindow, InLua, Mark, Quotas, Refund, SlidingCounter,
    SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp, TokenBucket, Verdict,
};
use tower_sluice::limiter::Reservation;
use tower_sluice::{Charge, Decision, Limiter, LimiterExt, Memory, Outcome, Pool, Quota, Redis};

use support::Server;
use support::dice::Dice;

const DAY: Duration = Duration::from_secs(86_400);
const START: u64 = 1_767_225_600_000_000;
const LATEST: u64 = 1 << 52;

/// Returns what a decision tells, as its twin tells it.
fn verdict(decision: &Decision) -> (Verdict, i64, i64) {
    let remaining = i64::try_from(decision.remaining().expect("reported")).expect("exact");
    (
        of_outcome(decision.outcome()),
        remaining,
        micros_of(decision.reset_after().expect("reported")),
    )
}

fn of_outcome(outcome: Outcome) -> Verdict {
    match outcome {
        Outcome::Allow => Verdict::Allow,
        Outcome::Wait(wait) => Verdict::Wait(micros_of(wait)),
        Outcome::Deny { retry_after: Some(wait) } => Verdict::Deny(micros_of(wait)),
        Outcome::Deny { retry_after: None } => Verdict::Never,
        other => panic!("no algorithm answers {other:?}"),
    }
}

fn micros_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).expect("microseconds")
}

/// The quotas as decisions report them.
fn reported(algorithm: &impl InLua, quotas: &Quotas) -> Vec<Quota> {
    let each = quotas.as_slice().iter().enumerate();
    each.map(|(index, quota)| algorithm.reported(index, *quota)).collect()
}

/// Of several quotas each says the same in both, and together they say what the whole does.
fn same_policies(from_lua: &Decision, answer: &Answer, quotas: &[Quota], place: &str) {
    let policies: Vec<_> = from_lua.policies().collect();
    assert!(policies.iter().map(|policy| policy.quota()).eq(quotas.iter().copied()), "{place}");
    assert_eq!(from_lua.quota(), from_lua.tightest().map(|policy| policy.quota()), "{place}");
    if answer.members.is_empty() {
        return;
    }
    let each = policies.iter().map(|policy| {
        let remaining = i64::try_from(policy.remaining().expect("reported")).expect("exact");
        let reset_after = micros_of(policy.reset_after().expect("reported"));
        (of_outcome(policy.outcome()), remaining, reset_after)
    });
    let expected = answer
        .members
        .iter()
        .map(|one| (one.verdict, one.report.remaining, one.report.reset_after));
    assert!(each.eq(expected), "{place}: {policies:?} and {:?}", answer.members);
    let least = answer.members.iter().map(|one| one.report.remaining).min();
    assert_eq!(least, Some(answer.report.remaining), "{place}");
    if !from_lua.is_admitted() {
        let tightest = from_lua.tightest().expect("several");
        assert_eq!(tightest.retry_after(), from_lua.retry_after(), "{place}");
        assert_eq!(tightest.outcome(), from_lua.outcome(), "{place}");
    }
}

/// A reservation of the script's, and what its twin remembers of the same one.
struct Twins {
    lua: Reservation,
    quota: Quotas,
    cost: i64,
    mark: Mark,
}

/// Runs `histories` of `steps` through both, and returns how many steps were compared.
async fn compare<A: InLua>(
    algorithm: A,
    quotas: &[Quotas],
    pool: &Pool,
    histories: usize,
    steps: usize,
) -> usize {
    let now = Arc::new(AtomicU64::new(START));
    let lua = Redis::new(format!("twins {quotas:?}"), algorithm.clone(), pool.clone())
        .clock({
            let now = Arc::clone(&now);
            move || Duration::from_micros(now.load(Relaxed))
        })
        .decision_timeout(Duration::from_secs(30));

    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    for history in 0..histories {
        let key: Arc<str> = format!("history {history}").into();
        now.store(START, Relaxed);
        let mut state: Option<A::State> = None;
        let mut reservations: Vec<Twins> = Vec::new();
        for step in 0..steps {
            let quota = dice.pick(quotas);
            let one = dice.pick(quota.as_slice());
            let period = one.period().as_micros() as u64;
            let unit = (period / one.limit()).max(1);
            let forward =
                [0, 0, 0, 1, unit - 1, unit, unit + 1, 2 * unit, period - 1, period, period + 1];
            match dice.below(20) {
                0 => now.fetch_sub(dice.pick(&[1, unit, period, 3_600_000_000]), Relaxed),
                _ => now.fetch_add(dice.pick(&forward), Relaxed),
            };
            now.fetch_min(LATEST, Relaxed);
            let instant = now.load(Relaxed) as i64;
            let place = format!("history {history}, step {step}, {quota:?}");

            if dice.below(5) == 0 && !reservations.is_empty() {
                // The latest as often as any.
                let which = if dice.below(2) == 0 {
                    reservations.len() - 1
                } else {
                    dice.below(reservations.len())
                };
                let Twins { lua: reservation, quota, cost, mark } = reservations.remove(which);
                let rule = algorithm.rule(quota).expect("a rule");
                let used = dice.pick(&[0, 0, 0, cost, cost, cost + 1, 3 * cost, 1 << 53]);
                let settlement = Refund { units: cost - used, cost, mark: &mark };
                let units = A::settle(&rule, &mut state, instant, &settlement).unwrap_or(0);
                let from_lua = lua.settle(reservation, used as u64).expect("its own").await;
                let from_lua = from_lua.unwrap_or_else(|error| panic!("{place}: {used}: {error}"));
                assert_eq!(from_lua as i64, units, "{place}: {used} of {cost} used");
                continue;
            }

            let rule = algorithm.rule(quota.clone()).expect("a rule");
            let capacity = one.burst_size();
            if dice.below(25) == 0 {
                let cost = dice.pick(&[0, 1, capacity, 2 * capacity + 1, 1 << 53]);
                let charge = Charge::new(Arc::clone(&key)).cost(cost).quota(quota.clone());
                let from_lua = lua.penalize(charge).await;
                let from_lua = from_lua.unwrap_or_else(|error| panic!("{place}: {cost}: {error}"));
                let answer = A::penalize(&rule, &mut state, instant, cost as i64);
                let from_rust =
                    (answer.verdict, answer.report.remaining, answer.report.reset_after);
                assert_eq!(verdict(&from_lua), from_rust, "{place}: penalty of {cost}");
                continue;
            }
            if dice.below(20) == 0 {
                let cost = dice.pick(&[0, 1, 2, capacity, capacity + 1]);
                let max_wait = dice.pick(&[0, unit, 60_000_000]);
                let charge = Charge::new(Arc::clone(&key)).cost(cost).quota(quota.clone());
                let charge = charge.max_wait(Duration::from_micros(max_wait));
                let mut from_lua = lua.estimate(charge).await.expect("lua estimates");
                let check = Check { cost: cost as i64, max_wait: max_wait as i64 };
                let answer = A::estimate(&rule, state.as_ref(), instant, check);
                let from_rust =
                    (answer.verdict, answer.report.remaining, answer.report.reset_after);
                assert_eq!(verdict(&from_lua), from_rust, "{place}: estimate of {check:?}");
                same_policies(&from_lua, &answer, &reported(&algorithm, &quota), &place);
                assert!(
                    from_lua.take_reservation().is_none(),
                    "{place}: an estimate takes nothing"
                );
                continue;
            }
            if dice.below(60) == 0 {
                lua.reset(Charge::new(Arc::clone(&key))).await.expect("lua forgets");
                state = None;
                continue;
            }

            let cost = dice.pick(&[0, 1, 1, 1, 2, capacity, capacity + 1]);
            let max_wait = dice.pick(&[0, unit, 60_000_000, u64::MAX]);
            let mut charge =
                Charge::new(Arc::clone(&key)).cost(cost).max_wait(Duration::from_micros(max_wait));
            if quota != algorithm.quota() || dice.below(2) == 0 {
                charge = charge.quota(quota.clone());
            }
            let mut from_lua = lua.check(&charge).await.expect("lua decides");

            let check = Check { cost: cost as i64, max_wait: max_wait.min(1 << 53) as i64 };
            let answer = A::step(&rule, &mut state, instant, check);
            let from_rust = (answer.verdict, answer.report.remaining, answer.report.reset_after);
            assert_eq!(verdict(&from_lua), from_rust, "{place}: {charge:?}");
            same_policies(&from_lua, &answer, &reported(&algorithm, &quota), &place);
            assert_eq!(from_lua.decided_at(), Some(Duration::from_micros(instant as u64)));

            if let Some(lua) = from_lua.take_reservation() {
                let mark = A::mark(state.as_ref().expect("reserved"));
                reservations.push(Twins { lua, quota, cost: check.cost, mark });
            }
        }
    }
    histories * steps
}

const fn micros(limit: u64, period: u64) -> Quota {
    Quota::new(limit, Duration::from_micros(period))
}

/// Quotas of which a product is just below 2^53, up to which Lua's numbers are exact.
const LIMITS_OF_THE_EXACT: [Quota; 6] = [
    Quota::new(255, Duration::from_secs(407 * 86_400)),
    micros(8_191, 1 << 40),
    micros(94_906_265, 94_906_266),
    micros(8, 1 << 50),
    micros(1 << 50, 1),
    micros(1 << 50, 1 << 50),
];

async fn every_quota<A: InLua>(new: impl Fn(Quota) -> A, burst: bool) {
    let mut quotas = vec![
        Quota::per_second(5),
        Quota::per_second(3),
        micros(7, 10),
        micros(1, 10),
        Quota::per_day(1),
        Quota::new(1, Duration::from_secs(365 * 86_400)),
        Quota::per_second(1_000_000_000),
    ];
    let exact = |quota: &Quota| new(*quota).rule(*quota).is_ok();
    quotas.extend(LIMITS_OF_THE_EXACT.into_iter().filter(exact));
    if burst {
        quotas.extend([
            micros(3, 10).burst(1),
            Quota::per_second(3).burst(10),
            micros(7, 1).burst(100),
        ]);
    }
    every_pace(new, &quotas).await;
}

/// Each quota alone, and in turn with the next.
async fn every_pace<A: InLua>(new: impl Fn(Quota) -> A, quotas: &[Quota]) {
    let many: Vec<Quotas> = quotas.iter().map(|quota| (*quota).into()).collect();
    every(|quotas: &Quotas| new(quotas.as_slice()[0]), &many).await;
}

async fn every<A: InLua>(new: impl Fn(&Quotas) -> A, quotas: &[Quotas]) {
    let server = Server::start();
    let pool = Pool::connect(&server.url()).expect("an address");
    let mut compared = 0;
    for quota in quotas {
        compared += compare(new(quota), std::slice::from_ref(quota), &pool, 12, 60).await;
    }
    for pair in quotas.windows(2) {
        compared += compare(new(&pair[0]), pair, &pool, 6, 60).await;
    }
    println!("twins algorithm={} steps={compared}", std::any::type_name::<A>());
}

#[tokio::test]
async fn token_bucket_agrees_with_its_script() {
    every_quota(TokenBucket::new, true).await;
}

/// Eras that the steps of time end, and eras that outlast them.
#[tokio::test]
async fn budget_agrees_with_its_script() {
    every_quota(|quota| Budget::new(quota).max_hold(quota.period()), true).await;
    every_quota(|quota| Budget::new(quota).max_hold(2 * quota.period()).horizon(DAY), true).await;
    every_quota(Budget::new, true).await;
}

#[tokio::test]
async fn fixed_window_agrees_with_its_script() {
    every_quota(FixedWindow::new, false).await;
}

#[tokio::test]
async fn anchored_window_agrees_with_its_script() {
    every_quota(|quota| FixedWindow::new(quota).anchored(), false).await;
}

#[tokio::test]
async fn sliding_window_agrees_with_its_script() {
    every_quota(SlidingWindow::new, false).await;
    every_quota(|quota| SlidingWindow::new(quota).cells(60), false).await;
    every_quota(|quota| SlidingWindow::new(quota).cells(1), false).await;
}

#[tokio::test]
async fn sliding_counter_agrees_with_its_script() {
    every_quota(SlidingCounter::new, false).await;
}

#[tokio::test]
async fn sliding_log_agrees_with_its_script() {
    every_quota(|quota| SlidingLog::new(quota).max_limit(1 << 40), false).await;
    // So many members that the one that must leave has to be searched for.
    let server = Server::start();
    let pool = Pool::connect(&server.url()).expect("an address");
    let long = [micros(200, 1_000), micros(1_000, 100_000)];
    let many = long.map(Quotas::from);
    for quotas in [&many[..1], &many[1..], &many] {
        let log = SlidingLog::new(quotas[0].as_slice()[0]);
        compare(log, quotas, &pool, 4, 1_500).await;
    }
}

#[tokio::test]
async fn several_quotas_agree_with_their_script() {
    let pair = |one: Quota, other: Quota| Quotas::from((one, other));
    let second = Quota::per_second(5);
    let quotas = [
        pair(second, Quota::per_minute(9)),
        pair(second, Quota::per_second(3)),
        pair(micros(7, 10), micros(9, 25)),
        pair(Quota::per_day(1), micros(3, 10)),
    ];
    let one = |quotas: &Quotas, place: usize| quotas.as_slice()[place];
    every(|q| (TokenBucket::new(one(q, 0)), FixedWindow::new(one(q, 1))), &quotas).await;
    every(|q| (TokenBucket::new(one(q, 0)), TokenBucket::new(one(q, 1))), &quotas).await;
    every(|q| (SlidingLog::new(one(q, 0)), SlidingLog::new(one(q, 1))), &quotas).await;
    every(|q| (SlidingWindow::new(one(q, 0)), SlidingCounter::new(one(q, 1))), &quotas).await;
    every(|q| (SmoothBursty::new(one(q, 0)), FixedWindow::new(one(q, 1)).anchored()), &quotas)
        .await;
    every(
        |q| {
            (
                FixedWindow::new(one(q, 0)),
                SmoothBursty::new(one(q, 1)).max_burst(DAY).wait_for_own_cost(),
            )
        },
        &quotas,
    )
    .await;
    every(|q| (SlidingLog::new(one(q, 0)), SmoothWarmingUp::new(one(q, 1), DAY)), &quotas).await;
    every(
        |q| (TokenBucket::new(one(q, 0)), SmoothWarmingUp::new(one(q, 1), DAY).wait_for_own_cost()),
        &quotas,
    )
    .await;

    let short = |quota: Quota| Budget::new(quota).max_hold(quota.period());
    every(|q| (short(one(q, 0)), TokenBucket::new(one(q, 1))), &quotas).await;
    every(|q| (FixedWindow::new(one(q, 0)), short(one(q, 1)).horizon(DAY)), &quotas).await;
    every(|q| (SlidingLog::new(one(q, 0)), Budget::new(one(q, 1))), &quotas).await;
    every(|q| (Budget::new(one(q, 0)), short(one(q, 1))), &quotas).await;

    let eight = |n: u64| {
        Quotas::from([5, 9, 7, 6, 8, 5, 6, 7].map(|limit| micros(limit * n, 1_000 * limit)))
    };
    every(
        |q| {
            (
                TokenBucket::new(one(q, 0)),
                FixedWindow::new(one(q, 1)),
                SlidingLog::new(one(q, 2)),
                SlidingWindow::new(one(q, 3)),
                SlidingCounter::new(one(q, 4)),
                SmoothBursty::new(one(q, 5)),
                SmoothWarmingUp::new(one(q, 6), Duration::from_millis(5)),
                TokenBucket::new(one(q, 7)),
            )
        },
        &[eight(1), eight(2)],
    )
    .await;
    every(
        |q| -> Vec<AnyAlgorithm> {
            vec![
                TokenBucket::new(one(q, 0)).into(),
                FixedWindow::new(one(q, 1)).into(),
                SlidingLog::new(one(q, 2)).into(),
                SlidingWindow::new(one(q, 3)).into(),
                SlidingCounter::new(one(q, 4)).into(),
                SmoothBursty::new(one(q, 5)).into(),
                SmoothWarmingUp::new(one(q, 6), Duration::from_millis(5)).into(),
                Budget::new(one(q, 7)).max_hold(Duration::from_millis(2)).into(),
            ]
        },
        &[eight(1), eight(2)],
    )
    .await;
}

#[tokio::test]
async fn smooth_bursty_agrees_with_its_script() {
    every_quota(SmoothBursty::new, false).await;
    every_quota(|quota| SmoothBursty::new(quota).start_empty(), false).await;
    let own = |quota| SmoothBursty::new(quota).max_burst(400 * DAY).wait_for_own_cost();
    every_pace(
        own,
        &[Quota::per_second(5), Quota::per_second(3), Quota::per_day(1), micros(7, 10)],
    )
    .await;
}

#[tokio::test]
async fn smooth_warming_up_agrees_with_its_script() {
    let paces = [
        Quota::per_second(5),
        Quota::per_second(3),
        micros(7, 10),
        Quota::per_day(1),
        Quota::new(1, 365 * DAY),
        Quota::per_second(1_000_000),
    ];
    for warm_up in [Duration::from_micros(1), Duration::from_secs(4), 30 * DAY] {
        every_pace(|quota| SmoothWarmingUp::new(quota, warm_up), &paces).await;
        every_pace(
            |quota| SmoothWarmingUp::new(quota, warm_up).cold_factor(1.7).wait_for_own_cost(),
            &paces,
        )
        .await;
    }
}

/// As Guava answers the same calls.
#[tokio::test]
async fn warming_up_at_a_lower_rate_waits_as_guava() {
    let server = Server::start();
    let now = Arc::new(AtomicU64::new(START));
    let clock = || {
        let now = Arc::clone(&now);
        move || Duration::from_micros(now.load(Relaxed))
    };
    let five = Quota::per_second(5);
    let pace = SmoothWarmingUp::new(five, Duration::from_millis(700)).cold_factor(1.5);
    let pool = Pool::connect(&server.url()).expect("an address");
    let redis = Redis::new("pace", pace, pool).decision_timeout(Duration::from_secs(30));
    let limiters = [redis.clock(clock()).boxed(), Memory::new("pace", pace).clock(clock()).boxed()];
    for limiter in limiters {
        now.store(START, Relaxed);
        let ask = async |cost, limit| {
            let charge = Charge::new("key").cost(cost).quota(Quota::per_second(limit));
            limiter.check(&charge).await.expect("a decision").outcome()
        };
        assert_eq!(ask(1, 5).await, Outcome::Allow);
        now.fetch_add(10_000_000, Relaxed);
        assert_eq!(ask(6, 4).await, Outcome::Allow);
        let retry_after = Some(Duration::from_micros(1_639_999));
        assert_eq!(ask(1, 4).await, Outcome::Deny { retry_after });
    }
}
