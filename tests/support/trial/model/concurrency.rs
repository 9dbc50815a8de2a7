//! Concurrency, as a list of holds, each with its own units.

use super::ceil;

/// `limit` units at the same time. A hold lasts for five quarters of the longest time, from the
/// begin of the quarter in which it was charged or renewed.
#[derive(Debug)]
pub struct InFlight {
    limit: i128,
    width: i128,
    holds: Vec<Hold>,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    number: usize,
    units: i128,
    end: i128,
}

impl InFlight {
    pub fn new(limit: i128, max_hold: i128) -> Self {
        Self { limit, width: ceil(max_hold, 4), holds: Vec::new() }
    }

    /// Forgets the holds whose time is over.
    pub fn go_on(&mut self, now: i128) {
        self.holds.retain(|hold| hold.end > now);
    }

    /// The units that are free.
    pub fn remaining(&self) -> i128 {
        self.limit - self.holds.iter().map(|hold| hold.units).sum::<i128>()
    }

    /// The end of the last hold, if nobody releases it.
    pub fn end(&self) -> Option<i128> {
        self.holds.iter().map(|hold| hold.end).max()
    }

    pub fn hold(&mut self, number: usize, now: i128, units: i128) {
        let end = (now.div_euclid(self.width) + 5) * self.width;
        self.holds.push(Hold { number, units, end });
    }

    /// Releases a hold. Returns its units, if its time is not over.
    pub fn release(&mut self, number: usize) -> Option<i128> {
        let place = self.holds.iter().position(|hold| hold.number == number)?;
        Some(self.holds.remove(place).units)
    }
}
