//! A world that goes on: after some thousand faults a process has the memory, the tasks and the
//! connections that it had before. `FAULTS=10000` says how many.

use std::process::{Command, Stdio};

use fastrand::Rng;
use tokio::runtime::{Builder, Handle};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{Charge, Limiter, LimiterExt, Quota, Redis};

use super::network::{Network, Odds};
use super::number;
use super::plan::{MILLISECOND, SECOND};
use super::servers::{Servers, Topology};
use super::world::TIMEOUT;
use support::process::memory;

/// Says which topology this process measures.
const MEASURED: &str = "SLUICE_ENDURES";

/// Faults until all that is kept has been made once.
const WARM_UP: usize = 3_000;

/// The faults after it, unless `FAULTS` says another number.
const DEFAULT_FAULTS: u64 = 3_000;

/// The most that the process may grow meanwhile: less than 60 bytes for each of 10,000 faults.
const MAX_GROWTH: u64 = 600_000;

/// Tasks and connections that a quiet process keeps.
const MAX_TASKS: usize = 20;
const MAX_CONNECTIONS: usize = 8;

/// Lives until so many faults have happened. Returns the memory then.
async fn endure(topology: &Topology) -> (usize, u64, u64) {
    let mut dice = Rng::with_seed(1);
    let network = Network::start(dice.u64(..));
    let servers = Servers::start(topology, &network, dice.u64(..));
    let pool = servers.pool(&network.dialer()).build().expect("a pool");
    let bucket = TokenBucket::new(Quota::new(5, SECOND / 10));
    let limiter = Redis::new("api", bucket, pool).decision_timeout(TIMEOUT);
    let (mut odds, mut faults, mut warm) = (Odds::default(), 0, None);
    odds.all_mut().into_iter().for_each(|odd| *odd = 12);
    let most = number("FAULTS", DEFAULT_FAULTS) as usize;
    loop {
        network.set_odds(odds);
        for _ in 0..200 {
            let (limiter, key) = (limiter.clone(), ["a", "b", "c"][dice.usize(0..3)]);
            let charge = Charge::new(key).max_wait(MILLISECOND * dice.u32(0..200));
            let patience = MILLISECOND * dice.u32(1..300);
            let settles = dice.bool();
            spawn_local(async move {
                let asked = timeout(patience, limiter.acquire(charge)).await;
                let Ok(Ok(mut decision)) = asked else { return };
                if let (true, Some(reservation)) = (settles, decision.take_reservation()) {
                    drop(limiter.settle(reservation, 0));
                }
            });
            sleep(MILLISECOND * dice.u32(1..20)).await;
        }
        network.set_odds(Odds::default());
        sleep(4 * SECOND).await;
        let (tasks, open) = (Handle::current().metrics().num_alive_tasks(), network.open());
        assert!(tasks <= MAX_TASKS, "{tasks} tasks are left when all is quiet");
        assert!(open <= MAX_CONNECTIONS, "{open} connections are left when all is quiet");
        servers.hosts().iter().for_each(|(_, host)| host.server().forget_book());
        faults += network.forget();
        match warm {
            None if faults >= WARM_UP => warm = Some((faults, memory(std::process::id()))),
            Some((from, begin)) if faults >= from + most => {
                return (faults - from, begin, memory(std::process::id()));
            }
            _ => {}
        }
    }
}

/// Each topology has a process of its own, side by side.
#[test]
fn thousands_of_faults_leave_nothing_behind() {
    let topologies = [Topology::One, Topology::Cluster { masters: 3, replicas: 0 }];
    let Ok(place) = std::env::var(MEASURED) else {
        let name = std::thread::current().name().expect("a test").to_owned();
        let start = |place: usize| {
            let mut own = Command::new(std::env::current_exe().expect("a program"));
            own.args([&name, "--exact", "--nocapture"]).env(MEASURED, place.to_string());
            own.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
        };
        for child in [0, 1].map(start) {
            let child = child.wait_with_output().expect("it runs");
            print!("{}", String::from_utf8_lossy(&child.stdout));
            assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        }
        return;
    };
    let topology = &topologies[place.parse::<usize>().expect("a place")];
    fastrand::seed(1);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let (faults, begin, end) = LocalSet::new().block_on(&runtime, endure(topology));
    let growth = end.saturating_sub(begin);
    println!("endurance faults={faults} bytes={begin} grown_by={growth}");
    assert!(growth <= MAX_GROWTH, "{growth} bytes more after {faults} faults");
}
