//! Random histories that land on the edges, played by a model: what a limiter without
//! mistakes writes down.

use std::time::Duration;

use tower_sluice::Quota;

use support::trial::algorithms::Algorithm;
use support::trial::model::Model;
use support::trial::trace::{Event, Row};

pub(crate) const START: i64 = 1_767_225_600_000_000;

/// 7 units per 1,000 µs, at most 5 at once where there are bursts.
pub(crate) fn quota(algorithm: &Algorithm) -> Quota {
    (algorithm.quota)(Quota::new(7, Duration::from_micros(1_000)), 5)
}

/// Returns the rows of a limiter that follows `model`.
pub(crate) fn honest(mut model: Box<dyn Model>, seed: u64) -> Vec<Row> {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut rows: Vec<Row> = Vec::new();
    let mut reserved: Vec<(Row, [i128; 2])> = Vec::new();
    let mut now = START;
    // From 1, as those of a task: a refund names the call.
    for number in 1..=200 {
        now += [1, 1, 1, 142, 143, 144, 285, 998, 999, 1_000][dice.usize(..10)];
        let at = i128::from(now);
        let mut row = Row {
            key: 1,
            cost: [0, 1, 1, 2, 3, 5, 8][dice.usize(..7)],
            process: 0,
            task: 0,
            number,
            event: Event::Never,
            place: 0,
            patience: [0, 0, 143, 1_000][dice.usize(..4)],
            wait: 0,
            now,
            remaining: 0,
            reset: 0,
            of: 0,
            units: 0,
            sent: now.cast_unsigned() * 1_000,
            received: now.cast_unsigned() * 1_000,
        };
        if dice.u8(..5) == 0 && !reserved.is_empty() {
            let (of, mark) = reserved.pop().expect("reserved");
            let units = model.returnable(at, of.cost.into(), mark);
            model.put_back(mark, units);
            row = Row { event: Event::Refunded, cost: of.cost, of: of.number, now: 0, ..row };
            row.units = u32::try_from(units).expect("few");
            rows.push(row);
            continue;
        }
        let may_fit = model.least_wait(row.cost.into()) <= row.patience.into();
        if let Some(due) = model.earliest(at, row.cost.into()).filter(|_| may_fit) {
            row.wait = i64::try_from(due - at).expect("a wait");
            let fits = row.wait <= if row.cost == 0 { 0 } else { row.patience };
            row.event = match (row.wait, fits) {
                (0, _) => Event::Allowed,
                (_, true) => Event::Waited,
                (_, false) => Event::Denied,
            };
            if fits && row.cost > 0 {
                reserved.push((row, model.take(at, due, row.cost.into())));
            }
        }
        row.remaining = i64::try_from(model.remaining(at)).expect("few");
        row.reset = i64::try_from(model.reset_after(at)).expect("soon");
        rows.push(row);
    }
    rows
}
