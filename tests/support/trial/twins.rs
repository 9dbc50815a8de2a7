//! Lua and Rust are twins: on random histories that land on the edges they agree on every field of
//! every decision.
//!
//! One clock drives both, so each step is decided at the same instant by a script on a real server
//! and by the limiter in memory.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tower_sluice::algorithm::{
    AnyAlgorithm, Budget, Concurrency, FixedWindow, InLua, IntoAlgorithm, Quotas, SlidingCounter,
    SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp, TokenBucket,
};
use tower_sluice::limiter::{Boxed, Operation, Reservation};
use tower_sluice::{
    Charge, Decision, Error, ErrorKind, Limiter, LimiterExt, Memory, Outcome, Pool, Quota, Redis,
};

use super::{Played, was_lost};
use crate::dice::Dice;

const DAY: Duration = Duration::from_secs(86_400);
const START: u64 = 1_767_225_600_000_000;
const LATEST: u64 = 1 << 52;

/// The histories of one algorithm, or of several together.
pub struct Twins {
    pub name: &'static str,
    histories: for<'a> fn(&'a Play) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
}

/// Each algorithm, and some of them together.
pub static TWINS: &[Twins] = &[
    Twins { name: "token_bucket", histories: |play| Box::pin(token_bucket(play)) },
    Twins { name: "budget", histories: |play| Box::pin(budget(play)) },
    Twins { name: "concurrency", histories: |play| Box::pin(concurrency(play)) },
    Twins { name: "fixed_window", histories: |play| Box::pin(fixed_window(play)) },
    #[cfg(feature = "calendar")]
    Twins { name: "calendar", histories: |play| Box::pin(calendar(play)) },
    Twins { name: "sliding_window", histories: |play| Box::pin(sliding_window(play)) },
    Twins { name: "sliding_counter", histories: |play| Box::pin(sliding_counter(play)) },
    Twins { name: "sliding_log", histories: |play| Box::pin(sliding_log(play)) },
    Twins { name: "several", histories: |play| Box::pin(several(play)) },
    Twins { name: "smooth_bursty", histories: |play| Box::pin(smooth_bursty(play)) },
    Twins { name: "smooth_warming_up", histories: |play| Box::pin(smooth_warming_up(play)) },
];

impl Twins {
    pub fn called(name: &str) -> &'static Self {
        TWINS.iter().find(|twins| twins.name == name).expect("known twins")
    }

    /// Plays the histories over `pool`, each `times` with other dice, and returns how many steps
    /// were compared.
    ///
    /// # Panics
    ///
    /// If a script does not answer as its twin does.
    pub async fn agree(&self, pool: Pool, times: usize) -> usize {
        let play = Play::over(pool, times);
        (self.histories)(&play).await;
        play.compared.load(Relaxed)
    }

    /// The same until `end`: then less of each history is played. A call without an answer ends
    /// its history. `begins` is called with each limiter before it is used, and with its keys.
    ///
    /// # Panics
    ///
    /// If a script does not answer as its twin does.
    pub async fn agree_until(
        &self,
        pool: Pool,
        end: Instant,
        begins: impl Fn(Boxed, Vec<String>) + Send + Sync + 'static,
    ) -> Played {
        let mut play = Play { counts: true, ..Play::over(pool, 3) };
        (self.histories)(&play).await;
        play = Play { counts: false, end: Some(end), begins: Box::new(begins), ..play };
        (self.histories)(&play).await;
        let [done, parts, cut_short] =
            [&play.compared, &play.begun, &play.cut_short].map(|count| count.load(Relaxed));
        Played { done, parts, cut_short }
    }
}

/// A run through the histories.
struct Play {
    pool: Pool,
    /// How often the check's number of histories is played.
    times: usize,
    /// Plays nothing, and counts the steps that there are.
    counts: bool,
    end: Option<Instant>,
    begins: Box<dyn Fn(Boxed, Vec<String>) + Send + Sync>,
    /// The steps that are left, if there is an end.
    left: AtomicUsize,
    compared: AtomicUsize,
    limiters: AtomicUsize,
    /// The histories that were begun, and those that a call without an answer ended.
    begun: AtomicUsize,
    cut_short: AtomicUsize,
}

