//! The limiter in this process: its clock, its bounds, and what it gives back.

use tokio_test::assert_ready;
use tower_sluice::algorithm::QuotaError;

use super::*;

// Case 144.
#[tokio::test(start_paused = true)]
async fn what_is_dropped_before_it_is_polled_takes_nothing() {
    let limiter = Memory::new("jobs", TokenBucket::new(Quota::per_minute(5)));
    for _ in 0..3 {
        drop(limiter.acquire("job"));
        drop(limiter.check(&Charge::new("job")));
        drop(limiter.penalize("job"));
    }
    assert!(limiter.is_empty());
    let (check, reset) = (limiter.check(&Charge::new("job")), limiter.reset("job"));
    assert_eq!(check.await.unwrap().remaining(), Some(4));
    assert_eq!(limiter.peek("job").await.unwrap().remaining(), Some(4));
    assert_eq!(reset.await.unwrap().remaining(), Some(5));
    // What was not reserved is taken at once.
    let reservation = limiter.check(&Charge::new("job")).await.unwrap().take_reservation().unwrap();
    assert!(limiter.settle(reservation, 3).is_ok());
    assert_eq!(limiter.peek("job").await.unwrap().remaining(), Some(2));
}

#[tokio::test(start_paused = true)]
async fn clones_share_keys_until_one_is_set_up_anew() {
    let limiter = Memory::new("jobs", TokenBucket::new(Quota::per_minute(5)));
    let clone = limiter.clone();
    let reserve = async || limiter.check(&one()).await.unwrap().take_reservation().unwrap();
    assert!(clone.settle(reserve().await, 3).is_ok());
    assert_eq!(clone.peek("key").await.unwrap().remaining(), Some(2));

    // Another clock or another size has keys and reservations of its own.
    for other in [clone.clone().clock(|| SECOND), clone.clone().max_keys(9)] {
        assert_eq!(other.peek("key").await.unwrap().remaining(), Some(5));
        assert!(other.settle(reserve().await, 0).is_err());
    }
    assert_eq!(limiter.peek("key").await.unwrap().remaining(), Some(0));
}

/// The longest keys that there are take no more than short ones.
// Cases 92 and 138.
#[tokio::test(start_paused = true)]
async fn memory_is_bounded_in_bytes() {
    let bytes_of = |length: usize| {
        let limiter = Memory::new("memory", TokenBucket::new(Quota::per_minute(5)));
        let allocated = allocation_counter::measure(|| {
            for key in 0..2_000 {
                let charge = Charge::new(format!("{key:0length$}"));
                let answer = task::spawn(limiter.check(&charge)).poll();
                assert!(assert_ready!(answer).unwrap().is_admitted());
            }
        });
        assert_eq!(limiter.len(), 2_000);
        allocated.bytes_current / 2_000
    };
    let bytes = [8, 64, 65, 16 * 1024].map(bytes_of);
    assert!(bytes.iter().all(|bytes| *bytes <= 400), "{bytes:?} bytes for a key");
}

/// The most bytes that a key of 64 bytes takes, whatever the moment in the growth of its tables.
fn most_bytes_of_a_key<A: Algorithm>(algorithm: impl IntoAlgorithm<Algorithm = A>) -> u64 {
    let algorithm = algorithm.into_algorithm();
    // One shard, whose table grows at once.
    let limiter = Memory::new("memory", algorithm).max_keys(500);
    let (mut bytes, mut most) = (0, 0);
    for key in 0..450_u64 {
        let charge = Charge::new(format!("{key:064}"));
        let allocated = allocation_counter::measure(|| {
            let answer = task::spawn(limiter.check(&charge)).poll();
            assert!(assert_ready!(answer).unwrap().is_admitted());
        });
        bytes += allocated.bytes_current;
        if key >= 100 {
            most = most.max(bytes.cast_unsigned() / (key + 1));
        }
    }
    most
}

/// The table on `Memory`.
#[tokio::test(start_paused = true)]
async fn a_key_takes_no_more_bytes_than_the_documentation_says() {
    let quota = Quota::per_minute(60);
    let cells = |cells| SlidingWindow::new(quota).cells(cells);
    let table = [
        (300, most_bytes_of_a_key(TokenBucket::new(quota))),
        (300, most_bytes_of_a_key(FixedWindow::new(quota))),
        (360, most_bytes_of_a_key(Budget::new(quota))),
        (360, most_bytes_of_a_key(Concurrency::of(quota))),
        (360, most_bytes_of_a_key(SlidingCounter::new(quota))),
        (360, most_bytes_of_a_key(SmoothBursty::new(quota))),
        (360, most_bytes_of_a_key(SmoothWarmingUp::new(quota, Duration::from_secs(60)))),
        (370, most_bytes_of_a_key(SlidingLog::new(quota))),
        (600, most_bytes_of_a_key((TokenBucket::new(quota), FixedWindow::new(quota)))),
        (450, most_bytes_of_a_key(cells(10))),
        (450 + 8 * 10, most_bytes_of_a_key(cells(20))),
    ];
    assert!(table.iter().all(|(documented, bytes)| bytes <= documented), "{table:?}");
}

