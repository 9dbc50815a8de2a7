use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

pub(crate) use loom::thread;

/// The default number of times that a thread is interrupted while it could continue. The
/// variable `PREEMPTIONS` sets another number. Without a limit there are too many
/// interleavings; faults between two threads need one or two interruptions.
const DEFAULT_PREEMPTIONS: usize = 3;

/// Runs `test` once for each interleaving, and prints how many there are.
pub(crate) fn each(piece: &str, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let preemptions = std::env::var("PREEMPTIONS").ok().and_then(|text| text.parse().ok());
    let bound = preemptions.unwrap_or(DEFAULT_PREEMPTIONS);
    builder.preemption_bound = Some(bound);
    let (count, begun) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let counted = Arc::clone(&count);
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        test();
    });
    println!(
        "interleavings piece={piece} preemptions={bound} explored={} seconds={:.2}",
        count.load(Relaxed),
        begun.elapsed().as_secs_f64()
    );
}
