//! The promises of limiters around limiters, and of the one in memory; time is paused.

use std::future::{Ready, pending, ready};
use std::mem;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep};
use tokio_test::{assert_pending, task};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_sluice::algorithm::{
    Algorithm, AnyAlgorithm, Budget, Concurrency, FixedWindow, IntoAlgorithm, SlidingCounter,
    SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp, TokenBucket,
};
use tower_sluice::future::Settlement;
use tower_sluice::key::Keyed;
use tower_sluice::limiter::{
    AllInTurn, Boxed, Breaker, Description, Lease, Operation, Origin, Owner, Reservation, Switch,
    SwitchMode,
};
use tower_sluice::respond::{Answer, Raise};
use tower_sluice::testing::Scripted;
use tower_sluice::{
    Charge, Decision, Error, ErrorKind, FailOpen, Limiter, LimiterExt, Memory, Outcome, Quota,
    RateLimitLayer, Refusal, Settle, by_head,
};

use support::dice::Dice;
use support::hides;

#[cfg(feature = "redis")]
use support::Server;
#[cfg(feature = "redis")]
use support::faults::{LONG, eventually};
#[cfg(feature = "redis")]
use support::stats::script_calls;
#[cfg(feature = "redis")]
use tower_sluice::Redis;

mod acquire;
mod ban_after;
mod block;
mod breaker;
mod budget;
mod concurrency;
#[cfg(feature = "redis")]
mod debts;
mod deny_cache;
mod engines;
mod grant;
mod keep_free;
mod lease;
mod memory;
mod own_store;
mod panics;
mod pause;
mod policies;
mod queues;
mod settlements;
mod shadow;
mod streams;
mod suspended;
mod switch;
mod waiters;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

const KINDS: [ErrorKind; 6] = [
    ErrorKind::Infrastructure,
    ErrorKind::Saturation,
    ErrorKind::Capacity,
    ErrorKind::Configuration,
    ErrorKind::Request,
    ErrorKind::State,
];

fn one() -> Charge {
    Charge::new("key")
}

/// Each algorithm under a quota. Those of a pace may store its whole period.
fn each(quota: Quota) -> [AnyAlgorithm; 11] {
    let whole = quota.period();
    let bursty = SmoothBursty::new(quota).max_burst(whole);
    [
        TokenBucket::new(quota).into(),
        Budget::new(quota).into(),
        Concurrency::of(quota).into(),
        FixedWindow::new(quota).into(),
        FixedWindow::new(quota).anchored().into(),
        SlidingLog::new(quota).into(),
        SlidingWindow::new(quota).into(),
        SlidingCounter::new(quota).into(),
        bursty.into(),
        bursty.wait_for_own_cost().into(),
        SmoothWarmingUp::new(quota, whole).into(),
    ]
}

// Deadlines and fallbacks.

#[tokio::test(start_paused = true)]
async fn a_silent_limiter_fails_at_its_deadline() {
    let silent = |_: &Charge| pending::<Result<Decision, Error>>();
    let begun = Instant::now();
    let error = silent.timeout(SECOND).check(&one()).await.unwrap_err();
    // The timer knows nothing about a store.
    assert_eq!(error.kind(), ErrorKind::Saturation);
    assert!(begun.elapsed() <= SECOND + Duration::from_millis(6));
    let month = 30 * 24 * HOUR;
    silent.timeout(month).check(&one()).await.unwrap_err();
    assert!(begun.elapsed() >= month);
    assert!(silent.timeout(SECOND).or_else(FailOpen).check(&one()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_earliest_deadline_travels_with_the_charge() {
    let scripted = Scripted::new().allow().allow().allow();
    let deadline = Instant::now() + SECOND;
    let limiter = Arc::new(scripted.clone()).timeout(SECOND).timeout(2 * SECOND);
    let _ = limiter.check(&one()).await.unwrap();
    let limiter = scripted.clone().timeout(2 * SECOND).timeout(SECOND);
    let _ = limiter.check(&one()).await.unwrap();
    let limiter = scripted.clone().timeout(SECOND).timeout(Duration::MAX);
    let _ = limiter.check(&one()).await.unwrap();
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
                    Err(Error::new(ErrorKind::Infrastructure, "silent"))
                }
                () = tokio::time::sleep(takes) => Ok(Decision::new(Outcome::Allow)),
            }
        }
    };
    answer.boxed()
}

