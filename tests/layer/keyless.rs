//! Requests without a key, or with an empty one: refused while the limit is in force, and admitted
//! while a switch turns it off or a shadow watches.

use http::{Request, Response};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::limiter::{AllInTurn, Breaker, Origin, Switch, SwitchMode};
use tower_sluice::{FailOpen, LimiterExt, Memory, Quota, by_head};

use super::*;

fn bucket() -> Memory<TokenBucket> {
    Memory::new("api", TokenBucket::new(Quota::per_hour(1_000)))
}

fn request(headers: &[(&str, &str)]) -> Request<()> {
    let request = Request::builder();
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(()).unwrap()
}

/// The response to a request with these headers, whose key is `x-user`.
async fn ask<L: Limiter + Clone>(limiter: &L, headers: &[(&str, &str)]) -> Response<String> {
    let layer = RateLimitLayer::new(limiter.clone(), by_head(|head| head.header("x-user")));
    layer.layer(tower::service_fn(inner)).oneshot(request(headers)).await.unwrap()
}

async fn status<L: Limiter + Clone>(limiter: &L, headers: &[(&str, &str)]) -> u16 {
    ask(limiter, headers).await.status().as_u16()
}

// Case 160.
#[tokio::test(start_paused = true)]
async fn a_limit_that_is_off_or_a_shadow_refuses_no_request_without_a_key() {
    let switch = Switch::new();
    let limiter = bucket().switch(&switch);
    for mode in [SwitchMode::Off, SwitchMode::Shadow, SwitchMode::On, SwitchMode::Off] {
        switch.set(mode);
        let expected = if mode == SwitchMode::On { 400 } else { 200 };
        for headers in [&[][..], &[("x-user", "")]] {
            assert_eq!(status(&limiter, headers).await, expected, "{mode:?} {headers:?}");
        }
        assert_eq!(status(&limiter, &[("x-user", "alice")]).await, 200, "{mode:?}");
    }
    // Both were counted as what they would have been.
    let counts = switch.shadow_counts();
    assert_eq!((counts.admitted, counts.refused, counts.undecided), (1, 0, 2));
    let shadow = bucket().shadow();
    assert_eq!(status(&shadow, &[]).await, 200);
    assert_eq!(status(&shadow, &[("x-user", "")]).await, 200);
    assert_eq!(shadow.counts().undecided, 2);
}

/// Another reader might take the other line: one is forged, and a proxy has appended the other.
#[tokio::test(start_paused = true)]
async fn two_lines_of_one_header_are_no_key() {
    let limiter = bucket();
    for second in ["alice", "bob", ""] {
        let headers = [("x-user", "alice"), ("x-user", second)];
        assert_eq!(status(&limiter, &headers).await, 400, "{second:?}");
    }
    assert_eq!(status(&limiter, &[("x-user", "alice"), ("x-other", "bob")]).await, 200);
    assert_eq!(limiter.peek("alice").await.unwrap().remaining(), Some(999));
    // HTTP/2 keeps the blanks around a value: they make no other key.
    assert_eq!(status(&limiter, &[("x-user", " alice\t")]).await, 200);
    assert_eq!(limiter.peek("alice").await.unwrap().remaining(), Some(998));
}

// Case 160.
#[tokio::test(start_paused = true)]
async fn a_grpc_request_without_a_key_passes_a_limit_that_is_off() {
    let switch = Switch::new();
    let limiter = bucket().switch(&switch);
    for (mode, code) in
        [(SwitchMode::On, Some("3")), (SwitchMode::Off, None), (SwitchMode::Shadow, None)]
    {
        switch.set(mode);
        let layer = RateLimitLayer::new(limiter.clone(), by_head(|head| head.header("x-user")));
        let response = layer.layer(tower::service_fn(inner)).oneshot(grpc_call()).await.unwrap();
        let found = response.headers().get("grpc-status").map(|value| value.to_str().unwrap());
        assert_eq!(found, code, "{mode:?}");
        assert_eq!(response.body() == "inner", code.is_none(), "{mode:?}");
    }
}

/// Every limiter around a switch passes on what the switch says.
// Case 160.
#[tokio::test(start_paused = true)]
async fn a_switch_holds_inside_of_every_limiter() {
    let (switch, other) = (Switch::new(), Switch::new());
    let switched = || bucket().switch(&switch);
    let both = AllInTurn::new([switched().boxed(), bucket().switch(&other).boxed()], |charge| {
        [charge.clone(), charge.clone()]
    });
    let limiters = [
        switched().boxed(),
        Arc::new(switched()).boxed(),
        switched().timeout(SECOND).boxed(),
        switched().breaker(Breaker::new()).boxed(),
        switched().deny_cache().boxed(),
        switched().lease(10).boxed(),
        switched().or_else(FailOpen).boxed(),
        switched().or_else(bucket()).boxed(),
        switched().describe(tower_sluice::limiter::Description::new()).boxed(),
        switched().inspect(|_, _| {}).boxed(),
        both.boxed(),
    ];
    for mode in [SwitchMode::On, SwitchMode::Off, SwitchMode::Shadow] {
        switch.set(mode);
        other.set(mode);
        for (place, limiter) in limiters.iter().enumerate() {
            let expected = if mode == SwitchMode::On { 400 } else { 200 };
            assert_eq!(status(limiter, &[]).await, expected, "limiter {place}, {mode:?}");
        }
    }
    // A member that is in force refuses.
    other.set(SwitchMode::On);
    assert_eq!(status(&limiters[limiters.len() - 1], &[]).await, 400);
}

/// No error, and no fallback, lets a request without a key pass.
#[tokio::test(start_paused = true)]
async fn a_fallback_admits_no_request_without_a_key() {
    let away = Scripted::new().fail(ErrorKind::Infrastructure);
    let limiter = away.clone().or_else(FailOpen);
    assert_eq!(status(&limiter, &[]).await, 400);
    // The limiter was not asked.
    assert_eq!(away.left(), 1);
}

/// `acquire` has a charge, and an empty key is an error of it as before.
#[tokio::test(start_paused = true)]
async fn acquire_is_as_it_was() {
    let switch = Switch::new();
    let limiter = bucket().switch(&switch);
    assert!(matches!(limiter.acquire("").await, Err(Refusal::Undecided(_))));
    switch.set(SwitchMode::Off);
    assert_eq!(limiter.acquire("").await.unwrap().origin(), Origin::Off);
    switch.set(SwitchMode::Shadow);
    assert!(limiter.acquire("").await.unwrap().shadowed().unwrap().is_err());
}
