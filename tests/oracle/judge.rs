//! The judges: pure functions over a trace, in `i128`, written from the documented models alone.
//!
//! Refunds carry no time in their reply, so workloads that give back have one task per key, whose own order is
//! the order; everywhere else the order is `now`, then the place within one call, and a tie fails loudly.

use std::collections::BTreeMap;

use tower_sluice::Quota;

use crate::trace::{Outcome, Row};

/// A documented model: when a charge fits, by exact integers.
pub trait Model {
    /// The wait at `t`, or none if it never fits.
    fn wait(&self, t: i128, cost: i128) -> Option<i128>;
    /// Takes `cost` at `s`.
    fn take(&mut self, s: i128, cost: i128);
    /// Gives back what was taken at `s`, if that may be at a time between `from` and `to`: the units, and
    /// whether it was certain.
    fn give_back(&mut self, s: i128, cost: i128, told: i128, from: i128, to: i128) -> bool;
    /// What is left, and the time until the key is as new.
    fn report(&self, t: i128) -> (i128, i128);
    /// Units by which the admissions, each an instant and a cost, exceed the bound of the worst window.
    fn excess(&self, admitted: &[(i128, i128)]) -> i128;
    /// The share of the bound that was admitted between the first and the last event.
    fn utilisation(&self, admitted: &[(i128, i128)], from: i128, to: i128) -> f64;
}

#[derive(Debug)]
pub struct Verdicts {
    pub calls: usize,
    /// More generous than the model, or over the bound of a window.
    pub over: usize,
    /// Less generous than the model.
    pub unjustified: usize,
    pub errors: usize,
    /// Another `remaining` or `reset_after` than the model's.
    pub unlike: usize,
    /// Calls that changed something.
    pub changes: usize,
    pub utilisation: f64,
}

/// Judges a whole run, key by key.
pub fn judge(model: fn(Quota) -> Box<dyn Model>, quota: Quota, rows: &[Row]) -> Verdicts {
    let mut keys: BTreeMap<i64, Vec<Row>> = BTreeMap::new();
    for row in rows {
        keys.entry(row.key).or_default().push(*row);
    }
    let mut verdicts = Verdicts {
        calls: rows.len(),
        over: 0,
        unjustified: 0,
        errors: 0,
        unlike: 0,
        changes: 0,
        utilisation: 0.0,
    };
    let count = keys.len();
    for mut rows in keys.into_values() {
        order(&mut rows);
        let mut model = model(quota);
        verdicts.utilisation += judge_key(&mut *model, &rows, &mut verdicts) / count as f64;
    }
    verdicts
}

/// Puts the rows of one key into the order in which they were decided.
fn order(rows: &mut [Row]) {
    let mut tasks: Vec<_> = rows.iter().map(|row| row.task).collect();
    tasks.dedup();
    if tasks.len() == 1 {
        return;
    }
    assert!(rows.iter().all(|row| row.outcome != Outcome::Refunded), "a refund without an order");
    rows.sort_by_key(|row| (row.now, row.place));
    for pair in rows.windows(2).filter(|pair| pair[0].outcome != Outcome::Failed) {
        assert!((pair[0].now, pair[0].place) < (pair[1].now, pair[1].place), "a tie: {pair:?}");
    }
}

fn judge_key(model: &mut dyn Model, rows: &[Row], verdicts: &mut Verdicts) -> f64 {
    let mut admitted: Vec<(i128, i128)> = Vec::new();
    let mut decided: Vec<i128> = Vec::new();
    let mut end = i128::MIN;
    for row in rows {
        let (t, cost, told) = (i128::from(row.now), i128::from(row.cost), i128::from(row.wait));
        if row.outcome == Outcome::Failed {
            verdicts.errors += 1;
            continue;
        }
        if row.outcome == Outcome::Refunded {
            let s = t + told;
            // Another charge may have been admitted at this very slot: its own decision tells them apart.
            let index = decided.iter().rposition(|at| *at == t);
            let index = index.expect("what is given back was taken");
            let (from, to) = (i128::from(row.sent), i128::from(row.received));
            let taken = admitted[index].1;
            match model.give_back(s, taken, cost, from, to) {
                true if cost > 0 => {
                    admitted.remove(index);
                    decided.remove(index);
                    verdicts.changes += 1;
                }
                true => {}
                false if cost > 0 => verdicts.over += 1,
                false => verdicts.unjustified += 1,
            }
            continue;
        }
        let right = model.wait(t, cost);
        let patience = if cost == 0 { 0 } else { i128::from(row.patience) };
        match (row.outcome, right) {
            (Outcome::Allowed | Outcome::Waited, Some(wait)) => {
                verdicts.over += usize::from(told < wait);
                verdicts.unjustified += usize::from(told > wait || told > patience);
            }
            (Outcome::Allowed | Outcome::Waited, None) => verdicts.over += 1,
            (Outcome::Denied, Some(wait)) => {
                verdicts.over += usize::from(told < wait);
                verdicts.unjustified += usize::from(told > wait || wait <= patience);
            }
            (Outcome::Denied, None) => verdicts.over += 1,
            (_, Some(_)) => verdicts.unjustified += 1,
            (_, None) => {}
        }
        if matches!(row.outcome, Outcome::Allowed | Outcome::Waited) && cost > 0 {
            model.take(t + told, cost);
            admitted.push((t + told, cost));
            decided.push(t);
            verdicts.changes += 1;
        }
        let report = (i128::from(row.remaining), i128::from(row.reset_after));
        verdicts.unlike += usize::from(report != model.report(t));
        end = end.max(t + if row.outcome == Outcome::Waited { told } else { 0 });
    }
    verdicts.over += usize::from(model.excess(&admitted) > 0);
    let from = rows.iter().find(|row| row.now > 0).map_or(0, |row| i128::from(row.now));
    model.utilisation(&admitted, from, end)
}

