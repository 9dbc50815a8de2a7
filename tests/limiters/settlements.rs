//! The settlements of a layer once a request is answered, with time paused where no Redis is asked.

use tower_sluice::key::Global;
use tower_sluice::respond::Respond;

#[cfg(feature = "redis")]
use tower_sluice::Redis;

use super::*;

use support::strict::Strict;

/// The answer of the inner service.
type Text<'a> = Answer<'a, &'static str, BoxError>;

fn reset_if_right(answer: Text) -> Settle {
    if matches!(answer.result(), Ok(&"right")) { Settle::Reset } else { Settle::Keep }
}

/// A cost that is computed from a request, such as its `Content-Length`, may come to 0.
// Case 150.
#[tokio::test(start_paused = true)]
async fn a_request_whose_cost_is_0_pays_1() {
    let limiter = Arc::new(Memory::new("bytes", TokenBucket::new(Quota::per_hour(10))));
    let key = |request: &&str| Charge::new("alice").cost(request.len() as u64);
    let layer = RateLimitLayer::new(Arc::clone(&limiter), key).respond(Raise);
    let gate = layer.layer(Strict::default());
    gate.clone().oneshot("ten bytes!").await.unwrap();
    gate.clone().oneshot("").await.unwrap_err();
    tokio::time::advance(HOUR / 10).await;
    gate.clone().oneshot("").await.unwrap();
    assert_eq!(limiter.peek("alice").await.unwrap().remaining(), Some(0));

    // A peek is asked for, and the key may have nothing left.
    let peek = |_: &&str| Charge::new("alice").cost(8).peek();
    let layer = RateLimitLayer::new(Arc::clone(&limiter), peek).respond(Raise);
    layer.layer(Strict::default()).oneshot("").await.unwrap();
    // Without a layer a cost of 0 peeks.
    assert!(limiter.check(&Charge::new("alice").cost(0)).await.unwrap().is_admitted());
    assert!(limiter.acquire(Charge::new("alice").cost(0)).await.is_ok());
}

/// Units that are to be given back or taken are, also those of a call that failed: a client whose
/// connection was refused has cost its supplier nothing. What was refused is not asked about.
#[tokio::test(start_paused = true)]
async fn an_answered_request_is_settled() {
    let limiter = (0..6).fold(Scripted::new(), |limiter, _| limiter.allow());
    let limiter = limiter.deny(SECOND).wait(SECOND);
    let settle = |answer: Text| {
        let decision = answer.decision();
        assert!(decision.is_admitted());
        assert_eq!(decision.reservation().map(Reservation::cost), Some(2));
        match answer.result() {
            Ok(&"free") => Settle::Refund,
            Ok(&"cheap") => Settle::Cost(1),
            Ok(&"dear") => Settle::Add(41),
            Ok(&"as charged") => Settle::Cost(2),
            Ok(_) => Settle::Keep,
            Err(error) => {
                assert_eq!(error.to_string(), "the inner service failed");
                Settle::Refund
            }
        }
    };
    let key = |_: &&'static str| Charge::new("alice").cost(2);
    let layer = RateLimitLayer::new(limiter.clone(), key).respond(Raise).settle(settle);
    let mut gate = layer.max_wait(SECOND).layer(Strict::default());
    for request in ["free", "dear", "as charged", "usual", "cheap", "fail", "refused", "dear"] {
        let answer = gate.call(request).await;
        assert_eq!(answer.is_ok(), !["fail", "refused"].contains(&request), "{request}");
    }
    assert_eq!(limiter.refunds(), [0, 5]);
    assert_eq!(limiter.settlements(), [(0, 0), (1, 43), (2, 2), (4, 1), (5, 0), (7, 43)]);
}

/// Requests pass, even if their limiter settles nothing.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_settled_refuses_nobody() {
    let admits = |_: &Charge| ready(Ok::<_, Error>(Decision::new(Outcome::Allow)));
    let take = |_: Text| Settle::Cost(41);
    let inner = Strict::default();
    let layer = RateLimitLayer::new(admits, Global).respond(Raise).settle(take);
    layer.layer(inner.clone()).oneshot("hello").await.unwrap();

    // A closure around a limiter hands no settlement on.
    let wrapped = Scripted::new().allow();
    let wrapper = |charge: &Charge| wrapped.check(charge);
    let layer = RateLimitLayer::new(wrapper, Global).respond(Raise).settle(take);
    layer.layer(inner.clone()).oneshot("hello").await.unwrap();
    assert_eq!((inner.called(), wrapped.settlements()), (2, vec![]));
}

