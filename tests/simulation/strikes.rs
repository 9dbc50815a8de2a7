//! Each disturbance of the servers, and the client that lives through it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{Charge, LimiterExt, Quota, Redis};

use super::network::Network;
use super::server::Role;
use super::servers::{Servers, Strike, StrikeKind, Topology};

/// How long after a strike everything is decided again.
const RECOVERY: Duration = Duration::from_secs(1);

/// How often each of several callers asks.
const PACE: Duration = Duration::from_millis(20);

/// How long a strike lasts, or how far a clock steps.
const LASTING: Duration = Duration::from_millis(300);

/// What a limiter that is asked all the time did about a strike.
#[derive(Debug, Default)]
struct Outcome {
    /// Charges that failed from the strike on until a second after it.
    failed: usize,
    /// Charges that were decided meanwhile.
    decided: usize,
}

/// Asks all the time, and strikes once.
fn live_through(topology: &Topology, kind: StrikeKind, place: u32) -> Outcome {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let strike = Strike { kind, place, lasting: LASTING };
    let world = async {
        fastrand::seed(u64::from(place));
        let network = Network::new(u64::from(place));
        let servers = Servers::start(topology, &network, u64::from(place));
        let dialer = network.dialer();
        let pool = servers.pool(&dialer).build().expect("a pool");
        let limiter = Redis::new("api", TokenBucket::new(Quota::per_second(1_000)), pool);
        let (begun, is_over) = (Instant::now(), Rc::new(Cell::new(false)));
        let asking = |key: &'static str| {
            let (limiter, is_over) = (limiter.clone(), Rc::clone(&is_over));
            spawn_local(async move {
                let mut charges = Vec::new();
                while !is_over.get() {
                    let asked = begun.elapsed();
                    let decided = limiter.acquire(Charge::new(key)).await;
                    charges.push((asked, begun.elapsed(), decided.err()));
                    sleep(PACE).await;
                }
                charges
            })
        };
        let callers = ["a", "b", "c", "d"].map(asking);
        sleep(LASTING).await;
        let struck = begun.elapsed();
        servers.strike(&strike).await;
        let recovered = begun.elapsed() + RECOVERY;
        sleep(RECOVERY + LASTING).await;
        is_over.set(true);
        let mut outcome = Outcome::default();
        for caller in callers {
            for (asked, ended, error) in caller.await.expect("a caller") {
                let is_disturbed = ended >= struck && asked <= recovered;
                let is_decided = error.is_none();
                assert!(
                    is_disturbed || is_decided,
                    "{strike:?} at {struck:?}: {asked:?} {error:?}"
                );
                outcome.failed += usize::from(!is_decided);
                outcome.decided += usize::from(is_decided && is_disturbed);
            }
        }
        // Each key stands on one primary alone.
        let mut keys = Vec::new();
        for (_, host) in servers.hosts() {
            let server = host.server();
            keys.extend(
                (server.role == Role::Primary).then(|| server.keys()).into_iter().flatten(),
            );
        }
        keys.sort_unstable();
        let count = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), count, "{strike:?}");
        servers.shut_down();
        outcome
    };
    LocalSet::new().block_on(&runtime.expect("a runtime"), world)
}

/// Lives through some strikes at some places.
fn live_through_all(topology: &Topology, kinds: &[StrikeKind], places: u32) {
    for kind in kinds {
        for place in 0..places {
            let outcome = live_through(topology, *kind, place * 5);
            println!("{kind:?} {place}: {} failed, {} decided", outcome.failed, outcome.decided);
        }
    }
}

use StrikeKind::*;

const ANYWHERE: [StrikeKind; 13] = [
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
    ClockStepForward,
    ClockStepBack,
    ClockDrift,
];

#[test]
fn one_server_is_struck() {
    live_through_all(&Topology::One, &ANYWHERE, 2);
    live_through_all(&Topology::One, &[ReadOnly], 1);
}

#[test]
fn sentinels_and_their_servers_are_struck() {
    let topology = Topology::Sentinels { replicas: 2, sentinels: 3 };
    live_through_all(&topology, &ANYWHERE, 1);
    let own = [ReadOnly, Failover, ManualFailover, SplitBrain, SentinelCrash, SentinelStale];
    live_through_all(&topology, &own, 2);
}

#[test]
fn a_cluster_is_struck() {
    let topology = Topology::Cluster { masters: 3, replicas: 1 };
    live_through_all(&topology, &ANYWHERE, 1);
    let own = [MoveSlots, TakeSlots, ClusterDown, NodeFailover, SlotMapStale];
    live_through_all(&topology, &own, 2);
}
