//! Each disturbance of the servers, and the client that lives through it.

use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{Charge, LimiterExt, Quota, Redis};

use super::network::Network;
use super::servers::{Servers, Strike, StrikeKind, Topology};

const MILLISECOND: Duration = Duration::from_millis(1);

/// What a limiter that is asked all the time did about a strike.
struct Outcome {
    /// Charges that failed before the strike was over, and in the second after it.
    failed: usize,
    /// Charges that were decided meanwhile.
    decided: usize,
}

/// Asks all the time, and strikes once.
fn live_through(topology: &Topology, kind: StrikeKind, place: u32) -> Outcome {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let strike = Strike { kind, place, lasting: MILLISECOND * 400 };
    let world = async {
        fastrand::seed(u64::from(place));
        let network = Network::new(u64::from(place));
        let servers = Servers::start(topology, &network, u64::from(place));
        let dialer = network.dialer();
        let pool = servers.pool(&dialer).build().expect("a pool");
        let limiter = Redis::new("api", TokenBucket::new(Quota::per_second(1_000)), pool);
        let begun = Instant::now();
        let asking = |key: &'static str| {
            let limiter = limiter.clone();
            spawn_local(async move {
                let mut charges = Vec::new();
                while begun.elapsed() < MILLISECOND * 6_000 {
                    let asked = begun.elapsed();
                    let decided = limiter.acquire(Charge::new(key)).await;
                    let error = decided.err().map(|error| format!("{error:?}"));
                    charges.push((asked, begun.elapsed(), error));
                    sleep(MILLISECOND * 5).await;
                }
                charges
            })
        };
        let callers = ["a", "b", "c", "d"].map(asking);
        sleep(MILLISECOND * 1_000).await;
        let struck = begun.elapsed();
        servers.strike(&strike).await;
        let healed = begun.elapsed();
        let mut outcome = Outcome { failed: 0, decided: 0 };
        for caller in callers {
            for (asked, ended, error) in caller.await.expect("a caller") {
                let is_disturbed = ended >= struck && asked <= healed + MILLISECOND * 1_000;
                match error {
                    Some(error) => {
                        assert!(is_disturbed, "{strike:?}: {asked:?} {error}");
                        outcome.failed += 1;
                    }
                    None => outcome.decided += usize::from(is_disturbed),
                }
            }
        }
        servers.shut_down();
        outcome
    };
    LocalSet::new().block_on(&runtime.expect("a runtime"), world)
}

#[test]
fn one_server_is_struck() {
    use StrikeKind::*;
    for kind in [
        CrashKeepingData,
        CrashLosingData,
        Stand,
        ScriptFlush,
        Loading,
        OutOfMemory,
        Refuse,
        Silence,
        NameFails,
        Login,
        ReadOnly,
        ClockStepForward,
        ClockStepBack,
        ClockDrift,
    ] {
        for place in 0..2 {
            let outcome = live_through(&Topology::One, kind, place);
            println!("{kind:?} {place}: {} failed, {} decided", outcome.failed, outcome.decided);
        }
    }
}
