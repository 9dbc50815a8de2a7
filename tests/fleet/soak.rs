//! Processes over a server that fails every few seconds: what they hold stays the same, and nothing
//! goes over.
//!
//! The server writes each command to its disk before it answers, so that a crash loses nothing.
//! Then units that are admitted beyond the bucket have no excuse.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_sluice::{LimiterExt, Pool};

use crate::judge::{is_error, judge, kinds};
use crate::server;
use crate::worker::{Answer, Kind, Load, Process, counter};
use support::Server;
use support::faults::{size, until_well};
use support::process::{memory, open_files};

const MOST_GROWTH_KIB: u64 = 4 * 1_024;

/// Connections that a process may have open for a moment, beside those it had at the beginning.
const CONNECTING: usize = 2;

const LOAD: Load = Load { tasks: 16, pause_ms: 200 };

/// The faults, each as often as the others.
const FAULTS: [&str; 4] = ["cut", "forgotten_scripts", "pause", "crash"];

/// The memory and the descriptors of a process.
#[derive(Clone, Copy, Debug)]
struct Held {
    kib: u64,
    descriptors: usize,
}

impl Held {
    fn of(process: &Process) -> Self {
        Self { kib: memory(process.id()) >> 10, descriptors: open_files(process.id()) }
    }
}

async fn strike(server: &mut Server, fault: &str, random: &mut fastrand::Rng) {
    match fault {
        "cut" => {
            let mut connection = server.connection().await;
            let mut kill = redis::cmd("CLIENT");
            kill.arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes");
            kill.query_async::<u64>(&mut connection).await.expect("connections");
        }
        "forgotten_scripts" => {
            let mut connection = server.connection().await;
            let mut flush = redis::cmd("SCRIPT");
            flush.arg("FLUSH").exec_async(&mut connection).await.expect("no scripts");
        }
        "pause" => {
            server.signal("STOP");
            sleep(Duration::from_millis(random.u64(100..3_000))).await;
            server.signal("CONT");
        }
        _ => {
            server.kill();
            sleep(Duration::from_millis(random.u64(0..2_000))).await;
            server.restart();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn soak() {
    let seconds = size("FLEET_SECONDS", 60);
    let mut redis = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let url = redis.url();
    let probe = counter(Pool::connect(&url).expect("an address"));
    let processes = Process::start_all(&url, seconds, LOAD);
    let (begun, mut random) = (Instant::now(), fastrand::Rng::with_seed(seconds));
    let mut struck = [0_u64; FAULTS.len()];
    // Connections, scripts and the lists of the allocator come first.
    let mut first: Option<Vec<Held>> = None;
    let mut last = Vec::new();
    let each = Duration::from_secs((seconds / 10).min(60));
    let mut next_line = each;
    // The processes end by themselves, and are looked at before.
    while begun.elapsed() + Duration::from_secs(10) < Duration::from_secs(seconds) {
        let fault = random.usize(..FAULTS.len());
        strike(&mut redis, FAULTS[fault], &mut random).await;
        struck[fault] += 1;
        until_well(&probe).await;
        sleep(Duration::from_millis(random.u64(500..5_000))).await;
        if begun.elapsed() < next_line {
            continue;
        }
        last = processes.iter().map(Held::of).collect();
        first.get_or_insert_with(|| last.clone());
        next_line = begun.elapsed() + each;
        let kib: Vec<_> = last.iter().map(|held| held.kib).collect();
        let descriptors: Vec<_> = last.iter().map(|held| held.descriptors).collect();
        println!(
            "soak server={} second={} faults={} kib={kib:?} descriptors={descriptors:?}",
            server(),
            begun.elapsed().as_secs(),
            struck.iter().sum::<u64>(),
        );
    }
    let answers: Vec<Answer> = processes.into_iter().flat_map(Process::finish).collect();
    let judged = judge(&answers, &url).await;
    let growth = first.iter().flatten().zip(&last).map(|(first, last)| {
        (last.kib.saturating_sub(first.kib), last.descriptors.saturating_sub(first.descriptors))
    });
    let growth: Vec<_> = growth.collect();
    let faults: Vec<_> = FAULTS.iter().zip(struck).collect();
    println!(
        "fleet name=soak server={} seconds={seconds} decisions={} {judged} errors={:?} \
         faults={faults:?} growth_kib_and_descriptors={growth:?}",
        server(),
        answers.len(),
        kinds(&answers),
    );
    judged.assert_well();
    judged.assert_none_lost();
    assert!(!answers.iter().any(|answer| answer.kind == Kind::Other), "{:?}", kinds(&answers));
    assert!(answers.iter().any(|answer| !is_error(answer)), "no decision");
    for (kib, descriptors) in growth {
        assert!(kib <= MOST_GROWTH_KIB, "{kib} KiB more");
        assert!(descriptors <= CONNECTING, "{descriptors} descriptors more");
    }
    probe.peek("end").await.map(drop).expect("the server is well");
}
