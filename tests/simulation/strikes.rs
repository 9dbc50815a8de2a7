//! Each disturbance of the servers, and the client that lives through it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;
use tokio::task::{JoinSet, LocalSet, spawn_local};
use tokio::time::{Instant, sleep, timeout};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{Charge, Limiter, LimiterExt, Pool, Quota, Redis};

use super::book::{Change, Event};
use super::host::Host;
use super::keyspace::Entry;
use super::network::{Network, Odds};
use super::server::{Mode, Role, Server, Service};
use super::servers::{ANYWHERE, Servers, Strike, StrikeKind, Topology};
use super::two_that_differ;
use super::world::{begin_turns, longest_turn, watch_turns};

/// The longest time that all strikes and their healing take.
const MOST: Duration = Duration::from_secs(60);

/// The longest time after a strike until everything is decided again.
const RECOVERY: Duration = Duration::from_secs(1);

/// The pause after a failure takes at least as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The pause of each of several callers between two charges.
const PACE: Duration = Duration::from_millis(20);

/// The time that a strike lasts, or by which a clock steps.
const LASTING: Duration = Duration::from_millis(300);

/// The decisions and failures, around a strike, of a limiter that is asked all the time.
#[derive(Default)]
struct Outcome {
    /// Charges that failed from the strike on until a second after it.
    failed: usize,
    /// Charges that were decided meanwhile.
    decided: usize,
    /// The book of each server.
    books: Vec<Vec<Event>>,
    /// The longest turn of the runtime's thread, in real time.
    longest_turn: Duration,
}

/// Asks all the time, and strikes at some instants.
fn live_through(topology: &Topology, seed: u64, strikes: &[(Duration, Strike)]) -> Outcome {
    let mut runtime = Builder::new_current_thread();
    watch_turns(runtime.enable_time().start_paused(true));
    let world = async {
        begin_turns();
        fastrand::seed(seed);
        let network = Network::start(seed);
        let servers = Servers::start(topology, &network, seed);
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
            outcome.books.push(server.book().events().to_vec());
            keys.extend(
                (server.role == Role::Primary).then(|| server.keys()).into_iter().flatten(),
            );
        }
        keys.sort_unstable();
        let count = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), count, "seed {seed}: {strikes:?}");
        servers.shut_down();
        outcome.longest_turn = longest_turn();
        outcome
    };
    LocalSet::new().block_on(&runtime.build().expect("a runtime"), world)
}

/// A connection that became useless in a fault is noticed when it is needed, which may be long
/// after. By then there is no reason to pause.
#[test]
fn an_idle_process_is_decided_at_once_when_the_server_is_well() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let world = async {
        let network = Network::start(7);
        let servers = Servers::start(&Topology::One, &network, 7);
        let pool = servers.pool(&network.dialer()).size(1).build().expect("a pool");
        let limiter = Redis::new("api", TokenBucket::new(Quota::per_second(1_000)), pool);
        limiter.acquire("a").await.expect("a decision");
        let strike = Strike { kind: StrikeKind::ReadOnly, place: 0, lasting: LASTING };
        let (struck, refused) = tokio::join!(servers.strike(&strike), async {
            sleep(LASTING / 3).await;
            limiter.acquire("a").await
        });
        let ((), _) = (struck, refused.expect_err("it takes no writes"));
        sleep(RECOVERY).await;
        let asked = Instant::now();
        limiter.acquire("a").await.expect("a decision");
        assert!(asked.elapsed() < FIRST_PAUSE, "{:?}", asked.elapsed());
    };
    LocalSet::new().block_on(&runtime.expect("a runtime"), world);
}

/// The system may take a quarter of an hour to close a connection that swallows what is sent.
// Case 6.
#[test]
fn rare_callers_leave_a_dead_connection() {
    for topology in [
        Topology::One,
        Topology::Sentinels { replicas: 1, sentinels: 3 },
        Topology::Cluster { masters: 3, replicas: 0 },
    ] {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let world = async {
            let network = Network::start(10);
            let servers = Servers::start(&topology, &network, 10);
            let pool = servers.pool(&network.dialer()).size(1).build().expect("a pool");
            let limiter = Redis::new("api", TokenBucket::new(Quota::per_second(1_000)), pool);
            limiter.acquire("a").await.expect("a decision");
            network.set_odds(Odds { half_open: 1, ..Odds::default() });
            limiter.acquire("a").await.expect_err("it is swallowed");
            network.set_odds(Odds::default());
            sleep(100 * RECOVERY).await;
            // It may be one pause of the server: the next call shows that it is not.
            let _ = limiter.acquire("a").await;
            sleep(100 * RECOVERY).await;
            let decided = limiter.acquire("a").await;
            assert!(decided.is_ok(), "{topology:?}: {decided:?}");
        };
        LocalSet::new().block_on(&runtime.expect("a runtime"), world);
    }
}

