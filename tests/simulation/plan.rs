//! The plan of a world: everything that callers ask and everything that goes wrong, drawn from a
//! seed. A plan is data, so that it can be printed, and shrunk to what a violation needs:
//! `shrinking.rs`. `variations.rs` is what only some worlds have.

mod shrinking;
mod variations;

use std::time::Duration;

use fastrand::Rng;
use tower_sluice::Quota;
use tower_sluice::algorithm::{
    Algorithm, AnyAlgorithm, Budget, FixedWindow, SlidingCounter, SlidingLog, SlidingWindow,
    SmoothBursty, SmoothWarmingUp, TokenBucket,
};

use super::account::Limit;
use super::clock::START;
use super::network::Odds;
use super::policies::Table;
use super::servers::{Strike, Topology};
use super::{MENDED, MENDED_LATER};

pub const MILLISECOND: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);

/// Nothing fails before, so that connections can be made.
const FIRST_FAULT: Duration = Duration::from_millis(500);

/// Something, and when it begins.
pub type At<T> = (Duration, T);

/// The plan of a world: all that is to happen in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The seed of the network and of the servers.
    pub seed: u64,
    /// The instant at which the world begins, by its clock, in µs since the epoch.
    pub begins_at: i64,
    /// The present by the clocks of the clients' machines, which calendars read.
    pub present: i64,
    /// The instant at which one window of the world's calendar ends, and another one begins.
    pub edge: Option<i64>,
    pub topology: Topology,
    /// The pools use RESP2, as for a proxy: a call has one key.
    pub is_resp2: bool,
    pub limits: Vec<Limit>,
    pub asking: Asking,
    /// Tables of policies, by the instants at which they come into force.
    pub tables: Vec<At<Table>>,
    pub stack: Stack,
    pub processes: usize,
    pub max_batch_size: usize,
    pub max_in_flight: usize,
    pub queue_capacity: usize,
    /// Many ask at once, more than are answered in time, and nothing fails.
    pub is_flooded: bool,
    /// The faults of the network, and how long they are drawn.
    pub odds: Odds,
    pub odds_until: Duration,
    /// Strikes on servers, by their begin.
    pub strikes: Vec<At<Strike>>,
    /// Stretches in which no thread of the client runs, by their begin.
    pub freezes: Vec<At<Duration>>,
    /// Processes that are killed: nothing leaves them any more.
    pub deaths: Vec<At<usize>>,
    pub asks: Vec<Ask>,
}

/// The way in which the limiters are asked, if there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    Alone,
    AllAtOnce,
    AllInTurn,
    /// By the policies of a table.
    Policies,
}

/// The limiters around the limiter of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stack {
    pub lease: Option<u64>,
    pub has_deny_cache: bool,
    /// The number of keys that the deny cache holds at most, if not its default.
    pub max_keys: Option<usize>,
    pub has_breaker: bool,
    /// After this time the breaker counts a call as slow.
    pub slow_after: Option<Duration>,
    pub timeout: Option<Duration>,
    pub is_shadow: bool,
    /// Instants at which a switch goes off, into a shadow, on, and so on.
    pub switches: Vec<Duration>,
    pub has_fallback: bool,
    pub ban: Option<Ban>,
}

/// So many refusals of a key within a window block it for a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ban {
    pub refusals: u64,
    pub window: Duration,
    pub time: Duration,
}

/// One question of a caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    pub at: Duration,
    pub process: usize,
    pub key: &'static str,
    pub cost: u64,
    pub max_wait: Duration,
    /// The place of its quota among those that charges may bring; none being the limiter's own.
    pub own_quota: Option<usize>,
    /// The units that it leaves free.
    pub keep_free: u64,
    pub way: Way,
    /// The caller hangs up so long after it has asked.
    pub patience: Option<Duration>,
    pub fails_open: bool,
    pub then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    Acquire,
    /// Through a layer, by a request.
    Layer,
    /// The same, and the closure that finds the key panics.
    Panic,
    /// Through a layer whose inner service is never ready, or fails to become so.
    Unready,
    /// Through a layer that refunds each request.
    Refunded,
    Peek,
    Estimate,
    Penalize,
    Grant,
    Reset,
    Block,
    Pause,
    Unblock,
}

/// The action of a caller once it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Keep,
    /// Settles an admission with so many units, some time later.
    Settle(u64, Duration),
    /// Holds an admission in a guard, which renews it, and drops that after this time.
    Hold(Duration),
    /// Renews an admission so many times, each after a pause, and releases it after one more.
    Renew(u32, Duration),
    /// After a refusal, asks again when it was told to.
    Obey,
}

