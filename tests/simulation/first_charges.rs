//! The first charges of a process: to a cluster of which one master is away, and over a connection
//! that is made late.

use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::sleep;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::redis::AllAtOnce;
use tower_sluice::{Charge, ErrorKind, LimiterExt, Quota, Redis};

use super::network::Network;
use super::plan::{MILLISECOND, SECOND};
use super::servers::{Servers, Strike, StrikeKind, Topology};
use super::world::{TIMEOUT, stand_still};

const KEYS: usize = 30;

/// Asks about all keys at once, from this one on. Returns which are decided.
async fn decided(limiter: &Redis<TokenBucket>, first: usize) -> Vec<bool> {
    let ask = |number| {
        let answer = limiter.peek(format!("key-{number}"));
        spawn_local(async move { answer.await.is_ok() })
    };
    let asked: Vec<_> = (0..KEYS).map(|place| ask((place + first) % KEYS)).collect();
    let mut decided = Vec::new();
    for answer in asked {
        decided.push(answer.await.expect("no panic"));
    }
    decided
}

/// The slot of the first charge may be that of the master that is away. No connection to it comes,
/// but the map does.
// Case 40.
#[test]
fn the_first_charges_do_not_wait_for_a_master_that_is_away() {
    for kind in [StrikeKind::Silence, StrikeKind::Refuse] {
        for first in 0..KEYS {
            let seed = first as u64;
            fastrand::seed(seed);
            let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
            LocalSet::new().block_on(&runtime.expect("a runtime"), async {
                let network = Network::start(seed);
                let topology = Topology::Cluster { masters: 3, replicas: 0 };
                let servers = Servers::start(&topology, &network, seed);
                // The address of the pool names the first two.
                let strike = Strike { kind, place: 2, lasting: 60 * SECOND };
                let struck = Rc::clone(&servers);
                spawn_local(async move { struck.strike(&strike).await });
                yield_now().await;
                let pool = servers.pool(&network.dialer()).build().expect("an address");
                let limiter = Redis::new("api", TokenBucket::new(Quota::per_hour(9)), pool);
                let at_first = decided(&limiter.clone().decision_timeout(4 * TIMEOUT), first).await;
                sleep(Duration::from_secs(5)).await;
                let later = decided(&limiter.decision_timeout(4 * TIMEOUT), first).await;
                assert!(later.contains(&true) && later.contains(&false), "{kind:?}: {later:?}");
                assert_eq!(at_first, later, "{kind:?}, from key {first}");
            });
        }
    }
}

/// A process that stood still connects late. Then the server is not silent for long, but for most
/// of the time that is left.
#[test]
fn a_connection_that_was_made_late_is_no_fault_of_the_server() {
    let mut kinds = Vec::new();
    for seed in 0..200 {
        fastrand::seed(seed);
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        LocalSet::new().block_on(&runtime.expect("a runtime"), async {
            let network = Network::start(seed);
            let servers = Servers::start(&Topology::One, &network, seed);
            let pool = servers.pool(&network.dialer()).build().expect("an address");
            let limiter =
                |name| Redis::new(name, TokenBucket::new(Quota::per_hour(9)), pool.clone());
            let limiters = (limiter("one"), limiter("other"));
            let both = AllAtOnce::new(limiters, |charge: &Charge| [charge.clone(), charge.clone()]);
            let both = both.timeout(89 * MILLISECOND);
            let asked = spawn_local(async move { both.peek("a").await });
            sleep(MILLISECOND).await;
            stand_still(&network, 80 * MILLISECOND).await;
            kinds.extend(asked.await.expect("no panic").err().map(|error| error.kind()));
        });
    }
    assert!(kinds.contains(&ErrorKind::Saturation));
    assert!(!kinds.contains(&ErrorKind::Infrastructure), "{kinds:?}");
}
