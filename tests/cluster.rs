//! A real cluster: every charge is decided by the master of its slot, and counted once, also while
//! slots move and masters die.

#![cfg(feature = "redis")]

mod support;

use std::collections::HashSet;
use std::slice::from_ref;
use std::time::Duration;

use redis::cmd;
use support::cluster::{Cluster, SLOTS, keys_in, slot_of};
use support::faults::{LONG, MILLION, script_calls};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tower_sluice::algorithm::{FixedWindow, SlidingLog, TokenBucket};
use tower_sluice::{AllAtOnce, Charge, ErrorKind, Limiter, LimiterExt, Pool, Quota, Redis};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn pool(cluster: &Cluster) -> Pool {
    Pool::connect(&cluster.url()).expect("an address")
}

/// A limiter whose `remaining` counts what was taken, and that waits however busy the machine is.
fn patient(pool: Pool) -> Redis<FixedWindow> {
    let quota = Quota::new(MILLION, YEAR);
    Redis::new("cluster", FixedWindow::new(quota), pool).decision_timeout(LONG)
}

/// What was taken of a key.
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

#[tokio::test]
async fn a_slot_that_has_moved_is_followed_and_counted_once() {
    let cluster = Cluster::start().await;
    let limiter = patient(pool(&cluster));
    let keys: Vec<_> = keys_in(7..=7).take(4).collect();
    charge_all(&limiter, &keys).await;
    for to in [1, 2, 0] {
        cluster.move_slot(7, to).await;
        charge_all(&limiter, &keys).await;
        charge_all(&limiter, &keys).await;
        cluster.until_agreed().await;
    }
    for key in &keys {
        assert_eq!(taken(&limiter, key).await, 7, "{key}");
    }
}

#[tokio::test]
async fn keys_of_a_moving_slot_are_decided_wherever_they_are() {
    let cluster = Cluster::start().await;
    let limiter = patient(pool(&cluster));
    let keys: Vec<_> = keys_in(9_000..=9_000).take(6).collect();
    // Some are there before, some have moved already, and some are new.
    charge_all(&limiter, &keys[..4]).await;
    let from = cluster.begin_move(9_000, 2).await;
    let mut connection = cluster.connection(from).await;
    let stored: Vec<String> = {
        let mut ask = cmd("CLUSTER");
        ask.arg("GETKEYSINSLOT").arg(9_000).arg(10).query_async(&mut connection).await.unwrap()
    };
    assert_eq!(stored.len(), 4);
    cluster.move_key(&mut connection, 2, &stored[..2]).await;
    for _ in 0..5 {
        charge_all(&limiter, &keys).await;
    }
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(taken(&limiter, key).await, if number < 4 { 6 } else { 5 }, "{key}");
    }
    cluster.move_keys(9_000, from, 2).await;
    cluster.end_move(9_000, from, 2).await;
    charge_all(&limiter, &keys).await;
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(taken(&limiter, key).await, if number < 4 { 7 } else { 6 }, "{key}");
    }
}

#[tokio::test]
async fn a_new_key_of_a_tuple_in_a_moving_slot_is_decided() {
    let cluster = Cluster::start().await;
    let quota = || FixedWindow::new(Quota::new(MILLION, YEAR));
    let log = SlidingLog::new(Quota::new(MILLION, YEAR)).max_limit(MILLION);
    let bucket = TokenBucket::new(Quota::per_hour(MILLION).burst(2 * MILLION));
    let limiter =
        Redis::new("tuple", (quota(), log, bucket), pool(&cluster)).decision_timeout(LONG);
    let keys: Vec<_> = keys_in(3..=3).take(3).collect();
    let from = cluster.begin_move(3, 1).await;
    for _ in 0..3 {
        charge_all(&limiter, &keys).await;
    }
    for key in &keys {
        assert_eq!(taken(&limiter, key).await, 3, "{key}");
    }
    cluster.move_keys(3, from, 1).await;
    cluster.end_move(3, from, 1).await;
    for key in &keys {
        assert_eq!(taken(&limiter, key).await, 3, "{key}");
        assert_eq!(limiter.refund_confirmed(reserve(&limiter, key).await).await.unwrap(), 1);
        assert_eq!(taken(&limiter, key).await, 3, "{key}");
    }
}

/// Takes a unit that can be refunded.
async fn reserve<L: Limiter>(limiter: &L, key: &str) -> tower_sluice::Reservation {
    let mut decision = limiter.check(&Charge::new(key)).await.expect("a decision");
    decision.take_reservation().expect("a reservation")
}

