//! What a decision costs, side by side: `cargo bench --bench decisions` prints one line per case.
//!
//! Absolute times follow the machine's mood, so the cases that ask Redis are told as ratios within one run, whose
//! rounds are interleaved. `benches/README.md` says what stands behind each number.

mod against_redis;
mod in_process;
mod measure;
#[path = "../../tests/support/mod.rs"]
mod support;

fn main() {
    in_process::run();
    against_redis::run();
}
