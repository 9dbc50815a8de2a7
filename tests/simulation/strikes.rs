//! Each disturbance of the servers, and the client that lives through it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::Builder;
use tokio::task::{JoinSet, LocalSet, spawn_local};
use tokio::time::{Instant, sleep, timeout};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{Charge, LimiterExt, Quota, Redis};

use super::network::Network;
use super::server::Role;
use super::servers::{Servers, Strike, StrikeKind, Topology};

/// How long all strikes and their healing take at most.
const MOST: Duration = Duration::from_secs(60);

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

/// Asks all the time, and strikes at some instants.
fn live_through(topology: &Topology, seed: u64, strikes: &[(Duration, Strike)]) -> Outcome {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let world = async {
        fastrand::seed(seed);
        let network = Network::new(seed);
        let servers = Servers::start(topology, &network, seed);
        let dialer = network.dialer();
        // An attempt that hangs ends no sooner, and the next one follows within 300 ms.
        let pool = servers.pool(&dialer).connect_timeout(LASTING).build().expect("a pool");
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
        let mut all = JoinSet::new();
        for (at, strike) in strikes {
            let (servers, at, strike) = (Rc::clone(&servers), *at, strike.clone());
            all.spawn_local(async move {
                sleep(at).await;
                servers.strike(&strike).await;
            });
        }
        let healing = async {
            while let Some(healed) = all.join_next().await {
                healed.expect("a strike");
            }
        };
        let healed = timeout(MOST, healing).await;
        assert!(healed.is_ok(), "seed {seed}: nothing heals {strikes:?}");
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
                    "seed {seed}, recovered at {recovered:?}: {asked:?} to {ended:?} {error:?}\n\
                     {strikes:?}"
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
        assert_eq!(keys.len(), count, "seed {seed}: {strikes:?}");
        servers.shut_down();
        outcome
    };
    LocalSet::new().block_on(&runtime.expect("a runtime"), world)
}

/// Lives through some strikes at some places.
fn live_through_all(topology: &Topology, kinds: &[StrikeKind], places: u32) {
    for kind in kinds {
        for place in 0..places {
            let place = place * 5;
            let strike = Strike { kind: *kind, place, lasting: LASTING };
            let outcome = live_through(topology, place.into(), &[(Duration::ZERO, strike)]);
            println!("{kind:?} at {place}: {outcome:?}");
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

#[test]
fn servers_heal_from_many_strikes_at_once() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let (first, seeds) = (number("SEED").unwrap_or(0), number("SEEDS").unwrap_or(4));
    for seed in first..first + seeds {
        for topology in [
            Topology::One,
            Topology::Sentinels { replicas: 2, sentinels: 3 },
            Topology::Cluster { masters: 3, replicas: 1 },
        ] {
            let mut dice = Rng::with_seed(seed);
            let strikes: Vec<_> = (0..dice.usize(2..8))
                .map(|_| (LASTING * dice.u32(0..8), Strike::draw(&mut dice, &topology)))
                .collect();
            live_through(&topology, seed, &strikes);
        }
    }
}
