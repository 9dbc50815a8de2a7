//! The order of a refill: the charge that takes its units.

use std::time::Duration;

use super::name::Name;
use crate::Charge;

/// The order of a refill.
#[derive(Debug)]
pub(super) struct Order {
    /// The key in the table of leased keys, and its generation.
    pub(super) name: Name,
    pub(super) generation: u64,
    /// The charge that takes the units. It waits for nothing.
    pub(super) charge: Charge,
}

impl Order {
    /// An order of `units` of the key and quota of `charge`, with its deadline.
    pub(super) fn new(name: Name, generation: u64, charge: &Charge, units: u64) -> Self {
        let charge = charge.clone().cost(units).max_wait(Duration::ZERO);
        Self { name, generation, charge }
    }

    pub(super) fn units(&self) -> u64 {
        self.charge.get_cost()
    }
}
