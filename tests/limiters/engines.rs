//! Engines of other crates: several limits of one store, chosen when a request comes.

use tower_sluice::store::{Decided, Part, Rules, Together, decide, settle};

use super::*;

/// Limits of this process. Those at the same places decide together, up to `most` at a time.
struct Engine {
    limits: Vec<Memory<AnyAlgorithm>>,
    most: usize,
}

impl Engine {
    /// Makes limits of these numbers an hour.
    fn new(limits: &[u64], most: usize) -> Self {
        let bucket = |limit: &u64| AnyAlgorithm::from(TokenBucket::new(Quota::per_hour(*limit)));
        let clock = Memory::new("clock", TokenBucket::new(Quota::per_hour(1)));
        let limit = |limit| Memory::new("limit", bucket(limit)).clock_of(&clock);
        Self { limits: limits.iter().map(limit).collect(), most }
    }

    fn parts(&self, units: u64) -> Vec<Part> {
        let part = |(place, limit): (usize, &Memory<_>)| {
            Part::new(place, limit.clone().boxed(), one().cost(units))
        };
        // In the other order: their places count.
        self.limits.iter().enumerate().map(part).rev().collect()
    }

    async fn left(&self) -> Vec<u64> {
        let mut left = Vec::new();
        for limit in &self.limits {
            left.push(limit.peek("key").await.unwrap().remaining().unwrap());
        }
        left
    }
}

impl Rules for Engine {
    fn together(&self, parts: &[Part]) -> Option<Together> {
        let limits: Vec<_> = parts.iter().map(|part| &self.limits[part.place]).collect();
        (parts.len() <= self.most).then(|| Together::of_memory(&limits))?
    }

    async fn stand_in(&self, parts: Vec<Part>, error: Error) -> Result<Decided, Error> {
        Ok(Decided::new(parts, Decision::admitted().with_fallback_cause(error)))
    }
}

