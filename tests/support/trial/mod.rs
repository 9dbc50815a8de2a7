//! A trial of an algorithm: the parts that the oracle and the mutants of the scripts share.
//!
//! Worker processes (`crew.rs`) of many tasks (`task.rs`) call a limiter in four ways
//! (`workload.rs`) and write a row per call (`trace.rs`). The rows are replayed to the algorithm's
//! documented model (`model/`), event by event (`judge.rs`), and Redis must hold what the models
//! end with (`stock.rs`). `leases.rs` judges a trace with leases. `edges.rs` calls right at the
//! edges, and `saturated.rs` without pause, with clocks of their own. `held.rs` is a trial of
//! budgets, whose charges are settled. `twins.rs` compares each script with its Rust twin.

#[cfg(feature = "redisson")]
pub mod algorithms;
#[cfg(feature = "redisson")]
pub mod crew;
#[cfg(feature = "redisson")]
pub mod edges;
#[cfg(feature = "redisson")]
pub mod held;
#[cfg(feature = "redisson")]
pub mod judge;
#[cfg(feature = "redisson")]
pub mod leases;
pub mod model;
#[cfg(feature = "redisson")]
pub mod saturated;
#[cfg(feature = "redisson")]
pub mod stock;
#[cfg(feature = "redisson")]
pub mod task;
#[cfg(feature = "redisson")]
pub mod trace;
#[cfg(feature = "redisson")]
pub mod twins;
#[cfg(feature = "redisson")]
pub mod workload;

use std::ops::AddAssign;

use tower_sluice::{Error, ErrorKind};

/// What was played, and how much of it calls without an answer cut short.
#[derive(Clone, Copy, Debug, Default)]
pub struct Played {
    pub done: usize,
    pub parts: usize,
    pub cut_short: usize,
}

impl AddAssign for Played {
    fn add_assign(&mut self, more: Self) {
        self.done += more.done;
        self.parts += more.parts;
        self.cut_short += more.cut_short;
    }
}

/// Returns true if the network lost a call: it may have counted.
pub fn was_lost(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Infrastructure | ErrorKind::Saturation)
}
