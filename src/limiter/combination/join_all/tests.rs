use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::*;

#[tokio::test(start_paused = true)]
async fn all_run_at_once_and_keep_their_order() {
    let begun = Instant::now();
    let slow = async |seconds| {
        sleep(Duration::from_secs(seconds)).await;
        seconds
    };
    assert_eq!(join_all([3, 1, 2].map(slow).into()).await, [3, 1, 2]);
    assert_eq!(begun.elapsed().as_secs(), 3);
    assert!(join_all([0; 0].map(slow).into()).await.is_empty());
}