/// A responder whose callers wait for 5 ms, and which changes each response.
struct Hurried;

impl Respond<&'static str, &'static str, BoxError> for Hurried {
    type Error = BoxError;

    fn reject(&self, _: &'static str, refusal: Refusal) -> Result<&'static str, BoxError> {
        Err(refusal.into())
    }

    fn max_wait(&self, _: &&'static str) -> Option<Duration> {
        Some(Duration::from_millis(5))
    }

    fn annotate(&self, _: &mut Decision, response: &mut &'static str) {
        *response = "annotated";
    }
}

#[tokio::test(start_paused = true)]
async fn settling_leaves_the_rest_to_the_responder() {
    let limiter = Scripted::new().allow();
    let layer = RateLimitLayer::new(limiter.clone(), Global)
        .max_wait(SECOND)
        .respond(Hurried)
        .settle(|_| Settle::Keep);
    assert_eq!(layer.layer(Strict::default()).oneshot("hello").await.unwrap(), "annotated");
    assert_eq!(limiter.charges()[0].longest_wait(), Some(Duration::from_millis(5)));
}

/// A login that succeeds clears the failures before it, for its own key and through every wrapper.
#[tokio::test(start_paused = true)]
async fn a_reset_clears_the_key_before_the_response_is_there() {
    let window = || Memory::new("logins", FixedWindow::new(Quota::per_hour(3)).anchored());
    let wrapped = window().timeout(SECOND).deny_cache().or_else(FailOpen);
    for limiter in
        [window().boxed(), wrapped.boxed(), window().lease(2).switch(&Switch::new()).boxed()]
    {
        let key = |_: &&'static str| Charge::new("alice");
        let layer = RateLimitLayer::new(limiter.clone(), key).respond(Raise).settle(reset_if_right);
        let mut gate = layer.layer(Strict::default());
        limiter.acquire("bob").await.unwrap();
        for _ in 0..2 {
            gate.call("wrong").await.unwrap();
            gate.call("wrong").await.unwrap();
            gate.call("right").await.unwrap();
        }
        for _ in 0..3 {
            gate.call("wrong").await.unwrap();
        }
        gate.call("right").await.unwrap_err();
        assert_eq!(limiter.peek("bob").await.unwrap().remaining(), Some(2));
    }
}

/// A reset is asked with the charge of the request, and settles it, even if it might have waited.
#[tokio::test(start_paused = true)]
async fn a_reset_settles_the_request() {
    for max_wait in [Duration::ZERO, SECOND] {
        let limiter = (0..4).fold(Scripted::new(), |limiter, _| limiter.allow());
        let key = |_: &&'static str| Charge::new("alice").cost(2);
        let layer = |limiter| RateLimitLayer::new(limiter, key).respond(Raise).max_wait(max_wait);
        let gate = layer(limiter.clone()).settle(reset_if_right).layer(Strict::default());
        for request in ["wrong", "right", "fail"] {
            let _ = gate.clone().oneshot(request).await;
        }
        let operations = limiter.operations();
        assert_eq!(operations.len(), 1);
        assert_eq!((operations[0].0, operations[0].1.key()), (Operation::Reset, "alice"));
        assert_eq!(limiter.settlements(), []);
    }

    // One that cannot reset refunds.
    let limiter = Scripted::new().allow();
    let layer = RateLimitLayer::new(NoResets(limiter.clone()), Global).respond(Raise);
    let gate = layer.settle(reset_if_right).layer(Strict::default());
    assert_eq!(gate.oneshot("right").await.unwrap(), "right");
    assert_eq!(limiter.settlements(), [(0, 0)]);

    // What took nothing resets nothing.
    let away = Scripted::new().fail(ErrorKind::Infrastructure);
    let layer = RateLimitLayer::new(away.clone().or_else(FailOpen), Global).respond(Raise);
    layer.settle(reset_if_right).layer(Strict::default()).oneshot("right").await.unwrap();
    assert!(away.operations().is_empty());
}

/// A limiter that settles, and has no operations.
struct NoResets(Scripted);

impl Limiter for NoResets {
    type Future = <Scripted as Limiter>::Future;