/// Two limiters are asked three times: both peeks at once, then each of them.
// Case 133.
#[tokio::test(start_paused = true)]
async fn limiters_in_turn_get_what_is_left_of_the_time() {
    let both = |charge: &Charge| [charge.clone(), Charge::new("all")];
    let ask = async |first: Duration, deadline: Duration| {
        let all = AllInTurn::new([slow(first), slow(SECOND)], both);
        let begun = Instant::now();
        let answer = all.timeout(deadline).check(&one()).await;
        (answer.map(|decision| decision.outcome()).map_err(|error| error.kind()), begun.elapsed())
    };
    assert_eq!(ask(SECOND, 4 * SECOND).await, (Ok(Outcome::Allow), 3 * SECOND));
    assert_eq!(ask(SECOND, SECOND * 5 / 2).await, (Err(ErrorKind::Saturation), SECOND * 5 / 2));
    // Nobody is asked when the time is over.
    assert_eq!(ask(2 * SECOND, 3 * SECOND).await, (Err(ErrorKind::Saturation), 3 * SECOND));
    // The first had all of the time, and the store behind it said nothing.
    assert_eq!(ask(SECOND, SECOND / 2).await, (Err(ErrorKind::Infrastructure), SECOND / 2));
}

/// Its charges have two keys, of which a memory can take none.
#[test]
fn a_fallback_for_another_number_of_keys_is_refused_when_it_is_built() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    let memory = || Memory::new("share", TokenBucket::new(Quota::per_hour(1)));
    let of_parts = || AllInTurn::of_parts([memory().boxed(), memory().boxed()]);
    let refused = |build: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(build)).expect_err("it is refused");
        let text = panic.downcast_ref::<String>().expect("a sentence");
        assert!(text.starts_with("the charges have 2 keys, and the fallback takes 1"), "{text}");
    };
    refused(&|| drop(of_parts().or_else(memory())));
    refused(&|| drop(of_parts().timeout(SECOND).shadow().boxed().or_else(memory().deny_cache())));
    refused(&|| drop(of_parts().or_else_if(Error::is_of_store, memory())));
    #[cfg(feature = "redis")]
    refused(&|| {
        use tower_sluice::redis::AllAtOnce;
        use tower_sluice::{Pool, Redis};

        let pool = Pool::connect("redis://127.0.0.1:1").unwrap();
        let member = |name| Redis::new(name, TokenBucket::new(Quota::per_hour(1)), pool.clone());
        drop(AllAtOnce::of_parts((member("user"), member("all"))).or_else(memory()));
    });
    let keys = |charge: &Charge| [charge.clone(), Charge::new("all")];
    drop(AllInTurn::new([memory().boxed(), memory().boxed()], keys).or_else(memory()));
    drop(of_parts().or_else(of_parts()).or_else(FailOpen));
}

/// The peeks run at once, and one that is answered shows that the time is everybody's.
// Case 133.
#[tokio::test(start_paused = true)]
async fn a_silent_member_beside_one_that_answers_never_fails_open() {
    let ask = async |members: [Boxed; 3]| {
        let all = AllInTurn::new(members, |charge: &Charge| [(); 3].map(|()| charge.clone()));
        let answer = all.timeout(8 * SECOND).or_else(FailOpen).check(&one()).await;
        answer.map(|decision| decision.origin()).map_err(|error| error.kind())
    };
    let silent = || slow(100 * SECOND);
    let share = || Memory::new("share", TokenBucket::new(Quota::per_hour(1)));
    let covered = || silent().timeout(SECOND).or_else(share()).boxed();
    assert_eq!(ask([slow(SECOND), covered(), slow(SECOND)]).await, Ok(Origin::Local));
    for members in [
        [slow(SECOND), slow(SECOND), silent()],
        [slow(SECOND), silent(), slow(SECOND)],
        [silent(), slow(SECOND), slow(SECOND)],
    ] {
        assert_eq!(ask(members).await, Err(ErrorKind::Saturation));
    }
    assert_eq!(ask([silent(), silent(), silent()]).await, Ok(Origin::FailOpen));
}