/// Nobody needed a connection since the server was struck: what is given back makes one.
#[test]
fn units_come_back_also_where_no_connection_is_left() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let world = async {
        let network = Network::start(8);
        let servers = Servers::start(&Topology::One, &network, 8);
        let pool = servers.pool(&network.dialer()).build().expect("a pool");
        let limiter = Redis::new("api", TokenBucket::new(Quota::per_day(5)), pool);
        let mut taken = Vec::new();
        for key in ["a", "b"] {
            let mut decision = limiter.check(&key.into()).await.expect("a decision");
            taken.extend(decision.take_reservation());
        }
        let strike = Strike { kind: StrikeKind::CrashKeepingData, place: 0, lasting: LASTING };
        servers.strike(&strike).await;
        let [first, second] = taken.try_into().expect("two reservations");
        let settlement = limiter.settle(first, 0).expect("its own reservation");
        assert_eq!(settlement.await.expect("a refund").given_back, 1);
        servers.strike(&strike).await;
        drop(limiter.settle(second, 0).expect("its own reservation"));
        sleep(RECOVERY).await;
        let left = limiter.check(&Charge::new("b").cost(0)).await.expect("a decision");
        assert_eq!(left.remaining(), Some(5));
    };
    LocalSet::new().block_on(&runtime.expect("a runtime"), world);
}

/// Those who ask before there is a connection wait for the same one.
#[test]
fn charges_that_wait_for_a_connection_are_decided_in_the_order_of_their_callers() {
    for seed in 0..20 {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let world = async {
            let network = Network::start(seed);
            let servers = Servers::start(&Topology::One, &network, seed);
            let pool = servers.pool(&network.dialer()).build().expect("a pool");
            let limiter = Redis::new("api", TokenBucket::new(Quota::per_second(1_000)), pool);
            let charge = || Charge::new("a").cost(900).max_wait(Duration::from_secs(9));
            let check = |_| spawn_local(limiter.check(&charge()));
            let mut last = None;
            for asked in (0..5).map(check).collect::<Vec<_>>() {
                let decided = asked.await.expect("no panic").expect("a decision");
                assert!(Some(decided.waited()) > last, "seed {seed}: {decided:?}");
                last = Some(decided.waited());
            }
        };
        LocalSet::new().block_on(&runtime.expect("a runtime"), world);
    }
}

/// Two sentinels name two servers, and both are replicas: each of them is asked with pauses.
#[test]
fn two_servers_of_which_none_is_the_primary_are_asked_with_pauses() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let world = async {
        let network = Network::start(9);
        for (name, sentinel) in [("one", "sentinel-1"), ("two", "sentinel-2")] {
            let mut server = Server::new(name, 6_379);
            let primary = (name.to_owned(), 6_379);
            server.role = Role::Replica { of: primary.clone() };
            network.add_host(name, Host::new(server));
            let mut server = Server::new(sentinel, 26_379);
            let service = Service { primary, epoch: 1 };
            server.mode = Mode::Sentinel(BTreeMap::from([("main".to_owned(), service)]));
            network.add_host(sentinel, Host::new(server));
        }
        let url = "redis-sentinel://sentinel-1?sentinelServiceName=main&node=sentinel-2:26379";
        let dialer = network.dialer();
        let pool = Pool::builder(url).expect("an address").size(1);
        let pool = pool.dial(move |host, _| dialer.clone().dial(host)).build().expect("a pool");
        let limiter = Redis::new("api", TokenBucket::new(Quota::per_second(1_000)), pool);
        let begun = Instant::now();
        while begun.elapsed() < 10 * RECOVERY {
            limiter.acquire("a").await.expect_err("no primary");
            sleep(PACE).await;
        }
        let dials = network.dials();
        let asked = dials.iter().filter(|one| ["one", "two"].contains(&one.host.as_str()));
        let count = asked.count();
        let most = (begun.elapsed().as_millis() / FIRST_PAUSE.as_millis()) as usize;
        assert!((10..=most).contains(&count), "{count} of {most}");
    };
    LocalSet::new().block_on(&runtime.expect("a runtime"), world);
}

/// Lives through some strikes at some places.
fn live_through_all(topology: &Topology, kinds: &[StrikeKind], places: u32) {
    for kind in kinds {
        for place in 0..places {
            let place = place * 5;
            let strike = Strike { kind: *kind, place, lasting: LASTING };
            let outcome = live_through(topology, place.into(), &[(Duration::ZERO, strike)]);
            let Outcome { failed, decided, .. } = outcome;
            println!("{kind:?} at {place}: {failed} failed, {decided} decided");
        }
    }
}

use StrikeKind::*;

#[test]
fn one_server_is_struck() {
    live_through_all(&Topology::One, ANYWHERE, 2);
    live_through_all(&Topology::One, &[ReadOnly], 1);
}

#[test]
fn sentinels_and_their_servers_are_struck() {
    let topology = Topology::Sentinels { replicas: 2, sentinels: 3 };
    live_through_all(&topology, ANYWHERE, 1);
    let own = [ReadOnly, Failover, ManualFailover, SplitBrain, SentinelCrash, SentinelStale];
    live_through_all(&topology, &own, 2);
}

#[test]
fn a_cluster_is_struck() {
    let topology = Topology::Cluster { masters: 3, replicas: 1 };
    live_through_all(&topology, ANYWHERE, 1);
    let own = [MoveSlots, TakeSlots, ClusterDown, NodeFailover, SlotMapStale];
    live_through_all(&topology, &own, 2);
}

