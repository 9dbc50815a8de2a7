//! How many milliseconds faults take, next to the deadline of a decision.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower_sluice::algorithm::FixedWindow;
use tower_sluice::{Charge, Limiter, Pool, Quota, Redis};

use support::faults::cut;
use support::{NOWHERE, Server};

const D: Duration = Duration::from_millis(50);

type Yearly = Redis<FixedWindow>;

fn over(pool: Pool) -> Yearly {
    let quota = Quota::new(1_000_000, Duration::from_secs(365 * 86_400));
    Redis::new("faults", FixedWindow::new(quota), pool).decision_timeout(D)
}

fn yearly(url: &str) -> Yearly {
    over(Pool::connect(url).expect("an address"))
}

pub(crate) async fn run() {
    no_server().await;
    stop_and_go_on().await;
    connections_killed_every_50_ms().await;
}

/// Returns the time that each of `calls` took, and how many were decided.
async fn timed(limiter: &Yearly, calls: usize) -> (Vec<Duration>, usize) {
    let (mut times, mut decided) = (Vec::new(), 0);
    for _ in 0..calls {
        let begun = Instant::now();
        decided += usize::from(limiter.check(&Charge::new("key")).await.is_ok());
        times.push(begun.elapsed());
    }
    (times, decided)
}

fn report(case: &str, mut times: Vec<Duration>, rest: &str) -> Duration {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    println!(
        "\nfault case={case} p50_us={} p999_us={} max_us={} deadline_us={} calls={} {rest}",
        at(0.5).as_micros(),
        at(0.999).as_micros(),
        at(1.0).as_micros(),
        D.as_micros(),
        times.len(),
    );
    at(0.999)
}

/// The time until a decision is had, and the errors before it.
async fn recovery(limiter: &Yearly) -> (Duration, usize) {
    let begun = Instant::now();
    let mut errors = 0;
    while limiter.check(&Charge::new("key")).await.is_err() {
        errors += 1;
        sleep(Duration::from_micros(500)).await;
    }
    (begun.elapsed(), errors)
}

// Case 1.
async fn no_server() {
    let limiter = yearly(&format!("redis://127.0.0.1:{NOWHERE}"));
    let (times, _) = timed(&limiter, 100).await;
    // What a bare timer takes on this machine.
    let mut bare = Vec::new();
    for _ in 0..100 {
        let begun = Instant::now();
        sleep(D).await;
        bare.push(begun.elapsed());
    }
    bare.sort_unstable();
    let bare =
        format!("timer_p50_us={} timer_max_us={}", bare[50].as_micros(), bare[99].as_micros());
    assert!(report("1", times, &bare) <= D + Duration::from_millis(20));
}

// Cases 7 and 8.
async fn stop_and_go_on() {
    let server = Server::start();
    let limiter = yearly(&server.url());
    recovery(&limiter).await;
    server.signal("STOP");
    let (times, decided) = timed(&limiter, 200).await;
    server.signal("CONT");
    let (back, _) = recovery(&limiter).await;
    let p999 = report("7", times, &format!("decided={decided} back_ms={}", back.as_millis()));
    assert!(p999 <= D + Duration::from_millis(5) && back <= Duration::from_secs(1));
}

// Case 15.
async fn connections_killed_every_50_ms() {
    let server = Server::start();
    let limiter = yearly(&server.url());
    recovery(&limiter).await;
    let over = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let (limiter, over) = (limiter.clone(), Arc::clone(&over));
        callers.spawn(async move {
            let (mut times, mut decided) = (Vec::new(), 0);
            while !over.load(Relaxed) {
                let (more, ok) = timed(&limiter, 1).await;
                times.extend(more);
                decided += ok;
                sleep(Duration::from_millis(1)).await;
            }
            (times, decided)
        });
    }
    let mut connection = server.connection().await;
    for _ in 0..200 {
        sleep(Duration::from_millis(50)).await;
        cut(&mut connection).await;
    }
    over.store(true, Relaxed);
    let (mut times, mut decided) = (Vec::new(), 0);
    for (more, ok) in callers.join_all().await {
        times.extend(more);
        decided += ok;
    }
    let share = decided as f64 / times.len() as f64;
    let latest = *times.iter().max().unwrap();
    report("15", times, &format!("decided_share={share:.4}"));
    assert!(share >= 0.9 && latest <= D + Duration::from_millis(20));
}
