//! What the cache refuses while a real server is away.

use super::*;

/// Long enough for the slowest machine: no test here is about speed.
const PATIENT: std::time::Duration = std::time::Duration::from_secs(20);

/// A limiter of one unit a day, as a process of its own has it.
fn daily(server: &Server) -> Redis<FixedWindow> {
    let window = FixedWindow::new(Quota::per_day(1)).anchored();
    Redis::new("daily", window, server.pool()).decision_timeout(PATIENT)
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
