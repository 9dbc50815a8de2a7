//! A quota of 0, for a suspended plan: everything is refused, without an error.

use super::*;

fn charge(quota: Option<Quota>) -> Charge {
    let charge = Charge::new("acme").max_wait(60 * SECOND);
    quota.into_iter().fold(charge, Charge::quota)
}

async fn is_suspended(limiter: &impl Limiter, quota: Option<Quota>, name: &str) {
    for cost in [1, 7, u64::from(u32::MAX)] {
        let refused = limiter.check(&charge(quota).cost(cost)).await.expect("a decision");
        assert_eq!(refused.outcome(), Outcome::Deny { retry_after: None }, "{name}");
        assert_eq!(refused.remaining(), Some(0), "{name}");
        assert_eq!(refused.quota().map(|quota| quota.limit()), Some(0), "{name}");
    }
    let peeked = limiter.peek(charge(quota)).await.expect("a decision");
    assert_eq!(peeked.remaining(), Some(0), "{name}");
    let estimate = limiter.estimate(charge(quota)).await.expect("a decision");
    assert!(!estimate.is_admitted(), "{name}");
    let refusal = limiter.acquire(charge(quota)).await.expect_err("refused");
    assert!(matches!(refusal, Refusal::Denied(_)), "{name}: {refusal:?}");
}

/// A plan is suspended for a while: what was taken before counts again afterwards.
async fn is_suspended_for_a_while(limiter: &impl Limiter, name: &str) {
    let take = |cost| charge(None).cost(cost).max_wait(Duration::ZERO);
    assert!(limiter.check(&take(3)).await.expect("a decision").is_admitted(), "{name}");
    let before = limiter.peek("acme").await.expect("a decision").remaining();
    is_suspended(limiter, Some(Quota::none()), name).await;
    let not_taken = limiter.penalize(charge(Some(Quota::none())).cost(2)).await;
    assert_eq!(not_taken.expect("an answer").not_taken(), 2, "{name}");
    let after = limiter.peek("acme").await.expect("a decision").remaining();
    assert_eq!(after, before, "{name}");
}

#[tokio::test(start_paused = true)]
async fn every_algorithm_refuses_everything() {
    for algorithm in each(Quota::none()) {
        let name = format!("{algorithm:?}");
        is_suspended(&Memory::new("api", algorithm), None, &name).await;
    }
    for algorithm in each(Quota::per_hour(10)) {
        let name = format!("{algorithm:?}");
        is_suspended_for_a_while(&Memory::new("api", algorithm), &name).await;
    }
}

/// One suspended quota of several refuses the charge, and nothing is taken of the others.
#[tokio::test(start_paused = true)]
async fn one_of_several_suspends_all() {
    let quotas = (Quota::per_minute(10), Quota::per_day(100));
    let pair = (TokenBucket::new(quotas.0), FixedWindow::new(quotas.1));
    let api = Memory::new("api", pair);
    let suspended = Charge::new("acme").quota((quotas.0, Quota::none()));
    let refused = api.check(&suspended).await.unwrap();
    assert_eq!(refused.outcome(), Outcome::Deny { retry_after: None });
    let left: Vec<_> = refused.policies().map(|one| one.remaining()).collect();
    assert_eq!(left, [Some(10), Some(0)]);
    assert_eq!(refused.tightest().map(|one| one.quota()), Some(Quota::try_new(0, SECOND).unwrap()));
}

/// Leases and caches refuse, too. A limiter that waits for a slot must not wait for ever, as in
/// leviath (712 there), where a limit of 0 was a loop.
#[tokio::test(start_paused = true)]
async fn wrappers_refuse_too() {
    let store = Memory::new("api", TokenBucket::new(Quota::per_hour(1_000)));
    let limiter = store.lease(100).deny_cache();
    let suspended = Charge::new("acme").quota(Quota::none()).max_wait(Duration::MAX);
    for _ in 0..3 {
        let refused = limiter.check(&suspended).await.unwrap();
        assert_eq!(refused.outcome(), Outcome::Deny { retry_after: None });
    }
    assert!(limiter.check(&Charge::new("acme")).await.unwrap().is_admitted());
}