impl Plan {
    /// Draws all that happens in the world of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut dice = Rng::with_seed(seed);
        let dice = &mut dice;
        let topology = match dice.u32(0..6) {
            0..3 => Topology::One,
            3 => Topology::Sentinels { replicas: dice.usize(1..3), sentinels: dice.usize(1..4) },
            _ => Topology::Cluster { masters: dice.usize(3..6), replicas: dice.usize(0..2) },
        };
        let asking = match dice.u32(0..8) {
            0 => Asking::AllAtOnce,
            1 => Asking::AllInTurn,
            _ => Asking::Alone,
        };
        let stack = Stack::draw(asking, dice);
        let limits = limits(asking, stack.lease.is_some(), dice);
        let last_fault = FIRST_FAULT + MILLISECOND * dice.u32(200..3_000);
        let (mut odds, mut strikes, freezes) = faults(&topology, last_fault, dice);
        let is_flooded = dice.u32(0..10) == 0;
        if is_flooded {
            (odds, strikes) = (Odds::default(), Vec::new());
        }
        let processes = dice.usize(1..4);
        let end = last_fault + 2 * SECOND;
        let asks = asks(&limits[0], is_flooded, &stack, processes, end, dice);
        let plan = Self {
            seed: dice.u64(..),
            begins_at: START,
            present: START,
            edge: None,
            tables: Vec::new(),
            topology,
            is_resp2: false,
            limits,
            asking,
            stack,
            processes,
            max_batch_size: if is_flooded { 1 } else { [1, 2, 8, 64, 64][dice.usize(0..5)] },
            max_in_flight: if is_flooded { 1 } else { [1, 2, 8, 8][dice.usize(0..4)] },
            queue_capacity: if is_flooded { dice.usize(8..200) } else { 16_384 },
            is_flooded,
            odds,
            odds_until: last_fault,
            strikes,
            freezes,
            deaths: Vec::new(),
            asks,
        };
        // Worlds without policies stay as they are.
        let mut dice = Rng::with_seed(!seed);
        let plan = match dice.u32(0..10) {
            0 => plan.under_policies(&mut dice),
            _ => plan,
        };
        let mut dice = Rng::with_seed(seed.rotate_left(32));
        let plan = plan.varied(last_fault, &mut dice);
        let mut plan = plan.with_settings(&mut Rng::with_seed(seed.rotate_left(16)));
        let mut dice = Rng::with_seed(seed.rotate_left(48));
        // The worlds of faults that were mended stay as they are.
        if !MENDED.contains(&seed) {
            plan = plan.with_pauses(&mut Rng::with_seed(seed.rotate_left(8)));
            plan = plan.with_a_lost_master(&mut Rng::with_seed(seed.rotate_left(24)));
            plan = plan.with_holds(&mut Rng::with_seed(seed.rotate_left(40)));
            plan = plan.with_a_death(&mut Rng::with_seed(seed.rotate_left(56)));
            let mut dice = Rng::with_seed(seed.rotate_left(4));
            plan = plan.with_grants(&mut dice).with_a_ban(&mut dice);
            plan = plan.with_suspended_plans(&mut dice);
            #[cfg(feature = "calendar")]
            {
                plan = plan.by_the_calendar(MENDED_LATER.contains(&seed), &mut dice);
            }
        }
        plan.is_resp2 = plan.topology == Topology::One && dice.u32(0..8) == 0;
        plan.keeping_units_free(&mut Rng::with_seed(seed.rotate_left(8)))
    }
}

/// The time for which an algorithm holds units at least, if it holds them.
pub fn max_hold(algorithm: AnyAlgorithm) -> Option<Duration> {
    let rule = algorithm.rule(algorithm.quota()).ok()?;
    let micros = AnyAlgorithm::hold_time(&rule)?;
    Some(Duration::from_micros(micros.unsigned_abs()))
}

