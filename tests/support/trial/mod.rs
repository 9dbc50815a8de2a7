//! A trial of an algorithm: the parts that the oracle and the mutants of the scripts share.
//!
//! Worker processes (`crew.rs`) of many tasks (`task.rs`) call a limiter in four ways
//! (`workload.rs`) and write a row per call (`trace.rs`). The rows are replayed to the algorithm's
//! documented model (`model/`), event by event (`judge.rs`), and Redis must hold what the models
//! end with (`stock.rs`). `edges.rs` calls right at the edges, and `saturated.rs` without pause,
//! with clocks of their own. `held.rs` is a trial of budgets, whose charges are settled.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod algorithms;
pub(crate) mod crew;
pub(crate) mod edges;
pub(crate) mod held;
pub(crate) mod judge;
pub(crate) mod model;
pub(crate) mod saturated;
pub(crate) mod stock;
pub(crate) mod task;
pub(crate) mod trace;
pub(crate) mod workload;
