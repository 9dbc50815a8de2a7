//! A key that is paused: callers that may wait go when the pause is over, in order, and others are
//! refused until then. Random histories stand in `tests/algorithms/twins.rs`.

use super::*;

fn refused_for(wait: Duration) -> Outcome {
    Outcome::Deny { retry_after: Some(wait) }
}

fn waits(wait: Duration) -> Outcome {
    Outcome::Wait(wait)
}

/// One a second, without a burst.
fn pace() -> Memory<TokenBucket> {
    Memory::new("supplier", TokenBucket::new(Quota::per_second(1).burst(1)))
}

async fn outcome(limiter: &impl Limiter, max_wait: Duration) -> Outcome {
    limiter.check(&one().max_wait(max_wait)).await.expect("a decision").outcome()
}

#[tokio::test(start_paused = true)]
async fn a_pause_refuses_who_may_not_wait_and_lets_others_wait_in_order() {
    let limiter = pace();
    assert_eq!(limiter.pause("key", 5 * SECOND).await.unwrap().outcome(), refused_for(5 * SECOND));
    // A shorter pause ends no longer one.
    limiter.pause("key", SECOND).await.unwrap();
    advance(SECOND).await;
    assert_eq!(outcome(&limiter, Duration::ZERO).await, refused_for(4 * SECOND));
    assert_eq!(outcome(&limiter, 3 * SECOND).await, refused_for(4 * SECOND));
    let peeked = limiter.peek("key").await.unwrap();
    assert_eq!((peeked.remaining(), peeked.reset_after()), (Some(0), Some(4 * SECOND)));
    assert_eq!(peeked.paused_for(), Some(4 * SECOND));
    // The pace of the quota goes on after the pause.
    for place in 0..3 {
        let decision = limiter.check(&one().max_wait(HOUR)).await.unwrap();
        assert_eq!(decision.outcome(), waits((4 + place) * SECOND));
        assert_eq!(decision.paused_for(), Some(4 * SECOND));
    }
    assert_eq!(outcome(&limiter, SECOND).await, refused_for(7 * SECOND));
    advance(7 * SECOND).await;
    let after = limiter.check(&one()).await.unwrap();
    assert_eq!((after.outcome(), after.paused_for()), (Outcome::Allow, None));
}

#[tokio::test(start_paused = true)]
async fn an_unblock_ends_a_pause_and_a_reset_does_not() {
    let limiter = pace();
    limiter.pause("key", HOUR).await.unwrap();
    assert_eq!(limiter.reset("key").await.unwrap().outcome(), refused_for(HOUR));
    assert_eq!(limiter.unblock("key").await.unwrap().outcome(), Outcome::Allow);
    assert_eq!(outcome(&limiter, Duration::ZERO).await, Outcome::Allow);
}

/// The stricter counts: a block refuses also who may wait.
#[tokio::test(start_paused = true)]
async fn a_block_counts_before_a_pause() {
    let limiter = pace();
    limiter.pause("key", HOUR).await.unwrap();
    limiter.block("key", SECOND).await.unwrap();
    assert_eq!(outcome(&limiter, 2 * HOUR).await, refused_for(SECOND));
    advance(SECOND).await;
    assert_eq!(outcome(&limiter, Duration::ZERO).await, refused_for(HOUR - SECOND));
}

/// Units that a charge took for the end of a pause come back when its caller leaves.
#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_a_pause_leaves_nothing_behind() {
    for algorithm in each(Quota::per_hour(3)) {
        let limiter = Memory::new("api", algorithm);
        let before = limiter.peek("key").await.unwrap().remaining();
        limiter.pause("key", SECOND).await.unwrap();
        let decision = limiter.check(&one().max_wait(HOUR)).await.unwrap();
        assert_eq!(decision.outcome(), waits(SECOND), "{algorithm:?}");
        let given_back = limiter.settle(decision.into_reservation().unwrap(), 0).unwrap().await;
        assert_eq!(given_back.unwrap().given_back, 1, "{algorithm:?}");
        limiter.unblock("key").await.unwrap();
        assert_eq!(limiter.peek("key").await.unwrap().remaining(), before, "{algorithm:?}");
    }
}

/// Whoever waits already goes later, behind those that reserved slots meanwhile.
#[tokio::test(start_paused = true)]
async fn requests_that_wait_already_go_after_the_pause() {
    let limiter = pace();
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
    let (begin, mut waiting) = (Instant::now(), JoinSet::new());
    for place in 0..4 {
        let limiter = limiter.clone();
        waiting.spawn(async move {
            let _admitted = limiter.acquire(one().max_wait(HOUR)).await.unwrap();
            (begin.elapsed(), place)
        });
        tokio::task::yield_now().await;
    }
    // Slots: 1, 2, 3 and 4 s. The first goes. Then the key is paused until 3.5 s.
    assert_eq!(waiting.join_next().await.unwrap().unwrap(), (SECOND, 0));
    limiter.pause("key", 5 * SECOND / 2).await.unwrap();
    // The two whose slots are gone ask again when these come: after the slot at 4 s.
    for (at, place) in [(4, 3), (5, 1), (6, 2)] {
        assert_eq!(waiting.join_next().await.unwrap().unwrap(), (at * SECOND, place));
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_that_has_no_time_for_the_pause_is_refused() {
    let limiter = pace();
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(one().max_wait(2 * SECOND)).await.map(drop) }
    });
    tokio::task::yield_now().await;
    limiter.pause("key", 10 * SECOND).await.unwrap();
    let refused = waiting.await.unwrap().unwrap_err();
    let Refusal::Denied(decision) = refused else { panic!("{refused:?}") };
    assert_eq!(decision.retry_after(), Some(9 * SECOND));
}

