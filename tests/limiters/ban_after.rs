//! A key that is refused too often is blocked.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn strict() -> Memory<TokenBucket> {
    Memory::new("login", TokenBucket::new(Quota::per_hour(2)))
}

async fn refused_for(limiter: &impl Limiter, key: &'static str) -> Option<Duration> {
    limiter.check(&Charge::new(key)).await.expect("a decision").retry_after()
}

#[tokio::test(start_paused = true)]
async fn the_last_refusal_of_a_window_bans() {
    let store = strict();
    let limiter = store.clone().ban_after(3, MINUTE, 24 * HOUR);
    for _ in 0..2 {
        assert_eq!(refused_for(&limiter, "mallory").await, None);
    }
    for _ in 0..2 {
        assert_eq!(refused_for(&limiter, "mallory").await, Some(HOUR / 2));
        // A peek and an estimate do not count.
        assert!(!limiter.estimate("mallory").await.unwrap().is_admitted());
        assert_eq!(limiter.peek("mallory").await.unwrap().remaining(), Some(0));
    }
    assert_eq!(refused_for(&limiter, "mallory").await, Some(24 * HOUR));
    assert_eq!(refused_for(&store, "mallory").await, Some(24 * HOUR));
    assert_eq!(refused_for(&limiter, "alice").await, None);
    // Who goes on stays banned.
    advance(12 * HOUR).await;
    for left in [12, 12, 24] {
        assert_eq!(refused_for(&limiter, "mallory").await, Some(left * HOUR));
    }
    // Refusals of different windows do not add up.
    advance(25 * HOUR).await;
    assert_eq!(refused_for(&limiter, "mallory").await, None);
    assert_eq!(refused_for(&limiter, "mallory").await, None);
    for _ in 0..5 {
        assert_eq!(refused_for(&limiter, "mallory").await, Some(HOUR / 2));
        advance(MINUTE).await;
        assert!(refused_for(&limiter, "mallory").await < Some(HOUR / 2));
        limiter.reset("mallory").await.unwrap();
        limiter.penalize(Charge::new("mallory").cost(2)).await.unwrap();
        advance(MINUTE).await;
        limiter.reset("mallory").await.unwrap();
        limiter.penalize(Charge::new("mallory").cost(2)).await.unwrap();
    }
}

/// A refusal that is known is not lost: its count ends in the time for the decision.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_counted_within_the_time_for_its_decision() {
    let limit = Duration::from_millis(100);
    let never = |charge: &Charge| {
        let deadline = charge.deadline().expect("that of the decision");
        async move {
            tokio::time::sleep_until(deadline.into()).await;
            Err::<Decision, _>(Error::new(ErrorKind::Infrastructure, "no answer"))
        }
    };
    let limiter = strict().ban_after(3, MINUTE, 24 * HOUR).count_by(never).timeout(limit);
    for _ in 0..2 {
        assert_eq!(refused_for(&limiter, "mallory").await, None);
    }
    assert_eq!(refused_for(&limiter, "mallory").await, Some(HOUR / 2));
}

/// One write for each ban, however many refusals there are.
#[tokio::test(start_paused = true)]
async fn a_flood_costs_the_store_one_block() {
    let store = Scripted::new();
    let store = (0..1_000).fold(store, |store, _| store.deny(HOUR));
    let (blocks, seen) = (Arc::new(AtomicU64::new(0)), store.clone());
    let limiter = Counted { inner: seen.deny_cache().max_age(HOUR), blocks: blocks.clone() };
    let limiter = limiter.ban_after(100, MINUTE, HOUR);
    for _ in 0..10_000 {
        assert!(refused_for(&limiter, "mallory").await.is_some());
    }
    assert_eq!(blocks.load(Relaxed), 1);
}

/// A charge that waits asks many times, and is not refused.
#[tokio::test(start_paused = true)]
async fn who_waits_is_not_banned() {
    let limiter = Memory::new("at once", Concurrency::new(1)).ban_after(3, MINUTE, 24 * HOUR);
    let held = limiter.check(&one()).await.unwrap().into_reservation().unwrap();
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(one().max_wait(MINUTE)).await.is_ok() }
    });
    sleep(30 * SECOND).await;
    assert!(limiter.settle(held, 0).is_ok());
    assert!(waiting.await.unwrap());
}

/// Counts blocks, and does each of them or fails.
#[derive(Clone)]
struct Counted<L> {
    inner: L,
    blocks: Arc<AtomicU64>,
}

impl<L: Limiter<Future: Send + 'static>> Limiter for Counted<L> {
    type Future = tower_sluice::future::BoxedFuture;

    fn check(&self, charge: &Charge) -> Self::Future {
        Box::pin(self.inner.check(charge))
    }

    fn operate(&self, operation: Operation, _: &Charge) -> Option<Self::Future> {
        assert!(matches!(operation, Operation::Block(HOUR)));
        let fails = self.blocks.fetch_add(1, Relaxed) > 0;
        Some(Box::pin(async move {
            match fails {
                true => Err(Error::new(ErrorKind::Infrastructure, "away")),
                false => Ok(Decision::denied(HOUR)),
            }
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_block_that_fails_is_tried_again() {
    let blocks = Arc::new(AtomicU64::new(1));
    let limiter = Counted { inner: strict(), blocks: blocks.clone() };
    let limiter = limiter.ban_after(3, MINUTE, HOUR);
    for _ in 0..7 {
        let _ = limiter.check(&one()).await.unwrap();
    }
    // The third to fifth of five refusals.
    assert_eq!(blocks.load(Relaxed), 1 + 3);
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn refusals_of_all_processes_can_be_counted() {
    let server = Server::start();
    let process = || {
        let pool = server.pool();
        let limiter = Redis::new("login", TokenBucket::new(Quota::per_day(1)), pool.clone());
        let window = FixedWindow::new(Quota::new(6, HOUR)).anchored();
        let count = Redis::new("refusals", window, pool).decision_timeout(LONG);
        limiter.decision_timeout(LONG).ban_after(6, HOUR, 48 * HOUR).count_by(count)
    };
    let processes = [process(), process(), process()];
    assert_eq!(refused_for(&processes[0], "mallory").await, None);
    for place in 0..5 {
        assert!(refused_for(&processes[place % 3], "mallory").await < Some(25 * HOUR));
    }
    assert!(refused_for(&processes[2], "mallory").await > Some(47 * HOUR));
    assert!(refused_for(&processes[0], "mallory").await > Some(47 * HOUR));
}