#[tokio::test]
async fn a_tuple_whose_keys_are_split_waits_for_those_that_still_move() {
    let cluster = Cluster::start().await;
    let minute = FixedWindow::new(Quota::new(MILLION, YEAR));
    let limiter = Redis::new("pair", (minute, minute), pool(&cluster)).decision_timeout(LONG);
    let key = keys_in(4..=4).next().unwrap();
    charge_all(&limiter, from_ref(&key)).await;
    let mut connection = cluster.connection(0).await;
    let stored: Vec<String> = {
        let mut ask = cmd("CLUSTER");
        ask.arg("GETKEYSINSLOT").arg(4).arg(10).query_async(&mut connection).await.unwrap()
    };
    // One of the two has expired, as the key of a short quota does.
    cmd("UNLINK").arg(&stored[0]).exec_async(&mut connection).await.unwrap();
    let from = cluster.begin_move(4, 1).await;
    let asked = tokio::spawn(limiter.check(&Charge::new(key.as_str())));
    sleep(Duration::from_millis(50)).await;
    assert!(!asked.is_finished(), "no server has both keys");
    cluster.move_keys(4, from, 1).await;
    assert!(asked.await.unwrap().expect("a decision").is_admitted());
    cluster.end_move(4, from, 1).await;
    charge_all(&limiter, from_ref(&key)).await;
}

#[tokio::test]
async fn a_charge_whose_connection_is_lost_is_counted_once_at_most() {
    let cluster = Cluster::start().await;
    let limiter = patient(pool(&cluster));
    let mut killers = JoinSet::new();
    for master in 0..3 {
        let mut connection = cluster.connection(master).await;
        killers.spawn(async move {
            loop {
                let mut kill = cmd("CLIENT");
                kill.arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes");
                kill.exec_async(&mut connection).await.unwrap();
                sleep(Duration::from_millis(7)).await;
            }
        });
    }
    let mut tasks = JoinSet::new();
    for task in 0..32 {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let mut admitted = Vec::new();
            for number in 0..150 {
                let key = format!("{task}-{number}");
                match limiter.check(&Charge::new(key.as_str())).await {
                    Ok(decision) => {
                        assert!(decision.is_admitted());
                        admitted.push((key, true));
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Infrastructure, "{error:?}");
                        admitted.push((key, false));
                    }
                }
            }
            admitted
        });
    }
    let asked = tasks.join_all().await.concat();
    killers.abort_all();
    while killers.join_next().await.is_some() {}
    assert!(asked.iter().any(|(_, admitted)| !admitted), "connections were cut");
    let limiter = patient(pool(&cluster));
    for (key, admitted) in asked {
        let taken = taken(&limiter, &key).await;
        assert!(taken <= 1 && (taken == 1 || !admitted), "{key}: {taken} of 1, {admitted}");
    }
}

#[tokio::test]
async fn a_master_that_dies_harms_its_own_slots_until_its_replica_is_promoted() {
    let mut cluster = Cluster::with(3, 1, 1_000).await;
    let quota = Quota::new(MILLION, YEAR);
    let limiter = Redis::new("cluster", FixedWindow::new(quota), pool(&cluster))
        .decision_timeout(Duration::from_secs(5));
    let [dead, alive] = [0, 1].map(|master| keys_in(cluster.share(master)).next().unwrap());
    charge_all(&limiter, &[dead.clone(), alive.clone()]).await;
    cluster.kill(0);
    let error = limiter.check(&Charge::new(dead.as_str())).await.expect_err("a dead master");
    assert_eq!(error.kind(), ErrorKind::Infrastructure, "{error:?}");
    let (others, charge) = (limiter.clone(), Charge::new(alive));
    let untouched = tokio::spawn(async move {
        loop {
            others.check(&charge).await.expect("an untouched slot");
            sleep(Duration::from_millis(1)).await;
        }
    });
    cluster.until_promoted(slot_of(&dead), 0).await;
    let begun = Instant::now();
    while limiter.check(&Charge::new(dead.as_str())).await.is_err() {
        assert!(begun.elapsed() < LONG, "the promoted replica is found");
    }
    assert!(!untouched.is_finished(), "{:?}", untouched.await);
    untouched.abort();
    assert!(taken(&limiter, &dead).await >= 1);
}

#[tokio::test]
async fn a_master_that_is_demoted_is_left() {
    let cluster = Cluster::with(3, 1, 15_000).await;
    let limiter = patient(pool(&cluster));
    let key = keys_in(cluster.share(1)).next().unwrap();
    charge_all(&limiter, from_ref(&key)).await;
    // A replica that has just joined may give up, and does not try again by itself.
    let slot = slot_of(&key);
    let ask = async {
        loop {
            let mut connection = cluster.connection(4).await;
            let _ = cmd("CLUSTER").arg("FAILOVER").exec_async(&mut connection).await;
            sleep(Duration::from_secs(6)).await;
        }
    };
    tokio::select! {
        () = ask => {}
        _ = cluster.until_promoted(slot, 1) => {}
    }
    // The old master redirects, and takes no charge.
    for _ in 0..5 {
        charge_all(&limiter, from_ref(&key)).await;
    }
    assert_eq!(taken(&limiter, &key).await, 6);
}

