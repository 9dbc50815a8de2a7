//! Callers that wait for Redisson's limiter ask again, but only when permits may be free.

use crate::*;

const LONG: Duration = Duration::from_secs(600);

fn redisson(server: &Server) -> Redisson {
    Redisson::new(server.pool()).decision_timeout(Duration::from_secs(20))
}

async fn calls(bench: &mut Bench) -> u64 {
    bench.calls("evalsha").await + bench.calls("eval").await
}

/// No stretch of the interval holds more than the rate, by the server's clock.
fn check_windows(mut admitted: Vec<Duration>, permits: usize, interval: Duration) {
    admitted.sort();
    for window in admitted.windows(permits + 1) {
        assert!(window[permits] - window[0] >= interval, "{window:?}");
    }
}

// Case 107.
#[tokio::test]
async fn of_80_waiters_one_asks_at_a_time() {
    // These clients share no queues, like separate processes.
    for (permits, millis, clients) in [(1, 10, 1), (20, 200, 1), (1, 10, 8)] {
        let mut bench = Bench::of(permits, millis).await;
        let redissons: Vec<_> = (0..clients).map(|_| redisson(&bench.server)).collect();
        let before = calls(&mut bench).await;
        let mut waiters = JoinSet::new();
        for number in 0..80 {
            let redisson = redissons[number % clients].clone();
            waiters.spawn(async move {
                let decision = redisson.acquire(Charge::new("r").max_wait(LONG)).await;
                decision.expect("admitted").decided_at().expect("reported")
            });
        }
        let admitted = waiters.join_all().await;
        let interval = Duration::from_millis(millis) - Duration::from_millis(1);
        check_windows(admitted, permits as usize, interval);
        let each = (calls(&mut bench).await - before) as f64 / 80.0;
        println!(
            "redisson waiters=80 processes={clients} rate={permits} interval_ms={millis} calls_per_admission={each:.2}"
        );
        // All at the same moment, so each asks once at first; then one of each process asks
        // for each permit.
        assert!(each <= 1.1 + clients as f64, "{each} calls for each admission");
    }
}

#[tokio::test]
async fn a_wait_beyond_patience_is_refused_at_once() {
    let mut bench = Bench::of(1, 60_000).await;
    let limiter = redisson(&bench.server).rate_limiter("r").unwrap();
    assert!(limiter.try_acquire(1).await.unwrap().is_some());
    let before = calls(&mut bench).await;
    for patience in [Duration::ZERO, Duration::from_millis(1), Duration::from_secs(30)] {
        assert!(limiter.try_acquire_for(1, patience).await.unwrap().is_none());
    }
    assert_eq!(calls(&mut bench).await, before + 3, "each asked once, and slept not at all");
}

#[tokio::test]
async fn a_wait_within_patience_is_slept_and_asked_again() {
    let mut bench = Bench::of(2, 300).await;
    let limiter = redisson(&bench.server).rate_limiter("r").unwrap();
    assert!(limiter.try_acquire(2).await.unwrap().is_some());
    let before = calls(&mut bench).await;
    assert_eq!(limiter.try_acquire_for(1, LONG).await.unwrap().expect("in time").count(), 1);
    assert_eq!(calls(&mut bench).await, before + 2, "a refusal, and a grant when the wait is over");
    assert_eq!(limiter.acquire(2).await.unwrap().count(), 2);
}

/// Permits that are released early go to callers that ask now. Waiters find them when
/// their wait ends.
#[tokio::test]
async fn a_release_lets_the_next_one_in() {
    let bench = Bench::of(1, 60_000).await;
    let redisson = redisson(&bench.server);
    let limiter = redisson.rate_limiter("r").unwrap();
    let mut held = limiter.acquire(1).await.unwrap();
    let refused = redisson.check(&Charge::new("r").max_wait(LONG)).await.unwrap();
    assert!(matches!(refused.outcome(), Outcome::Retry(_)), "{refused:?}");
    assert_eq!(held.release(1).await.unwrap(), 1);
    assert!(limiter.try_acquire_for(1, LONG).await.unwrap().is_some());
}

/// Somebody else's refusal is no refusal of one's own.
#[tokio::test]
async fn clients_wait_apart() {
    let bench = Bench::new().await;
    let each = tower_sluice_redisson::Rate::per_client(1, Duration::from_secs(600));
    let one = redisson(&bench.server).default_rate(each);
    let other = one.clone().client_id("other");
    let patient = Charge::new("r").max_wait(LONG);
    let mut held = one.check(&patient).await.unwrap();
    assert!(matches!(one.check(&patient).await.unwrap().outcome(), Outcome::Retry(_)));
    assert!(other.check(&patient).await.unwrap().is_admitted());
    let reservation = held.take_reservation().expect("taken");
    let reservation = other.refund(reservation).expect_err("another client's comes back");
    assert_eq!(one.settle(reservation, 0).expect("its own").await.unwrap().given_back, 1);
}

/// More permits than the rate never fit, even while others wait.
#[tokio::test]
async fn more_than_the_rate_is_refused_at_once() {
    let bench = Bench::of(1, 600_000).await;
    let redisson = redisson(&bench.server);
    let patient = |permits| Charge::new("r").cost(permits).max_wait(LONG);
    assert!(redisson.check(&patient(1)).await.unwrap().is_admitted());
    assert!(matches!(redisson.check(&patient(1)).await.unwrap().outcome(), Outcome::Retry(_)));
    let never = redisson.check(&patient(2)).await.unwrap();
    assert_eq!(never.outcome(), Outcome::Deny { retry_after: None });
}