    fn check(&self, charge: &Charge) -> Self::Future {
        self.0.check(charge)
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        self.0.settle(reservation, actual)
    }
}

/// Units that a fallback admitted are not charged to the limiter that was away.
#[tokio::test(start_paused = true)]
async fn a_settlement_takes_from_the_limiter_that_decided() {
    let settle = |_: Text| Settle::Cost(41);
    let keys = |charge: &Charge| [charge.clone(), Charge::new("all")];
    // `AllInTurn` asks each member twice for a decision: a peek, and a charge.
    for (asks, in_turn) in [(1, false), (2, true)] {
        let away = |decisions: usize| {
            let times = 0..decisions * asks;
            times.fold(Scripted::new(), |limiter, _| limiter.fail(ErrorKind::Infrastructure))
        };
        let [first, second, third] = [2, 1, 0].map(|n| away(n).allow().allow());
        let chain = first.clone().or_else(second.clone()).or_else(third.clone()).timeout(SECOND);
        let everybody = (0..6).fold(Scripted::new(), |limiter, _| limiter.allow());
        let limiter = match in_turn {
            true => AllInTurn::new([everybody.boxed(), chain.boxed()], keys).boxed(),
            false => chain.boxed(),
        };
        let layer = RateLimitLayer::new(limiter.clone(), Global);
        let gate = layer.respond(Raise).settle(settle).layer(Strict::default());
        let taken = || [&first, &second, &third].map(|limiter| limiter.settlements().len());
        for expected in [[0, 0, 1], [0, 1, 1], [1, 1, 1]] {
            gate.clone().oneshot("hello").await.unwrap();
            assert_eq!(taken(), expected, "in turn: {in_turn}");
        }
    }
}

/// As many are sent as charges were admitted, and a lost one would be units that nobody pays.
#[cfg(feature = "redis")]
#[tokio::test]
async fn a_full_queue_loses_no_settlement() {
    let (_server, pool) = support::Server::pooled();
    let limiter = Redis::new("bucket", TokenBucket::new(Quota::per_day(1_000)), pool)
        .decision_timeout(20 * SECOND)
        .queue_capacity(1);
    let mut reservations = Vec::new();
    for _ in 0..20 {
        let mut decision = limiter.check(&Charge::new("alice")).await.unwrap();
        reservations.extend(decision.take_reservation());
    }
    // None of them is sent before this task yields.
    for reservation in reservations {
        assert!(limiter.settle(reservation, 11).is_ok());
    }
    support::eventually("the settlements", async || {
        limiter.peek("alice").await.unwrap().remaining() == Some(1_000 - 20 * 11)
    })
    .await;
}

/// A caller who asks again at once finds what was refunded: a bucket that holds one is full again.
#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_comes_before_the_next_request_of_its_caller() {
    let (_server, pool) = support::Server::pooled();
    let bucket = TokenBucket::new(Quota::per_day(1));
    let limiter = Redis::new("bucket", bucket, pool).decision_timeout(20 * SECOND);
    for request in 0..1_000 {
        let mut decision = limiter.check(&Charge::new("alice")).await.unwrap();
        assert!(decision.is_admitted(), "request {request}");
        limiter.settle(decision.take_reservation().unwrap(), 0).unwrap();
    }
}

/// The runtime in which the limiter was asked sends it. Without one, nothing is lost in silence.
#[cfg(feature = "redis")]
#[test]
fn outside_of_its_runtime_a_reservation_is_settled_or_comes_back() {
    let (_server, pool) = support::Server::pooled();
    let limiter = Redis::new("bucket", TokenBucket::new(Quota::per_day(20)), pool);
    let limiter = limiter.decision_timeout(20 * SECOND);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let charge = || {
        let mut decision = runtime.block_on(limiter.check(&Charge::new("alice"))).unwrap();
        decision.take_reservation().unwrap()
    };
    let settlement = limiter.settle(charge(), 11).expect("the runtime is there");
    runtime.block_on(settlement).expect("an answer");
    assert_eq!(runtime.block_on(limiter.peek("alice")).unwrap().remaining(), Some(9));
    let reservation = charge();
    drop(runtime);
    let _ = limiter.settle(reservation, 11).expect_err("nothing can be sent");
}