fn limits(asking: Asking, is_leased: bool, dice: &mut Rng) -> Vec<Limit> {
    let number = if asking == Asking::Alone && dice.u32(0..4) == 0 { 2 } else { 1 };
    let period = MILLISECOND * dice.u32(20..1_000);
    // Units are leased where many are left.
    let limit = if is_leased { dice.u64(40..400) } else { dice.u64(1..12) };
    let quota = Quota::new(limit, period);
    let first: Vec<_> = (0..number).map(|_| algorithm(quota, dice)).collect();
    // Charges with a quota of their own have the same period.
    let own = Quota::new(limit + dice.u64(1..5), period);
    let own_quotas = match dice.u32(0..4) {
        0 if first.iter().all(|one| one.rule_of(own)) => vec![vec![own; number]],
        _ => Vec::new(),
    };
    let mut limits = vec![Limit { name: "api", algorithms: first, own_quotas }];
    if asking != Asking::Alone {
        let quota = Quota::new(limit + dice.u64(0..10), period);
        let algorithms = vec![algorithm(quota, dice)];
        limits.push(Limit { name: "all", algorithms, own_quotas: Vec::new() });
        limits[0].own_quotas.clear();
    }
    limits
}

/// Tells whether an algorithm can follow a quota.
trait Follows {
    fn rule_of(&self, quota: Quota) -> bool;
}

impl Follows for AnyAlgorithm {
    fn rule_of(&self, quota: Quota) -> bool {
        tower_sluice::algorithm::Algorithm::rule(self, quota).is_ok()
    }
}

/// The longest debt of a limit. Callers of a world use a few times what they pay.
fn debt(quota: Quota) -> Duration {
    [Duration::ZERO, MILLISECOND * 700, Duration::MAX][quota.limit() as usize % 3]
}

/// An algorithm that can follow a quota.
fn algorithm(quota: Quota, dice: &mut Rng) -> AnyAlgorithm {
    let bucket = |quota: Quota| TokenBucket::new(quota).max_debt(debt(quota)).into();
    loop {
        let algorithm: AnyAlgorithm = match dice.u32(0..12) {
            0..4 if quota.limit() > 30 => bucket(quota.burst(dice.u64(20..200))),
            0..4 => bucket(quota.burst(dice.u64(1..8))),
            4 => Budget::new(quota.burst(dice.u64(4..16))).max_debt(debt(quota)).into(),
            5 => FixedWindow::new(quota).into(),
            6 => SlidingLog::new(quota).into(),
            7 => SlidingWindow::new(quota).into(),
            8 => SlidingCounter::new(quota).into(),
            9 => SmoothBursty::new(quota).max_debt(debt(quota)).into(),
            10 => {
                let pace = SmoothWarmingUp::new(quota, MILLISECOND * dice.u32(10..2_000));
                pace.max_debt(debt(quota)).into()
            }
            _ => bucket(quota),
        };
        if algorithm.rule_of(algorithm.quota().as_slice()[0]) {
            return algorithm;
        }
    }
}

impl Stack {
    fn draw(asking: Asking, dice: &mut Rng) -> Self {
        let mut stack = Self::default();
        match dice.u32(0..12) {
            0 if asking == Asking::Alone => stack.lease = Some(dice.u64(2..20)),
            1 => stack.has_deny_cache = true,
            2 => stack.has_breaker = true,
            3 => stack.timeout = Some(MILLISECOND * dice.u32(5..90)),
            4 => stack.is_shadow = true,
            5 => {
                let mut at = Duration::ZERO;
                for _ in 0..dice.u32(1..10) {
                    at += MILLISECOND * dice.u32(1..2_500);
                    stack.switches.push(at);
                }
            }
            6 => stack.has_fallback = true,
            7 => {
                stack.has_deny_cache = dice.bool();
                stack.lease = (asking == Asking::Alone).then(|| dice.u64(2..20));
                stack.has_breaker = dice.bool();
                stack.has_fallback = dice.bool();
            }
            _ => {}
        }
        stack
    }

    /// True if each admission of the store has a charge of its own.
    pub fn is_exact(&self) -> bool {
        self.lease.is_none()
    }
}

fn faults(
    topology: &Topology,
    last: Duration,
    dice: &mut Rng,
) -> (Odds, Vec<At<Strike>>, Vec<At<Duration>>) {
    let mut odds = Odds::default();
    let instant = |dice: &mut Rng| {
        let span = u32::try_from((last - FIRST_FAULT).as_millis()).expect("short");
        FIRST_FAULT + MILLISECOND * dice.u32(0..span)
    };
    // A world with few faults shows what each of them does; one with many, what they do together.
    let density = dice.u32(0..4);
    for odd in odds.all_mut() {
        if density > 0 && dice.u32(0..4) < density {
            *odd = dice.u32(5..200);
        }
    }
    let strikes =
        (0..dice.u32(0..4)).map(|_| (instant(dice), Strike::draw(dice, topology))).collect();
    let freezes = match dice.u32(0..6) {
        0 => (0..dice.u32(1..5)).map(|_| (instant(dice), freeze(dice))).collect(),
        // A process that is busy stands still again and again, also while it connects first.
        1 => {
            let span = u32::try_from(last.as_millis()).expect("short");
            let (at, time) = (MILLISECOND * dice.u32(0..span), MILLISECOND * dice.u32(1..400));
            let begin = |number| at + (time + 2 * MILLISECOND) * number;
            (0..dice.u32(2..6)).map(|number| (begin(number), time)).collect()
        }
        _ => Vec::new(),
    };
    (odds, strikes, freezes)
}

