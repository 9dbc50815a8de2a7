//! The cost of a decision, side by side: `cargo bench --bench decisions` prints one line per case,
//! `cargo bench --bench decisions -- algorithms` one per algorithm, `-- settle` what settling costs
//! a response, `-- lease` what leases save on a hot key, `-- redisson` how long the script of
//! Redisson's limiter holds the server, and `-- growth` what a decision costs as work grows.
//! `-- cluster` compares a cluster with one server and with a raw client. `-- process` prints the
//! cases of this process alone, and `-- memory` those of ten million keys and two threads. `-- open`
//! asks by a clock, and `-- network` over a network of half a millisecond.
//!
//! Absolute times vary from run to run, so the cases that call Redis are printed as ratios within
//! one run, whose rounds are interleaved. `benches/README.md` explains each number.

mod against_redis;
mod cluster;
mod each_algorithm;
mod growth;
mod growth_chart;
mod in_process;
mod leases;
mod many_keys;
mod measure;
mod network;
#[cfg(all(feature = "metrics", feature = "tracing"))]
mod observed;
mod open_loop;
mod redisson;
mod settled;
mod site;

fn main() {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("cluster") => cluster::run(),
        Some("algorithms") => each_algorithm::run(),
        Some("growth") => growth::run(arguments.find(|path| path.ends_with(".svg")).as_deref()),
        Some("growth-worker") => growth::worker(&arguments.next().expect("an address")),
        Some("memory") => many_keys::run(),
        Some("network") => network::run(),
        Some("open") => open_loop::run(),
        Some("process") => in_process::run(),
        #[cfg(all(feature = "metrics", feature = "tracing"))]
        Some("observe") => observed::run(),
        Some("settle") => settled::run(),
        Some("lease") => leases::run(),
        Some("redisson") => redisson::run(),
        _ => {
            in_process::run();
            against_redis::run();
        }
    }
}
