//! The refusals that are repeated, for how long, and for which charges. Time is paused.

use super::*;

/// Returns how often the inner limiter was asked.
fn asked(scripted: &Scripted) -> usize {
    scripted.charges().len()
}

// Case 114.
#[tokio::test(start_paused = true)]
async fn a_refused_key_costs_no_call_until_its_exact_time_is_over() {
    let scripted = Scripted::new().deny(30 * SECOND).allow();
    let limiter = scripted.clone().deny_cache().max_age(Duration::MAX);
    for _ in 0..1_000 {
        let refused = limiter.check(&one()).await.unwrap();
        assert_eq!(refused.outcome(), Outcome::Deny { retry_after: Some(30 * SECOND) });
    }
    assert_eq!(asked(&scripted), 1);

    let last = Duration::from_micros(1);
    advance(30 * SECOND - last).await;
    assert_eq!(limiter.check(&one()).await.unwrap().retry_after(), Some(last));
    assert_eq!(asked(&scripted), 1);
    advance(last).await;
    assert_eq!(limiter.check(&one()).await.unwrap().outcome(), Outcome::Allow);
    assert_eq!(asked(&scripted), 2);
}

/// Another process may have refunded meanwhile.
#[tokio::test(start_paused = true)]
async fn the_inner_limiter_is_asked_again_after_max_age() {
    let scripted = Scripted::new().deny(HOUR).deny(HOUR).allow();
    let limiter = scripted.clone().deny_cache();
    for calls in [1, 2] {
        let _ = limiter.check(&one()).await.unwrap();
        advance(SECOND - Duration::from_micros(1)).await;
        let _ = limiter.check(&one()).await.unwrap();
        assert_eq!(asked(&scripted), calls);
        advance(Duration::from_micros(1)).await;
    }
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
}

