//! The refusals that are forgotten before their time, also while another is on its way. Time is
//! paused.

use std::sync::atomic::AtomicBool;

use tokio::sync::Semaphore;

use super::*;

const MILLI: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_settlement_is_seen_at_once_and_of_its_key_only() {
    // A refund, a part of one, and more.
    for actual in [0, 1, 3] {
        let limiter = Memory::new("two", TokenBucket::new(Quota::per_hour(2))).deny_cache();
        let mut reservations = Vec::new();
        for key in ["alice", "bob"] {
            let mut admitted = limiter.check(&Charge::new(key).cost(2)).await.unwrap();
            reservations.extend(admitted.take_reservation());
            assert!(!refused_from_cache(&limiter, key).await);
            assert!(refused_from_cache(&limiter, key).await);
        }
        assert!(limiter.settle(reservations.remove(0), actual).is_ok());
        let alice = limiter.check(&Charge::new("alice")).await.unwrap();
        assert_eq!((alice.is_admitted(), alice.origin()), (actual < 2, Origin::Local));
        assert!(refused_from_cache(&limiter, "bob").await);
        // What changes nothing forgets nothing.
        assert!(limiter.settle(reservations.remove(0), 2).is_ok());
        assert!(refused_from_cache(&limiter, "bob").await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_of_units_that_were_held_is_seen_at_once() {
    let limiter = Memory::new("one", Concurrency::new(1)).deny_cache();
    let reserved = limiter.check(&one()).await.unwrap().into_reservation();
    let guard = limiter.hold(reserved.expect("it holds a unit"));
    assert!(!refused_from_cache(&limiter, "key").await);
    assert!(refused_from_cache(&limiter, "key").await);
    // It settles the full cost.
    drop(guard);
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
}

/// The larger charge then fits later, so its time is another.
#[tokio::test(start_paused = true)]
async fn an_admission_of_a_smaller_charge_is_seen() {
    let limiter = Memory::new("three", TokenBucket::new(Quota::per_minute(3))).deny_cache();
    let _ = limiter.check(&one()).await.unwrap();
    for wait in [20, 40] {
        let refused = limiter.check(&one().cost(3)).await.unwrap();
        assert_eq!((refused.retry_after(), refused.origin()), (Some(wait * SECOND), Origin::Local));
        assert!(limiter.check(&one()).await.unwrap().is_admitted());
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_opens_its_key() {
    let limiter = slow().deny_cache();
    let _ = limiter.check(&one()).await.unwrap();
    let waiter = held_up(limiter.acquire("key"));
    assert_eq!(limiter.check(&one()).await.unwrap().retry_after(), Some(2 * SECOND));
    drop(waiter);
    assert_eq!(limiter.check(&one()).await.unwrap().retry_after(), Some(SECOND));
}

/// One cache around another, of another size: each forgets the key.
#[tokio::test(start_paused = true)]
async fn a_refund_reaches_every_cache_on_its_way() {
    let limiter = slow().deny_cache().timeout(SECOND).deny_cache().boxed();
    let mut admitted = limiter.check(&one()).await.unwrap();
    assert!(!refused_from_cache(&limiter, "key").await);
    assert!(refused_from_cache(&limiter, "key").await);
    assert!(limiter.refund(admitted.take_reservation().unwrap()).is_ok());
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
}

/// The key of a reservation that the cache has not seen is unknown, so every key may have room.
#[tokio::test(start_paused = true)]
async fn a_settlement_from_elsewhere_forgets_all_keys() {
    let inner = slow();
    let limiter = inner.clone().deny_cache();
    let mut admitted = inner.check(&one()).await.unwrap();
    let _ = limiter.check(&one()).await.unwrap();
    assert!(refused_from_cache(&limiter, "key").await);
    // That of another limiter changes nothing.
    let other = Reservation::new(Owner::new(), 1, ());
    assert!(limiter.refund(other).is_err());
    assert!(refused_from_cache(&limiter, "key").await);
    assert!(limiter.refund(admitted.take_reservation().unwrap()).is_ok());
    assert!(limiter.is_empty());
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
}

/// It is tried again once the clock can be read, and takes no other key along.
#[tokio::test(start_paused = true)]
async fn a_settlement_that_failed_before_forgets_its_key_only() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let broken = Arc::clone(&is_broken);
    let memory = slow().clock(move || if broken.load(Relaxed) { Duration::MAX } else { HOUR });
    let keys = |charge: &Charge| [charge.clone()];
    let in_turn = AllInTurn::new([memory.clone().boxed()], keys);
    for limiter in [memory.boxed(), in_turn.boxed()] {
        let limiter = limiter.deny_cache();
        let mut admitted = limiter.check(&one()).await.unwrap();
        let _ = limiter.check(&Charge::new("bob")).await.unwrap();
        for key in ["key", "bob"] {
            assert!(!refused_from_cache(&limiter, key).await);
        }
        is_broken.store(true, Relaxed);
        let reservation = admitted.take_reservation().unwrap();
        let reservation = limiter.refund(reservation).unwrap_err();
        is_broken.store(false, Relaxed);
        assert!(limiter.refund(reservation).is_ok());
        assert!(limiter.check(&one()).await.unwrap().is_admitted());
        assert!(refused_from_cache(&limiter, "bob").await);
        limiter.reset("key").await.unwrap();
        limiter.reset("bob").await.unwrap();
    }
}

/// A limiter that decides at once. While it holds answers, they come when they are released, as
/// those of a server may.
#[derive(Clone)]
struct Late {
    inner: Memory<TokenBucket>,
    holds: Arc<AtomicBool>,
    released: Arc<Semaphore>,
}

type Answer = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>;

impl Late {
    fn new() -> Self {
        let holds = Arc::new(AtomicBool::new(false));
        Self { inner: slow(), holds, released: Arc::new(Semaphore::new(0)) }
    }

    fn hold(&self, holds: bool) {
        self.holds.store(holds, Relaxed);
    }

    fn release(&self) {
        self.released.add_permits(1);
    }

    fn answer(
        &self,
        answer: impl Future<Output = Result<Decision, Error>> + Send + 'static,
    ) -> Answer {
        let released = self.holds.load(Relaxed).then(|| Arc::clone(&self.released));
        Box::pin(async move {
            let answer = answer.await;
            if let Some(released) = released {
                released.acquire().await.expect("open").forget();
            }
            answer
        })
    }
}

impl Limiter for Late {
    type Future = Answer;

    fn check(&self, charge: &Charge) -> Answer {
        self.answer(self.inner.check(charge))
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        self.inner.settle(reservation, actual)
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Answer> {
        Some(self.answer(self.inner.operate(operation, charge)?))
    }
}

/// The refusal is decided before the change, and arrives after it.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_a_refund_or_a_reset_overtakes_is_not_kept() {
    for is_refunded in [true, false] {
        let inner = Late::new();
        let limiter = inner.clone().deny_cache().max_age(Duration::MAX);
        let mut admitted = limiter.check(&one()).await.unwrap();
        inner.hold(true);
        let refused = held_up(limiter.check(&one()));
        inner.hold(false);
        if is_refunded {
            assert!(limiter.refund(admitted.take_reservation().unwrap()).is_ok());
        } else {
            limiter.reset(one()).await.unwrap();
        }
        inner.release();
        assert!(!refused.await.unwrap().is_admitted());
        assert!(limiter.is_empty());
        assert!(limiter.check(&one()).await.unwrap().is_admitted());
    }
}

/// A refusal that is decided before the reset, and arrives before the reset is answered.
#[tokio::test(start_paused = true)]
async fn a_reset_forgets_when_it_is_answered() {
    for is_awaited in [true, false] {
        let inner = Late::new();
        let limiter = inner.clone().deny_cache().max_age(Duration::MAX);
        let _ = limiter.check(&one()).await.unwrap();
        inner.hold(true);
        let refused = held_up(limiter.check(&one()));
        let reset = held_up(limiter.reset(one()));
        inner.hold(false);
        inner.release();
        assert!(!refused.await.unwrap().is_admitted());
        assert_eq!(limiter.len(), 1);
        inner.release();
        if is_awaited {
            reset.await.unwrap();
        } else {
            drop(reset);
        }
        assert!(limiter.is_empty());
    }
}

/// Its inner limiter may refund what it took, as one over Redis does. Its client may also be one
/// that hangs up to turn the cache off.
#[tokio::test(start_paused = true)]
async fn what_is_refused_beside_a_check_that_is_dropped_is_kept_for_100_ms() {
    for is_answered_before in [true, false] {
        let inner = Late::new();
        let limiter = inner.clone().deny_cache().max_age(HOUR);
        inner.hold(true);
        let first = held_up(limiter.check(&one()));
        let second = held_up(limiter.check(&one()));
        inner.hold(false);
        if is_answered_before {
            assert!(!refused_from_cache(&limiter, "key").await);
            drop(first);
        } else {
            drop(first);
            inner.release();
            assert!(!second.await.unwrap().is_admitted());
        }
        advance(99 * MILLI).await;
        assert!(refused_from_cache(&limiter, "key").await);
        advance(MILLI).await;
        assert!(!refused_from_cache(&limiter, "key").await);
        assert!(refused_from_cache(&limiter, "key").await);
    }
}

/// It was decided before the charge that is lost was asked for.
#[tokio::test(start_paused = true)]
async fn an_older_refusal_outlives_a_check_without_an_answer() {
    let scripted = Scripted::new().deny(HOUR).fail(ErrorKind::Infrastructure);
    let limiter = scripted.deny_cache().max_age(HOUR);
    let _ = limiter.check(&one().cost(2)).await.unwrap();
    advance(MILLI).await;
    assert!(limiter.check(&one()).await.is_err());
    advance(SECOND).await;
    assert_eq!(limiter.check(&one().cost(2)).await.unwrap().origin(), Origin::Cache);
}

/// Another runtime of this process may ask before the refund has reached the store.
#[tokio::test(start_paused = true)]
async fn what_is_refused_within_1_s_of_a_settlement_is_kept_for_100_ms() {
    let scripted = Scripted::new().allow().deny(HOUR).deny(HOUR);
    let limiter = scripted.deny_cache().max_age(HOUR);
    let mut admitted = limiter.check(&one()).await.unwrap();
    assert!(limiter.refund(admitted.take_reservation().unwrap()).is_ok());
    advance(999 * MILLI).await;
    assert!(!refused_from_cache(&limiter, "key").await);
    advance(99 * MILLI).await;
    assert!(refused_from_cache(&limiter, "key").await);
    advance(MILLI).await;
    assert!(!refused_from_cache(&limiter, "key").await);
    advance(SECOND).await;
    assert!(refused_from_cache(&limiter, "key").await);
}

/// As one that the store answered too late: it may be taken, and refunded afterwards.
#[tokio::test(start_paused = true)]
async fn what_is_refused_beside_an_error_is_kept_for_100_ms() {
    let scripted = Scripted::new().fail(ErrorKind::Infrastructure).deny(HOUR).allow();
    let limiter = scripted.deny_cache().max_age(HOUR);
    assert!(limiter.check(&one()).await.is_err());
    assert!(!refused_from_cache(&limiter, "key").await);
    advance(99 * MILLI).await;
    assert!(refused_from_cache(&limiter, "key").await);
    advance(MILLI).await;
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
}
