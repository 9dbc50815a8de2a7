//! The final cost of an admission.

use super::*;

const LIMIT: u64 = 1_000_000;

#[tokio::test(start_paused = true)]
async fn units_put_back_are_spent_by_the_next_caller() {
    let (limiter, inner, memory) = hot(LIMIT).await;
    let mut decision = limiter.check(&Charge::new("hot").cost(10)).await.unwrap();
    let reservation = decision.take_reservation().unwrap();
    assert_eq!(reservation.cost(), 10);
    assert!(limiter.settle(reservation, 4).is_ok());
    // 96 are left, and 100 more with the next refill, which begins before.
    for _ in 0..96 {
        let _ = check(&limiter, "hot").await;
    }
    assert_eq!(inner.costs()[0], 100);
    assert!(inner.costs().len() <= 2);
    sleep(SECOND).await;
    assert_eq!(taken(&memory, LIMIT, "hot").await, WARM + 100);
}

/// All units of a lease were handed out. It stays open until the last of its requests is answered.
#[tokio::test(start_paused = true)]
async fn what_comes_back_late_is_refunded_with_the_last_request() {
    let (limiter, inner, memory) = hot(LIMIT).await;
    let mut reservations = spend(&limiter, 100).await;
    assert_eq!(reservations.len(), 100);
    sleep(SECOND).await;
    inner.clear();
    let last = reservations.pop().unwrap();
    for reservation in reservations {
        assert!(limiter.refund(reservation).is_ok());
    }
    assert_eq!(inner.settled(), []);
    drop(last);
    assert_eq!(inner.settled(), [(100, 1)]);
    assert_eq!(taken(&memory, LIMIT, "hot").await, WARM + 1);
}

/// Units were left when the lease ended, and were refunded at once. Later ones are lost.
#[tokio::test(start_paused = true)]
async fn what_comes_back_after_a_lease_has_ended_is_lost() {
    let (limiter, inner, memory) = hot(LIMIT).await;
    let reservation = check(&limiter, "hot").await.take_reservation().unwrap();
    sleep(2 * VALIDITY).await;
    assert_eq!(inner.settled(), [(100, 1)]);
    assert!(limiter.refund(reservation).is_ok());
    sleep(SECOND).await;
    assert_eq!(inner.settled(), [(100, 1)]);
    assert_eq!(taken(&memory, LIMIT, "hot").await, WARM + 1);
}

#[tokio::test(start_paused = true)]
async fn more_is_taken_from_the_lease_and_else_of_the_inner_limiter() {
    let (limiter, inner, memory) = hot(LIMIT).await;
    let mut reservations = [check(&limiter, "hot").await, check(&limiter, "hot").await].into_iter();
    let mut next = || reservations.next().unwrap().take_reservation().unwrap();
    assert!(limiter.settle(next(), 51).is_ok());
    assert_eq!(limiter.peek("hot").await.unwrap().remaining(), Some(LIMIT - WARM - 100));
    assert!(limiter.settle(next(), 1_001).is_ok());
    sleep(SECOND).await;
    assert_eq!(inner.settled(), [(100, 52)]);
    assert_eq!(taken(&memory, LIMIT, "hot").await, WARM + 51 + 1_001);
}

/// A response may end long after the deadline of its decision, and of the refill before it.
#[tokio::test(start_paused = true)]
async fn more_is_taken_after_the_deadline_of_the_decision() {
    let (leased, _, memory) = hot(LIMIT).await;
    let timely = leased.clone().timeout(VALIDITY / 5);
    let reservation = check(&timely, "hot").await.take_reservation().unwrap();
    sleep(VALIDITY / 4).await;
    assert!(timely.settle(reservation, 1_001).is_ok());
    sleep(SECOND).await;
    assert_eq!(taken(&memory, LIMIT, "hot").await, WARM + 1_001);
}

#[tokio::test(start_paused = true)]
async fn reservations_of_others_are_handed_back_or_settled_inside() {
    let (limiter, _, _) = leased(LIMIT);
    let (other, _, _) = hot(LIMIT).await;
    let leased = check(&limiter, "hot").await.take_reservation().unwrap();
    let leased = other.settle(leased, 0).unwrap_err();
    assert!(limiter.settle(leased, 0).is_ok());
    let alone = check(&limiter, "cold").await.take_reservation().unwrap();
    let alone = other.settle(alone, 0).unwrap_err();
    assert!(limiter.settle(alone, 0).is_ok());
    assert_eq!(limiter.peek("cold").await.unwrap().remaining(), Some(LIMIT));
}

// Case 164.
#[tokio::test(start_paused = true)]
async fn settling_far_more_takes_the_most_that_can_be_taken() {
    for actual in [1 << 53, 1 << 60, u64::MAX] {
        let (limiter, _, memory) = hot(LIMIT).await;
        let [leased, alone] = [check(&limiter, "hot").await, check(&limiter, "cold").await]
            .map(|mut decision| decision.take_reservation().unwrap());
        assert!(limiter.settle(leased, actual).is_ok());
        assert!(limiter.settle(alone, actual).is_ok());
        sleep(SECOND).await;
        // The leased key owes as much as one that was asked alone.
        let mut owed = Vec::new();
        for key in ["hot", "cold"] {
            let peek = memory.peek(key).await.unwrap();
            owed.push((peek.is_admitted(), peek.remaining()));
        }
        assert_eq!(owed, [(false, Some(0)); 2], "{actual}");
    }
}