#[tokio::test(start_paused = true)]
async fn long_keys_are_told_apart_and_can_be_given_back() {
    let limiter = Memory::new("memory", TokenBucket::new(Quota::per_minute(5)));
    let keys = ["a".repeat(65), "a".repeat(66), "b".repeat(65)].map(Arc::<str>::from);
    let mut reservations = Vec::new();
    for key in &keys {
        let mut decision = limiter.check(&Charge::new(Arc::clone(key)).cost(5)).await.unwrap();
        reservations.extend(decision.take_reservation());
    }
    assert_eq!((limiter.len(), reservations.len()), (3, 3));
    for (key, reservation) in keys.into_iter().zip(reservations) {
        assert_eq!(limiter.peek(Arc::clone(&key)).await.unwrap().remaining(), Some(0));
        assert_eq!(limiter.settle(reservation, 0).expect("its own").await.unwrap().given_back, 5);
        assert_eq!(limiter.peek(key).await.unwrap().remaining(), Some(5));
    }
}

// Case 73.
#[tokio::test(start_paused = true)]
async fn memory_follows_tokios_clock() {
    let limiter = Memory::new("memory", TokenBucket::new(Quota::per_second(5)));
    let mut verdicts = Vec::new();
    for _ in 0..10 {
        let charge = one().max_wait(Duration::from_millis(500));
        verdicts.push(limiter.check(&charge).await.unwrap().outcome());
    }
    let wait = |millis| Outcome::Wait(Duration::from_millis(millis));
    assert_eq!(verdicts[..5], [Outcome::Allow; 5]);
    assert_eq!(verdicts[5..7], [wait(200), wait(400)]);
    let retry_after = Some(Duration::from_millis(600));
    assert_eq!(verdicts[7..], [Outcome::Deny { retry_after }; 3]);
    advance(Duration::from_millis(600)).await;
    assert_eq!(limiter.check(&one()).await.unwrap().outcome(), Outcome::Allow);
}

#[tokio::test(start_paused = true)]
async fn memory_drops_idle_keys() {
    let limiter = Memory::new("memory", TokenBucket::new(Quota::per_second(1)));
    for number in 0..1_000 {
        let _ = limiter.check(&Charge::new(format!("idle {number}"))).await.unwrap();
    }
    assert_eq!(limiter.len(), 1_000);
    advance(2 * SECOND).await;
    for number in 0..1_000 {
        let _ = limiter.check(&Charge::new(format!("busy {number}"))).await.unwrap();
    }
    assert!(limiter.len() < 1_100, "{}", limiter.len());
}

// Case 92.
#[tokio::test(start_paused = true)]
async fn a_full_memory_forgets_nobody() {
    let limiter = Memory::new("memory", TokenBucket::new(Quota::per_second(1))).max_keys(10);
    for number in 0..10 {
        let _ = limiter.check(&Charge::new(format!("live {number}"))).await.unwrap();
    }
    let error = limiter.check(&Charge::new("one more")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity);
    for number in 0..10 {
        let again = limiter.check(&Charge::new(format!("live {number}"))).await.unwrap();
        assert!(!again.is_admitted());
    }
    advance(SECOND).await;
    assert!(limiter.check(&Charge::new("one more")).await.unwrap().is_admitted());
    assert_eq!(limiter.len(), 9);
}

/// What was given back long before it would have expired holds no place for long.
#[tokio::test(start_paused = true)]
async fn a_key_whose_units_were_given_back_leaves_its_place() {
    let turns = Memory::new("turns", Concurrency::new(1)).max_keys(2).boxed();
    let slow = TokenBucket::new(Quota::per_day(1));
    let slow = Memory::new("slow", slow).max_keys(2).boxed();
    // At the latest after an eighth of the time for which they would have counted.
    for (limiter, after) in [(turns, 10 * SECOND), (slow, 3 * 3_600 * SECOND)] {
        for key in ["alice", "bob"] {
            let unit = limiter.check(&Charge::new(key)).await.unwrap().into_reservation().unwrap();
            assert!(limiter.settle(unit, 0).is_ok());
        }
        advance(after).await;
        assert!(limiter.check(&Charge::new("carol")).await.unwrap().is_admitted());
    }
}

