//! Fleets under faults, longer than a check takes: `tests/fleet.sh` runs this.
//!
//! `cluster.rs`: processes over a cluster whose master dies, whose slots move, and that grows.
//! `sentinel.rs`: processes over a primary that dies, and whose successor hands over. `memory.rs`:
//! what a process keeps after many keys and failures. `soak.rs`: processes over a server that fails
//! again and again, for an hour if you like. `worker.rs` is one of the processes, and `judge.rs`
//! says what went over.

#![cfg(feature = "redis")]

mod cluster;
mod judge;
mod memory;
mod sentinel;
mod soak;
mod worker;

/// The name of the server that runs, for the lines.
fn server() -> String {
    std::env::var("FLEET_SERVER").unwrap_or_else(|_| "default".into())
}

/// Does the work of a process, if this is one.
#[test]
fn process() {
    worker::run();
}