/// Decides nothing after the deadline of a charge, like a limiter over a store.
struct KeepsDeadlines(Boxed);

impl Limiter for KeepsDeadlines {
    type Future = <Boxed as Limiter>::Future;

    fn check(&self, charge: &Charge) -> Self::Future {
        let is_over = charge.deadline().is_some_and(|end| Instant::from_std(end) <= Instant::now());
        match is_over {
            true => Box::pin(ready(Err(Error::new(ErrorKind::Saturation, "no time is left")))),
            false => self.0.check(charge),
        }
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        self.0.operate(operation, charge)
    }
}

/// The first member is peeked at like the others.
// Case 133.
#[tokio::test(start_paused = true)]
async fn a_silent_member_does_not_hide_the_refusal_of_the_first() {
    let both = |charge: &Charge| [charge.clone(), charge.clone()];
    let ask = async |first: Boxed, second: Boxed| {
        let all = AllInTurn::new([first, second], both).timeout(8 * SECOND).or_else(FailOpen);
        all.check(&one()).await.map(|one| one.origin()).map_err(|error| error.kind())
    };
    let silent = || slow(100 * SECOND);
    let away = || Scripted::new().fail(ErrorKind::Infrastructure).boxed();
    let exhausted = async || {
        let memory = Memory::new("user", TokenBucket::new(Quota::per_hour(1)));
        assert!(memory.check(&one()).await.unwrap().is_admitted());
        memory.boxed()
    };
    assert_eq!(ask(slow(SECOND), silent()).await, Err(ErrorKind::Saturation));
    assert_eq!(ask(exhausted().await, silent()).await, Ok(Origin::Local));
    let in_time = KeepsDeadlines(exhausted().await).boxed();
    assert_eq!(ask(in_time, silent()).await, Ok(Origin::Local));
    assert_eq!(ask(exhausted().await, away()).await, Ok(Origin::Local));
    assert_eq!(ask(away(), exhausted().await).await, Ok(Origin::Local));
    assert_eq!(ask(silent(), silent()).await, Ok(Origin::FailOpen));
}

/// It owes nothing, so it would admit any cost: what it has left says nothing.
#[tokio::test(start_paused = true)]
async fn in_turn_a_refused_caller_takes_nothing_from_a_smooth_limiter() {
    let pace = SmoothBursty::new(Quota::per_second(10)).max_burst(SECOND / 10);
    let pace = Memory::new("pace", pace);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let seen_pace =
        pace.inspect(move |charge, _| seen.lock().unwrap().push(charge.units())).boxed();
    let user = Memory::new("user", TokenBucket::new(Quota::per_hour(3)));
    let all = AllInTurn::new([user.boxed(), seen_pace], |charge| {
        [charge.clone(), Charge::new("all").cost(charge.units())]
    });
    let three = Charge::new("alice").cost(3);
    assert!(all.check(&three).await.unwrap().is_admitted());
    assert_eq!(mem::take(&mut *asked.lock().unwrap()), [0, 3]);
    tokio::time::advance(SECOND).await;
    assert_eq!(all.check(&three).await.unwrap().limiter(), Some("user"));
    assert_eq!(*asked.lock().unwrap(), [0]);
}

/// Changes keys as slowly as it decides.
struct SlowToChange(Boxed);

impl Limiter for SlowToChange {
    type Future = <Boxed as Limiter>::Future;

    fn check(&self, charge: &Charge) -> Self::Future {
        self.0.check(charge)
    }

    fn operate(&self, _: Operation, charge: &Charge) -> Option<Self::Future> {
        Some(self.0.check(charge))
    }
}

