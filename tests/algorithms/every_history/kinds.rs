//! The algorithms, each under quotas of a few µs.

use std::time::Duration;

use tower_sluice::Quota;
use tower_sluice::algorithm::{
    Algorithm, AnyAlgorithm, Budget, Concurrency, FixedWindow, SlidingCounter, SlidingLog,
    SlidingWindow, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

use support::trial::model::{Anchored, Bucket, Bursty, Cells, Counter, Log, Model, Warm, Window};

/// The longest wait of every kind, in µs.
pub const HORIZON: i64 = 5;

/// An algorithm with its quota, and what it promises.
pub struct Kind<A: Algorithm> {
    pub name: String,
    pub algorithm: A,
    pub rule: A::Rule,
    /// The first costs that are tried are 0 to this one, which never fits.
    pub max_cost: i64,
    /// The longest period of its quotas, in µs.
    pub period: i64,
    /// After so many µs every window of the clock begins anew: histories begin at each of them.
    pub phases: i64,
    pub bounds: Vec<Bound>,
    pub promise: Promise,
}

/// The promises that not every algorithm makes.
#[derive(Clone, Copy)]
pub struct Promise {
    /// At the end of its wait a charge is admitted at once, and not before. A charge that waits for
    /// its own permits may have to wait then too.
    pub is_exact: bool,
    /// The trace that a reserved wait leaves which is refunded at once.
    pub unwinds_waits: Unwinds,
    /// A charge passes at once, and the next one waits for it: so more than remain may pass.
    pub pays_later: bool,
    /// The states before a charge and after its refund differ in no bit.
    pub to_the_bit: bool,
}

/// The trace that the refund of a reserved wait leaves.
#[derive(Clone, Copy, PartialEq)]
pub enum Unwinds {
    /// No trace.
    Exactly,
    /// Less than a µs: the slot was rounded up to a whole one.
    ToTheMicrosecond,
    /// A window that was begun ahead, a cell, a counter's latest instant: they never go back.
    StayingThere,
}

const ALL: Promise = Promise {
    is_exact: true,
    unwinds_waits: Unwinds::Exactly,
    pays_later: false,
    to_the_bit: true,
};
const ROUNDS: Promise = Promise { unwinds_waits: Unwinds::ToTheMicrosecond, ..ALL };
const STAYS: Promise = Promise { unwinds_waits: Unwinds::StayingThere, ..ALL };
const GUESSES: Promise = Promise { is_exact: false, ..ALL };
const PAYS_LATER: Promise = Promise { pays_later: true, ..ALL };
const IN_FLOATS: Promise = Promise { to_the_bit: false, ..PAYS_LATER };
const OWN_IN_FLOATS: Promise = Promise { is_exact: false, ..IN_FLOATS };

/// The bound of one member.
#[derive(Clone)]
pub struct Bound {
    pub quota: Quota,
    model: fn(Quota) -> Box<dyn Model>,
    /// The most in any stretch of a period, where windows of the clock say nothing since it was set
    /// back. In periods of the quota; less by the second number.
    pub any_period: Option<(i128, i128)>,
    /// A clock that is set back can make a state lie so far ahead that it is cut. Then this one
    /// forgets the reserved slots that had not come.
    pub forgets_slots: bool,
    /// The shortest hold, in µs, if settled units count, and not admitted ones.
    pub max_hold: Option<i64>,
    /// The shortest hold, in µs, if the units count that are held at the same time.
    pub at_once: Option<i64>,
}

impl Bound {
    pub fn model(&self) -> Box<dyn Model> {
        (self.model)(self.quota)
    }
}

fn micros(limit: u64, period: u64) -> Quota {
    Quota::new(limit, Duration::from_micros(period))
}

fn horizon() -> Duration {
    Duration::from_micros(HORIZON.cast_unsigned())
}

impl<A: Algorithm> Kind<A> {
    fn new(
        name: &str,
        algorithm: A,
        (quota, max_cost): (Quota, u64),
        model: fn(Quota) -> Box<dyn Model>,
        promise: Promise,
    ) -> Self {
        let rule = algorithm.rule(quota).expect("a rule");
        let bound = Bound {
            quota,
            model,
            any_period: None,
            forgets_slots: false,
            max_hold: None,
            at_once: None,
        };
        Self {
            name: format!(
                "{name}({}/{}us,burst={})",
                quota.limit(),
                quota.period().as_micros(),
                quota.burst_size()
            ),
            algorithm,
            rule,
            max_cost: i64::try_from(max_cost).expect("a small cost"),
            period: i64::try_from(quota.period().as_micros()).expect("a short period"),
            phases: i64::try_from(quota.period().as_micros()).expect("a short period"),
            bounds: vec![bound],
            promise,
        }
    }

    fn forgets_slots(mut self) -> Self {
        self.bounds[0].forgets_slots = true;
        self
    }

    /// Sets the bound that holds when the clock was set back.
    fn in_any_period(mut self, times: i128, less: i128) -> Self {
        self.bounds[0].any_period = Some((times, less));
        self
    }
}

impl<A: Algorithm + Into<AnyAlgorithm>> Kind<A> {
    /// The same as any algorithm.
    fn any(self) -> Kind<AnyAlgorithm> {
        let algorithm: AnyAlgorithm = self.algorithm.into();
        let rule = algorithm.rule(self.bounds[0].quota).expect("a rule");
        let Self { name, max_cost, period, phases, bounds, promise, .. } = self;
        Kind { name, algorithm, rule, max_cost, period, phases, bounds, promise }
    }
}

/// The least number above 0 that both divide.
fn lcm(one: i64, other: i64) -> i64 {
    (1..).map(|times| one * times).find(|product| product % other == 0).expect("it exists")
}

impl Kind<AnyAlgorithm> {
    /// Both as one algorithm.
    pub fn with(&self, other: &Self) -> Kind<Vec<AnyAlgorithm>> {
        let algorithm = vec![self.algorithm, other.algorithm];
        let bounds = [self.bounds.clone(), other.bounds.clone()].concat();
        let quotas = [bounds[0].quota, bounds[1].quota];
        Kind {
            name: format!("{}+{}", self.name, other.name),
            rule: algorithm.rule(quotas.as_slice()).expect("a rule"),
            algorithm,
            max_cost: self.max_cost.min(other.max_cost),
            period: self.period.max(other.period),
            phases: lcm(self.phases, other.phases),
            promise: Promise {
                is_exact: self.promise.is_exact && other.promise.is_exact,
                // Several remember the state before a wait.
                unwinds_waits: Unwinds::Exactly,
                pays_later: self.promise.pays_later || other.promise.pays_later,
                to_the_bit: self.promise.to_the_bit && other.promise.to_the_bit,
            },
            bounds,
        }
    }
}

fn token_bucket(quota: Quota) -> Kind<TokenBucket> {
    let algorithm = TokenBucket::new(quota).horizon(horizon());
    Kind::new("token_bucket", algorithm, (quota, quota.burst_size() + 1), Bucket::boxed, ROUNDS)
}

pub fn token_buckets() -> Vec<Kind<TokenBucket>> {
    let quotas = [micros(1, 2), micros(2, 3), micros(3, 2), micros(1, 3).burst(2)];
    quotas.map(token_bucket).into()
}

fn budget(quota: Quota, max_hold: u64) -> Kind<Budget> {
    let algorithm = Budget::new(quota).horizon(horizon()).max_hold(Duration::from_micros(max_hold));
    let mut kind =
        Kind::new("budget", algorithm, (quota, quota.burst_size() + 1), Bucket::boxed, ALL);
    kind.bounds[0].max_hold = i64::try_from(max_hold).ok();
    Kind { name: format!("{},hold={max_hold}us", kind.name), ..kind }
}

pub fn budgets() -> Vec<Kind<Budget>> {
    vec![budget(micros(1, 2), 2), budget(micros(2, 3), 3), budget(micros(3, 2), 4)]
}

/// The period of its quota is the shortest hold, and does not count.
fn concurrency(limit: u64, max_hold: u64) -> Kind<Concurrency> {
    let quota = micros(limit, max_hold);
    let algorithm = Concurrency::of(quota).horizon(horizon()).max_hold(quota.period());
    let mut kind = Kind::new("concurrency", algorithm, (quota, limit + 1), Bucket::boxed, GUESSES);
    kind.bounds[0].at_once = i64::try_from(max_hold).ok();
    kind
}

pub fn concurrencies() -> Vec<Kind<Concurrency>> {
    vec![concurrency(1, 4), concurrency(2, 4), concurrency(2, 8)]
}

fn fixed_window(quota: Quota) -> Kind<FixedWindow> {
    let algorithm = FixedWindow::new(quota).horizon(horizon());
    Kind::new("fixed_window", algorithm, (quota, quota.limit() + 1), Window::boxed, STAYS)
        .forgets_slots()
        .in_any_period(3, 0)
}

fn anchored(quota: Quota) -> Kind<FixedWindow> {
    let algorithm = FixedWindow::new(quota).horizon(horizon()).anchored();
    Kind::new("anchored_window", algorithm, (quota, quota.limit() + 1), Anchored::boxed, STAYS)
        .forgets_slots()
}

pub fn fixed_windows() -> Vec<Kind<FixedWindow>> {
    let quotas = [micros(1, 2), micros(2, 3)];
    [quotas.map(fixed_window), quotas.map(anchored)].into_iter().flatten().collect()
}

fn sliding_log(quota: Quota) -> Kind<SlidingLog> {
    let algorithm = SlidingLog::new(quota).horizon(horizon());
    Kind::new("sliding_log", algorithm, (quota, quota.limit() + 1), Log::boxed, ALL).forgets_slots()
}

pub fn sliding_logs() -> Vec<Kind<SlidingLog>> {
    vec![sliding_log(micros(1, 2)), sliding_log(micros(2, 3)), sliding_log(micros(3, 2))]
}

fn sliding_window(quota: Quota, cells: u8) -> Kind<SlidingWindow> {
    let algorithm = SlidingWindow::new(quota).horizon(horizon()).cells(cells);
    let kind =
        Kind::new("sliding_window", algorithm, (quota, quota.limit() + 1), Cells::boxed, STAYS);
    Kind { name: format!("{},cells={cells}", kind.name), ..kind }.forgets_slots()
}

pub fn sliding_windows() -> Vec<Kind<SlidingWindow>> {
    vec![
        sliding_window(micros(2, 4), 2),
        sliding_window(micros(1, 3), 2),
        sliding_window(micros(2, 3), 3),
    ]
}

fn sliding_counter(quota: Quota) -> Kind<SlidingCounter> {
    let algorithm = SlidingCounter::new(quota).horizon(horizon());
    Kind::new("sliding_counter", algorithm, (quota, quota.limit() + 1), Counter::boxed, STAYS)
        .forgets_slots()
        .in_any_period(2, 1)
}

pub fn sliding_counters() -> Vec<Kind<SlidingCounter>> {
    vec![
        sliding_counter(micros(1, 2)),
        sliding_counter(micros(2, 3)),
        sliding_counter(micros(3, 4)),
    ]
}

fn smooth_bursty(quota: Quota) -> Kind<SmoothBursty> {
    let algorithm = SmoothBursty::new(quota).horizon(horizon()).max_burst(quota.period());
    Kind::new("smooth_bursty", algorithm, (quota, quota.limit() + 1), Bursty::boxed, PAYS_LATER)
}

fn own_bursty(quota: Quota) -> Kind<SmoothBursty> {
    let Kind { algorithm, .. } = smooth_bursty(quota);
    let algorithm = algorithm.wait_for_own_cost();
    let model = Bursty::wait_for_own_cost;
    Kind::new("smooth_bursty,own", algorithm, (quota, quota.limit() + 1), model, ALL)
}

pub fn smooth_bursties() -> Vec<Kind<SmoothBursty>> {
    let quotas = [micros(1, 2), micros(2, 3)];
    [quotas.map(smooth_bursty), quotas.map(own_bursty)].into_iter().flatten().collect()
}

fn smooth_warming_up(quota: Quota, warm_up: u64) -> Kind<SmoothWarmingUp> {
    let warm_up = Duration::from_micros(warm_up);
    let algorithm = SmoothWarmingUp::new(quota, warm_up).horizon(horizon());
    Kind::new("smooth_warming_up", algorithm, (quota, 3), Warm::boxed, IN_FLOATS)
}

fn own_warming_up(quota: Quota, warm_up: u64) -> Kind<SmoothWarmingUp> {
    let Kind { algorithm, .. } = smooth_warming_up(quota, warm_up);
    let (algorithm, model) = (algorithm.wait_for_own_cost(), Warm::wait_for_own_cost);
    Kind::new("smooth_warming_up,own", algorithm, (quota, 3), model, OWN_IN_FLOATS)
}

pub fn smooth_warming_ups() -> Vec<Kind<SmoothWarmingUp>> {
    vec![
        smooth_warming_up(micros(1, 4), 6),
        smooth_warming_up(micros(2, 7), 10),
        own_warming_up(micros(1, 2), 4),
        own_warming_up(micros(2, 3), 5),
    ]
}

/// One kind of each algorithm, as the first and as the second member of a pair: under two quotas,
/// so that neither of an algorithm and itself is useless.
pub fn one_of_each() -> (Vec<Kind<AnyAlgorithm>>, Vec<Kind<AnyAlgorithm>>) {
    let first = vec![
        token_bucket(micros(2, 3)).any(),
        budget(micros(2, 3), 4).any(),
        concurrency(2, 8).any(),
        fixed_window(micros(2, 3)).any(),
        sliding_log(micros(2, 3)).any(),
        sliding_window(micros(2, 3), 2).any(),
        sliding_counter(micros(2, 3)).any(),
        smooth_bursty(micros(2, 3)).any(),
        smooth_warming_up(micros(2, 3), 4).any(),
    ];
    let second = vec![
        token_bucket(micros(1, 2).burst(2)).any(),
        budget(micros(3, 4).burst(2), 3).any(),
        concurrency(3, 4).any(),
        fixed_window(micros(2, 4)).any(),
        sliding_log(micros(3, 4)).any(),
        sliding_window(micros(3, 4), 4).any(),
        sliding_counter(micros(3, 4)).any(),
        own_bursty(micros(3, 4)).any(),
        own_warming_up(micros(1, 2), 5).any(),
    ];
    (first, second)
}