/// Several strikes that a seed draws, in little time.
fn strikes_of(topology: &Topology, seed: u64) -> Vec<(Duration, Strike)> {
    let mut dice = Rng::with_seed(seed);
    (0..dice.usize(2..8))
        .map(|_| (LASTING * dice.u32(0..8), Strike::draw(&mut dice, topology)))
        .collect()
}

/// The seeds that run, unless `SEED` and `SEEDS` say others, each with all topologies.
fn worlds(count: u64) -> impl Iterator<Item = (u64, Topology)> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let (first, count) = (number("SEED").unwrap_or(0), number("SEEDS").unwrap_or(count));
    (first..first + count).flat_map(|seed| {
        let topologies = [
            Topology::One,
            Topology::Sentinels { replicas: 2, sentinels: 3 },
            Topology::Cluster { masters: 3, replicas: 1 },
        ];
        topologies.map(|topology| (seed, topology))
    })
}

#[test]
fn a_world_leaves_nothing_in_its_thread() {
    for (seed, topology) in worlds(1) {
        let strikes = strikes_of(&topology, seed);
        let differing = two_that_differ(|| {
            let outcome = live_through(&topology, seed, &strikes);
            (outcome.books, outcome.longest_turn)
        });
        let Some([once, again]) = differing else { continue };
        for (one, other) in once.iter().zip(&again) {
            for (number, (event, same)) in one.iter().zip(other).enumerate() {
                assert_eq!(event, same, "seed {seed}, {topology:?}, event {number}: {strikes:?}");
            }
        }
        panic!("seed {seed}: one book is longer");
    }
}

#[test]
fn servers_heal_from_many_strikes_at_once() {
    for (seed, topology) in worlds(2) {
        live_through(&topology, seed, &strikes_of(&topology, seed));
    }
}

#[test]
fn keys_move_between_servers_with_their_versions() {
    let topology = Topology::Cluster { masters: 2, replicas: 0 };
    let strike = Strike { kind: MoveSlots, place: 1, lasting: LASTING };
    let books = live_through(&topology, 1, &[(Duration::ZERO, strike)]).books;
    let changes: Vec<_> = books.iter().flatten().filter_map(change_of).collect();
    let left = changes.iter().find(|change| change.after.is_none()).expect("a key that left");
    let version = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.version);
    let has_come = |change: &&&Change| {
        change.before.is_none() && version(&change.after) == version(&left.before)
    };
    assert_eq!(changes.iter().find(has_come).map(|change| &change.key), Some(&left.key));
}

#[test]
fn a_failover_loses_what_was_not_copied_and_nothing_else() {
    let topology = Topology::Sentinels { replicas: 1, sentinels: 3 };
    for (kind, may_lose) in [(Failover, true), (SplitBrain, true), (ManualFailover, false)] {
        let mut lost = 0;
        for place in 0..4 {
            let strike = Strike { kind, place, lasting: LASTING };
            let books = live_through(&topology, place.into(), &[(Duration::ZERO, strike)]).books;
            // The old primary is replaced once: its last states are known to the new one, or lost.
            let replaced = |event: &&Event| matches!(event, Event::Replaced { .. });
            assert_eq!(books[0].iter().filter(replaced).count(), 1, "{kind:?} at {place}");
            let at = books[0].iter().position(|event| replaced(&event)).expect("once");
            let written = books[0][..at].iter().filter_map(version_of).collect::<BTreeSet<_>>();
            let copied = books[1].iter().filter_map(version_of).collect::<BTreeSet<_>>();
            lost += written.difference(&copied).count();
        }
        assert_eq!(lost > 0, may_lose, "{kind:?}: {lost}");
    }
}

fn version_of(event: &Event) -> Option<u64> {
    change_of(event)?.after.as_ref().map(|entry| entry.version)
}

fn change_of(event: &Event) -> Option<&Change> {
    match event {
        Event::Change(change) => Some(change),
        _ => None,
    }
}

#[test]
fn a_subscriber_hears_of_a_switch_without_asking() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let world = async {
        let network = Network::start(1);
        let mut server = Server::new("sentinel", 26_379);
        server.mode = Mode::Sentinel(BTreeMap::new());
        let host = Host::new(server);
        network.add_host("sentinel", Rc::clone(&host));
        let mut socket = network.dialer().dial("sentinel".into()).await.expect("a socket");
        socket.write_all(b"SUBSCRIBE +switch-master\r\n").await.expect("open");
        let mut bytes = [0; 256];
        let size = socket.read(&mut bytes).await.expect("an answer");
        assert!(size > 0);
        host.stand_for(LASTING);
        host.switch_primary("main", ("a".into(), 1), 1);
        let begun = Instant::now();
        let size = socket.read(&mut bytes).await.expect("news");
        assert!(begun.elapsed() >= LASTING);
        assert!(bytes[..size].ends_with(b"main a 1 a 1\r\n"));
    };
    LocalSet::new().block_on(&runtime.expect("a runtime"), world);
}