#[tokio::test(start_paused = true)]
async fn operations_in_turn_blame_no_store_for_the_time_of_the_others() {
    let kind = async |deadline: Duration| {
        let members = [(); 2].map(|()| SlowToChange(slow(SECOND)).boxed());
        let all = AllInTurn::new(members, |charge| [charge.clone(), Charge::new("all")]);
        all.timeout(deadline).penalize(one()).await.unwrap_err().kind()
    };
    assert_eq!(kind(SECOND * 3 / 2).await, ErrorKind::Saturation);
    assert_eq!(kind(SECOND / 2).await, ErrorKind::Infrastructure);
}

// Case 118.
#[tokio::test(start_paused = true)]
async fn only_infrastructure_fails_open() {
    for kind in KINDS {
        let answer = Scripted::new().fail(kind).or_else(FailOpen).check(&one()).await;
        match (kind, answer) {
            (ErrorKind::Infrastructure, Ok(decision)) => {
                assert_eq!(
                    (decision.outcome(), decision.origin()),
                    (Outcome::Allow, Origin::FailOpen)
                );
            }
            (ErrorKind::Infrastructure, Err(error)) => panic!("{error}"),
            (kind, answer) => assert_eq!(answer.unwrap_err().kind(), kind),
        }
    }
}

// Case 119.
#[tokio::test(start_paused = true)]
async fn another_limiter_stands_in_for_all_but_what_a_request_can_cause() {
    for kind in KINDS {
        let share = Scripted::new().deny(SECOND).deny(SECOND);
        let asked = async |limiter: Boxed, asked_before: usize| {
            let answer = limiter.check(&one()).await;
            assert_eq!(answer.is_ok(), share.charges().len() > asked_before, "{kind:?}");
            answer.is_ok()
        };
        let limiter = Scripted::new().fail(kind).or_else(share.clone()).boxed();
        let by_default = asked(limiter, 0).await;
        assert_eq!(by_default, !matches!(kind, ErrorKind::Request | ErrorKind::State), "{kind:?}");
        let limiter = Scripted::new().fail(kind).or_else_if(Error::is_of_store, share.clone());
        let of_store = asked(limiter.boxed(), usize::from(by_default)).await;
        assert_eq!(of_store, kind != ErrorKind::Request, "{kind:?}");
    }
}

/// The figures of the guide's first demonstration, with Redis and without.
#[tokio::test(start_paused = true)]
async fn the_first_demonstration_shows_all_three_verdicts() {
    let page = include_str!("../../docs/guide/start.md").replace('\n', " ");
    assert!(page.contains("send 150 requests, 100 at a time") && page.contains("/?[1-150]"));
    for (quota, said) in [
        (
            Quota::per_second(50).burst(100),
            "100 requests pass at once, 25 wait up to half a second, and 25 get",
        ),
        (Quota::per_second(10), "10 pass, 5 wait up to half a second, and 135 get"),
    ] {
        let limiter = Memory::new("api", TokenBucket::new(quota));
        let mut seen = [0; 3];
        for _ in 0..150 {
            let decision = limiter.check(&one().max_wait(SECOND / 2)).await.unwrap();
            seen[match decision.outcome() {
                Outcome::Allow => 0,
                Outcome::Wait(_) => 1,
                _ => 2,
            }] += 1;
        }
        let [at_once, later, refused] = seen;
        let figures: Vec<u32> =
            said.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
        assert_eq!(figures, [at_once, later, refused]);
        assert!(page.contains(said), "{said}");
    }
}

