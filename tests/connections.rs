//! Connections that are lost, silent, demoted or never finished: when they are replaced, how often, and by which
//! runtime.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use support::Server;
use support::faults::*;
use support::proxy::Proxy;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower_sluice::Limiter;

/// Connections that clients made to the server so far, this test's own included.
const RECEIVED: &str = "total_connections_received";

/// Callers that ask again and again until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    callers: JoinSet<()>,
}

impl Load {
    fn on(limiter: &Yearly, callers: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for _ in 0..callers {
            let (limiter, stop) = (limiter.clone(), Arc::clone(&stop));
            tasks.spawn(async move {
                while !stop.load(Relaxed) {
                    let _ = limiter.check(&one()).await;
                    sleep(Duration::from_millis(1)).await;
                }
            });
        }
        Self { stop, callers: tasks }
    }

    async fn stop(self) {
        self.stop.store(true, Relaxed);
        self.callers.join_all().await;
    }
}

/// Asks until it is decided, whatever the errors before.
async fn until_well(limiter: &Yearly) -> Duration {
    let begun = Instant::now();
    while let Err(error) = limiter.check(&one()).await {
        assert!(begun.elapsed() < LONG, "{error:?}");
        sleep(Duration::from_millis(1)).await;
    }
    begun.elapsed()
}

#[tokio::test]
async fn case_141_pauses_longer_than_the_deadline_replace_no_connection() {
    let server = Server::start();
    let limiter = yearly(&server.url()).deadline(Duration::from_millis(20));
    until_well(&limiter).await;
    let mut connection = server.connection().await;
    let load = Load::on(&limiter, 8);
    let before = figure(&mut connection, RECEIVED).await;
    for _ in 0..100 {
        run(&mut connection, &["CLIENT", "PAUSE", "24", "ALL"]).await;
        // Answered when the pause is over.
        figure(&mut connection, RECEIVED).await;
        sleep(Duration::from_millis(5)).await;
    }
    let replaced = figure(&mut connection, RECEIVED).await - before;
    load.stop().await;
    println!("fault case=141 pauses=100 replaced={replaced}");
    assert_eq!(replaced, 0);
}

#[tokio::test]
async fn case_6_a_connection_into_a_black_hole_is_left_within_a_second() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let limiter = yearly(&proxy.url());
    until_well(&limiter).await;
    proxy.strand();
    let back = until_well(&limiter).await;
    println!("fault case=6 back_ms={}", back.as_millis());
    assert!(back < Duration::from_secs(1) + SLACK, "{back:?}");
}
