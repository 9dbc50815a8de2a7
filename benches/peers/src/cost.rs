//! The cost of a stretch of work: time, processor time of the client and of the server,
//! allocations.

use std::time::Duration;

/// One stretch of work: figures per decision, except the rate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    /// None of a client that is a process of its own.
    pub(crate) client_us: Option<f64>,
    pub(crate) server_us: f64,
    pub(crate) allocs: Option<f64>,
    /// Decisions that were refused or failed. Every one should be admitted.
    pub(crate) failed: usize,
}

/// The median of each field. The failures are added up.
pub(crate) fn median(rounds: &[Cost]) -> Cost {
    let middle = |field: fn(&Cost) -> f64| median_of(rounds.iter().map(field));
    let middle_if_any = |field: fn(&Cost) -> Option<f64>| {
        let known: Vec<f64> = rounds.iter().filter_map(field).collect();
        (!known.is_empty()).then(|| median_of(known.into_iter()))
    };
    Cost {
        per_second: middle(|cost| cost.per_second),
        p50_us: middle(|cost| cost.p50_us),
        client_us: middle_if_any(|cost| cost.client_us),
        server_us: middle(|cost| cost.server_us),
        allocs: middle_if_any(|cost| cost.allocs),
        failed: rounds.iter().map(|cost| cost.failed).sum(),
    }
}

pub(crate) fn median_of(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// The processor time that the threads of a process have used, as Linux counts it.
pub(crate) fn processor(process: u32) -> Duration {
    let mut spent = Duration::ZERO;
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("Linux' own account");
    for thread in threads.flatten() {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
        spent += Duration::from_nanos(nanos);
    }
    spent
}