fn numbers(quota: Quota) -> (i128, i128, i128) {
    (quota.limit().into(), quota.period().as_micros() as i128, quota.capacity().into())
}

fn ceil_div(a: i128, b: i128) -> i128 {
    a.div_euclid(b) + i128::from(a.rem_euclid(b) > 0)
}

/// Debt `x` in units of 1/L µs.
pub struct TokenBucketModel {
    l: i128,
    p: i128,
    b: i128,
    x: i128,
    /// Debt as each admission left it, by its instant.
    left: Vec<(i128, i128)>,
}

impl TokenBucketModel {
    pub fn new(quota: Quota) -> Self {
        let (l, p, b) = numbers(quota);
        Self { l, p, b, x: 0, left: Vec::new() }
    }
}

impl Model for TokenBucketModel {
    fn wait(&self, t: i128, cost: i128) -> Option<i128> {
        let x = self.x.max(self.l * t) + cost * self.p;
        (cost <= self.b).then(|| ceil_div(x - self.l * t - self.b * self.p, self.l).max(0))
    }

    fn take(&mut self, s: i128, cost: i128) {
        self.x = self.x.max(self.l * s) + cost * self.p;
        self.left.push((s, self.x));
    }

    fn give_back(&mut self, s: i128, cost: i128, told: i128, _from: i128, to: i128) -> bool {
        let left = self.left.iter().rev().find(|(at, _)| *at == s).expect("taken").1;
        let may = left == self.x;
        if may && told == cost {
            self.x -= cost * self.p;
        }
        // Debt that time has paid is as good as forgotten: nothing is there to give back.
        let paid = left <= self.l * to;
        (told == cost && may) || (told == 0 && (!may || paid))
    }

    fn report(&self, t: i128) -> (i128, i128) {
        let debt = (self.x - self.l * t).max(0);
        (((self.b * self.p - debt).max(0)) / self.p, ceil_div(debt, self.l))
    }

    fn excess(&self, admitted: &[(i128, i128)]) -> i128 {
        let mut admitted = admitted.to_vec();
        admitted.sort_unstable();
        let (mut sum, mut least, mut worst) = (0, i128::MAX, 0);
        for (t, cost) in admitted {
            least = least.min(self.p * sum - self.l * t);
            sum += cost;
            worst = worst.max(self.p * sum - self.l * t - least - self.b * self.p);
        }
        worst
    }

    fn utilisation(&self, admitted: &[(i128, i128)], from: i128, to: i128) -> f64 {
        let units: i128 = admitted.iter().map(|admission| admission.1).sum();
        (units * self.p) as f64 / (self.b * self.p + self.l * (to - from)).max(1) as f64
    }
}

/// Units by window of the clock.
pub struct FixedWindowModel {
    l: i128,
    p: i128,
    windows: BTreeMap<i128, i128>,
}

impl FixedWindowModel {
    pub fn new(quota: Quota) -> Self {
        let (l, p, _) = numbers(quota);
        Self { l, p, windows: BTreeMap::new() }
    }

    /// The window of `t`, or a later one in which something is booked, and its units.
    fn latest(&self, t: i128) -> (i128, i128) {
        let now = t.div_euclid(self.p);
        match self.windows.last_key_value() {
            Some((window, units)) if *window >= now => (*window, *units),
            _ => (now, 0),
        }
    }
}

impl Model for FixedWindowModel {
    fn wait(&self, t: i128, cost: i128) -> Option<i128> {
        let (window, units) = self.latest(t);
        let window = if units + cost <= self.l { window } else { window + 1 };
        (cost <= self.l).then(|| (window * self.p - t).max(0))
    }

    fn take(&mut self, s: i128, cost: i128) {
        *self.windows.entry(s.div_euclid(self.p)).or_default() += cost;
    }

