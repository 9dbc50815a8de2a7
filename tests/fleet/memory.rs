//! The memory, tasks and descriptors that a process keeps after many keys and many failures.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tower_sluice::algorithm::FixedWindow;
use tower_sluice::{Charge, Limiter, Pool, Redis};

use crate::server;
use crate::worker::counter;
use support::Server;
use support::cluster::Cluster;
use support::faults::{LONG, MILLION, size, until_well};
use support::process::{memory, open_files};

const TASKS: u64 = 1_024;
const MOST_GROWTH_KIB: u64 = 10 * 1_024;

/// Tasks that may be making a connection while servers are away, one for each of three.
const CONNECTING: usize = 3;

/// The memory, tasks and descriptors of the process now, as Linux counts them.
struct Held {
    kib: u64,
    tasks: usize,
    descriptors: usize,
}

impl Held {
    fn now() -> Self {
        let own = std::process::id();
        Self {
            kib: memory(own) >> 10,
            tasks: Handle::current().metrics().num_alive_tasks(),
            descriptors: open_files(own),
        }
    }
}

/// Charges keys that no one has charged before. Returns how many were decided.
async fn charge(limiter: &Redis<FixedWindow>, kind: &'static str, charges: u64) -> u64 {
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (limiter, next) = (limiter.clone(), Arc::clone(&next));
        tasks.spawn(async move {
            let mut decided = 0;
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= charges {
                    return decided;
                }
                let charge = Charge::new(format!("{kind}-{number}"));
                decided += u64::from(limiter.check(&charge).await.is_ok());
            }
        });
    }
    tasks.join_all().await.into_iter().sum()
}

async fn measure(topology: &str, url: &str, kill: impl FnOnce(), restart: Option<impl FnOnce()>) {
    let charges = size("FLEET_CHARGES", MILLION);
    let limiter = counter(Pool::connect(url).expect("an address"));
    let patient = limiter.clone().decision_timeout(LONG);
    // The first of each kind fill caches and the allocator's own lists.
    assert_eq!(charge(&patient, "first", charges / 10).await, charges / 10);
    let before = Held::now();
    assert_eq!(charge(&patient, "key", charges).await, charges);
    let after_keys = Held::now();
    kill();
    // What the servers read before they ended may still be answered.
    let decided = charge(&limiter, "failed", charges).await;
    assert!(decided <= TASKS, "{decided} decisions without a server");
    let after_failures = Held::now();
    if let Some(restart) = restart {
        restart();
        until_well(&limiter).await;
    }
    let after = Held::now();
    let growth = |held: &Held| held.kib.saturating_sub(before.kib);
    println!(
        "fleet name=memory topology={topology} server={} keys={charges} failures={charges} \
         growth_after_keys_kib={} growth_after_failures_kib={} growth_kib={} tasks={}->{} \
         descriptors={}->{}",
        server(),
        growth(&after_keys),
        growth(&after_failures),
        growth(&after),
        before.tasks,
        after.tasks,
        before.descriptors,
        after.descriptors,
    );
    for held in [after_keys, after_failures, after] {
        assert!(growth(&held) <= MOST_GROWTH_KIB, "{} KiB more", growth(&held));
        let tasks = before.tasks + CONNECTING;
        assert!(held.tasks <= tasks, "{} tasks", held.tasks);
        assert!(held.descriptors <= before.descriptors, "{} descriptors", held.descriptors);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_one_server() {
    let server = RefCell::new(Server::start());
    let url = server.borrow().url();
    let kill = || server.borrow_mut().kill();
    let restart = || server.borrow_mut().restart();
    measure("server", &url, kill, Some(restart)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_a_cluster() {
    let mut cluster = Cluster::start().await;
    let url = cluster.url();
    let kill = || (0..3).for_each(|master| cluster.kill(master));
    measure("cluster", &url, kill, None::<fn()>).await;
}