#[cfg(feature = "redis")]
mod over_redis {
    use tower_sluice::Pool;
    use tower_sluice::redis::AllAtOnce;

    use super::*;

    const PATIENT: Duration = Duration::from_secs(20);

    fn supplier(pool: &Pool) -> Redis<TokenBucket> {
        let pace = TokenBucket::new(Quota::per_second(20).burst(1));
        Redis::new("supplier", pace, pool.clone()).decision_timeout(PATIENT)
    }

    /// Charges of all processes obey, and those that may wait get slots in one order.
    #[tokio::test]
    async fn every_process_obeys_a_pause() {
        let server = Server::start();
        let [one_process, other] = [(); 2].map(|()| supplier(&server.pool()));
        one_process.pause("key", SECOND).await.unwrap();
        let refused = other.check(&one()).await.unwrap();
        assert_eq!(refused.retry_after(), refused.paused_for());
        assert!(refused.paused_for() > Some(Duration::ZERO));
        let mut slots = Vec::new();
        for process in [&one_process, &other].repeat(3) {
            let decision = process.check(&one().max_wait(HOUR)).await.unwrap();
            slots.push(decision.decided_at().unwrap() + decision.waited());
        }
        assert!(slots.is_sorted_by(|one, next| *one + SECOND / 20 == *next), "{slots:?}");
        // It ends by itself.
        tokio::time::sleep(refused.paused_for().unwrap()).await;
        eventually("the end of the pause", async || {
            other.peek("key").await.unwrap().paused_for().is_none()
        })
        .await;
    }

    /// A waiter of a process that has not heard of the pause goes at its slot; one that has, later.
    #[tokio::test]
    async fn waiters_go_later_when_an_answer_has_told_the_pause() {
        let server = Server::start();
        let [mine, other] = [(); 2].map(|()| supplier(&server.pool()));
        for key in 0.. {
            let one = || Charge::new(format!("key {key}"));
            assert!(mine.check(&one()).await.unwrap().is_admitted());
            let waiting = tokio::spawn({
                let (mine, charge) = (mine.clone(), one().max_wait(HOUR));
                async move {
                    let admitted = mine.acquire(charge).await.unwrap();
                    admitted.decided_at().unwrap() + admitted.waited()
                }
            });
            eventually("a waiter", async || !mine.peek(one()).await.unwrap().is_admitted()).await;
            let paused = other.pause(one(), 2 * SECOND).await.unwrap();
            let begin = paused.decided_at().unwrap();
            // This answer tells it.
            assert!(mine.peek(one()).await.unwrap().paused_for().is_some());
            let told = mine.peek(one()).await.unwrap().decided_at().unwrap();
            let went = waiting.await.unwrap();
            // On a slow machine the slot may come before the pause was told.
            if went > told {
                assert!(went >= begin + paused.paused_for().unwrap(), "{went:?} {begin:?}");
                return;
            }
        }
    }

    /// A pause that another process ended is over for those that have heard of it.
    #[tokio::test]
    async fn an_end_of_a_pause_is_heard_too() {
        let server = Server::start();
        let [mine, other] = [(); 2].map(|()| supplier(&server.pool()));
        other.pause("key", HOUR).await.unwrap();
        assert!(mine.peek("key").await.unwrap().paused_for().is_some());
        other.unblock("key").await.unwrap();
        let mut waiting = JoinSet::new();
        for _ in 0..5 {
            let mine = mine.clone();
            waiting.spawn(async move { mine.acquire(one().max_wait(HOUR)).await.is_ok() });
        }
        let all = tokio::time::timeout(PATIENT, waiting.join_all()).await;
        assert_eq!(all, Ok(vec![true; 5]));
        // One question each.
        let used = mine.peek("key").await.unwrap();
        assert!(used.paused_for().is_none());
    }

    #[tokio::test]
    async fn a_member_that_is_paused_makes_all_wait() {
        let (_server, pool) = Server::pooled();
        let user = Redis::new("user", TokenBucket::new(Quota::per_day(10)), pool.clone());
        let address = Redis::new("address", SlidingLog::new(Quota::per_day(10)), pool.clone());
        let (user, address) = (user.decision_timeout(PATIENT), address.decision_timeout(PATIENT));
        let keys = |charge: &Charge| {
            let wait = charge.longest_wait().unwrap_or_default();
            [charge.clone(), Charge::new("192.0.2.7").max_wait(wait)]
        };
        let both = AllAtOnce::new((user.clone(), address.clone()), keys);
        address.pause("192.0.2.7", HOUR / 120).await.unwrap();
        let refused = both.check(&one()).await.unwrap();
        assert!(!refused.is_admitted() && refused.paused_for() > Some(HOUR / 240));
        assert_eq!(user.peek("key").await.unwrap().remaining(), Some(10));
        let waits = both.check(&one().max_wait(HOUR / 60)).await.unwrap();
        assert!(waits.waited() > HOUR / 240, "{waits:?}");
        assert_eq!(
            both.settle(waits.into_reservation().unwrap(), 0).unwrap().await.unwrap().given_back,
            1
        );
        // Through the combination each of its keys is paused, and no longer.
        both.pause("key", HOUR).await.unwrap();
        assert!(user.peek("key").await.unwrap().paused_for().is_some());
        both.unblock("key").await.unwrap();
        let left = both.check(&one()).await.unwrap();
        assert_eq!(left.policies().map(|one| one.remaining()).collect::<Vec<_>>(), [Some(9); 2]);
    }
}