/// Draws the time for which a thread stands still: 1 ms to 3 s, mostly short.
fn freeze(dice: &mut Rng) -> Duration {
    let most = [10, 100, 300, 3_000][dice.usize(0..4)];
    MILLISECOND * dice.u32(1..most)
}

fn asks(
    limit: &Limit,
    is_flooded: bool,
    stack: &Stack,
    processes: usize,
    end: Duration,
    dice: &mut Rng,
) -> Vec<Ask> {
    let span = u32::try_from(end.as_micros()).expect("short");
    // A key is leased if it is asked for often.
    let is_leased = stack.lease.is_some() && !is_flooded;
    // Small worlds are many, and their violations short.
    let number = match (is_flooded, is_leased) {
        (true, _) => 250,
        (_, true) => [200, 400][dice.usize(0..2)],
        _ => [10, 30, 60, 200][dice.usize(0..4)],
    };
    let mut begin = 0;
    // Callers come one by one, or many at once.
    let flood = dice.u32(0..4) == 0 || is_flooded;
    let each = if is_flooded { 100 } else { 20 };
    let max_cost = if stack.lease.is_some() { 3 } else { 4 };
    let operates = dice.u32(0..3) == 0;
    // Many wait for one key, lose patience, and move up.
    let is_line = !is_leased && dice.u32(0..6) == 0;
    let mut at = Duration::ZERO;
    let mut asks: Vec<Ask> = (0..number)
        .map(|_| {
            if is_leased {
                if dice.u32(0..150) == 0 {
                    begin = dice.u32(0..span);
                }
                at = Duration::from_micros(u64::from(begin + dice.u32(0..400_000)));
            } else if !flood || dice.u32(0..each) == 0 {
                at = Duration::from_micros(u64::from(dice.u32(0..span)));
            }
            let key = ["hot", "hot", "hot", "warm", "cold"][dice.usize(0..5)];
            let key = if is_leased && dice.u32(0..10) > 0 { "hot" } else { key };
            let way = match dice.u32(0..40) {
                0 if operates => Way::Penalize,
                1 if operates => Way::Reset,
                2 if operates => Way::Block,
                3 if operates => Way::Unblock,
                4 if operates => Way::Estimate,
                5 if operates => Way::Peek,
                6 => Way::Panic,
                7..14 => Way::Layer,
                _ => Way::Acquire,
            };
            let key = if is_line { "hot" } else { key };
            let max_wait = match dice.u32(0..3) {
                _ if is_line => MILLISECOND * [50, 300, 800][dice.usize(0..3)],
                0 => MILLISECOND * dice.u32(1..500),
                _ => Duration::ZERO,
            };
            let patience = (dice.u32(0..if is_line { 2 } else { 5 }) == 0).then(|| {
                let most = [3_000, 300_000][dice.usize(0..2)];
                Duration::from_micros(dice.u64(0..most))
            });
            let cost = if is_line { 1 } else { dice.u64(1..max_cost) };
            let then = match dice.u32(0..6) {
                0 => Then::Settle(0, MILLISECOND * dice.u32(0..100)),
                1 => Then::Settle(dice.u64(0..cost + 2), MILLISECOND * dice.u32(0..300)),
                2 => Then::Obey,
                _ => Then::Keep,
            };
            // A block keeps the state as its own quota would: then a refund may find another one.
            let brings = !operates && !limit.own_quotas.is_empty() && dice.u32(0..5) == 0;
            Ask {
                at,
                process: dice.usize(0..processes),
                key,
                cost,
                max_wait,
                own_quota: brings.then_some(0),
                keep_free: 0,
                way,
                patience,
                fails_open: dice.u32(0..4) == 0,
                then,
            }
        })
        .collect();
    asks.sort_by_key(|ask| ask.at);
    asks
}