impl Play {
    fn over(pool: Pool, times: usize) -> Self {
        Self {
            pool,
            times,
            counts: false,
            end: None,
            begins: Box::new(|_, _| {}),
            left: AtomicUsize::new(0),
            compared: AtomicUsize::new(0),
            limiters: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            cut_short: AtomicUsize::new(0),
        }
    }

    /// Returns an answer. `None`: it got lost, and the history ends, where that may happen.
    fn answer<T>(&self, answer: Result<T, Error>, place: impl FnOnce() -> String) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) if self.end.is_some() && was_lost(&error) => {
                self.cut_short.fetch_add(1, Relaxed);
                None
            }
            Err(error) => panic!("{}: {error:?}", place()),
        }
    }

    /// Returns when so many steps must be done: they get their share of the time that is left.
    fn end_of(&self, steps: usize) -> Option<Instant> {
        let now = Instant::now();
        let left = self.left.fetch_sub(steps.min(self.left.load(Relaxed)), Relaxed).max(1);
        let share = (steps as f64 / left as f64).min(1.0);
        self.end.map(|end| now + end.saturating_duration_since(now).mul_f64(share))
    }
}

fn history_key(history: usize) -> String {
    format!("history-{history}")
}

/// Returns what a decision tells: that of the whole, and that of each quota.
fn told(decision: &Decision) -> String {
    let report = (decision.remaining(), decision.reset_after(), decision.slot());
    let times = (decision.paused_for(), decision.decided_at(), decision.not_taken());
    let policies = decision.policies().map(|one| {
        (one.quota(), one.outcome(), one.remaining(), one.reset_after(), one.kept_free())
    });
    let policies: Vec<_> = policies.collect();
    format!("{:?} {report:?} {times:?} {policies:?}", decision.outcome())
}

/// Of several quotas, the whole says what the tightest one says.
fn is_of_the_tightest(decision: &Decision, place: &str) {
    let tightest = decision.tightest().expect("a quota");
    assert_eq!(decision.quota(), Some(tightest.quota()), "{place}");
    if let Outcome::Deny { .. } = decision.outcome() {
        assert_eq!(tightest.outcome(), decision.outcome(), "{place}");
    }
}

/// Runs `histories` of `steps` through both, as often as `play` says. Every second one begins with
/// the epoch: no instant stands for "there is none".
async fn compare<A: InLua>(
    algorithm: A,
    quotas: &[Quotas],
    play: &Play,
    histories: usize,
    steps: usize,
) {
    compare_from([START, 0], algorithm, quotas, play, histories, steps).await;
}

