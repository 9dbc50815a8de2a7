//! Processes over a cluster: a master is killed and its replica promoted, slots move, and a master
//! is added.
//!
//! What goes over is compared with the acknowledged writes that the promoted replica never had. The
//! bucket and the counter of a key are written together, so the counter tells how many are lost.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::sleep;
use tower_sluice::{LimiterExt, Pool};

use crate::server;
use crate::support::cluster::{Cluster, slot_of};
use crate::support::faults::{LONG, MILLION, size};
use crate::worker::{Answer, BURST, KEYS, Kind, Process, RATE, counter, key, now};

const PROCESSES: usize = 4;
const MOVED_SLOTS: u16 = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_faults() {
    let seconds = size("FLEET_SECONDS", 60);
    let mut cluster = Cluster::with(3, 1, 2_000).await;
    let url = cluster.url();
    let mut processes: Vec<_> =
        (0..PROCESSES).map(|number| Process::start(number, &url, seconds)).collect();
    processes.iter_mut().for_each(Process::until_ready);

    sleep(Duration::from_secs(seconds / 6)).await;
    let killed = now();
    cluster.kill(0);
    cluster.until_promoted(0, 0).await;
    let promoted = now();
    sleep(Duration::from_secs(seconds / 6)).await;
    let new = cluster.add().await;
    let share: Vec<u16> = cluster.share(1).collect();
    let begun = now();
    for slot in &share[..usize::from(MOVED_SLOTS)] {
        cluster.move_slot(*slot, new).await;
    }
    let moved_ms = (now() - begun) / 1_000;
    let answers = processes.into_iter().flat_map(Process::finish).collect::<Vec<_>>();

    // Late charges are decided before the counters are read.
    sleep(Duration::from_secs(2)).await;
    let limiter = counter(Pool::connect(&url).expect("an address")).decision_timeout(LONG);
    let (mut over, mut unexplained, mut lost, mut twice) = (0, 0, 0, 0);
    for number in 0..KEYS {
        let of_key: Vec<_> = answers.iter().filter(|answer| answer.key == number).collect();
        let mut admitted: Vec<_> = of_key
            .iter()
            .filter_map(|answer| match answer.kind {
                Kind::Admitted(decided) => Some(decided),
                _ => None,
            })
            .collect();
        admitted.sort_unstable();
        let failed = of_key.iter().filter(|answer| is_error(answer)).count() as u64;
        let left = limiter.peek(key(number)).await.expect("a decision").remaining();
        let kept = MILLION * MILLION - left.expect("known");
        let lost_here = (admitted.len() as u64).saturating_sub(kept);
        let over_here = excess(&admitted);
        lost += lost_here;
        over += over_here;
        unexplained += over_here.saturating_sub(lost_here);
        // A charge that failed may have been counted, and no charge twice.
        twice += kept.saturating_sub(admitted.len() as u64 + failed);
    }

    let is_of_dead = |answer: &Answer| cluster.share(0).contains(&slot_of(&key(answer.key)));
    let (dead, others): (Vec<_>, Vec<_>) = answers.iter().copied().partition(is_of_dead);
    println!(
        "fleet name=cluster_faults server={} decisions={} over={unexplained} over_by_lost_writes={} \
         lost_writes={lost} twice={twice} errors={} errors_of_the_dead={:?} errors_of_others={:?} \
         gap_of_the_dead_ms={} gap_of_others_ms={} promoted_after_ms={} slots_moved={MOVED_SLOTS} moved_in_ms={moved_ms}",
        server(),
        answers.len(),
        over - unexplained,
        answers.iter().filter(|answer| is_error(answer)).count(),
        kinds(&dead),
        kinds(&others),
        longest_gap_ms(&dead),
        longest_gap_ms(&others),
        (promoted - killed) / 1_000,
    );
    assert_eq!((unexplained, twice), (0, 0));
    assert!(
        others.iter().all(|answer| answer.kind != Kind::Infrastructure),
        "{:?}",
        kinds(&others)
    );
}

fn is_error(answer: &Answer) -> bool {
    !matches!(answer.kind, Kind::Admitted(_) | Kind::Refused)
}

/// The units beyond what the bucket admits, by the instants of the decisions.
fn excess(admitted: &[u64]) -> u64 {
    let unit = 1_000_000 / RATE;
    let (mut full_at, mut over) = (0, 0);
    for instant in admitted {
        let next = full_at.max(*instant) + unit;
        if next > instant + BURST * unit {
            over += 1;
        } else {
            full_at = next;
        }
    }
    over
}

/// The errors by their kind.
fn kinds(answers: &[Answer]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for answer in answers.iter().filter(|answer| is_error(answer)) {
        *kinds.entry(format!("{:?}", answer.kind)).or_default() += 1;
    }
    kinds
}

/// The longest time without a decision.
fn longest_gap_ms(answers: &[Answer]) -> u64 {
    let decided = answers.iter().filter(|answer| !is_error(answer));
    let mut instants: Vec<_> = decided.map(|answer| answer.at).collect();
    instants.sort_unstable();
    instants.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) / 1_000
}
