//! Processes over a cluster: a master is killed and its replica promoted, slots move, and a master
//! is added.

use std::time::Duration;

use tokio::time::sleep;

use crate::judge::{is_error, judge, kinds, longest_gap_ms};
use crate::server;
use crate::worker::{Answer, Kind, Load, Process, key, now};
use support::cluster::{Cluster, slot_of};
use support::faults::size;

const MOVED_SLOTS: u16 = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_faults() {
    let seconds = size("FLEET_SECONDS", 60);
    let mut cluster = Cluster::with(3, 1, 2_000).await;
    let url = cluster.url();
    let processes = Process::start_all(&url, seconds, Load::BUSY);

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

    let judged = judge(&answers, &url).await;
    let is_of_dead = |answer: &Answer| cluster.share(0).contains(&slot_of(&key(answer.key)));
    let (dead, others): (Vec<_>, Vec<_>) = answers.iter().copied().partition(is_of_dead);
    println!(
        "fleet name=cluster_faults server={} decisions={} {judged} errors={} \
         errors_of_the_dead={:?} errors_of_others={:?} \
         gap_of_the_dead_ms={} gap_of_others_ms={} promoted_after_ms={} slots_moved={MOVED_SLOTS} moved_in_ms={moved_ms}",
        server(),
        answers.len(),
        answers.iter().filter(|answer| is_error(answer)).count(),
        kinds(&dead),
        kinds(&others),
        longest_gap_ms(&dead),
        longest_gap_ms(&others),
        (promoted - killed) / 1_000,
    );
    judged.assert_well();
    let is = |kind| move |answer: &Answer| answer.kind == kind;
    assert!(!others.iter().any(is(Kind::Infrastructure)), "{:?}", kinds(&others));
    assert!(!answers.iter().any(is(Kind::Other)), "{:?}", kinds(&answers));
    // They notice nothing, but for a machine that stands still at times.
    assert!(longest_gap_ms(&others) < 2_000, "{} ms", longest_gap_ms(&others));
}