/// One cache inside of another: no answer becomes older than it may.
#[tokio::test(start_paused = true)]
async fn what_a_cache_repeats_is_not_kept_by_another() {
    let scripted = Scripted::new().deny(HOUR).deny(HOUR);
    let inner = scripted.clone().deny_cache();
    let outer = inner.clone().timeout(HOUR).deny_cache();
    let _ = inner.check(&one()).await.unwrap();
    advance(SECOND / 2).await;
    assert!(!outer.check(&one()).await.unwrap().is_admitted());
    assert_eq!((asked(&scripted), outer.len()), (1, 0));
    advance(SECOND / 2).await;
    let _ = outer.check(&one()).await.unwrap();
    assert_eq!((asked(&scripted), outer.len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn with_a_max_age_of_0_nothing_is_repeated() {
    let scripted = Scripted::new().deny(HOUR).deny(HOUR);
    let limiter = scripted.clone().deny_cache().max_age(Duration::ZERO);
    for _ in 0..2 {
        let _ = limiter.check(&one()).await.unwrap();
    }
    assert_eq!((asked(&scripted), limiter.is_empty()), (2, true));
}

#[tokio::test(start_paused = true)]
async fn the_answer_is_the_refusal_as_it_was_but_for_its_times() {
    let limiter = slow().deny_cache();
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
    let first = limiter.check(&one()).await.unwrap();
    assert_eq!((first.origin(), first.retry_after()), (Origin::Local, Some(SECOND)));
    advance(SECOND / 4).await;
    let again = limiter.check(&one()).await.unwrap();
    assert_eq!((again.origin(), again.retry_after()), (Origin::Cache, Some(SECOND * 3 / 4)));
    assert_eq!((first.reset_after(), again.reset_after()), (Some(SECOND), Some(SECOND * 3 / 4)));
    assert_eq!((again.limiter(), again.remaining()), (Some("slow"), Some(0)));
    assert_eq!((again.quota(), again.batch_position()), (Some(Quota::per_second(1)), 0));
    assert_eq!(again.decided_at(), first.decided_at());
    assert!(again.reservation().is_none());
}

#[tokio::test(start_paused = true)]
async fn what_might_fit_is_asked_of_the_inner_limiter() {
    let refused = || one().cost(5).max_wait(SECOND);
    let fits = [
        one().cost(4).max_wait(SECOND),
        refused().max_wait(2 * SECOND),
        refused().quota(Quota::per_second(9)),
        refused().peek(),
    ];
    for charge in fits {
        let scripted = Scripted::new().deny(HOUR).allow();
        let limiter = scripted.clone().deny_cache();
        let _ = limiter.check(&refused()).await.unwrap();
        assert!(limiter.check(&charge).await.unwrap().is_admitted(), "{charge:?}");
    }
    let same = Quota::per_second(9);
    for (refused, charge) in [
        (refused(), refused().cost(6)),
        (refused(), one().cost(5)),
        (one(), one().max_wait(Duration::ZERO)),
        (one().quota(same), one().quota(same)),
    ] {
        let scripted = Scripted::new().deny(HOUR);
        let limiter = scripted.clone().deny_cache();
        let _ = limiter.check(&refused).await.unwrap();
        assert!(!limiter.check(&charge).await.unwrap().is_admitted(), "{charge:?}");
        assert_eq!(asked(&scripted), 1);
    }
    // Other keys have refusals of their own.
    let scripted = Scripted::new().deny(HOUR).allow().deny(HOUR);
    let limiter = scripted.clone().deny_cache();
    let _ = limiter.check(&Charge::new("mallory")).await.unwrap();
    assert!(limiter.check(&Charge::new("alice")).await.unwrap().is_admitted());
    assert!(!limiter.check(&Charge::new("bob")).await.unwrap().is_admitted());
    assert_eq!((asked(&scripted), limiter.len()), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn only_a_denial_with_a_time_is_repeated() {
    let pause = Outcome::Retry(SECOND);
    let scripted = Scripted::new()
        .never()
        .decide(pause)
        .fail(ErrorKind::Infrastructure)
        .deny(Duration::ZERO)
        .wait(SECOND)
        .allow();
    let limiter = scripted.clone().deny_cache();
    assert_eq!(limiter.check(&one()).await.unwrap().outcome(), Outcome::Deny { retry_after: None });
    assert_eq!(limiter.check(&one()).await.unwrap().outcome(), pause);
    assert_eq!(limiter.check(&one()).await.unwrap_err().kind(), ErrorKind::Infrastructure);
    assert_eq!(limiter.check(&one()).await.unwrap().retry_after(), Some(Duration::ZERO));
    let patient = one().max_wait(SECOND);
    assert_eq!(limiter.check(&patient).await.unwrap().outcome(), Outcome::Wait(SECOND));
    assert_eq!(limiter.check(&one()).await.unwrap().outcome(), Outcome::Allow);
    assert_eq!((asked(&scripted), limiter.is_empty()), (6, true));
}

/// In turn nothing is reserved, so such an answer becomes a denial.
#[tokio::test(start_paused = true)]
async fn a_retry_of_a_member_is_not_repeated() {
    // Each is peeked at before.
    let scripted = Scripted::new().allow().decide(Outcome::Retry(SECOND)).allow().allow();
    let other = Scripted::new().allow().allow().allow().allow();
    let all = AllInTurn::new([scripted.boxed(), other.boxed()], |charge: &Charge| {
        [charge.clone(), charge.clone()]
    });
    let limiter = all.deny_cache();
    let refused = limiter.check(&one()).await.unwrap();
    assert_eq!(refused.outcome(), Outcome::Deny { retry_after: Some(SECOND) });
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
}

/// A refused peek says that the key owes units, and nothing of a cost.
#[tokio::test(start_paused = true)]
async fn a_peek_and_an_estimate_neither_ask_the_cache_nor_fill_it() {
    let limiter = slow().deny_cache();
    limiter.penalize(one().cost(3)).await.unwrap();
    assert!(!limiter.peek(one()).await.unwrap().is_admitted());
    assert!(!limiter.estimate(one()).await.unwrap().is_admitted());
    assert!(limiter.is_empty());
    let _ = limiter.check(&one()).await.unwrap();
    assert_eq!(limiter.peek(one()).await.unwrap().origin(), Origin::Local);
    assert_eq!(limiter.estimate(one()).await.unwrap().origin(), Origin::Local);
    assert_eq!(limiter.check(&one()).await.unwrap().origin(), Origin::Cache);
}

/// A charge that is an error whatever the state stays one for a key that is refused.
#[tokio::test(start_paused = true)]
async fn an_invalid_charge_of_a_refused_key_is_an_error() {
    let limiter = slow().deny_cache();
    for _ in 0..2 {
        let _ = limiter.check(&one()).await.unwrap();
    }
    for invalid in [one().cost(u64::MAX), Charge::new(""), Charge::new("x".repeat(1 << 17))] {
        assert_eq!(limiter.check(&invalid).await.unwrap_err().kind(), ErrorKind::Request);
    }
}
