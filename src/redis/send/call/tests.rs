//! Tests of the time for which a call without an answer blocks a hash slot.

use std::time::Duration;

use redis_once::testing::SilentFake;

use super::super::super::script::{Op, Request};
use super::super::batch::QueuedRequest;
use super::*;
use crate::algorithm::FixedWindow;
use crate::core::Quota;
use crate::core::charge::KeepFree;
use crate::limiter::configured::ConfiguredAlgorithm;
use crate::redis::Pool;

/// A call with a refund of slot 7 of a cluster, over this connection.
fn refund(connection: &Arc<SilentFake>) -> impl Future<Output = CallEnd> + use<> {
    let pool = Pool::connect("redis-cluster://127.0.0.1:1").expect("an address");
    let quota = FixedWindow::new(Quota::per_second(1));
    let named = ConfiguredAlgorithm::new("api".into(), quota).expect("an algorithm");
    let config = Arc::new(Config::new(pool, vec!["api".into()], &named));
    let op = Op::Refund { units: 1, cost: 1, mark: Default::default() };
    let request =
        Request { key: "{k}".into(), quota: None, rule: None, keep_free: KeepFree::default(), op };
    let deadline = Instant::now() + LATE_REPLY_TIMEOUT;
    let queued = QueuedRequest::without_receiver(&config.pool, request, Some(deadline));
    let batches = [Batch::new(7, vec![queued])].into();
    let connection: Arc<dyn SharedConnection> = Arc::<SilentFake>::clone(connection);
    send_call(config, connection, Call { partition: 0, requests: 1, batches })
}

#[tokio::test(start_paused = true)]
async fn a_refund_without_an_answer_keeps_its_slot_for_a_short_time() {
    for dies_after_ms in [150, 10_000] {
        let (connection, begun) = (Arc::new(SilentFake::default()), Instant::now());
        let dying = Arc::clone(&connection);
        tokio::spawn(async move {
            sleep(Duration::from_millis(dies_after_ms)).await;
            dying.die();
        });
        let ended = refund(&connection).await;
        assert_eq!(ended.partition, Some((0, 1)), "it no longer counts as in flight");
        assert!(ended.refunds_done.is_empty());
        let ended = ended.late_reply.expect("it waits on").await;
        assert_eq!(ended.refunds_done, [7]);
        let end = Duration::from_millis(dies_after_ms).min(MAX_SILENCE);
        assert!((end..end + 2 * ALIVE_CHECK).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        // Until then, units that it took for callers that have left are given back.
        let ended = ended.late_reply.expect("it waits on").await;
        assert!(ended.refunds_done.is_empty() && ended.late_reply.is_none());
        assert!(begun.elapsed() >= 2 * LATE_REPLY_TIMEOUT, "{:?}", begun.elapsed());
    }
}