/// The same, from these instants on in turn.
async fn compare_from<A: InLua>(
    starts: [u64; 2],
    algorithm: A,
    quotas: &[Quotas],
    play: &Play,
    histories: usize,
    steps: usize,
) {
    let histories = histories * play.times;
    if play.counts {
        play.left.fetch_add(histories * steps, Relaxed);
        return;
    }
    let end = play.end_of(histories * steps);
    let now = Arc::new(AtomicU64::new(starts[0]));
    let name = format!("twins-{}", play.limiters.fetch_add(1, Relaxed));
    let lua = Redis::new(name, algorithm.clone(), play.pool.clone())
        .clock(crate::clock_at(&now))
        .decision_timeout(Duration::from_secs(30));
    let rust = Memory::new("twin", algorithm.clone()).clock(crate::clock_at(&now));

    (play.begins)(lua.clone().boxed(), (0..histories).map(history_key).collect());

    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    'histories: for history in 0..histories {
        let key: Arc<str> = history_key(history).into();
        now.store(starts[history % 2], Relaxed);
        // A block that is over is forgotten by the next write in Redis, and later in memory: no
        // clock steps back to before it.
        let stops = dice.below(3) == 0;
        // The end of the last decision's window.
        let mut reset = 0;
        // What both have reserved.
        let mut reservations: Vec<[Reservation; 2]> = Vec::new();
        for step in 0..steps {
            if end.is_some_and(|end| Instant::now() > end) {
                return;
            }
            play.begun.fetch_add(usize::from(step == 0), Relaxed);
            play.compared.fetch_add(1, Relaxed);
            let quota = dice.pick(quotas);
            let one = dice.pick(quota.as_slice());
            let period = one.period().as_micros() as u64;
            let unit = (period / one.limit().max(1)).max(1);
            let forward =
                [0, 0, 0, 1, unit - 1, unit, unit + 1, 2 * unit, period - 1, period, period + 1];
            let to_reset = [reset - 1, reset, reset + 1].map(|at| at - now.load(Relaxed) as i64);
            match dice.below(20) {
                1..4 if to_reset[0] >= 0 => now.fetch_add(dice.pick(&to_reset) as u64, Relaxed),
                0 if !stops => {
                    let back = dice.pick(&[1, unit, period, 3_600_000_000]);
                    now.fetch_sub(back.min(now.load(Relaxed)), Relaxed)
                }
                _ => now.fetch_add(dice.pick(&forward), Relaxed),
            };
            now.fetch_min(LATEST, Relaxed);
            let instant = now.load(Relaxed);
            let place = format!("history {history}, step {step}, {quota:?}");

            if dice.below(5) == 0 && !reservations.is_empty() {
                // The latest as often as any.
                let last = reservations.len() - 1;
                let any = dice.below(reservations.len());
                let [from_lua, from_rust] = reservations.remove(dice.pick(&[last, any]));
                // All, a part, nothing, or more than was taken.
                let cost = from_lua.cost();
                let parts = [1, cost / 2, cost.saturating_sub(1)];
                let others = [0, 0, 0, cost, cost, cost + 1, 3 * cost, 1 << 53];
                let used = dice.pick(&[&parts[..], &others].concat());
                let place = || format!("{place}: {used} of {cost} used");
                let from_lua = lua.settle(from_lua, used).expect("its own").await;
                let Some(from_lua) = play.answer(from_lua, place) else { continue 'histories };
                let from_rust = rust.settle(from_rust, used).expect("its own").await;
                assert_eq!(from_lua, from_rust.expect("an answer"), "{}", place());
                continue;
            }

            if dice.below(8) == 0 && !reservations.is_empty() {
                let which = dice.below(reservations.len());
                let [from_lua, from_rust] = &mut reservations[which];
                let place = || format!("{place}: renewal");
                let (from_lua, from_rust) = (lua.renew(from_lua), rust.renew(from_rust));
                assert_eq!(from_lua.is_some(), from_rust.is_some(), "{}", place());
                if let Some((from_lua, from_rust)) = from_lua.zip(from_rust) {
                    let Some(is_held) = play.answer(from_lua.await, place) else {
                        continue 'histories;
                    };
                    assert_eq!(is_held, from_rust.await.expect("an answer"), "{}", place());
                }
                continue;
            }

            let charge = Charge::new(Arc::clone(&key));
            let own = charge.clone().quota(quota.clone());
            let capacity = one.burst_size();
            let operation = match dice.below(120) {
                0..5 => {
                    let units = dice.pick(&[0, 1, capacity, 2 * capacity + 1, 1 << 53]);
                    Some((Operation::Penalize, own.cost(units)))
                }
                5..10 => {
                    let units = dice.pick(&[0, 1, 1, 2, capacity / 2, capacity, 1 << 53]);
                    Some((Operation::Grant, own.cost(units)))
                }
                10..16 => {
                    let cost = dice.pick(&[0, 1, 2, capacity, capacity + 1]);
                    let wait = Duration::from_micros(dice.pick(&[0, unit, 60_000_000]));
                    let keeps = kept(&mut dice, &quota);
                    let estimated = own.cost(cost).max_wait(wait).keep_free(keeps.as_slice());
                    Some((Operation::Estimate, estimated))
                }
                16..18 => Some((Operation::Reset, charge.clone())),
                18..23 if stops => {
                    let time = Duration::from_micros(dice.pick(&[0, 1, unit, period]));
                    let stops = [Operation::Block(time), Operation::Pause(time)];
                    Some((dice.pick(&stops), own))
                }
                23..25 if stops => Some((Operation::Unblock, own)),
                _ => None,
            };
            if let Some((operation, charge)) = operation {
                let place = || format!("{place}: {operation:?} {charge:?}");
                let from_lua = lua.operate(operation, &charge).expect("known");
                let from_rust = rust.operate(operation, &charge).expect("known").await;
                if let Err(error) = &from_rust {
                    assert_eq!(error.kind(), ErrorKind::Configuration, "{}", place());
                    let error = from_lua.await.expect_err("all is held");
                    assert_eq!(error.kind(), ErrorKind::Configuration, "{}", place());
                    continue;
                }
                let Some(from_lua) = play.answer(from_lua.await, place) else {
                    continue 'histories;
                };
                assert_eq!(told(&from_lua), told(&from_rust.expect("an answer")), "{}", place());
                is_of_the_tightest(&from_lua, &place());
                assert!(from_lua.reservation().is_none(), "{}", place());
                continue;
            }

            let cost = dice.pick(&[0, 1, 1, 1, 2, capacity, capacity + 1]);
            let max_wait = dice.pick(&[0, unit, 60_000_000, u64::MAX]);
            let mut charge = charge.cost(cost).max_wait(Duration::from_micros(max_wait));
            if quota != algorithm.quota() || dice.below(2) == 0 {
                charge = charge.quota(quota.clone());
            }
            let charge = charge.keep_free(kept(&mut dice, &quota).as_slice());
            let place = || format!("{place}: {charge:?}");
            let from_lua = lua.check(&charge).await;
            let Some(from_lua) = play.answer(from_lua, place) else { continue 'histories };
            let from_rust = rust.check(&charge).await.expect("a decision");
            assert_eq!(told(&from_lua), told(&from_rust), "{}", place());
            assert_eq!(from_lua.decided_at(), Some(Duration::from_micros(instant)));
            is_of_the_tightest(&from_lua, &place());
            reset = (instant + from_lua.reset_after().expect("reported").as_micros() as u64) as i64;
            let reserved = [from_lua.into_reservation(), from_rust.into_reservation()];
            assert_eq!(reserved[0].is_some(), reserved[1].is_some(), "{}", place());
            reservations.extend(reserved[0].is_some().then(|| reserved.map(Option::unwrap)));
        }
    }
}

/// Units that a charge leaves free: mostly none, else one number for all quotas or one for each.
fn kept(dice: &mut Dice, quotas: &Quotas) -> Vec<u64> {
    let of = |dice: &mut Dice, quota: &Quota| {
        let most = quota.burst_size();
        dice.pick(&[0, 1, 1, 2, most / 2, most.saturating_sub(1), most])
    };
    match dice.below(6) {
        0 => vec![of(dice, &quotas.as_slice()[0])],
        1 => quotas.as_slice().iter().map(|quota| of(dice, quota)).collect(),
        _ => Vec::new(),
    }
}

const fn micros(limit: u64, period: u64) -> Quota {
    Quota::new(limit, Duration::from_micros(period))
}

/// Quotas of which a product is just below 2^53, up to which Lua's numbers are exact. Those of the
/// last two are above it: a bucket rounds the first of them, and only windows follow the other.
const LIMITS_OF_THE_EXACT: [Quota; 8] = [
    Quota::new(255, Duration::from_secs(407 * 86_400)),
    micros(8_191, 1 << 40),
    micros(94_906_265, 94_906_266),
    micros(8, 1 << 50),
    micros(1 << 50, 1),
    micros(1 << 50, 1 << 50),
    Quota::new(99_999, Duration::from_secs(30 * 86_400)),
    micros((1 << 50) - 1, 1 << 50),
];

async fn every_quota<A: InLua>(play: &Play, new: impl Fn(Quota) -> A, burst: bool) {
    let mut quotas = vec![
        Quota::per_second(5),
        Quota::none(),
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
            Quota::per_day(999_983).burst(1),
        ]);
    }
    every_pace(play, new, &quotas).await;
}

