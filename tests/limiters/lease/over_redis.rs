//! Leases over a real server: how many calls it sees, and what it holds in the end.

use super::check;

use crate::*;

const LIMIT: u64 = 10_000_000;

async fn limiter(server: &Server) -> Redis<FixedWindow> {
    let pool = server.pool();
    eventually("a connection", async || pool.ready().await.is_ok()).await;
    // However busy the machine is.
    Redis::new("api", FixedWindow::new(Quota::per_day(LIMIT)).anchored(), pool)
        .decision_timeout(Duration::from_secs(60))
}

/// The scripts that the server ran so far.
async fn calls(server: &Server) -> u64 {
    script_calls(&mut server.connection().await).await
}

/// So many tasks admit so many units of one key. Returns how many calls that took.
async fn admit(server: &Server, limiter: &Lease<Redis<FixedWindow>>, tasks: u64, all: u64) -> u64 {
    let before = calls(server).await;
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let limiter = limiter.clone();
        running.spawn(async move {
            for _ in 0..all / tasks {
                assert!(check(&limiter, "hot").await.is_admitted());
            }
        });
    }
    running.join_all().await;
    calls(server).await - before
}

#[tokio::test]
async fn a_hot_key_costs_one_call_for_a_hundred_charges_and_every_unit_is_accounted_for() {
    let server = Server::start();
    let inner = limiter(&server).await;
    // However slow the machine is, units are spent before their time is over.
    let limiter = inner.clone().lease(100).valid_for(Duration::from_secs(2));
    let mut all = 0;
    for tasks in [1, 256] {
        // Before it is known to be hot, a key asks for each unit.
        let (first, charges) = (256 * 10, 256 * 100);
        admit(&server, &limiter, tasks, first).await;
        let calls = admit(&server, &limiter, tasks, charges).await;
        all += first + charges;
        println!("leases tasks={tasks} charges={charges} calls={calls}");
        assert!(calls <= charges / 100 + 15, "{calls} calls for {charges} charges");
    }
    // A process that is asked to end gives back what it has not spent.
    limiter.end_leases();
    drop(limiter);
    assert_eq!(inner.peek("hot").await.unwrap().remaining(), Some(LIMIT - all));
}