    fn give_back(&mut self, s: i128, cost: i128, told: i128, from: i128, to: i128) -> bool {
        let window = s.div_euclid(self.p);
        let end = (window + 1) * self.p;
        let latest = self.windows.last_key_value().is_some_and(|(latest, _)| *latest == window);
        let surely_alive = latest && end > to;
        let maybe_alive = latest && end > from;
        if told == cost && maybe_alive {
            *self.windows.get_mut(&window).expect("taken") -= cost;
        }
        if told == 0 { !surely_alive } else { told == cost && maybe_alive }
    }

    fn report(&self, t: i128) -> (i128, i128) {
        let (window, units) = self.latest(t);
        let begin = window * self.p;
        match (units, begin > t) {
            (0, true) => (0, begin - t),
            (0, false) => (self.l, 0),
            (_, true) => (0, begin + self.p - t),
            (_, false) => (self.l - units, begin + self.p - t),
        }
    }

    fn excess(&self, admitted: &[(i128, i128)]) -> i128 {
        let mut windows: BTreeMap<i128, i128> = BTreeMap::new();
        for (t, cost) in admitted {
            *windows.entry(t.div_euclid(self.p)).or_default() += cost;
        }
        windows.values().map(|units| units - self.l).max().unwrap_or(0)
    }

    fn utilisation(&self, admitted: &[(i128, i128)], from: i128, to: i128) -> f64 {
        // The first and the last window are cut off by the run itself.
        let (first, last) = (from.div_euclid(self.p), to.div_euclid(self.p));
        let inside = |t: i128| (first + 1..last).contains(&t.div_euclid(self.p));
        let units: i128 = admitted.iter().filter(|(t, _)| inside(*t)).map(|(_, cost)| cost).sum();
        units as f64 / ((last - first - 1).max(1) * self.l) as f64
    }
}

/// Proves that the judges bite, on traces with one planted error each.
pub fn bite() {
    const T: i64 = 1_767_225_600_000_000;
    let quota = Quota::new(5, std::time::Duration::from_secs(1));
    let row = |at: i64, outcome, wait, remaining, reset_after| Row {
        outcome,
        key: 1,
        task: 1,
        cost: 1,
        patience: 300_000,
        wait,
        now: T + at,
        place: 0,
        remaining,
        reset_after,
        sent: T + at,
        received: T + at,
    };
    let five = |at: i64, reset: fn(i64) -> i64| {
        (0..5).map(move |n| row(at + n, Outcome::Allowed, 0, 4 - n, reset(n))).collect::<Vec<_>>()
    };
    let found = |model: fn(Quota) -> Box<dyn Model>, rows: &[Row]| {
        let Verdicts { over, unjustified, unlike, .. } = judge(model, quota, rows);
        (over > 0, unjustified > 0, unlike > 0)
    };

    let bucket: fn(Quota) -> Box<dyn Model> = |quota| Box::new(TokenBucketModel::new(quota));
    let fine = five(0, |n| (n + 1) * 200_000 - n);
    let and = |next: Row| [fine.clone(), vec![next]].concat();
    assert_eq!(found(bucket, &fine), (false, false, false));
    let waited = row(5, Outcome::Waited, 199_995, 0, 1_199_995);
    assert_eq!(found(bucket, &and(waited)), (false, false, false));
    assert!(found(bucket, &and(row(5, Outcome::Allowed, 0, 0, 1_199_995))).0, "capacity + 1");
    assert!(found(bucket, &and(row(5, Outcome::Waited, 199_994, 0, 1_199_994))).0, "1 us early");
    assert!(found(bucket, &and(row(5, Outcome::Waited, 199_996, 0, 1_199_996))).1, "1 us late");
    assert!(found(bucket, &and(row(5, Outcome::Denied, 199_995, 0, 999_995))).1, "no reason");
    assert!(found(bucket, &and(row(5, Outcome::Waited, 199_995, 1, 1_199_995))).2, "a wrong rest");
    assert_eq!(found(bucket, &[row(0, Outcome::Never, 0, 5, 0)]), (false, true, false));

    let window: fn(Quota) -> Box<dyn Model> = |quota| Box::new(FixedWindowModel::new(quota));
    let edge = 999_990;
    let last = five(edge, |n| 10 - n);
    assert_eq!(found(window, &last), (false, false, false));
    let and = |next: Row| [last.clone(), vec![next]].concat();
    let booked = row(edge + 5, Outcome::Waited, 5, 0, 1_000_005);
    assert_eq!(found(window, &and(booked)), (false, false, false));
    assert!(found(window, &and(row(edge + 5, Outcome::Allowed, 0, 0, 5))).0, "limit + 1");
    assert!(found(window, &and(row(edge + 5, Outcome::Waited, 6, 0, 1_000_005))).1, "1 us late");
    assert!(found(window, &and(row(1_000_000, Outcome::Denied, 1, 0, 1))).1, "a window forgotten");
}