/// Each quota alone, and in turn with the next.
async fn every_pace<A: InLua>(play: &Play, new: impl Fn(Quota) -> A, quotas: &[Quota]) {
    let many: Vec<Quotas> = quotas.iter().map(|quota| (*quota).into()).collect();
    every(play, |quotas: &Quotas| new(quotas.as_slice()[0]), &many).await;
}

async fn every<A>(play: &Play, new: impl Fn(&Quotas) -> A, quotas: &[Quotas])
where
    A: IntoAlgorithm<Algorithm: InLua>,
{
    for quota in quotas {
        compare(new(quota).into_algorithm(), std::slice::from_ref(quota), play, 4, 60).await;
    }
    for pair in quotas.windows(2) {
        compare(new(&pair[0]).into_algorithm(), pair, play, 2, 60).await;
    }
}

async fn token_bucket(play: &Play) {
    every_quota(play, TokenBucket::new, true).await;
    every_quota(play, |quota| TokenBucket::new(quota).max_debt(2 * quota.period()), true).await;
}

/// Eras that the steps of time end, and eras that outlast them.
async fn budget(play: &Play) {
    let owing = |quota: Quota| Budget::new(quota).max_debt(2 * quota.period());
    every_quota(play, |quota| owing(quota).max_hold(quota.period()), true).await;
    every_quota(play, |quota| Budget::new(quota).max_hold(2 * quota.period()).horizon(DAY), true)
        .await;
    every_quota(play, Budget::new, true).await;
}