#[tokio::test]
async fn a_slot_without_a_master_is_infrastructure_and_harms_no_other() {
    let cluster = Cluster::start().await;
    let quota = Quota::new(MILLION, YEAR);
    let limiter = Redis::new("cluster", FixedWindow::new(quota), pool(&cluster))
        .decision_timeout(Duration::from_secs(5));
    let [lost, other] = [5, 6].map(|slot| keys_in(slot..=slot).next().unwrap());
    charge_all(&limiter, &[lost.clone(), other.clone()]).await;
    for node in 0..3 {
        cluster.ask::<()>(node, cmd("CLUSTER").arg("DELSLOTS").arg(5)).await;
    }
    for _ in 0..3 {
        let error = limiter.check(&Charge::new(lost.as_str())).await.expect_err("no master");
        assert_eq!(error.kind(), ErrorKind::Infrastructure, "{error:?}");
        charge_all(&limiter, from_ref(&other)).await;
    }
}

#[tokio::test]
async fn slots_that_move_under_load_cost_no_error_and_no_unit() {
    let mut cluster = Cluster::start().await;
    let new = cluster.add().await;
    let pool = pool(&cluster);
    let limiter = patient(pool.clone());
    let pair = FixedWindow::new(Quota::new(MILLION, YEAR));
    let pair = Redis::new("pair", (pair, pair), pool).decision_timeout(LONG);
    let keys: Vec<_> = keys_in(0..=39).take(120).collect();
    let (stop, stopped) = tokio::sync::watch::channel(());
    let mut tasks = JoinSet::new();
    for task in 0..24 {
        let (limiter, pair, keys, stopped) =
            (limiter.clone(), pair.clone(), keys.clone(), stopped.clone());
        tasks.spawn(async move {
            let mut charged = vec![[0_u64; 2]; keys.len()];
            for number in task.. {
                let at = number * 7 % keys.len();
                let charge = Charge::new(keys[at].as_str());
                let which = number % 2;
                let decision = match which {
                    0 => limiter.check(&charge).await,
                    _ => pair.check(&charge).await,
                };
                assert!(decision.expect("a decision").is_admitted());
                charged[at][which] += 1;
                if stopped.has_changed().is_err() {
                    break;
                }
            }
            charged
        });
    }
    for slot in 0..40 {
        cluster.move_slot(slot, if slot % 2 == 0 { new } else { 1 }).await;
    }
    drop(stop);
    let all = timeout(LONG, tasks.join_all()).await.expect("decisions");
    for (at, key) in keys.iter().enumerate() {
        let [alone, both] =
            [0, 1].map(|which| all.iter().map(|charged| charged[at][which]).sum::<u64>());
        assert_eq!(taken(&limiter, key).await, alone, "{key}");
        assert_eq!(taken(&pair, key).await, both, "{key}");
    }
}

#[tokio::test]
async fn units_come_back_also_in_a_slot_that_moves() {
    let cluster = Cluster::start().await;
    let limiter = patient(pool(&cluster));
    let keys: Vec<_> = keys_in(11..=11).take(3).collect();
    let mut reservations = Vec::new();
    for key in &keys[..2] {
        reservations.push((key, reserve(&limiter, key).await));
    }
    let from = cluster.begin_move(11, 1).await;
    // A new key, which is where the slot moves to.
    reservations.push((&keys[2], reserve(&limiter, &keys[2]).await));
    for (key, reservation) in reservations {
        assert_eq!(limiter.refund_confirmed(reservation).await.unwrap(), 1, "{key}");
        assert_eq!(taken(&limiter, key).await, 0, "{key}");
    }
    cluster.move_keys(11, from, 1).await;
    let reservation = reserve(&limiter, &keys[0]).await;
    cluster.end_move(11, from, 1).await;
    assert_eq!(limiter.refund_confirmed(reservation).await.unwrap(), 1);
    // A refund that nobody awaits is decided before charges that come later.
    for slot in 12..32 {
        let key = keys_in(slot..=slot).next().unwrap();
        for has_moved in [false, true] {
            let reservation = reserve(&limiter, &key).await;
            if has_moved {
                cluster.move_slot(slot, 1).await;
            }
            assert!(limiter.settle(reservation, 0).is_ok());
            assert_eq!(taken(&limiter, &key).await, 0, "slot {slot}");
        }
    }
}

