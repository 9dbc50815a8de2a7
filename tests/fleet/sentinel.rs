//! Processes over a primary and its replica, which sentinels watch: the primary is killed, comes
//! back as a replica, and is made the primary again while the other lives on.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::judge::{is_error, judge, kinds, longest_gap_ms};
use crate::server;
use crate::worker::{Kind, Load, Process, now};
use support::faults::{LONG, size};
use support::sentinel::Replicated;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_failovers() {
    let seconds = size("FLEET_SECONDS", 60);
    let mut fleet = Replicated::start_impatient().await;
    let url = fleet.url();
    let processes = Process::start_all(&url, seconds, Load::BUSY);

    sleep(Duration::from_secs(seconds / 6)).await;
    let killed = now();
    fleet.servers[0].kill();
    until_primary(&fleet, 1).await;
    let promoted = now();
    fleet.servers[0].restart();
    fleet.servers[0].until_info("master_link_status:up").await;
    sleep(Duration::from_secs(seconds / 6)).await;
    fleet.sentinels[0].fail_over().await;
    until_primary(&fleet, 0).await;
    let handed_over_ms = (now() - promoted) / 1_000;
    let answers = processes.into_iter().flat_map(Process::finish).collect::<Vec<_>>();

    let judged = judge(&answers, &url).await;
    let [mut before, mut after] = [Vec::new(), Vec::new()];
    for answer in &answers {
        let is_before = answer.at < promoted + 2_000_000;
        if is_before { &mut before } else { &mut after }.push(*answer);
    }
    println!(
        "fleet name=sentinel_failovers server={} decisions={} {judged} errors={} \
         errors_of_the_crash={:?} errors_of_the_handover={:?} gap_of_the_crash_ms={} \
         gap_of_the_handover_ms={} promoted_after_ms={} handed_over_after_ms={handed_over_ms}",
        server(),
        answers.len(),
        answers.iter().filter(|answer| is_error(answer)).count(),
        kinds(&before),
        kinds(&after),
        longest_gap_ms(&before),
        longest_gap_ms(&after),
        (promoted - killed) / 1_000,
    );
    judged.assert_well();
    assert!(!answers.iter().any(|answer| answer.kind == Kind::Other), "{:?}", kinds(&answers));
}

/// Waits until all sentinels name a server as the primary.
async fn until_primary(fleet: &Replicated, number: usize) {
    let named = format!(" port {} ", fleet.servers[number].port());
    let begun = Instant::now();
    for sentinel in &fleet.sentinels {
        sentinel.until(|fields| fields.contains(&named)).await;
    }
    assert!(begun.elapsed() < 2 * LONG, "no other primary");
}