/// Eras that the steps of time end, and eras that outlast them.
async fn concurrency(play: &Play) {
    every_quota(play, |quota| Concurrency::of(quota).max_hold(quota.period()), false).await;
    every_quota(play, |quota| Concurrency::of(quota).max_hold(4 * quota.period()), false).await;
    every_quota(play, Concurrency::of, false).await;
}

async fn fixed_window(play: &Play) {
    every_quota(play, FixedWindow::new, false).await;
    every_quota(play, |quota| FixedWindow::new(quota).anchored(), false).await;
}

/// Calendars alone and beside other quotas, over days that clocks change or that a zone skips, and
/// over short months.
#[cfg(feature = "calendar")]
async fn calendar(play: &Play) {
    use tower_sluice::algorithm::{Calendar, Weekday};

    let berlin = |calendar: Calendar| calendar.time_zone("Europe/Berlin").expect("a zone");
    let calendars = [
        // 2026-03-28, before a day of 23 hours.
        (1_774_652_400, berlin(Calendar::day())),
        // 2026-10-24, before a day of 25 hours.
        (1_792_792_800, berlin(Calendar::day())),
        // 2011-12-28, before the day that the zone skips.
        (1_325_066_400, Calendar::day().time_zone("Pacific/Apia").expect("a zone")),
        // 2018-11-03, before a day without a midnight.
        (1_541_214_000, Calendar::day().time_zone("America/Sao_Paulo").expect("a zone")),
        // 2010-11-06, before a day that begins twice.
        (1_289_010_600, Calendar::day().time_zone("America/St_Johns").expect("a zone")),
        // 2024-02-20, in a leap year.
        (1_708_383_600, berlin(Calendar::week(Weekday::Monday))),
        (1_708_383_600, berlin(Calendar::month())),
        (1_708_383_600, berlin(Calendar::month_from(31))),
        (1_708_383_600, berlin(Calendar::year())),
    ];
    for (start, calendar) in calendars {
        let starts = [start * 1_000_000; 2];
        let quotas = [calendar.quota(5), calendar.quota(1), calendar.quota(1 << 40)];
        let own = quotas.map(Quotas::from);
        let window = FixedWindow::calendar(5, calendar);
        compare_from(starts, window, &own[..1], play, 3, 200).await;
        let waiting = window.horizon(Duration::from_secs(365 * 86_400));
        compare_from(starts, waiting, &own, play, 5, 200).await;
        let second = Quota::per_second(2);
        let pairs = quotas.map(|quota| Quotas::from((second, quota)));
        let pair = (TokenBucket::new(second), waiting).into_algorithm();
        compare_from(starts, pair, &pairs, play, 3, 200).await;
    }
}

async fn sliding_window(play: &Play) {
    every_quota(play, SlidingWindow::new, false).await;
    every_quota(play, |quota| SlidingWindow::new(quota).cells(u8::MAX), false).await;
    every_quota(play, |quota| SlidingWindow::new(quota).cells(1), false).await;
}

async fn sliding_counter(play: &Play) {
    every_quota(play, SlidingCounter::new, false).await;
}

async fn sliding_log(play: &Play) {
    every_quota(play, |quota| SlidingLog::new(quota).max_limit(1 << 40), false).await;
    // So many members that the one that must leave has to be searched for.
    let long = [micros(200, 1_000), micros(1_000, 100_000)];
    let many = long.map(Quotas::from);
    for quotas in [&many[..1], &many[1..], &many] {
        let log = SlidingLog::new(quotas[0].as_slice()[0]);
        compare(log, quotas, play, 2, 1_500).await;
    }
}

/// Plays pairs of algorithms, each made of its own quota of two.
macro_rules! every_pair {
    ($play:expr, $quotas:expr; $($one:expr, $other:expr;)+) => {$(
        let pair = |quotas: &Quotas| {
            let [first, second] = [0, 1].map(|place| quotas.as_slice()[place]);
            ($one(first), $other(second))
        };
        every($play, pair, $quotas).await;
    )+};
}

