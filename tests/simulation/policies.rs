//! The policies of a world: tables of one to three rows, exchanged while requests run.

use std::time::Duration;

use fastrand::Rng;
use tower_sluice::Quota;
use tower_sluice::algorithm::{
    Algorithm, AnyAlgorithm, FixedWindow, SlidingCounter, SlidingLog, SlidingWindow, TokenBucket,
};
use tower_sluice_policies::{Row, Rows};

use super::account::{Account, Booking, Limit};
use super::plan::{Ask, Asking, At, MILLISECOND, Plan, SECOND, Stack, Then, Way, max_hold};

/// The longest time that a charge is on its way from a process that is well to a server that is.
const ON_ITS_WAY: Duration = Duration::from_millis(200);

/// A table: of each limit the quota that its row has, if it has a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    pub quotas: Vec<Option<usize>>,
    /// Of each row.
    pub max_wait: Duration,
    pub cost: u64,
}

impl Plan {
    /// The same world, in which policies limit.
    pub fn under_policies(mut self, dice: &mut Rng) -> Self {
        let names = ["api", "all", "day"];
        self.limits = names[..dice.usize(1..4)].iter().map(|name| limit(name, dice)).collect();
        self.asking = Asking::Policies;
        let Stack { has_breaker, timeout, has_fallback, .. } = self.stack;
        self.stack = Stack { has_breaker, timeout, has_fallback, ..Stack::default() };
        let cost = dice.u64(1..3);
        let mut at = Duration::ZERO;
        self.tables = (0..dice.usize(1..8))
            .map(|_| {
                let table = Table::draw(&self.limits, cost, dice);
                let begin = at;
                at += MILLISECOND * dice.u32(1..1_500);
                (begin, table)
            })
            .collect();
        let longest = self.tables.iter().map(|(_, table)| table.max_wait).max();
        for ask in &mut self.asks {
            let way = if ask.way == Way::Layer { Way::Layer } else { Way::Acquire };
            let max_wait = longest.unwrap_or_default();
            let then = match ask.then {
                // A part of what several policies took is settled under each of them.
                Then::Settle(_, time) => Then::Settle(0, time),
                then => then,
            };
            *ask = Ask { way, cost, max_wait, own_quota: None, then, ..ask.clone() };
        }
        self
    }

    /// The rows of a table.
    pub fn rows(&self, table: &Table) -> Rows {
        let stated = self.limits.iter().zip(&table.quotas);
        let stated = stated.filter_map(|(limit, quota)| Some((limit, limit.quotas()[(*quota)?])));
        stated.map(|(limit, quota)| row(limit, quota, table)).collect()
    }
}

impl Table {
    /// The first limit always has a row; others come and go.
    fn draw(limits: &[Limit], cost: u64, dice: &mut Rng) -> Self {
        let quota = |(place, limit): (usize, &Limit)| {
            let is_there = place == 0 || dice.u32(0..3) > 0;
            is_there.then(|| dice.usize(0..limit.quotas().len()))
        };
        let quotas = limits.iter().enumerate().map(quota).collect();
        let max_wait = [Duration::ZERO, MILLISECOND * dice.u32(1..400)][dice.usize(0..2)];
        Self { quotas, max_wait, cost }
    }
}

impl Limit {
    /// The quotas that it has at one time or another.
    fn quotas(&self) -> Vec<Quota> {
        let others = self.own_quotas.iter().map(|quotas| quotas[0]);
        [self.algorithms[0].quota().as_slice()[0]].into_iter().chain(others).collect()
    }
}

fn limit(name: &'static str, dice: &mut Rng) -> Limit {
    let period = MILLISECOND * dice.u32(20..1_000);
    let which = dice.u32(0..6);
    let mut quota = || {
        let quota = Quota::new(dice.u64(2..12), period);
        if which < 2 { quota.burst(dice.u64(2..8)) } else { quota }
    };
    let algorithm: AnyAlgorithm = match which {
        0..2 => TokenBucket::new(quota()).into(),
        2 => FixedWindow::new(quota()).into(),
        3 => SlidingLog::new(quota()).into(),
        4 => SlidingWindow::new(quota()).into(),
        _ => SlidingCounter::new(quota()).into(),
    };
    let own_quotas = vec![vec![quota()], vec![quota()]];
    Limit { name, algorithms: vec![algorithm], own_quotas }
}

fn row(limit: &Limit, quota: Quota, table: &Table) -> Row {
    let algorithm = match limit.algorithms[0] {
        AnyAlgorithm::TokenBucket(_) => "token_bucket",
        AnyAlgorithm::FixedWindow(_) => "fixed_window",
        AnyAlgorithm::SlidingLog(_) => "sliding_log",
        AnyAlgorithm::SlidingWindow(_) => "sliding_window",
        AnyAlgorithm::Concurrency(_) => "concurrency",
        _ => "sliding_counter",
    };
    let millis = |time: Duration| format!("{}ms", time.as_millis());
    let row = Row::new()
        .with("name", limit.name)
        .with("algorithm", algorithm)
        .with("limit", quota.limit())
        .with("max_wait", millis(table.max_wait))
        .with("key", "path")
        .with("cost", table.cost);
    if let Some(max_hold) = max_hold(limit.algorithms[0]) {
        return row.with("max_hold", millis(max_hold));
    }
    let row = row.with("period", millis(quota.period()));
    match algorithm {
        "token_bucket" => row.with("burst", quota.burst_size()),
        _ => row,
    }
}

/// The first charge that a server took by another table than the one in force, or the one before.
/// `since_begin` says when a server decided.
pub fn taken_by_no_table(
    loaded: &[At<Table>],
    account: &Account,
    is_excused: impl Fn(Duration, Duration) -> bool,
    since_begin: impl Fn(i64) -> Duration,
) -> Option<String> {
    let is_of = |table: &Table, one: &Booking| {
        let quota_of = |name: &str, quota: usize| {
            let limit = account.limits().iter().find(|limit| limit.name == name);
            limit.map(|limit| (limit.name, limit.quotas()[quota]))
        };
        let stated = account.limits().iter().zip(&table.quotas);
        let mut stated = stated.filter_map(|(limit, quota)| quota_of(limit.name, (*quota)?));
        let asked = one.keys.iter().zip(&one.quotas);
        let mut asked = asked.filter_map(|((name, _), quota)| quota_of(name, *quota));
        // Behind a proxy each policy has a call of its own.
        match account.may_be_apart {
            true => asked.all(|asked| stated.any(|one| one == asked)),
            false => stated.eq(asked),
        }
    };
    let mut algorithms = account.limits().iter().flat_map(|limit| &limit.algorithms);
    let has_queues = algorithms.any(|one| matches!(one, AnyAlgorithm::Concurrency(_)));
    let is_wrong = |one: &&Booking| {
        let now = since_begin(one.now);
        let ends = loaded.iter().skip(1).map(|(at, _)| *at).chain([Duration::MAX]);
        // Who waits until units are free asks by the table that it came under.
        let queued = |table: &Table| if has_queues { table.max_wait } else { Duration::ZERO };
        let last = |table: &Table, end: Duration| end.saturating_add(ON_ITS_WAY + queued(table));
        let mut in_force = loaded
            .iter()
            .zip(ends)
            .filter(|((begin, table), end)| *begin <= now && now <= last(table, *end));
        let is_late = is_excused(now.saturating_sub(SECOND), now);
        !is_late && !in_force.any(|((_, table), _)| is_of(table, one))
    };
    account.bookings.iter().find(is_wrong).map(|one| format!("{one:?}"))
}
