//! The stocks of one key, in the order in which they end.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use super::stock::Stock;
use crate::limiter::Limiter;

/// Stocks that are not spent any more, each with the units that no holder has.
pub(super) type Ended<L> = Vec<(Arc<Stock<L>>, u64)>;

/// Stocks with units to spend, the one that ends first at the front.
pub(super) struct Stocks<L: Limiter>(VecDeque<Shelf<L>>);

/// A stock, and the number of its units that no holder has.
struct Shelf<L: Limiter> {
    stock: Arc<Stock<L>>,
    left: u64,
}

impl<L: Limiter> Default for Stocks<L> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<L: Limiter> Stocks<L> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the instant at which the next stock ends.
    pub(super) fn next_end(&self) -> Option<Instant> {
        Some(self.0.front()?.stock.valid_until)
    }

    /// Takes units of the stock that ends first of those that have enough. Returns it, and the
    /// number of units that it has left.
    pub(super) fn take(&mut self, cost: u64, ended: &mut Ended<L>) -> Option<(Arc<Stock<L>>, u64)> {
        let index = self.0.iter().position(|shelf| shelf.left >= cost)?;
        let shelf = &mut self.0[index];
        shelf.left -= cost;
        let taken = (Arc::clone(&shelf.stock), shelf.left);
        if shelf.left == 0 {
            ended.extend(self.0.remove(index).map(|shelf| (shelf.stock, 0)));
        }
        Some(taken)
    }

    /// Puts units of a stock back, or the first ones in.
    pub(super) fn put(&mut self, stock: &Arc<Stock<L>>, units: u64) {
        if let Some(shelf) = self.0.iter_mut().find(|shelf| Arc::ptr_eq(&shelf.stock, stock)) {
            shelf.left += units;
            return;
        }
        let later = |shelf: &Shelf<L>| shelf.stock.valid_until > stock.valid_until;
        let index = self.0.iter().position(later).unwrap_or(self.0.len());
        self.0.insert(index, Shelf { stock: Arc::clone(stock), left: units });
    }

    pub(super) fn end_expired(&mut self, now: Instant, ended: &mut Ended<L>) {
        while self.0.front().is_some_and(|shelf| shelf.stock.valid_until <= now)
            && let Some(shelf) = self.0.pop_front()
        {
            ended.push((shelf.stock, shelf.left));
        }
    }

    pub(super) fn end_all(&mut self, ended: &mut Ended<L>) {
        ended.extend(self.0.drain(..).map(|shelf| (shelf.stock, shelf.left)));
    }
}

/// Refunds units that nobody can spend any more. Called without a lock, since the inner limiter may
/// be of any type.
pub(super) fn end<L: Limiter>(ended: Ended<L>) {
    ended.into_iter().for_each(|(stock, left)| stock.end(left));
}