/// In a call, the requests of one key stand together, so a refund may stand behind charges.
#[tokio::test]
async fn a_refund_that_is_sent_again_leaves_its_slot_open() {
    let cluster = Cluster::start().await;
    let limiter = patient(pool(&cluster));
    let mut keys: Vec<_> = keys_in(7..=7).take(2).collect();
    keys.sort();
    let [first, last] = &keys[..] else { panic!("two keys") };
    let master = cluster.master_of(7).await;
    for _ in 0..5 {
        // Both scripts are known to the client, and not to the server.
        let reservation = reserve(&limiter, last).await;
        assert!(limiter.settle(reservation, 0).is_ok());
        let reservation = reserve(&limiter, last).await;
        cluster.ask::<()>(master, cmd("SCRIPT").arg("FLUSH")).await;
        let mut checks: Vec<_> = (0..4)
            .map(|_| tokio_test::task::spawn(limiter.check(&Charge::new(&**first))))
            .collect();
        for check in &mut checks {
            tokio_test::assert_pending!(check.poll());
        }
        assert!(limiter.settle(reservation, 0).is_ok());
        for check in checks {
            check.await.expect("a decision");
        }
        let decided = timeout(LONG, limiter.check(&Charge::new(&**last))).await;
        let mut decision = decided.expect("in time").expect("a decision");
        limiter.refund_confirmed(decision.take_reservation().unwrap()).await.unwrap();
    }
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

#[tokio::test]
async fn a_cluster_address_of_a_plain_server_gets_no_connection() {
    let server = support::Server::start();
    let pool = Pool::connect(&format!("redis-cluster://127.0.0.1:{}", server.port())).unwrap();
    let error = pool.ready().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration, "{error:?}");
    let cause = std::error::Error::source(&error).expect("a cause").to_string();
    assert!(cause.contains("write redis://"), "{cause}");
}

#[tokio::test]
async fn a_cluster_that_is_away_is_infrastructure_in_time() {
    let limiter = patient(Pool::connect("redis-cluster://127.0.0.1:1").unwrap());
    let error = limiter.check(&Charge::new("key")).await.expect_err("nobody there");
    assert_eq!(error.kind(), ErrorKind::Infrastructure, "{error:?}");
    let distinct: HashSet<_> = keys_in(0..=99).take(3).map(|key| slot_of(&key)).collect();
    assert!(distinct.len() > 1);
}

#[tokio::test]
async fn keys_in_buckets_share_slots_and_calls() {
    let cluster = Cluster::start().await;
    let limiter = patient(pool(&cluster)).buckets(6);
    let keys: Vec<_> = keys_in(0..=SLOTS - 1).take(200).collect();
    // The scripts are known, and the connections are there.
    charge_all(&limiter, &keys).await;
    for node in 0..3 {
        cluster.ask::<()>(node, cmd("CONFIG").arg("RESETSTAT")).await;
    }
    charge_all(&limiter, &keys).await;
    let (mut calls, mut stored) = (0, 0);
    for node in 0..3 {
        let mut connection = cluster.connection(node).await;
        calls += script_calls(&mut connection).await;
        let names: Vec<String> = cluster.ask(node, cmd("KEYS").arg("*")).await;
        assert!(names.iter().all(|name| name.starts_with("sluice:cluster:fw1:{")), "{names:?}");
        let slots: HashSet<_> = names.iter().map(|name| name.split('}').next()).collect();
        assert_eq!(slots.len(), 2, "of six buckets each master has two");
        stored += names.len();
    }
    assert_eq!(stored, keys.len());
    assert!(calls <= 60, "{calls} calls for 200 charges");
    for key in &keys {
        assert_eq!(taken(&limiter, key).await, 2, "{key}");
    }
    // Keys of one slot that moves are decided one by one.
    let (key, from) = (&keys[0], 0);
    let bucket: Vec<String> = cluster.ask(from, cmd("KEYS").arg("*")).await;
    let tag = bucket[0].split(['{', '}']).nth(1).expect("a bucket").to_owned();
    let slot = slot_of(&tag);
    cluster.begin_move(slot, 1).await;
    charge_all(&limiter, &keys).await;
    cluster.move_keys(slot, from, 1).await;
    charge_all(&limiter, &keys).await;
    cluster.end_move(slot, from, 1).await;
    assert_eq!(taken(&limiter, key).await, 4);
}

#[tokio::test]
async fn members_in_one_bucket_are_asked_in_one_call() {
    let cluster = Cluster::start().await;
    let pool = pool(&cluster);
    let member = |name: &str| {
        let quota = Quota::new(MILLION, YEAR);
        Redis::new(name, FixedWindow::new(quota), pool.clone()).decision_timeout(LONG).buckets(1)
    };
    let (user, all) = (member("user"), member("all"));
    let both = AllAtOnce::new((user.clone(), all.clone()), |charge: &Charge| {
        [charge.clone(), Charge::new("everybody")]
    });
    for user in ["alice", "bob", "carol"] {
        assert!(both.check(&Charge::new(user)).await.expect("a decision").is_admitted());
    }
    assert_eq!((taken(&user, "bob").await, taken(&all, "everybody").await), (1, 3));
}