/// Load took the time of both. The second store says that it had none, as it must.
#[tokio::test(start_paused = true)]
async fn a_fallback_without_time_does_not_turn_load_into_a_store_that_is_away() {
    let twenty = Duration::from_millis(20);
    for (first, kind) in [
        (ErrorKind::Saturation, ErrorKind::Saturation),
        (ErrorKind::Infrastructure, ErrorKind::Infrastructure),
    ] {
        let busy = move |_: &Charge| async move {
            tokio::time::sleep(twenty).await;
            Err::<Decision, _>(Error::new(first, "the first"))
        };
        let second = Scripted::new().fail(ErrorKind::Infrastructure);
        let limiter = busy.or_else(second).timeout(twenty);
        assert_eq!(limiter.check(&Charge::new("a")).await.unwrap_err().kind(), kind);
    }
    let second = Scripted::new().fail(ErrorKind::Infrastructure);
    let limiter = Scripted::new().fail(ErrorKind::Saturation).or_else(second).timeout(twenty);
    let error = limiter.check(&Charge::new("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Infrastructure, "it had time");
}

// Case 120.
#[tokio::test(start_paused = true)]
async fn a_decision_needs_no_fallback() {
    let share = Scripted::new();
    let answer = Scripted::new().deny(SECOND).or_else(share.clone()).check(&one()).await;
    assert_eq!(answer.unwrap().retry_after(), Some(SECOND));
    assert_eq!(share.charges().len(), 0);
}

/// The policy is the user's: which errors a fallback answers, whatever it would answer by itself.
#[tokio::test(start_paused = true)]
async fn a_condition_replaces_that_of_the_fallback() {
    for kind in KINDS {
        let answers = |error: &Error| error.kind() == ErrorKind::Capacity;
        let open = Scripted::new().fail(kind).or_else_if(answers, FailOpen).boxed();
        let share = Scripted::new().allow();
        let shared = Scripted::new().fail(kind).or_else_if(answers, share.clone()).boxed();
        for limiter in [open, shared] {
            let answer = limiter.check(&one()).await;
            assert_eq!(answer.is_ok(), kind == ErrorKind::Capacity, "{kind:?}");
            if let Some(reservation) = answer.ok().and_then(|mut one| one.take_reservation()) {
                assert!(limiter.settle(reservation, 2).is_ok());
                assert_eq!(share.settlements(), [(0, 2)]);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn operations_pass_through_every_wrapper_and_stop_at_the_share() {
    let inner = Arc::new(Memory::new("inner", TokenBucket::new(Quota::per_second(5))));
    let share = Arc::new(Memory::new("share", TokenBucket::new(Quota::per_second(5))));
    let limiter = Arc::clone(&inner).timeout(Duration::from_secs(1)).or_else(Arc::clone(&share));
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
async fn a_reservation_is_settled_by_the_limiter_that_made_it() {
    let away = || Scripted::new().fail(ErrorKind::Infrastructure);
    let (store, share) = (away().allow(), Scripted::new().allow());
    let limiter = store.clone().or_else(share.clone()).timeout(SECOND);
    for (settled, expected) in [(&share, [(0, 3)]), (&store, [(1, 3)])] {
        let mut decision = limiter.check(&one()).await.unwrap();
        assert!(limiter.settle(decision.take_reservation().unwrap(), 3).is_ok());
        assert_eq!(settled.settlements(), expected);
    }

    let stranger = Scripted::new().allow().check(&one()).await.unwrap().take_reservation();
    let stranger = limiter.refund(stranger.unwrap()).unwrap_err();
    assert!(store.or_else(FailOpen).refund(stranger).is_err());
    // What was admitted without a decision took nothing.
    let mut decision = away().or_else(FailOpen).check(&one()).await.unwrap();
    assert_eq!(decision.origin(), Origin::FailOpen);
    assert!(decision.take_reservation().is_none());
}

/// A closure decides, and does nothing else.
#[tokio::test]
async fn what_a_limiter_cannot_do_is_an_error() {
    let closure = |_: &Charge| ready(Ok::<_, Error>(Decision::admitted()));
    assert!(closure.peek("key").await.unwrap().is_admitted());
    let store = Memory::new("api", TokenBucket::new(Quota::per_hour(10)));
    let keys = |charge: &Charge| [charge.clone(), charge.clone()];
    for limiter in [
        closure.boxed(),
        closure.timeout(SECOND).or_else(FailOpen).boxed(),
        closure.lease(100).boxed(),
        AllInTurn::new([store.clone().boxed(), closure.boxed()], keys).boxed(),
    ] {
        for error in [
            limiter.penalize("key").await.unwrap_err(),
            limiter.reset("key").await.unwrap_err(),
            limiter.block("key", HOUR).await.unwrap_err(),
            limiter.pause("key", HOUR).await.unwrap_err(),
            limiter.unblock("key").await.unwrap_err(),
            limiter.grant("key", 1).await.unwrap_err(),
            limiter.estimate("key").await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Configuration, "{limiter:?}: {error}");
        }
    }
    // The other member is as it was.
    assert!(store.is_empty());
}

/// Each member is settled on its own: one that settles nothing keeps no other from it.
#[tokio::test]
async fn beside_a_member_that_cannot_settle_the_others_do() {
    let closure = |_: &Charge| ready(Ok::<_, Error>(Decision::new(Outcome::Allow)));
    let both = |charge: &Charge| [charge.clone(), charge.clone()];
    let last = Scripted::new().allow().allow();
    let all = AllInTurn::new([closure.boxed(), last.clone().boxed()], both);
    let reservation = all.check(&one()).await.unwrap().take_reservation().unwrap();
    all.settle(reservation, 2).expect("the other member can");
    assert_eq!(last.settlements(), [(1, 2)]);
}

/// Nobody sleeps between the members, so a wait that one of them reserves is no admission.
/// The member that would refuse is asked first, and would hide what is wrong.
// Case 81.
#[tokio::test(start_paused = true)]
async fn in_turn_an_empty_key_is_an_error_whoever_would_refuse() {
    let memory = || Memory::new("memory", TokenBucket::new(Quota::per_hour(1))).boxed();
    let all = AllInTurn::new([memory(), memory()], |charge| [charge.clone(), Charge::new("all")]);
    assert!(all.check(&Charge::new("alice")).await.unwrap().is_admitted());
    assert!(!all.check(&Charge::new("bob")).await.unwrap().is_admitted());
    assert_eq!(all.check(&Charge::new("")).await.unwrap_err().kind(), ErrorKind::Request);
}

#[tokio::test(start_paused = true)]
async fn in_turn_a_reserved_wait_is_refunded_and_an_error() {
    // Each is peeked at before.
    let (first, second) = (Scripted::new().allow().allow(), Scripted::new().allow());
    let second = second.decide(Outcome::Wait(SECOND));
    let both = |charge: &Charge| [charge.clone(), charge.clone()];
    let all = AllInTurn::new([first.clone().boxed(), second.clone().boxed()], both);
    assert_eq!(all.check(&one().max_wait(SECOND)).await.unwrap_err().kind(), ErrorKind::State);
    assert_eq!((first.refunds(), second.refunds()), (vec![1], vec![1]));
}

// Secrets.

const SECRET: &str = "sk_live_4242";

/// Keys are often API keys, and logs are read by many.
// Case 127.
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
    let reservation = decision.take_reservation().unwrap();
    hides(&reservation);
    hides(&Refusal::Denied(memory.check(&charge).await.unwrap()));
    hides(&memory.clone().timeout(SECOND).or_else(FailOpen).check(&charge));
    let all = AllInTurn::new([Arc::clone(&memory).boxed()], |charge: &Charge| [charge.clone()]);
    hides(&all);
    hides(&all.check(&Charge::new(SECRET)).await);
    let cached = Arc::clone(&memory).deny_cache();
    let _ = cached.check(&charge).await.unwrap();
    hides(&cached);
    hides(&cached.check(&charge));
    let leased = Arc::clone(&memory).lease(100);
    hides(&leased);
    hides(&leased.check(&charge));
    let inspected = Arc::clone(&memory).inspect(|_, _| ());
    hides(&inspected);
    hides(&inspected.check(&charge));
    #[cfg(feature = "metrics")]
    {
        let metered = tower_sluice::limiter::MetricsExt::metrics(Arc::clone(&memory), "memory");
        hides(&metered);
        hides(&metered.check(&charge));
        hides(metered.meter());
    }
    #[cfg(feature = "tracing")]
    {
        let traced =
            tower_sluice::limiter::TraceExt::trace(Arc::clone(&memory), "memory").raw_keys();
        hides(&traced);
        hides(&traced.check(&charge));
    }
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

/// Begins a future, which has to wait.
#[track_caller]
fn held_up<F: Future<Output: std::fmt::Debug>>(future: F) -> task::Spawn<F> {
    let mut task = task::spawn(future);
    assert_pending!(task.poll());
    task
}
