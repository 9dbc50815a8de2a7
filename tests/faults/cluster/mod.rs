//! A real cluster: every charge is decided by the master of its slot, and counted once, also while
//! slots move and masters die.

mod buckets;
mod lost;
mod map;
mod moving;

use std::collections::HashSet;
use std::slice::from_ref;

use redis::cmd;
use tower_sluice::redis::AllAtOnce;

use crate::*;

use support::cluster::{SLOTS, keys_in, slot_of};
use support::faults::{LONG, MILLION, eventually, kind, over, run, trouble};
use support::stats::script_calls;

const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn pool(cluster: &Cluster) -> Pool {
    Pool::connect(&cluster.url()).expect("an address")
}

/// A limiter whose `remaining` counts what was taken, and that waits however busy the machine is.
fn patient(pool: Pool) -> Redis<FixedWindow> {
    let quota = Quota::new(MILLION, YEAR);
    Redis::new("cluster", FixedWindow::new(quota), pool).decision_timeout(LONG)
}

/// Returns the units that were taken of a key.
async fn taken<L: Limiter>(limiter: &L, key: &str) -> u64 {
    MILLION - limiter.peek(key).await.expect("a decision").remaining().expect("known")
}

/// Charges keys at the same moment, each once.
async fn charge_all<L>(limiter: &L, keys: &[String])
where
    L: Limiter<Future: Send + 'static>,
{
    let mut asked = JoinSet::new();
    for key in keys {
        asked.spawn(limiter.check(&Charge::new(key.as_str())));
    }
    for decision in asked.join_all().await {
        assert!(decision.expect("a decision").is_admitted());
    }
}

/// Takes a unit that can be refunded.
async fn reserve<L: Limiter>(limiter: &L, key: &str) -> tower_sluice::limiter::Reservation {
    let mut decision = limiter.check(&Charge::new(key)).await.expect("a decision");
    decision.take_reservation().expect("a reservation")
}

// Cases 36 and 42.
#[tokio::test]
async fn every_charge_is_decided_by_the_master_of_its_slot() {
    let cluster = Cluster::start().await;
    let limiter = patient(pool(&cluster));
    pool(&cluster).ready().await.unwrap();
    let keys: Vec<_> = keys_in(0..=SLOTS - 1).take(600).collect();
    for _ in 0..3 {
        charge_all(&limiter, &keys).await;
    }
    let mut stored = 0;
    for master in 0..3_u16 {
        let own = keys.iter().filter(|key| cluster.share(master).contains(&slot_of(key))).count();
        let held: usize = cluster.ask(usize::from(master), &mut cmd("DBSIZE")).await;
        assert_eq!(held, own, "master {master}");
        stored += held;
    }
    assert_eq!(stored, keys.len());
    for key in &keys {
        assert_eq!(taken(&limiter, key).await, 3, "{key}");
    }
}

#[tokio::test]
async fn one_node_that_answers_is_enough_to_begin() {
    let cluster = Cluster::start().await;
    let port = cluster.nodes[1].port();
    let url = format!("redis-cluster://127.0.0.1:1?node=127.0.0.1:{port}");
    let limiter = patient(Pool::connect(&url).unwrap());
    charge_all(&limiter, &keys_in(0..=SLOTS - 1).take(30).collect::<Vec<_>>()).await;
}

#[test]
fn each_runtime_has_connections_of_its_own() {
    let begin = tokio::runtime::Runtime::new().unwrap();
    let cluster = begin.block_on(Cluster::start());
    let limiter = patient(pool(&cluster));
    let keys: Vec<_> = keys_in(0..=SLOTS - 1).take(30).collect();
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(charge_all(&limiter, &keys));
    }
    begin.block_on(async {
        for key in &keys {
            assert_eq!(taken(&limiter, key).await, 3, "{key}");
        }
    });
    begin.block_on(async { drop(cluster) });
}
