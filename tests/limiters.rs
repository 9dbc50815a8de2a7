//! What limiters around limiters promise, and the one in memory; time is paused.

use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Instant, advance};
use tokio_test::{assert_pending, assert_ready, task};
use tower::{Layer, Service};
use tower_sluice::algorithm::{FixedWindow, SlidingCounter, SlidingLog, TokenBucket};
use tower_sluice::testing::Scripted;
use tower_sluice::{
    All, Allow, Boxed, Charge, Class, Decision, Deny, Error, Keyed, Limiter, LimiterExt, Memory,
    Operation, Origin, Outcome, Quota, QuotaError, RateLimitLayer, Refusal, by_head,
};

const SECOND: Duration = Duration::from_secs(1);

const CLASSES: [Class; 6] = [
    Class::Infrastructure,
    Class::Saturation,
    Class::Capacity,
    Class::Configuration,
    Class::Request,
    Class::State,
];

fn one() -> Charge {
    Charge::new("key")
}

// Deadlines and fallbacks.

#[tokio::test(start_paused = true)]
async fn a_silent_limiter_fails_at_its_deadline() {
    let silent = |_: &Charge| pending::<Result<Decision, Error>>();
    let begun = Instant::now();
    let error = silent.within(SECOND).check(&one()).await.unwrap_err();
    // The timer knows nothing about a store.
    assert_eq!(error.class(), Class::Saturation);
    assert!(begun.elapsed() <= SECOND + Duration::from_millis(6));
    assert!(silent.within(SECOND).or_else(Allow).check(&one()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_earliest_deadline_travels_with_the_charge() {
    let scripted = Scripted::new().allow().allow().allow();
    let deadline = Instant::now() + SECOND;
    let limiter = Arc::new(scripted.clone()).within(SECOND).within(2 * SECOND);
    limiter.check(&one()).await.unwrap();
    let limiter = scripted.clone().within(2 * SECOND).within(SECOND);
    limiter.check(&one()).await.unwrap();
    let limiter = scripted.clone().within(SECOND).within(Duration::MAX);
    limiter.check(&one()).await.unwrap();
    let earliest = Some(deadline.into_std());
    assert!(scripted.charges().iter().all(|charge| charge.deadline() == earliest));
}

/// A limiter that needs `takes`, and keeps to the deadline of its charge as one over a store does.
fn slow(takes: Duration) -> Boxed {
    let answer = move |charge: &Charge| {
        let deadline = charge.deadline().map(Instant::from_std);
        async move {
            tokio::select! {
                () = tokio::time::sleep_until(deadline.unwrap()) => {
                    Err(Error::new(Class::Infrastructure, "silent"))
                }
                () = tokio::time::sleep(takes) => Ok(Decision::new(Outcome::Allow)),
            }
        }
    };
    answer.boxed()
}

/// Two limiters are asked three times: a peek, then each of them.
#[tokio::test(start_paused = true)]
async fn case_133_limiters_in_turn_get_what_is_left_of_the_time() {
    let both = |charge: &Charge| [charge.clone(), Charge::new("all")];
    let ask = async |deadline: Duration| {
        let all = All::new([slow(SECOND), slow(SECOND)], both);
        let begun = Instant::now();
        let answer = all.within(deadline).check(&one()).await;
        (answer.map(|decision| decision.outcome()).map_err(|error| error.class()), begun.elapsed())
    };
    assert_eq!(ask(4 * SECOND).await, (Ok(Outcome::Allow), 3 * SECOND));
    assert_eq!(ask(SECOND * 5 / 2).await, (Err(Class::Saturation), SECOND * 5 / 2));
    // Nobody is asked when the time is over.
    assert_eq!(ask(2 * SECOND).await, (Err(Class::Saturation), 2 * SECOND));
    // The first had all of the time, and the store behind it said nothing.
    assert_eq!(ask(SECOND / 2).await, (Err(Class::Infrastructure), SECOND / 2));
}

#[tokio::test(start_paused = true)]
async fn only_infrastructure_opens_the_gate() {
    for class in CLASSES {
        let answer = Scripted::new().fail(class).or_else(Allow).check(&one()).await;
        match (class, answer) {
            (Class::Infrastructure, Ok(decision)) => {
                assert_eq!(
                    (decision.outcome(), decision.origin()),
                    (Outcome::Allow, Origin::Unasked)
                );
            }
            (Class::Infrastructure, Err(error)) => panic!("{error}"),
            (class, answer) => assert_eq!(answer.unwrap_err().class(), class),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_limiter_stands_in_for_infrastructure_and_saturation() {
    for class in CLASSES {
        let share = Scripted::new().deny(SECOND);
        let answer = Scripted::new().fail(class).or_else(share.clone()).check(&one()).await;
        let stands_in = matches!(class, Class::Infrastructure | Class::Saturation);
        assert_eq!(share.charges().len(), usize::from(stands_in), "{class:?}");
        assert_eq!(answer.is_ok(), stands_in, "{class:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn deny_leaves_the_error_what_it_is() {
    for class in CLASSES {
        let error = Scripted::new().fail(class).or_else(Deny).check(&one()).await.unwrap_err();
        assert_eq!(error.class(), class);
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_needs_no_fallback() {
    let share = Scripted::new();
    let answer = Scripted::new().deny(SECOND).or_else(share.clone()).check(&one()).await;
    assert_eq!(answer.unwrap().retry_after(), Some(SECOND));
    assert_eq!(share.charges().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn bookings_find_their_limiter() {
    let first = Scripted::new().allow().fail(Class::Infrastructure);
    let second = Scripted::new().allow();
    let limiter = first.clone().or_else(second.clone()).within(SECOND).boxed();
    for _ in 0..2 {
        let booking = limiter.check(&one()).await.unwrap().booking().unwrap();
        assert!(limiter.refund(booking).is_none());
    }
    assert_eq!((first.refunds(), second.refunds()), (vec![0], vec![0]));

    let stranger = Scripted::new().allow();
    let booking = stranger.check(&one()).await.unwrap().booking().unwrap();
    assert!(limiter.refund(booking).is_some());
}

#[tokio::test(start_paused = true)]
async fn limiters_of_different_types_share_a_table() {
    let table: Vec<Boxed> = vec![
        Scripted::new().allow().boxed(),
        (|_: &Charge| ready(Ok(Decision::new(Outcome::Allow)))).boxed(),
        Memory::new("memory", TokenBucket::new(Quota::per_second(1))).boxed(),
    ];
    for limiter in &table {
        assert!(limiter.clone().check(&one()).await.unwrap().is_admitted());
    }
}

// Workers.

#[tokio::test(start_paused = true)]
async fn acquire_sleeps_the_booked_wait() {
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
    let beyond = limiter.acquire(Charge::new("job").cost(2)).await.unwrap_err();
    assert_eq!(beyond.retry_after(), None);
    let mut waiting: Vec<_> = (0..3).map(|_| task::spawn(limiter.acquire("job"))).collect();
    for waiter in &mut waiting {
        assert_pending!(waiter.poll());
    }
    // The horizon is booked out.
    limiter.acquire("job").await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn dropped_acquire_gives_its_slot_back() {
    let limiter = Memory::new("jobs", TokenBucket::new(Quota::per_second(1)));
    limiter.acquire("job").await.unwrap();
    let mut waiting = task::spawn(limiter.acquire("job"));
    assert_pending!(waiting.poll());
    let reset = || async {
        let peek = limiter.check(&Charge::new("job").cost(0)).await;
        peek.unwrap().reset_after().unwrap()
    };
    let booked = reset().await;
    drop(waiting);
    assert_eq!(booked - reset().await, SECOND);
}

#[tokio::test(start_paused = true)]
async fn case_144_an_acquire_that_is_dropped_unpolled_asks_nothing() {
    let limiter = Scripted::new().allow();
    drop(limiter.acquire("job"));
    assert_eq!(limiter.charges().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn case_144_what_is_dropped_before_it_is_polled_takes_nothing() {
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
    // What is owed is taken at once.
    assert!(limiter.owe(&Charge::new("job").cost(2)));
    assert_eq!(limiter.peek("job").await.unwrap().remaining(), Some(3));
}

// Memory.

/// The longest keys that there are take no more than short ones.
#[tokio::test(start_paused = true)]
async fn case_138_memory_is_bounded_in_bytes() {
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

#[tokio::test(start_paused = true)]
async fn long_keys_are_told_apart_and_can_be_given_back() {
    let limiter = Memory::new("memory", TokenBucket::new(Quota::per_minute(5)));
    let keys = ["a".repeat(65), "a".repeat(66), "b".repeat(65)].map(Arc::<str>::from);
    let mut bookings = Vec::new();
    for key in &keys {
        let mut decision = limiter.check(&Charge::new(Arc::clone(key)).cost(5)).await.unwrap();
        bookings.extend(decision.booking());
    }
    assert_eq!((limiter.len(), bookings.len()), (3, 3));
    for (key, booking) in keys.into_iter().zip(bookings) {
        assert_eq!(limiter.peek(Arc::clone(&key)).await.unwrap().remaining(), Some(0));
        assert_eq!(limiter.give_back(booking).unwrap(), 5);
        assert_eq!(limiter.peek(key).await.unwrap().remaining(), Some(5));
    }
}

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
        limiter.check(&Charge::new(format!("idle {number}"))).await.unwrap();
    }
    assert_eq!(limiter.len(), 1_000);
    advance(2 * SECOND).await;
    for number in 0..1_000 {
        limiter.check(&Charge::new(format!("busy {number}"))).await.unwrap();
    }
    assert!(limiter.len() < 1_100, "{}", limiter.len());
}

#[tokio::test(start_paused = true)]
async fn a_full_memory_forgets_nobody() {
    let limiter = Memory::new("memory", TokenBucket::new(Quota::per_second(1))).capacity(10);
    for number in 0..10 {
        limiter.check(&Charge::new(format!("live {number}"))).await.unwrap();
    }
    let error = limiter.check(&Charge::new("one more")).await.unwrap_err();
    assert_eq!(error.class(), Class::Capacity);
    for number in 0..10 {
        let again = limiter.check(&Charge::new(format!("live {number}"))).await.unwrap();
        assert!(!again.is_admitted());
    }
    advance(SECOND).await;
    assert!(limiter.check(&Charge::new("one more")).await.unwrap().is_admitted());
    assert_eq!(limiter.len(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_kept_busy_stays() {
    let limiter =
        Memory::new("memory", TokenBucket::new(Quota::per_second(1).burst(2))).capacity(2);
    limiter.check(&one()).await.unwrap();
    for number in 0..10 {
        advance(SECOND).await;
        limiter.check(&Charge::new(format!("other {number}"))).await.unwrap();
        limiter.check(&one()).await.unwrap();
        let peek = limiter.check(&one().cost(0)).await.unwrap();
        assert_eq!(peek.remaining(), Some(1), "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn memory_gives_back_what_nobody_relies_on() {
    let limiter = Memory::new("memory", TokenBucket::new(Quota::per_second(1).burst(3)));
    let booking = async || limiter.check(&one()).await.unwrap().booking().unwrap();
    let [first, second, third] = [booking().await, booking().await, booking().await];
    assert_eq!(limiter.give_back(second).unwrap(), 0);
    assert_eq!(limiter.give_back(third).unwrap(), 1);
    assert_eq!(limiter.give_back(first).unwrap(), 0);
    assert_eq!(limiter.check(&one().cost(0)).await.unwrap().remaining(), Some(1));
    let other = Memory::new("other", TokenBucket::new(Quota::per_second(1)));
    assert_eq!(other.give_back(booking().await).unwrap_err().class(), Class::Request);
}

#[tokio::test(start_paused = true)]
async fn bad_charges_are_errors_and_take_nothing() {
    let limiter = Memory::new("memory", TokenBucket::new(Quota::per_second(1)));
    let class = |charge: Charge| {
        let answer = limiter.check(&charge);
        async { answer.await.unwrap_err().class() }
    };
    assert_eq!(class(Charge::new("")).await, Class::Request);
    assert_eq!(class(Charge::new("x".repeat(1 << 20))).await, Class::Request);
    assert_eq!(class(one().cost(u64::MAX)).await, Class::Request);
    assert!(limiter.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_charge_that_brings_a_burst_to_a_window_is_an_error() {
    let limiter = Memory::new("memory", FixedWindow::new(Quota::per_second(5)));
    let burst = one().quota(Quota::per_second(9).burst(1));
    assert_eq!(limiter.check(&burst).await.unwrap_err().class(), Class::Configuration);
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
    assert_eq!(limiter.check(&one()).await.unwrap_err().class(), Class::Configuration);
}

#[tokio::test(start_paused = true)]
async fn operations_pass_through_every_wrapper_and_stop_at_the_share() {
    let inner = Arc::new(Memory::new("inner", TokenBucket::new(Quota::per_second(5))));
    let share = Arc::new(Memory::new("share", TokenBucket::new(Quota::per_second(5))));
    let limiter = Arc::clone(&inner).within(Duration::from_secs(1)).or_else(Arc::clone(&share));
    let limiter = limiter.boxed();

    let owing = limiter.penalize(one().cost(8)).await.unwrap();
    assert_eq!(owing.outcome(), Outcome::Deny { retry_after: Some(Duration::from_millis(600)) });
    assert_eq!(owing.remaining(), Some(0));
    assert_eq!(limiter.peek(one()).await.unwrap().remaining(), Some(0));
    let reset = limiter.reset(one()).await.unwrap();
    assert_eq!((reset.outcome(), reset.remaining()), (Outcome::Allow, Some(5)));
    assert!(limiter.check(&one().cost(5)).await.unwrap().is_admitted());
    assert!(share.is_empty());

    let away = Scripted::new();
    let limiter = away.clone().or_else(Arc::clone(&share));
    limiter.penalize(one().cost(3)).await.unwrap();
    let (operation, charge) = away.operations().remove(0);
    assert_eq!((operation, charge.units()), (Operation::Penalize, 3));
    assert!(share.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_penalty_that_settles_a_decision_goes_to_who_decided() {
    let away = || Scripted::new().fail(Class::Infrastructure);
    let (store, share) = (away(), Scripted::new().allow());
    let limiter = store.clone().or_else(share.clone()).within(SECOND);
    let decision = limiter.check(&one()).await.unwrap();
    limiter.penalize(one().cost(3).settling(&decision)).await.unwrap();
    assert_eq!((store.operations().len(), share.operations().len()), (0, 1));
    limiter.penalize(one()).await.unwrap();
    assert_eq!((store.operations().len(), share.operations().len()), (1, 1));

    // Of what was admitted unasked, nothing is counted.
    let store = away();
    let limiter = store.clone().or_else(Allow);
    let decision = limiter.check(&one()).await.unwrap();
    let owing = limiter.penalize(one().settling(&decision)).await.unwrap();
    assert_eq!((owing.origin(), store.operations().len()), (Origin::Unasked, 0));
}

#[tokio::test]
async fn what_a_limiter_cannot_do_is_an_error() {
    let closure = |_: &Charge| std::future::ready(Ok(Outcome::Allow.into()));
    let error = closure.boxed().penalize("x").await.unwrap_err();
    assert_eq!(error.class(), Class::Configuration);
    assert!(closure.peek("x").await.unwrap().is_admitted());
    let error = closure.reset("x").await.unwrap_err();
    assert_eq!(error.class(), Class::Configuration);
}

#[tokio::test]
async fn a_wrapper_can_take_if_all_that_it_takes_from_can() {
    let closure = |_: &Charge| ready(Ok::<_, Error>(Decision::new(Outcome::Allow)));
    let can = || Memory::new("memory", TokenBucket::new(Quota::per_second(5))).boxed();
    let both = |charge: &Charge| [charge.clone(), charge.clone()];
    assert!(!closure.can_owe());
    assert!(!Arc::new(closure).within(SECOND).boxed().can_owe());
    assert!(Arc::new(can()).within(SECOND).or_else(Deny).boxed().can_owe());
    assert!(Scripted::new().or_else(Allow).can_owe());
    assert!(can().or_else(can()).can_owe());
    assert!(!can().or_else(closure).can_owe());
    assert!(All::new([can(), can()], both).can_owe());
    let mixed = All::new([closure.boxed(), can()], both);
    assert!(!mixed.can_owe());

    // Taken where possible, and the answer says that it was not everywhere.
    let last = Scripted::new();
    assert!(!All::new([closure.boxed(), last.clone().boxed()], both).owe(&one()));
    assert_eq!(last.operations().len(), 1);
}

/// A key is looked at when it might be old, as it was when it came; what was taken since keeps it.
#[tokio::test(start_paused = true)]
async fn memory_remembers_what_was_taken_since() {
    let limiter =
        Memory::new("memory", TokenBucket::new(Quota::per_second(1).burst(5))).capacity(9);
    limiter.check(&one()).await.unwrap();
    limiter.check(&one().cost(4)).await.unwrap();
    tokio::time::advance(2 * SECOND).await;
    for _ in 0..5 {
        limiter.check(&Charge::new("another")).await.unwrap();
    }
    assert_eq!(limiter.peek(one()).await.unwrap().remaining(), Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_back_finds_every_key_again() {
    let now = Arc::new(AtomicU64::new(1_767_225_600));
    let clock = Arc::clone(&now);
    let limiter = Memory::new("memory", FixedWindow::new(Quota::per_minute(1)))
        .clock(move || Duration::from_secs(clock.load(Relaxed)));
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
    now.fetch_add(7_200, Relaxed);
    for key in 0..100 {
        limiter.check(&Charge::new(key.to_string())).await.unwrap();
    }
    now.fetch_sub(7_200, Relaxed);
    assert!(!limiter.check(&one()).await.unwrap().is_admitted());
}

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

#[test]
#[should_panic(expected = "the algorithm cannot follow its quota: a window has no burst")]
fn a_new_memory_panics_with_the_reason() {
    let _ = Memory::new("memory", FixedWindow::new(Quota::per_second(5).burst(6)));
}

// Secrets.

const SECRET: &str = "sk_live_4242";

/// Fails if a secret key can be read in what `value` prints.
fn hides(value: &dyn std::fmt::Debug) {
    let printed = format!("{value:?} {value:#?}");
    assert!(!printed.contains("sk_live"), "{printed}");
}

/// Keys are often API keys, and logs are read by many.
#[tokio::test(start_paused = true)]
async fn debug_output_of_no_public_type_shows_a_key() {
    let charge = Charge::new(SECRET).cost(2);
    for charge in [charge.clone(), Charge::new(SECRET.to_owned()), Charge::new(Arc::from(SECRET))] {
        hides(&charge);
        hides(&Keyed::Charge(charge));
    }

    let memory = Arc::new(Memory::new("memory", TokenBucket::new(Quota::per_second(2))));
    let mut decision = memory.check(&charge).await.unwrap();
    hides(&decision);
    hides(&memory.penalize(SECRET));
    let booking = decision.booking().unwrap();
    hides(&booking);
    hides(&Refusal::Denied(memory.check(&charge).await.unwrap()));
    hides(&memory.clone().within(SECOND).or_else(Allow).check(&charge));
    let all = All::new([Arc::clone(&memory).boxed()], |charge: &Charge| [charge.clone()]);
    hides(&all);
    hides(&all.check(&Charge::new(SECRET)).await);
    hides(&memory.acquire(charge.clone()));
    hides(&memory);

    let scripted = Scripted::new().allow().allow();
    hides(&scripted.check(&charge).await);
    hides(&scripted.penalize(charge.clone()).await);
    hides(&scripted);
    hides(&scripted.charges());
    hides(&scripted.operations());

    let inner = tower::service_fn(|_: http::Request<()>| {
        ready(Ok::<_, Error>(http::Response::new(String::new())))
    });
    let key = by_head(|head| {
        hides(&head);
        head.header("x-api-key")
    });
    let mut gate =
        RateLimitLayer::new(scripted, key).layer(tower::util::BoxCloneService::new(inner));
    let request = http::Request::builder().uri("/?key=sk_live_4242").header("x-api-key", SECRET);
    let reply = gate.call(request.body(()).unwrap());
    hides(&gate);
    hides(&reply);
    reply.await.unwrap();
}

#[test]
#[should_panic(expected = "a limiter needs a name")]
fn a_limiter_needs_a_name() {
    let _ = Memory::new("", TokenBucket::new(Quota::per_second(1)));
}
