//! A real server that stops and goes on, under load.

use std::sync::atomic::AtomicBool;

use super::*;
use support::faults::{D, SLACK, until_decided, yearly};

/// The time that each decision took, by whether Redis made it.
#[derive(Default)]
struct Times {
    decided: Vec<Duration>,
    undecided: Vec<Duration>,
}

impl Times {
    fn add(&mut self, origin: Origin, took: Duration) {
        match origin {
            Origin::FailOpen => self.undecided.push(took),
            _ => self.decided.push(took),
        }
    }
}

fn percentile(times: &mut [Duration], per_mille: usize) -> Duration {
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) * per_mille / 1_000).copied().unwrap_or_default()
}

/// Asks from 16 tasks until `is_over`, and returns what it took.
async fn load<L>(limiter: &L, is_over: impl Fn(Duration) -> bool) -> Times
where
    L: Limiter<Future: Send> + Clone + Send + Sync + 'static,
{
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let (limiter, stop) = (limiter.clone(), Arc::clone(&stop));
        tasks.spawn(async move {
            let mut times = Times::default();
            while !stop.load(Relaxed) {
                let begun = Instant::now();
                let decision = limiter.check(&one()).await;
                // A machine that is too busy causes saturation, which admits nobody.
                let origin = decision.map_or_else(
                    |error| {
                        assert_eq!(error.kind(), ErrorKind::Saturation, "{error:?}");
                        Origin::FailOpen
                    },
                    |decision| decision.origin(),
                );
                times.add(origin, begun.elapsed());
                sleep(Duration::from_millis(1)).await;
            }
            times
        });
    }
    let begun = Instant::now();
    while !is_over(begun.elapsed()) {
        sleep(Duration::from_millis(1)).await;
    }
    stop.store(true, Relaxed);
    let mut all = Times::default();
    for times in tasks.join_all().await {
        all.decided.extend(times.decided);
        all.undecided.extend(times.undecided);
    }
    all
}

// Cases 7 to 9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_is_left_and_found_again() {
    let server = Server::start();
    let redis = yearly(&server.url());
    until_decided(&redis, ErrorKind::Infrastructure).await;
    let breaker = Breaker::new();
    let limiter = redis.breaker(breaker.clone()).or_else(FailOpen);
    load(&limiter, |time| time > SECOND / 5).await;

    server.signal("STOP");
    let stopped = Instant::now();
    let is_open = || breaker.state() != BreakerState::Closed;
    let mut before = load(&limiter, |time| is_open() || time > LONG).await;
    assert!(is_open(), "the breaker stays closed");
    let open_after = stopped.elapsed();
    let probes = breaker.counts().probes;
    let begun = Instant::now();
    let mut while_open = load(&limiter, |time| time > SECOND).await;
    assert_eq!(while_open.decided.len(), 0);
    let (probes, tenths) = (breaker.counts().probes - probes, begun.elapsed().as_millis() / 100);

    server.signal("CONT");
    let back = Instant::now();
    load(&limiter, |time| breaker.state() == BreakerState::Closed || time > LONG).await;
    let back = back.elapsed();
    assert_eq!(breaker.state(), BreakerState::Closed);
    while limiter.check(&one()).await.map_or(true, |decision| decision.origin() != Origin::Store) {
        assert!(stopped.elapsed() < 4 * LONG, "{breaker:?}");
    }

    let slowest = percentile(&mut before.undecided, 999);
    let calls = while_open.undecided.len();
    println!(
        "fault case=7 open_after_ms={} before_p999_ms={:.1} open_p50_us={} open_p99_us={} \
         calls={calls} probes={probes} back_ms={}",
        open_after.as_millis(),
        slowest.as_secs_f64() * 1e3,
        percentile(&mut while_open.undecided, 500).as_micros(),
        percentile(&mut while_open.undecided, 990).as_micros(),
        back.as_millis(),
    );
    assert!(slowest <= D + SLACK, "{slowest:?}");
    // Most calls are answered long before the deadline, on the busiest machine too.
    let usual = percentile(&mut while_open.undecided, 500);
    assert!(usual < D, "{usual:?}");
    // One in at least 100 ms, and the one that was under way.
    assert!(u128::from(probes) <= tenths + 2, "{probes} probes in {tenths} tenths of a second");
}

// Case 28.
#[tokio::test]
async fn a_full_server_opens_no_breaker() {
    let server = Server::with(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]);
    let breaker = Breaker::new();
    let limiter =
        yearly(&server.url()).decision_timeout(LONG).breaker(breaker.clone()).or_else(FailOpen);
    for _ in 0..20 {
        assert_eq!(limiter.check(&one()).await.unwrap_err().kind(), ErrorKind::Capacity);
    }
    assert_eq!((breaker.state(), breaker.counts().opened), (BreakerState::Closed, 0));
}