async fn several(play: &Play) {
    let pair = |one: Quota, other: Quota| Quotas::from((one, other));
    let second = Quota::per_second(5);
    let quotas = [
        pair(second, Quota::per_minute(9)),
        pair(second, Quota::none()),
        pair(second, Quota::per_second(3)),
        pair(micros(7, 10), micros(9, 25)),
        pair(Quota::per_day(1), micros(3, 10)),
    ];
    let own = |quota: Quota| SmoothBursty::new(quota).max_burst(DAY).wait_for_own_cost();
    let warming = |quota: Quota| SmoothWarmingUp::new(quota, DAY);
    let own_warming = |quota: Quota| SmoothWarmingUp::new(quota, DAY).wait_for_own_cost();
    let short = |quota: Quota| Budget::new(quota).max_hold(quota.period());
    let at_once = |quota: Quota| Concurrency::of(quota).max_hold(2 * quota.period());
    every_pair!(play, &quotas;
        TokenBucket::new, FixedWindow::new;
        TokenBucket::new, TokenBucket::new;
        SlidingLog::new, SlidingLog::new;
        SlidingWindow::new, SlidingCounter::new;
        SmoothBursty::new, |quota| FixedWindow::new(quota).anchored();
        FixedWindow::new, own;
        SlidingLog::new, warming;
        TokenBucket::new, own_warming;
        short, TokenBucket::new;
        FixedWindow::new, |quota| short(quota).horizon(DAY);
        SlidingLog::new, Budget::new;
        Budget::new, short;
        short, own;
        short, own_warming;
        at_once, TokenBucket::new;
        SlidingLog::new, |quota| at_once(quota).horizon(DAY);
        short, at_once;
        at_once, Concurrency::of;
    );

    let one = |quotas: &Quotas, place: usize| quotas.as_slice()[place];
    let eight = |n: u64| {
        Quotas::from([5, 9, 7, 6, 8, 5, 6, 7].map(|limit| micros(limit * n, 1_000 * limit)))
    };
    every(
        play,
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
        play,
        |q| -> Vec<AnyAlgorithm> {
            vec![
                TokenBucket::new(one(q, 0)).into(),
                FixedWindow::new(one(q, 1)).into(),
                SlidingLog::new(one(q, 2)).into(),
                SlidingWindow::new(one(q, 3)).into(),
                SlidingCounter::new(one(q, 4)).into(),
                Concurrency::of(one(q, 5)).max_hold(Duration::from_millis(2)).into(),
                SmoothWarmingUp::new(one(q, 6), Duration::from_millis(5)).into(),
                Budget::new(one(q, 7)).max_hold(Duration::from_millis(2)).into(),
            ]
        },
        &[eight(1), eight(2)],
    )
    .await;
}

async fn smooth_bursty(play: &Play) {
    every_quota(play, SmoothBursty::new, false).await;
    let owing = |quota: Quota| SmoothBursty::new(quota).max_debt(2 * quota.period());
    every_quota(play, |quota| owing(quota).start_empty(), false).await;
    let own = |quota| SmoothBursty::new(quota).max_burst(400 * DAY).wait_for_own_cost();
    every_pace(
        play,
        own,
        &[
            Quota::per_second(5),
            Quota::none(),
            Quota::per_second(3),
            Quota::per_day(1),
            micros(7, 10),
        ],
    )
    .await;
}

async fn smooth_warming_up(play: &Play) {
    let paces = [
        Quota::none(),
        Quota::per_second(5),
        Quota::per_second(3),
        micros(7, 10),
        Quota::per_day(1),
        Quota::new(1, 365 * DAY),
        Quota::per_second(1_000_000),
    ];
    for warm_up in [Duration::from_micros(1), Duration::from_secs(4), 30 * DAY] {
        every_pace(play, |quota| SmoothWarmingUp::new(quota, warm_up), &paces).await;
        every_pace(play, |quota| SmoothWarmingUp::new(quota, warm_up).max_debt(DAY), &paces).await;
        every_pace(
            play,
            |quota| SmoothWarmingUp::new(quota, warm_up).cold_factor(1.7).wait_for_own_cost(),
            &paces,
        )
        .await;
    }
}
