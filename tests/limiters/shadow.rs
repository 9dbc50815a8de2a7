//! A shadow: it decides as its inner limiter does, and refuses nobody.

use http::{Request, Response};

use super::*;

/// Returns the result that would have counted outside of the shadow.
fn verdict(decision: &Decision) -> Result<Outcome, ErrorKind> {
    decision.shadowed().expect("a decision in shadow").map_err(|error| error.kind())
}

#[tokio::test(start_paused = true)]
async fn whatever_is_decided_is_admitted_at_once_and_said() {
    let inner = Scripted::new()
        .allow()
        .wait(HOUR)
        .deny(HOUR)
        .never()
        .retry(HOUR)
        .fail(ErrorKind::Infrastructure)
        .fail(ErrorKind::Request);
    let limiter = inner.shadow();
    let expected = [
        (Ok(Outcome::Allow), Origin::Local),
        (Ok(Outcome::Wait(HOUR)), Origin::Local),
        (Ok(Outcome::Deny { retry_after: Some(HOUR) }), Origin::Local),
        (Ok(Outcome::Deny { retry_after: None }), Origin::Local),
        (Ok(Outcome::Retry(HOUR)), Origin::Local),
        (Err(ErrorKind::Infrastructure), Origin::Shadow),
        (Err(ErrorKind::Request), Origin::Shadow),
    ];
    let begun = Instant::now();
    for (shadowed, origin) in expected {
        let decision = limiter.acquire(one().max_wait(HOUR)).await.unwrap();
        assert_eq!((decision.outcome(), decision.waited()), (Outcome::Allow, Duration::ZERO));
        assert_eq!((verdict(&decision), decision.origin()), (shadowed, origin));
        assert_eq!(decision.retry_after(), None);
        // What was reserved stays taken, and can be settled.
        let is_taken = matches!(shadowed, Ok(Outcome::Allow | Outcome::Wait(_)));
        assert_eq!(decision.reservation().is_some(), is_taken);
        assert!(format!("{decision:?}").contains("shadowed: Some("));
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let counts = limiter.clone().counts();
    assert_eq!((counts.admitted, counts.delayed, counts.refused, counts.undecided), (1, 1, 3, 2));
}

/// `AllInTurn` peeks at its members before it charges them.
#[tokio::test(start_paused = true)]
async fn a_charge_counts_once_and_a_peek_does_not() {
    let quota = || Memory::new("quota", TokenBucket::new(Quota::per_hour(2)));
    let (first, second) = (quota().shadow(), quota().shadow());
    let members = [first.clone().boxed(), second.clone().boxed()];
    let limiter = AllInTurn::new(members, |charge| [charge.clone(), charge.clone()]);
    for _ in 0..5 {
        assert!(limiter.check(&one()).await.unwrap().is_admitted());
    }
    for shadow in [&first, &second] {
        let _ = shadow.peek("key").await.unwrap();
        assert_eq!((shadow.counts().admitted, shadow.counts().refused), (2, 3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_refuses_and_delays_nobody() {
    let limiter = Memory::new("api", TokenBucket::new(Quota::per_hour(1))).shadow();
    let layer = RateLimitLayer::new(limiter, by_head(|head| head.header("x-user"))).max_wait(HOUR);
    let inner = service_fn(|_: Request<()>| async { Ok::<_, tower::BoxError>(Response::new("")) });
    let begun = Instant::now();
    for _ in 0..100 {
        let request = Request::builder().header("x-user", "alice").body(()).unwrap();
        assert_eq!(layer.layer(inner).oneshot(request).await.unwrap().status(), 200);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn settlements_and_operations_are_the_inner_limiters() {
    let limiter = Memory::new("api", FixedWindow::new(Quota::per_hour(2)).anchored()).shadow();
    let mut first = limiter.check(&one()).await.unwrap();
    limiter.settle(first.take_reservation().unwrap(), 2).unwrap();
    let refused = limiter.check(&one()).await.unwrap();
    assert!(matches!(verdict(&refused), Ok(Outcome::Deny { .. })));
    let estimate = limiter.estimate("key").await.unwrap();
    assert!(estimate.is_admitted() && matches!(verdict(&estimate), Ok(Outcome::Deny { .. })));
    assert_eq!((limiter.counts().admitted, limiter.counts().refused), (1, 1));
    limiter.reset("key").await.unwrap();
    assert_eq!(verdict(&limiter.check(&one()).await.unwrap()), Ok(Outcome::Allow));
    assert_eq!(limiter.penalize("key").await.unwrap().remaining(), Some(0));
}

/// A new limit in shadow, beside one that counts.
#[tokio::test(start_paused = true)]
async fn a_member_in_shadow_is_reported() {
    let counts = Memory::new("counts", TokenBucket::new(Quota::per_hour(3)));
    let watched = Memory::new("watched", TokenBucket::new(Quota::per_hour(1))).shadow();
    let limiter = AllInTurn::new([counts.boxed(), watched.boxed()], |charge| {
        [charge.clone(), Charge::new("all")]
    });
    let mut seen = Vec::new();
    for _ in 0..4 {
        let decision = limiter.check(&one()).await.unwrap();
        let shadowed = decision.shadowed().and_then(Result::ok);
        seen.push((decision.is_admitted(), matches!(shadowed, Some(Outcome::Deny { .. }))));
    }
    assert_eq!(seen, [(true, false), (true, true), (true, true), (false, false)]);
}

/// It refuses nobody, so it does not say when the caller may come back either.
// Case 122.
#[tokio::test(start_paused = true)]
async fn a_member_in_shadow_that_is_not_asked_does_not_refuse() {
    let trial = Memory::new("trial", TokenBucket::new(Quota::per_hour(1))).shadow();
    let user = Memory::new("user", TokenBucket::new(Quota::per_second(1)));
    for members in [
        [trial.clone().boxed(), user.clone().boxed()],
        [user.clone().boxed(), trial.clone().boxed()],
    ] {
        let limiter = AllInTurn::new(members, |charge| [charge.clone(), charge.clone()]);
        assert!(limiter.check(&one()).await.unwrap().is_admitted());
        for refused in [limiter.check(&one()).await, limiter.estimate(one()).await] {
            let refused = refused.unwrap();
            assert_eq!((refused.limiter(), refused.retry_after()), (Some("user"), Some(SECOND)));
        }
        tokio::time::advance(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_shadows_the_inner_one_says_what_would_have_been() {
    let limiter = Scripted::new().deny(SECOND).shadow().shadow();
    let decision = limiter.check(&one()).await.unwrap();
    assert_eq!(verdict(&decision), Ok(Outcome::Deny { retry_after: Some(SECOND) }));
}
