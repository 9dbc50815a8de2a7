//! The algorithms as the spec describes them, in `i128`: the judge's own account, which shares
//! nothing with the limiter or its scripts.
//!
//! An algorithm is judged once it has a [`Model`] here and its line in `algorithms.rs`.
//! `concurrency.rs` keeps holds, which no trace could date. `calendar.rs` has windows of a time
//! zone.

mod anchored_window;
mod both;
mod calendar;
mod concurrency;
mod fixed_window;
mod redisson;
mod sliding_counter;
mod sliding_log;
mod sliding_window;
mod smooth_bursty;
mod smooth_warming_up;
mod token_bucket;

pub use anchored_window::Anchored;
pub use both::Both;
pub use calendar::{Calendar, Span, Zone};
pub use concurrency::InFlight;
pub use fixed_window::Window;
pub use redisson::Permits;
pub use sliding_counter::Counter;
pub use sliding_log::Log;
pub use sliding_window::Cells;
pub use smooth_bursty::Bursty;
pub use smooth_warming_up::Warm;
pub use token_bucket::Bucket;

use std::fmt::Debug;
use std::ops::{Range, RangeInclusive};

use tower_sluice::Quota;

/// An admission: the instant at which it goes, and its units.
pub type Grant = (i128, i128);

/// The numbers by which a reservation knows the state that it left, and the one before.
pub type Mark = [i128; 2];

/// A model as it is now.
pub trait Copied {
    fn copied(&self) -> Box<dyn Model>;
}

impl<M: Model + Clone + 'static> Copied for M {
    fn copied(&self) -> Box<dyn Model> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Model> {
    fn clone(&self) -> Self {
        (**self).copied()
    }
}

/// One key under one quota. Instants and stretches are in µs.
pub trait Model: Debug + Copied {
    /// The earliest instant from `now` on at which `cost` fits; none if it never does.
    fn earliest(&self, now: i128, cost: i128) -> Option<i128>;

    /// The same for a charge that leaves `kept` units free after it.
    fn earliest_keeping(&self, now: i128, cost: i128, kept: i128) -> Option<i128> {
        self.earliest(now, cost + kept)
    }

    /// The wait of a charge of this cost that comes first, or a little less. One that may not wait
    /// so long never fits.
    fn least_wait(&self, _cost: i128) -> i128 {
        0
    }

    /// Takes `cost` at an instant, decided `now`, whether or not it fits: what was
    /// admitted is a fact.
    fn take(&mut self, now: i128, at: i128, cost: i128) -> Mark;

    /// The same for a charge that leaves `kept` units free, and may go at a later instant than
    /// that, when a pause is over.
    fn take_keeping(&mut self, now: i128, at: i128, cost: i128, _kept: i128) -> Mark {
        self.take(now, at, cost)
    }

    /// The same for one of several quotas: a reserved wait remembers the state before it.
    fn take_with_others(&mut self, now: i128, at: i128, cost: i128) -> Mark {
        self.take(now, at, cost)
    }

    /// Returns true if a charge may be sent again. It then tells the millisecond of its grant.
    fn may_be_sent_again(&self) -> bool {
        false
    }

    /// The units that a reservation gives back at `now`.
    fn returnable(&self, now: i128, cost: i128, mark: Mark) -> i128;

    /// Puts `units` of a reservation back.
    fn put_back(&mut self, mark: Mark, units: i128);

    /// Gives back up to so many taken units, whoever took them.
    fn grant(&mut self, _now: i128, _units: i128) {
        unreachable!("it grants nothing")
    }

    /// The units that would be admitted at `now`.
    fn remaining(&self, now: i128) -> i128;

    /// The time until the key is as good as new.
    fn reset_after(&self, now: i128) -> i128;

    /// Returns true if this is what the server should hold.
    fn is_stored_as(&self, text: &str) -> bool;

    /// The keys that it is stored under, each of which a change writes.
    fn keys(&self) -> usize {
        1
    }

    /// Returns how many values `changes` changes may write, of which `fewest` came apart from
    /// others.
    fn writes(&self, fewest: usize, changes: usize, _calls: usize) -> RangeInclusive<usize> {
        self.keys() * fewest..=self.keys() * changes
    }

    /// Counts the grants, ordered by instant, that break the bound in some window that ends with
    /// them.
    fn excess(&self, grants: &[Grant]) -> usize;

    /// A stretch within `first` to `last` whose use can be measured, and the most that it admits.
    fn most(&self, first: i128, last: i128) -> (Range<i128>, i128);
}

/// The limit, the period in µs, and the burst.
fn numbers(quota: Quota) -> (i128, i128, i128) {
    let period = i128::try_from(quota.period().as_micros()).expect("a period");
    (i128::from(quota.limit()), period, i128::from(quota.burst_size()))
}

/// A quotient rounded up, for a divisor above 0.
fn ceil(dividend: i128, divisor: i128) -> i128 {
    -(-dividend).div_euclid(divisor)
}

/// Counts the grants, ordered by instant, that end a half-open window of `period` that holds more
/// than `limit`.
pub fn over_any_window(grants: &[Grant], period: i128, limit: i128) -> usize {
    let (mut oldest, mut sum, mut over) = (0, 0, 0);
    for (at, cost) in grants {
        sum += cost;
        while grants[oldest].0 <= at - period {
            sum -= grants[oldest].1;
            oldest += 1;
        }
        over += usize::from(sum > limit);
    }
    over
}