/// Returns what settling 10 units at 4 gives back, where nobody else has asked; and what settling
/// the first of two does.
async fn given_back<L: Limiter>(limiter: L) -> [u64; 2] {
    let taken = async |key: &str| {
        let mut decision = limiter.check(&Charge::new(key).cost(10)).await.expect("a decision");
        decision.take_reservation().expect("taken")
    };
    let alone = taken("alone").await;
    let alone = limiter.settle(alone, 4).expect("its own").await.expect("an answer").given_back;
    let first = taken("two").await;
    drop(taken("two").await);
    [alone, limiter.settle(first, 4).expect("its own").await.expect("an answer").given_back]
}

#[tokio::test]
async fn a_settlement_says_what_it_gave_back_in_memory() {
    // A bucket gives back only what no later charge was decided on.
    let bucket = || Memory::new("bucket", TokenBucket::new(Quota::per_hour(1_000)));
    let window = || Memory::new("window", FixedWindow::new(Quota::per_hour(1_000)).anchored());
    assert_eq!(given_back(bucket()).await, [6, 0]);
    assert_eq!(given_back(window()).await, [6, 6]);
    let around = window().timeout(HOUR).breaker(Breaker::default()).or_else(FailOpen);
    let around = around.deny_cache().shadow().switch(&Switch::new()).inspect(|_, _| {}).boxed();
    assert_eq!(given_back(around).await, [6, 6]);
    assert_eq!(given_back(bucket().or_else(window())).await, [6, 0]);
    // The most that one of them gave back.
    let both = |charge: &Charge| [charge.clone(), charge.clone()];
    let in_turn = AllInTurn::new([bucket().boxed(), window().boxed()], both);
    assert_eq!(given_back(in_turn).await, [6, 6]);
    // Units that are put back into a lease are there for the next.
    assert_eq!(given_back(window().lease(100)).await, [6, 6]);
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_settlement_that_no_store_answers_says_so() {
    let (mut server, pool) = support::Server::pooled();
    let limiter = Redis::new("window", FixedWindow::new(Quota::per_hour(1_000)).anchored(), pool);
    let taken = limiter.check(&"alice".into()).await.unwrap().take_reservation().unwrap();
    server.kill();
    let error = limiter.settle(taken, 0).expect("its own").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Infrastructure, "{error}");
}

/// A limiter that settles whatever reservation it is given, and counts the units.
#[derive(Clone, Default)]
struct SettlesAll(Arc<AtomicU64>);

impl Limiter for SettlesAll {
    type Future = Ready<Result<Decision, Error>>;

    fn check(&self, charge: &Charge) -> Self::Future {
        let reservation = Reservation::new(Owner::new(), charge.units(), ());
        ready(Ok(Decision::new(Outcome::Allow).with_reservation(reservation)))
    }

    fn settle(&self, reservation: Reservation, _: u64) -> Result<Settlement, Reservation> {
        self.0.fetch_add(reservation.cost(), Relaxed);
        Ok(Settlement::gave_back(reservation.cost()))
    }
}

/// No member is offered what another one reserved.
#[tokio::test(start_paused = true)]
async fn in_turn_each_member_settles_its_own() {
    let [one, other] = [SettlesAll::default(), SettlesAll::default()];
    let keys = |charge: &Charge| [charge.clone().cost(3), Charge::new("all").cost(2)];
    let both = AllInTurn::new([one.clone().boxed(), other.clone().boxed()], keys);
    let settled = || [&one, &other].map(|one| one.0.load(Relaxed));
    let mut admitted = both.check(&Charge::new("alice")).await.unwrap();
    both.refund(admitted.take_reservation().unwrap()).unwrap();
    assert_eq!(settled(), [3, 2]);
    // A refusal of a third one gives back what each of them took.
    let never = |charge: &Charge| {
        ready(Ok(Decision::new(match charge.units() {
            0 => Outcome::Allow,
            _ => Outcome::Deny { retry_after: None },
        })))
    };
    let keys =
        |charge: &Charge| [charge.clone().cost(3), Charge::new("all").cost(2), charge.clone()];
    let all = AllInTurn::new([one.clone().boxed(), other.clone().boxed(), never.boxed()], keys);
    assert!(!all.check(&Charge::new("alice")).await.unwrap().is_admitted());
    assert_eq!(settled(), [6, 4]);
}
