//! `acquire`: workers that sleep until they are admitted.

use super::*;

// Case 73.
#[tokio::test(start_paused = true)]
async fn acquire_sleeps_the_reserved_wait() {
    let limiter = Memory::new("jobs", TokenBucket::new(Quota::per_second(1)));
    let begun = Instant::now();
    for _ in 0..5 {
        limiter.acquire("job").await.unwrap();
    }
    let took = begun.elapsed();
    assert!((4 * SECOND..5 * SECOND).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn acquire_fails_when_patience_is_at_an_end() {
    let bucket = TokenBucket::new(Quota::per_second(1)).horizon(3 * SECOND);
    let limiter = Memory::new("jobs", bucket);
    limiter.acquire("job").await.unwrap();
    let impatient = Charge::new("job").max_wait(Duration::from_millis(500));
    let refusal = limiter.acquire(impatient).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Denied(_)));
    assert_eq!(limiter.acquire(Charge::new("job").cost(2)).await.unwrap_err().retry_after(), None);
    let mut waiting: Vec<_> = (0..3).map(|_| task::spawn(limiter.acquire("job"))).collect();
    for waiter in &mut waiting {
        assert_pending!(waiter.poll());
    }
    // The horizon is reserved out.
    limiter.acquire("job").await.unwrap_err();
}

/// A pause of no time does not let a caller ask again and again.
#[tokio::test(start_paused = true)]
async fn acquire_asks_once_if_it_may_not_wait_and_not_for_ever() {
    let limiter = Scripted::new().retry(Duration::ZERO).allow();
    let refusal = limiter.acquire(Charge::new("job").max_wait(Duration::ZERO)).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Denied(_)));
    assert_eq!(limiter.charges().len(), 1);

    let never = |_: &Charge| ready(Ok(Decision::new(Outcome::Retry(Duration::ZERO))));
    let acquiring = never.acquire(Charge::new("job").max_wait(Duration::from_millis(10)));
    let refusal = tokio::time::timeout(SECOND, acquiring).await.expect("it ends").unwrap_err();
    assert!(matches!(refusal, Refusal::Denied(_)));
}

#[tokio::test(start_paused = true)]
async fn dropped_acquire_gives_its_slot_back() {
    let limiter = Memory::new("jobs", TokenBucket::new(Quota::per_second(1)));
    limiter.acquire("job").await.unwrap();
    let waiting = held_up(limiter.acquire("job"));
    let reset = || async {
        let peek = limiter.check(&Charge::new("job").cost(0)).await;
        peek.unwrap().reset_after().unwrap()
    };
    let reserved = reset().await;
    drop(waiting);
    assert_eq!(reserved - reset().await, SECOND);
}

// Case 144.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_dropped_unpolled_asks_nothing() {
    let limiter = Scripted::new().allow();
    drop(limiter.acquire("job"));
    assert_eq!(limiter.charges().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn patience_begins_with_the_first_poll_and_the_decision_says_what_was_used() {
    let limiter = Scripted::new().retry(SECOND).allow();
    let acquiring = limiter.acquire(Charge::new("job").max_wait(2 * SECOND));
    tokio::time::sleep(5 * SECOND).await;
    let waited = acquiring.await.unwrap().waited();
    assert!((SECOND..SECOND + SECOND / 2).contains(&waited), "{waited:?}");
}

// Case 73.
#[tokio::test(start_paused = true)]
async fn try_acquire_decides_now() {
    let limiter = Memory::new("jobs", TokenBucket::new(Quota::per_second(1)));
    let begun = Instant::now();
    limiter.try_acquire("job").await.unwrap();
    let patient = Charge::new("job").max_wait(SECOND);
    for charge in [Charge::new("job"), patient] {
        assert_eq!(limiter.try_acquire(charge).await.unwrap_err().retry_after(), Some(SECOND));
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

/// One caller too many is refused, and leaves nothing reserved. Callers of other keys count, too.
#[tokio::test(start_paused = true)]
async fn only_so_many_callers_wait() {
    let bucket = TokenBucket::new(Quota::per_second(1).burst(1)).horizon(4_000 * SECOND);
    let memory = Memory::new("jobs", bucket);
    let both = Memory::new("both", (bucket, bucket));
    for limiter in [memory.boxed(), both.boxed()] {
        limiter.acquire("job").await.unwrap();
        limiter.acquire("other").await.unwrap();
        let keys = (0..1_024).map(|number| if number < 24 { "other" } else { "job" });
        let mut waiting: Vec<_> = keys.map(|key| task::spawn(limiter.acquire(key))).collect();
        for waiter in &mut waiting {
            assert_pending!(waiter.poll());
        }
        assert_eq!(limiter.acquire("other").await.unwrap_err().retry_after(), Some(25 * SECOND));
        limiter.acquire("free").await.unwrap();
        let more = held_up(limiter.acquire("other").max_waiters(1_025));
        drop(waiting.remove(0));
        drop(more);
        let next = limiter.check(&Charge::new("other").max_wait(60 * SECOND)).await.unwrap();
        assert_eq!(next.outcome(), Outcome::Wait(24 * SECOND));
    }
}

/// A limiter of an application has no line, whether it reserves a wait or asks again. A caller that
/// waits once more is not counted twice.
#[tokio::test(start_paused = true)]
async fn only_so_many_callers_wait_for_an_own_limiter() {
    let reserves = |_: &Charge| ready(Ok(Decision::new(Outcome::Wait(10 * SECOND))));
    let asks_again = |_: &Charge| ready(Ok(Decision::new(Outcome::Retry(SECOND))));
    let boxed = (|_: &Charge| ready(Ok(Decision::new(Outcome::Retry(SECOND))))).boxed();
    only_two_wait(reserves).await;
    only_two_wait(asks_again).await;
    only_two_wait(boxed).await;
}

async fn only_two_wait(limiter: impl Limiter) {
    let acquire = || limiter.acquire(Charge::new("job").max_wait(60 * SECOND)).max_waiters(2);
    let mut waiting = [task::spawn(acquire()), task::spawn(acquire())];
    for _ in 0..3 {
        for waiter in &mut waiting {
            assert_pending!(waiter.poll());
        }
        let refusal = acquire().await.unwrap_err();
        assert!(refusal.retry_after().is_some(), "{refusal:?}");
        tokio::time::advance(SECOND + SECOND / 2).await;
    }
    drop(waiting);
    assert_pending!(task::spawn(acquire()).poll());
}

/// A log line has the cause, as `{error:#}` of the crate's errors has it.
#[tokio::test]
async fn the_long_form_of_a_refusal_has_its_cause() {
    let away = |_: &Charge| {
        let cause = Error::new(ErrorKind::Infrastructure, "connection refused");
        let error = Error::new(ErrorKind::Infrastructure, "no connection to redis");
        ready(Err::<Decision, _>(error.with_source(cause)))
    };
    let refusal = away.acquire("job").await.unwrap_err();
    assert_eq!(refusal.to_string(), "rate limit could not be decided");
    let long = "rate limit could not be decided: no connection to redis: connection refused";
    assert_eq!(format!("{refusal:#}"), long);
}
