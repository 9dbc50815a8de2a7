//! The cost of watching a limiter: `inspect`, `trace` and `metrics` around `Memory` and one key.

use std::hint::black_box;
use std::time::Instant;

use metrics::with_local_recorder;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tower_sluice::limiter::{MetricsExt, TraceExt};
use tower_sluice::observe::SECONDS_BUCKETS;
use tower_sluice::{Charge, Limiter, LimiterExt, Memory};
use tracing::Level;

use crate::in_process::{WINDOW, now};
use crate::measure::median_of;

const ROUNDS: usize = 15;
const CALLS: usize = 200_000;

type Case = (&'static str, Box<dyn FnMut(usize)>);

/// Prints a line for each case. `beyond` is what the case adds to `plain`.
pub(crate) fn run() {
    let memory = || Memory::new("memory", WINDOW);
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), SECONDS_BUCKETS)
        .expect("buckets")
        .build_recorder();
    let counted = with_local_recorder(&recorder, || memory().metrics("counted"));
    // The subscribers come last: once there was one, events cost more without one.
    measure(vec![
        ("plain", calls(memory())),
        (
            "inspect",
            calls(memory().inspect(|charge, result| {
                let _ = black_box((charge, result));
            })),
        ),
        ("metrics", calls(memory().metrics("nobody"))),
        ("metrics_prometheus", calls(counted)),
        ("trace", calls(memory().trace("nobody"))),
    ]);
    measure(vec![
        ("plain_again", calls(memory())),
        ("trace_info", traced(Level::INFO, calls(memory().trace("api")))),
        ("trace_debug", traced(Level::DEBUG, calls(memory().trace("api")))),
        ("trace_digests", traced(Level::DEBUG, calls(memory().trace("api").key_digests()))),
    ]);
    let page = recorder.handle().render();
    assert!(page.contains("rate_limit_decisions_total{limiter=\"counted\",outcome=\"admitted\"}"));
}

/// Measures in interleaved rounds. The first case is what the others are compared to.
fn measure(mut cases: Vec<Case>) {
    let mut rounds = vec![Vec::new(); cases.len()];
    cases.iter_mut().for_each(|(_, calls)| calls(CALLS));
    for _ in 0..ROUNDS {
        for ((_, calls), took) in cases.iter_mut().zip(&mut rounds) {
            let begun = Instant::now();
            calls(CALLS);
            took.push(begun.elapsed().as_nanos() as f64 / CALLS as f64);
        }
    }
    let medians: Vec<_> = rounds.iter().map(|took| median_of(took.iter().copied())).collect();
    for ((case, calls), ns) in cases.iter_mut().zip(&medians) {
        let allocs = allocation_counter::measure(|| calls(1_000)).count_total as f64 / 1_000.0;
        let beyond = ns - medians[0];
        println!("bench case={case} ns={ns:.1} allocs={allocs} beyond={beyond:.1}");
    }
}

fn calls<L: Limiter + 'static>(limiter: L) -> Box<dyn FnMut(usize)> {
    let charge = Charge::from_static("everybody");
    Box::new(move |calls| {
        for _ in 0..calls {
            drop(black_box(now(limiter.check(&charge))));
        }
    })
}

/// Calls with a subscriber that formats what is of this level, and writes it nowhere.
fn traced(level: Level, mut calls: Box<dyn FnMut(usize)>) -> Box<dyn FnMut(usize)> {
    let subscriber = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::sink);
    let subscriber = tracing::Dispatch::new(subscriber.finish());
    Box::new(move |count| tracing::dispatcher::with_default(&subscriber, || calls(count)))
}