#[tokio::test(start_paused = true)]
async fn two_to_eight_limits_decide_together() {
    let engine = Engine::new(&[1; 9], 9);
    let limits: Vec<_> = engine.limits.iter().collect();
    let are_possible = (0..=9).map(|count| Together::of_memory(&limits[..count]).is_some());
    let possible: Vec<_> = (0..).zip(are_possible).filter(|(_, is)| *is).collect();
    assert_eq!(possible, (2..=Together::MAX).map(|count| (count, true)).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn limits_decide_all_or_nothing_however_many_decide_together() {
    for most in [8, 2, 1] {
        let engine = Engine::new(&[5, 4, 7, 6], most);
        let owner = Owner::new();
        let decided = decide(engine.parts(4), &engine).await.unwrap();
        assert_eq!(decided.outcome(), Outcome::Allow);
        let decision = decided.into_decision(owner, 4).unwrap();
        let left: Vec<_> = decision.policies().map(|one| one.remaining().unwrap()).collect();
        assert_eq!(left, [1, 0, 3, 2], "{most}");

        let refused = decide(engine.parts(1), &engine).await.unwrap();
        let places: Vec<_> = refused.each().map(|(part, ..)| part.place).collect();
        assert!(!refused.outcome().is_admitted() && places.is_sorted(), "{places:?}");
        let refusals = refused.each().filter(|(_, outcome, _)| !outcome.is_admitted());
        assert_eq!(refusals.map(|(part, ..)| part.place).collect::<Vec<_>>(), [1]);
        assert!(refused.into_decision(owner, 1).unwrap().reservation().is_none());
        assert_eq!(engine.left().await, [1, 0, 3, 2], "{most}");

        let reservation = decision.into_reservation().expect("it took units");
        let foreign = settle(Owner::new(), reservation, |_, _| 0).expect_err("another owner");
        assert_eq!(settle(owner, foreign, |_, own| own / 2).unwrap().await.unwrap().given_back, 2);
        assert_eq!(engine.left().await, [3, 2, 5, 4], "{most}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_makes_a_decision_of_is_given_back() {
    let engine = Engine::new(&[5, 4], 8);
    let decided = decide(engine.parts(3), &engine).await.unwrap();
    assert_eq!(engine.left().await, [2, 1]);
    let mut others = Decided::default();
    others.hold(decided);
    assert_eq!(others.each().count(), 0);
    drop(others);
    assert_eq!(engine.left().await, [5, 4]);
    let nobody = Decided::default().into_decision(Owner::new(), 1).unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::Configuration);
}

#[tokio::test(start_paused = true)]
async fn a_stand_in_decides_for_the_limit_that_fails() {
    let engine = Engine::new(&[5, 4], 1);
    let mut parts = engine.parts(3);
    // The first place, which is asked first.
    parts[1].limiter = Scripted::new().fail(ErrorKind::Infrastructure).boxed();
    let decided = decide(parts, &engine).await.unwrap();
    let causes: Vec<_> =
        decided.each().map(|(_, _, decision)| decision.fallback_cause().is_some()).collect();
    assert_eq!(causes, [true, false]);
    let decision = decided.into_decision(Owner::new(), 3).unwrap();
    assert!(decision.is_admitted() && decision.fallback_cause().is_some());
    assert_eq!(decision.reservation().map(Reservation::cost), Some(3));
    assert_eq!(engine.left().await, [5, 1]);
}

/// A limiter without a unit left, whose store is away when it shall say for how long.
#[derive(Clone)]
struct Unestimated(Scripted);

impl Limiter for Unestimated {
    type Future = <Scripted as Limiter>::Future;

    fn check(&self, charge: &Charge) -> Self::Future {
        self.0.check(charge)
    }

    fn operate(&self, _: Operation, _: &Charge) -> Option<Self::Future> {
        Some(ready(Err(Error::new(ErrorKind::Infrastructure, "away"))))
    }
}

/// The next call would wait as long, once more.
#[tokio::test(start_paused = true)]
async fn an_estimate_that_fails_ends_a_charge_before_anything_is_taken() {
    let engine = Engine::new(&[5, 4], 1);
    let mut parts = engine.parts(3);
    let first = Scripted::new().decide(Decision::admitted().with_remaining(0));
    parts[1].limiter = Unestimated(first.clone()).boxed();
    let stand_in = StandIn(None, |parts| Decided::new(parts, Decision::admitted()));
    let decided = decide(parts, &stand_in).await.unwrap();
    let decision = decided.into_decision(Owner::new(), 3).unwrap();
    assert!(decision.is_admitted());
    assert_eq!(first.charges().iter().map(Charge::units).collect::<Vec<_>>(), [0]);
    assert_eq!(engine.left().await, [5, 1]);
}

/// Rules whose stand-in decides so about parts whose limiter failed. Limiters that decide together
/// fail if there are fewer parts.
struct StandIn<F>(Option<Together>, F);

impl<F: Fn(Vec<Part>) -> Decided + Sync> Rules for StandIn<F> {
    fn together(&self, _: &[Part]) -> Option<Together> {
        self.0.clone()
    }

    async fn stand_in(&self, parts: Vec<Part>, _: Error) -> Result<Decided, Error> {
        Ok((self.1)(parts))
    }
}

#[tokio::test(start_paused = true)]
async fn a_stand_in_that_admits_leaves_out_no_part() {
    let engine = Engine::new(&[5, 4], 1);
    let fails = || {
        let mut parts = engine.parts(3);
        parts[0].limiter = Scripted::new().fail(ErrorKind::Infrastructure).boxed();
        parts
    };
    let error = decide(fails(), &StandIn(None, |_| Decided::default())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Infrastructure);
    assert_eq!(engine.left().await, [5, 4]);
    let each = StandIn(None, |parts| Decided::new(parts, Decision::admitted()));
    assert_eq!(decide(fails(), &each).await.unwrap().each().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_stand_in_took_before_it_asks_again_is_given_back() {
    let engine = Engine::new(&[5, 4, 7], 8);
    let fails = Together::of_memory(&engine.limits.iter().collect::<Vec<_>>());
    let taken = Mutex::new(engine.limits[0].check(&one().cost(3)).await.ok());
    let asks_again = StandIn(fails, |mut parts: Vec<Part>| {
        let again = Decided::new(parts.split_off(1), Outcome::Retry(SECOND).into());
        let mut decided = Decided::new(parts, taken.lock().unwrap().take().unwrap());
        decided.extend(again);
        decided
    });
    let mut parts = engine.parts(3);
    parts.retain(|part| part.place < 2);
    parts.iter_mut().for_each(|part| part.charge = part.charge.clone().max_wait(SECOND));
    assert_eq!(engine.left().await, [2, 4, 7]);
    let decided = decide(parts, &asks_again).await.unwrap();
    assert_eq!(engine.left().await, [5, 4, 7]);
    let decision = decided.into_decision(Owner::new(), 3).unwrap();
    assert_eq!(decision.outcome(), Outcome::Retry(SECOND));
    assert!(decision.reservation().is_none());
    assert_eq!(decision.policies().next().unwrap().remaining(), Some(5));
}

/// Rules that name the same limiters for any parts.
struct Fixed(Together);

impl Rules for Fixed {
    fn together(&self, _: &[Part]) -> Option<Together> {
        Some(self.0.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn another_number_of_limiters_than_parts_is_a_mistake() {
    let engine = Engine::new(&[5, 4, 7], 8);
    let [one, other, third] = &engine.limits[..] else { unreachable!() };
    for limits in [&[one, other][..], &[one, other, third, third]] {
        let rules = Fixed(Together::of_memory(limits).unwrap());
        let error = decide(engine.parts(1), &rules).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(error.to_string().contains("another number of limiters"), "{error}");
    }
    assert_eq!(engine.left().await, [5, 4, 7]);
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn limits_of_two_pools_do_not_decide_together() {
    use tower_sluice::{Pool, Redis};

    let pools = [(); 2].map(|()| Pool::connect("redis://127.0.0.1:1").expect("an address"));
    let limit = |name: &str, pool: &Pool| {
        Redis::new(name, AnyAlgorithm::from(TokenBucket::new(Quota::per_hour(1))), pool.clone())
    };
    let [one, same, other] =
        [limit("one", &pools[0]), limit("same", &pools[0]), limit("other", &pools[1])];
    assert!(Together::of_redis(&[&one, &same]).is_some());
    assert!(Together::of_redis(&[&one, &other]).is_none());
    assert!(Together::of_redis(&[&one]).is_none() && Together::of_redis(&[]).is_none());
}
