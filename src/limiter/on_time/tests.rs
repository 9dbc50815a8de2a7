use tokio::time::advance;

use super::*;

/// The process is late, and the replies that have arrived wait to be read.
#[tokio::test(start_paused = true)]
async fn a_busy_process_reads_what_has_arrived() {
    let due = Instant::now();
    advance(2 * SLACK).await;
    assert!(is_late(due));
    let arrived = tokio::spawn(yield_now());
    read_arrived(due).await;
    assert!(arrived.is_finished());
}
