//! The calls that the cache saves a real server, and what it sees of other processes.

use super::*;

/// Long enough for the slowest machine: no test here is about speed.
const PATIENT: std::time::Duration = std::time::Duration::from_secs(20);

/// A limiter of one unit a day, as a process of its own has it.
fn daily(server: &Server) -> Redis<FixedWindow> {
    let window = FixedWindow::new(Quota::per_day(1)).anchored();
    Redis::new("daily", window, server.pool()).decision_timeout(PATIENT)
}

// Case 114.
#[tokio::test]
async fn a_thousand_denials_of_one_key_are_one_call() {
    let server = Server::start();
    let bare = daily(&server);
    assert!(bare.check(&one()).await.unwrap().is_admitted());
    let mut connection = server.connection().await;

    let before = script_calls(&mut connection).await;
    for _ in 0..1_000 {
        assert!(!bare.check(&one()).await.unwrap().is_admitted());
    }
    let without = script_calls(&mut connection).await - before;
    let limiter = bare.deny_cache().max_age(HOUR);
    for _ in 0..1_000 {
        let refused = limiter.check(&one()).await.unwrap();
        let Outcome::Deny { retry_after: Some(retry_after) } = refused.outcome() else {
            panic!("{refused:?}");
        };
        assert!(retry_after > 23 * HOUR && retry_after <= 24 * HOUR);
        assert_eq!((refused.limiter(), refused.remaining()), (Some("daily"), Some(0)));
    }
    let with = script_calls(&mut connection).await - before - without;
    println!("denials=1000 calls={with} calls_without={without}");
    assert_eq!((with, without), (1, 1_000));
}

#[tokio::test]
async fn a_refund_of_this_process_is_seen_at_once() {
    let server = Server::start();
    let limiter = daily(&server).deny_cache().max_age(HOUR);
    for _ in 0..20 {
        let mut admitted = limiter.check(&one()).await.unwrap();
        assert_eq!(admitted.outcome(), Outcome::Allow);
        assert!(!refused_from_cache(&limiter, "key").await);
        // After a refund, a refusal is kept for 100 ms only.
        assert!(!limiter.check(&one()).await.unwrap().is_admitted());
        assert!(limiter.refund(admitted.take_reservation().unwrap()).is_ok());
    }
    let _ = limiter.check(&one()).await.unwrap();
    assert!(!refused_from_cache(&limiter, "key").await);
    limiter.reset("key").await.unwrap();
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
}

#[tokio::test]
async fn a_reset_of_another_process_is_seen_after_max_age() {
    let server = Server::start();
    let (here, there) = (daily(&server), daily(&server));
    let (hourly, limiter) = (here.clone().deny_cache().max_age(HOUR), here.deny_cache());
    assert!(there.check(&one()).await.unwrap().is_admitted());
    for limiter in [&hourly, &limiter] {
        let _ = limiter.check(&one()).await.unwrap();
    }
    there.reset(one()).await.unwrap();
    eventually("the reset", async || limiter.check(&one()).await.unwrap().is_admitted()).await;
    assert!(refused_from_cache(&hourly, "key").await);
    // A peek is always asked of the server.
    let peek = hourly.peek(Charge::new("key")).await.unwrap();
    assert_eq!((peek.origin(), peek.remaining()), (Origin::Store, Some(0)));
}

/// An attacker who silences Redis does not free a refused key.
#[tokio::test]
async fn a_refused_key_stays_refused_while_redis_is_away() {
    let mut server = Server::start();
    let limiter = daily(&server).deny_cache().max_age(HOUR).or_else(FailOpen);
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
    assert!(!refused_from_cache(&limiter, "key").await);
    server.kill();
    assert!(refused_from_cache(&limiter, "key").await);
    let other = limiter.check(&Charge::new("other")).await.unwrap();
    assert_eq!((other.is_admitted(), other.origin()), (true, Origin::FailOpen));
}
