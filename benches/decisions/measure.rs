//! The cost of a stretch of work: time, processor time of this process and of the server, and
//! allocations.

use std::process::Command;
use std::time::{Duration, Instant};

use support::Server;

/// One stretch of work, per decision but for the rate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) client_us: f64,
    pub(crate) server_us: f64,
    pub(crate) allocs: f64,
}

/// Runs `work`, which makes `decisions` decisions and returns how long each took.
pub(crate) fn cost(
    server: &Server,
    decisions: usize,
    work: impl FnOnce() -> Vec<Duration>,
) -> Cost {
    let (client, redis) = (processor(std::process::id()), processor(server.id()));
    let begun = Instant::now();
    let mut took = Vec::new();
    let allocated = allocation_counter::measure(|| took = work());
    let elapsed = begun.elapsed().as_secs_f64();
    let each = |spent: Duration| spent.as_secs_f64() * 1e6 / decisions as f64;
    took.sort_unstable();
    let at = |share: f64| {
        took.get((took.len() as f64 * share) as usize).map_or(0.0, |took| took.as_secs_f64() * 1e6)
    };
    Cost {
        per_second: decisions as f64 / elapsed,
        p50_us: at(0.5),
        p99_us: at(0.99),
        client_us: each(processor(std::process::id()) - client),
        server_us: each(processor(server.id()) - redis),
        allocs: allocated.count_total as f64 / decisions as f64,
    }
}

/// Measures one command with `redis-benchmark`, sent over one connection, `depth` at a time.
pub(crate) fn redis_benchmark(
    server: &Server,
    command: &[String],
    calls: usize,
    depth: usize,
    keys: usize,
) -> Cost {
    let before = processor(server.id());
    let output = Command::new("redis-benchmark")
        .args(["-h", "127.0.0.1", "-p", &server.port().to_string(), "-c", "1", "--csv"])
        .args(["-P", &depth.to_string(), "-n", &calls.to_string(), "-r", &keys.to_string()])
        .args(command)
        .output()
        .expect("redis-benchmark, which comes with redis-server");
    let spent = processor(server.id()) - before;
    let text = String::from_utf8_lossy(&output.stdout);
    // The name of the test is the command, commas and all; the numbers are the last seven fields.
    let line = text.lines().last().expect("a line of numbers");
    let fields: Vec<f64> = line
        .rsplit(',')
        .take(7)
        .map(|field| field.trim_matches('"').parse())
        .collect::<Result<_, _>>()
        .unwrap_or_else(|_| panic!("redis-benchmark wrote {text:?} and {output:?}"));
    let [_max, p99, _p95, p50, _min, _mean, per_second] = fields[..] else { panic!("{line}") };
    Cost {
        per_second,
        p50_us: p50 * 1e3,
        p99_us: p99 * 1e3,
        server_us: spent.as_secs_f64() * 1e6 / calls as f64,
        ..Cost::default()
    }
}

/// The middle of the rounds, field by field.
pub(crate) fn median(rounds: &[Cost]) -> Cost {
    let middle = |field: fn(&Cost) -> f64| median_of(rounds.iter().map(field));
    Cost {
        per_second: middle(|cost| cost.per_second),
        p50_us: middle(|cost| cost.p50_us),
        p99_us: middle(|cost| cost.p99_us),
        client_us: middle(|cost| cost.client_us),
        server_us: middle(|cost| cost.server_us),
        allocs: middle(|cost| cost.allocs),
    }
}

pub(crate) fn median_of(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// The processor time that a process has used, in nanoseconds where the kernel
/// counts them.
pub(crate) fn processor(process: u32) -> Duration {
    let mut spent = Duration::ZERO;
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("Linux' own account");
    for task in tasks.flatten() {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
        spent += Duration::from_nanos(nanos);
    }
    spent
}
