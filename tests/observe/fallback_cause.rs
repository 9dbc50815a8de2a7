//! A decision says why a fallback made it.

use std::error::Error as _;

use tower_sluice::algorithm::TokenBucket;
use tower_sluice::limiter::{Boxed, Origin, Switch, SwitchMode};
use tower_sluice::testing::Scripted;
use tower_sluice::{
    Charge, Decision, Error, ErrorKind, FailOpen, Limiter, LimiterExt, Memory, Outcome, Quota,
};

use super::one;

/// A store that is away.
fn away() -> impl Limiter<Future: Send> + Clone + Send + Sync + 'static {
    |_: &Charge| {
        let source = std::io::Error::other("refused");
        let error = Error::new(ErrorKind::Infrastructure, "no connection").with_source(source);
        std::future::ready(Err::<Decision, _>(error))
    }
}

fn share(units: u64) -> Memory<TokenBucket> {
    Memory::new("share", TokenBucket::new(Quota::per_hour(units)))
}

#[tokio::test(start_paused = true)]
async fn the_error_is_kept_with_its_kind_its_text_and_its_source() {
    let open = away().or_else(FailOpen).check(&one()).await.unwrap();
    let decided = away().or_else(share(1)).check(&one()).await.unwrap();
    assert_eq!((open.origin(), decided.origin()), (Origin::FailOpen, Origin::Local));
    assert_eq!((decided.limiter(), decided.remaining()), (Some("share"), Some(0)));
    for decision in [open, decided] {
        let cause = decision.fallback_cause().unwrap();
        assert_eq!(
            (cause.kind(), cause.to_string()),
            (ErrorKind::Infrastructure, "no connection".into())
        );
        assert_eq!(cause.source().unwrap().to_string(), "refused");
        assert!(format!("{decision:?}").contains("no connection"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_needed_no_fallback_has_none() {
    let limiter = Scripted::new().allow().deny(super::SECOND).or_else(FailOpen);
    for _ in 0..2 {
        assert!(limiter.check(&one()).await.unwrap().fallback_cause().is_none());
    }
    // An error that no fallback stands in for stays one.
    let limiter = Scripted::new().fail(ErrorKind::State).or_else(share(1));
    assert_eq!(limiter.check(&one()).await.unwrap_err().kind(), ErrorKind::State);
    let switch = Switch::new();
    switch.set(SwitchMode::Off);
    assert!(away().switch(&switch).check(&one()).await.unwrap().fallback_cause().is_none());
}

/// Limiters around a fallback hand its decisions on with the cause, refusals too.
#[tokio::test(start_paused = true)]
async fn it_passes_every_limiter_around_the_fallback() {
    let fallback = || away().or_else(share(2));
    let wrapped: [(&str, Boxed); 7] = [
        ("boxed", fallback().boxed()),
        ("timeout", fallback().timeout(super::SECOND).boxed()),
        ("breaker", fallback().breaker(tower_sluice::limiter::Breaker::new()).boxed()),
        ("shadow", fallback().shadow().boxed()),
        ("deny cache", fallback().deny_cache().boxed()),
        ("lease", fallback().lease(2).boxed()),
        ("inspect", fallback().inspect(|_, _| ()).boxed()),
    ];
    for (name, limiter) in wrapped {
        for call in 0..6 {
            let decision = limiter.check(&one()).await.unwrap();
            let cause = decision.fallback_cause().map(Error::kind);
            assert_eq!(cause, Some(ErrorKind::Infrastructure), "{name}, call {call}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_fallback_is_repeated_with_its_cause() {
    let limiter = away().or_else(share(1)).deny_cache();
    let _ = limiter.check(&one()).await.unwrap();
    let _ = limiter.check(&one()).await.unwrap();
    let repeated = limiter.check(&one()).await.unwrap();
    assert_eq!(repeated.origin(), Origin::Cache);
    assert_eq!(repeated.fallback_cause().unwrap().to_string(), "no connection");
}

#[tokio::test(start_paused = true)]
async fn a_shadow_that_could_not_decide_keeps_its_own_error() {
    let decision = away().shadow().check(&one()).await.unwrap();
    assert!(decision.fallback_cause().is_none());
    assert!(decision.shadowed().unwrap().is_err());
    let decision = away().or_else(share(1)).shadow().check(&one().cost(2)).await.unwrap();
    assert!(decision.fallback_cause().is_some());
    assert!(matches!(decision.shadowed(), Some(Ok(Outcome::Deny { .. }))));
}

#[tokio::test(start_paused = true)]
async fn of_two_fallbacks_the_outer_ones_error_stays() {
    let second = Scripted::new().fail(ErrorKind::Saturation);
    let inner = second.clone().or_else(share(1));
    let decision = away().or_else(inner).check(&one()).await.unwrap();
    assert_eq!(decision.fallback_cause().unwrap().kind(), ErrorKind::Infrastructure);

    let second = second.fail(ErrorKind::Saturation);
    let decision = away().or_else(second).or_else(share(1)).check(&one()).await.unwrap();
    assert_eq!(decision.fallback_cause().unwrap().kind(), ErrorKind::Saturation);
}

#[tokio::test(start_paused = true)]
async fn what_the_fallback_took_can_be_settled() {
    let own = share(5);
    let limiter = away().or_else(own.clone());
    let mut decision = limiter.check(&one().cost(3)).await.unwrap();
    limiter.settle(decision.take_reservation().unwrap(), 1).unwrap();
    assert_eq!(own.peek("key").await.unwrap().remaining(), Some(4));
}