/// A refund gives back what the charge took, whichever quota the settling limiter has.
#[tokio::test(start_paused = true)]
async fn a_limiter_of_the_same_keys_settles_by_the_quota_of_the_charge() {
    let old = Memory::new("api", TokenBucket::new(Quota::per_second(10).burst(600)));
    let _ = old.check(&one().cost(599)).await.unwrap();
    let last = old.check(&one()).await.unwrap().into_reservation().unwrap();
    let new = old.with_algorithm(TokenBucket::new(Quota::per_minute(1))).unwrap();
    assert!(new.settle(last, 0).is_ok());
    assert_eq!(old.peek("key").await.unwrap().remaining(), Some(1));
}

/// An algorithm that cannot follow the quota of the charge settles by its own.
#[tokio::test(start_paused = true)]
async fn a_limiter_of_the_same_keys_settles_whatever_its_algorithm() {
    let any = |algorithm: AnyAlgorithm| vec![algorithm];
    let bucket = TokenBucket::new(Quota::per_second(10).burst(600));
    let window = FixedWindow::new(Quota::per_second(10));
    let old = Memory::new("api", any(bucket.into()));
    let taken = old.check(&one()).await.unwrap().into_reservation().unwrap();
    let longer = old.with_algorithm(vec![bucket.into(), window.into()]).unwrap();
    assert!(longer.settle(taken, 0).is_ok());
    assert_eq!(old.peek("key").await.unwrap().remaining(), Some(600));
    let taken = old.check(&one()).await.unwrap().into_reservation().unwrap();
    assert!(old.with_algorithm(any(window.into())).unwrap().settle(taken, 0).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_kept_busy_stays() {
    let limiter =
        Memory::new("memory", TokenBucket::new(Quota::per_second(1).burst(2))).max_keys(2);
    let _ = limiter.check(&one()).await.unwrap();
    for number in 0..10 {
        advance(SECOND).await;
        let _ = limiter.check(&Charge::new(format!("other {number}"))).await.unwrap();
        let _ = limiter.check(&one()).await.unwrap();
        assert_eq!(limiter.check(&one().cost(0)).await.unwrap().remaining(), Some(1), "{number}");
    }
}

// Cases 60 and 81.
#[tokio::test(start_paused = true)]
async fn bad_charges_are_errors_and_take_nothing() {
    let limiter = Memory::new("memory", TokenBucket::new(Quota::per_second(1)));
    let kind = |charge: Charge| {
        let answer = limiter.check(&charge);
        async { answer.await.unwrap_err().kind() }
    };
    assert_eq!(kind(Charge::new("")).await, ErrorKind::Request);
    assert_eq!(kind(Charge::new("x".repeat(1 << 20))).await, ErrorKind::Request);
    assert_eq!(kind(one().cost(u64::MAX)).await, ErrorKind::Request);
    assert!(limiter.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_charge_that_brings_a_burst_to_a_window_is_an_error() {
    let limiter = Memory::new("memory", FixedWindow::new(Quota::per_second(5)));
    let burst = one().quota(Quota::per_second(9).burst(1));
    assert_eq!(limiter.check(&burst).await.unwrap_err().kind(), ErrorKind::Configuration);
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
}

#[tokio::test(start_paused = true)]
async fn a_clock_of_the_callers_own_decides() {
    let now = Arc::new(AtomicU64::new(1_767_225_600));
    let clock = Arc::clone(&now);
    let limiter = Memory::new("memory", FixedWindow::new(Quota::per_day(1)))
        .clock(move || Duration::from_secs(clock.load(Relaxed)));
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
    let denied = limiter.check(&one()).await.unwrap();
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(86_400)));
    now.fetch_add(86_399, Relaxed);
    assert!(!limiter.check(&one()).await.unwrap().is_admitted());
    now.fetch_add(1, Relaxed);
    let allowed = limiter.check(&one()).await.unwrap();
    assert_eq!(allowed.decided_at(), Some(Duration::from_secs(1_767_225_600 + 86_400)));
    now.store(u64::MAX, Relaxed);
    assert_eq!(limiter.check(&one()).await.unwrap_err().kind(), ErrorKind::Configuration);
}

/// A key is looked at when it might be old, as it was when it came; what was taken since keeps it.
#[tokio::test(start_paused = true)]
async fn memory_remembers_what_was_taken_since() {
    let limiter =
        Memory::new("memory", TokenBucket::new(Quota::per_second(1).burst(5))).max_keys(9);
    let _ = limiter.check(&one()).await.unwrap();
    let _ = limiter.check(&one().cost(4)).await.unwrap();
    tokio::time::advance(2 * SECOND).await;
    for _ in 0..5 {
        let _ = limiter.check(&Charge::new("another")).await.unwrap();
    }
    assert_eq!(limiter.peek(one()).await.unwrap().remaining(), Some(2));
}

// Case 67.
#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_back_finds_every_key_again() {
    let now = Arc::new(AtomicU64::new(1_767_225_600));
    let clock = Arc::clone(&now);
    let limiter = Memory::new("memory", FixedWindow::new(Quota::per_minute(1)))
        .clock(move || Duration::from_secs(clock.load(Relaxed)));
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
    now.fetch_add(7_200, Relaxed);
    for key in 0..100 {
        let _ = limiter.check(&Charge::new(key.to_string())).await.unwrap();
    }
    now.fetch_sub(7_200, Relaxed);
    assert!(!limiter.check(&one()).await.unwrap().is_admitted());
}

// Case 149.
#[test]
fn no_memory_is_built_with_a_quota_that_its_algorithm_cannot_follow() {
    let reason = |made: Result<(), QuotaError>| made.unwrap_err().to_string();
    let burst = Quota::per_second(5).burst(6);
    let window = Memory::try_new("memory", FixedWindow::new(burst)).map(drop);
    assert_eq!(reason(window), "a window has no burst");
    let many = Quota::per_second(10_001);
    let log = Memory::try_new("memory", SlidingLog::new(many)).map(drop);
    assert!(reason(log).contains("max_limit"));
    assert!(Memory::try_new("memory", SlidingLog::new(many).max_limit(10_001)).is_ok());
    let day = Quota::per_day(200_000);
    let counter = Memory::try_new("memory", SlidingCounter::new(day)).map(drop);
    assert!(reason(counter).contains("limit * period"));
    let pair = (TokenBucket::new(day), SlidingCounter::new(day));
    assert!(reason(Memory::try_new("memory", pair).map(drop)).contains("limit * period"));
}

/// A window needs no product of limit and period, and a bucket only the time of its burst.
#[tokio::test(start_paused = true)]
async fn a_quota_is_judged_by_the_algorithm_that_follows_it() {
    let month = Quota::new(99_999, Duration::from_secs(30 * 86_400));
    let windows: [AnyAlgorithm; 4] = [
        FixedWindow::new(month).into(),
        FixedWindow::new(month).anchored().into(),
        SlidingWindow::new(month).into(),
        SlidingLog::new(month).max_limit(99_999).into(),
    ];
    let all = |units: u64| Charge::new("all").cost(units);
    for window in windows {
        let limiter = Memory::new("month", window);
        assert!(limiter.check(&all(99_998)).await.unwrap().is_admitted(), "{window:?}");
        assert!(!limiter.check(&all(2)).await.unwrap().is_admitted(), "{window:?}");
        assert!(limiter.check(&all(1)).await.unwrap().is_admitted(), "{window:?}");
    }
    let (day, beyond) = (Quota::per_day(999_983), Quota::per_day((1 << 50) - 1));
    let buckets = |quota| -> [AnyAlgorithm; 2] {
        [TokenBucket::new(quota).into(), Budget::new(quota).into()]
    };
    for bucket in buckets(day.burst(1)) {
        let limiter = Memory::new("day", bucket);
        assert!(limiter.check(&one()).await.unwrap().is_admitted(), "{bucket:?}");
        let wait = limiter.check(&one()).await.unwrap().retry_after();
        assert_eq!(wait, Some(Duration::from_micros(86_402)), "{bucket:?}");
        // A charge that brings a quota which is not followed.
        let error = limiter.check(&one().quota(beyond)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(format!("{error:#}").contains("too large for the time of a unit"), "{error:#}");
        // A plan from a table, such as this one, is followed all the same.
        let all = |units| Charge::new("all").cost(units).quota(day);
        assert!(limiter.check(&all(999_982)).await.unwrap().is_admitted(), "{bucket:?}");
        assert!(!limiter.check(&all(2)).await.unwrap().is_admitted(), "{bucket:?}");
        assert!(limiter.check(&all(1)).await.unwrap().is_admitted(), "{bucket:?}");
        let wait = limiter.check(&all(1)).await.unwrap().retry_after();
        assert_eq!(wait, Some(Duration::from_micros(86_402)), "{bucket:?}");
    }
    for bucket in buckets(beyond) {
        let error = Memory::try_new("day", bucket).map(drop).unwrap_err();
        assert!(error.to_string().contains("too large for the time of a unit"), "{error}");
    }
}

/// A reset is remembered for ten minutes, also of a key that was never charged.
#[tokio::test(start_paused = true)]
async fn resets_of_unknown_keys_leave_room_for_charges() {
    let limiter = Memory::new("memory", TokenBucket::new(Quota::per_second(1))).max_keys(10);
    for key in 0..100 {
        limiter.reset(format!("unknown-{key}")).await.unwrap();
    }
    for key in 0..5 {
        assert!(limiter.check(&Charge::new(format!("{key}"))).await.unwrap().is_admitted());
    }
}
