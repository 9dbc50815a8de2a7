//! A key that is blocked is refused until then, in memory and in Redis alike, and loses nothing.
//! Beside it, pauses in random histories: `pause.rs` has the rest.

use tower_sluice::future::BoxedFuture;

use super::*;

fn refused_for(wait: Duration) -> Outcome {
    Outcome::Deny { retry_after: Some(wait) }
}

async fn ask(limiter: &impl Limiter, cost: u64) -> Decision {
    limiter.check(&Charge::new("mallory").cost(cost)).await.expect("a decision")
}

/// A caller of `block` need not know the quota under which others pay.
#[tokio::test(start_paused = true)]
async fn a_block_keeps_the_state_of_another_quota() {
    let limiter = Memory::new("api", TokenBucket::new(Quota::per_second(1))).max_keys(1);
    let mallory = Charge::new("mallory").quota(Quota::per_day(1));
    assert!(limiter.check(&mallory).await.unwrap().is_admitted());
    limiter.block("mallory", SECOND).await.unwrap();
    tokio::time::advance(13 * SECOND).await;
    let full = limiter.check(&Charge::new("bob")).await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Capacity, "there is room only for a key that has expired");
    assert!(!limiter.check(&mallory).await.unwrap().is_admitted());
}

#[tokio::test(start_paused = true)]
async fn a_block_refuses_until_it_ends_and_takes_nothing() {
    let limiter = Memory::new("logins", FixedWindow::new(Quota::per_day(5)).anchored());
    let _ = ask(&limiter, 2).await;
    assert_eq!(limiter.block("mallory", HOUR).await.unwrap().outcome(), refused_for(HOUR));
    tokio::time::advance(HOUR / 2).await;
    let left = HOUR / 2;
    let patient = Charge::new("mallory").max_wait(2 * HOUR);
    for decision in [
        ask(&limiter, 1).await,
        ask(&limiter, 6).await,
        limiter.check(&patient).await.unwrap(),
        limiter.peek("mallory").await.unwrap(),
        limiter.estimate(patient.clone()).await.unwrap(),
        // A shorter block ends no longer one.
        limiter.block("mallory", SECOND).await.unwrap().0,
    ] {
        let report = (decision.remaining(), decision.reset_after());
        assert_eq!((decision.outcome(), report), (refused_for(left), (Some(0), Some(left))));
        assert!(decision.reservation().is_none());
    }
    let refused = limiter.acquire(patient).await.unwrap_err();
    assert!(matches!(refused, Refusal::Denied(decision) if decision.retry_after() == Some(left)));
    assert_eq!(limiter.peek("bob").await.unwrap().remaining(), Some(5));
    tokio::time::advance(left).await;
    assert_eq!(ask(&limiter, 1).await.remaining(), Some(2));

    // For ever, until it is ended.
    limiter.block("mallory", Duration::MAX).await.unwrap();
    assert!(ask(&limiter, 1).await.retry_after() > Some(24 * 365 * HOUR));
    assert_eq!(limiter.unblock("mallory").await.unwrap().remaining(), Some(2));
    assert_eq!(limiter.unblock("mallory").await.unwrap().remaining(), Some(2));
    // A time of 0 is the shortest that there is.
    limiter.block("mallory", Duration::ZERO).await.unwrap();
    tokio::time::advance(SECOND).await;
    assert!(ask(&limiter, 1).await.is_admitted());
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_under_a_block_is_settled_as_always() {
    let limiter = Memory::new("tokens", FixedWindow::new(Quota::per_day(100)).anchored());
    let reservation = ask(&limiter, 50).await.into_reservation().unwrap();
    limiter.block("mallory", HOUR).await.unwrap();
    assert_eq!(limiter.settle(reservation, 20).unwrap().await.unwrap().given_back, 30);
    let penalized = limiter.penalize(Charge::new("mallory").cost(5)).await.unwrap();
    assert_eq!(penalized.outcome(), refused_for(HOUR));
    assert_eq!(limiter.unblock("mallory").await.unwrap().remaining(), Some(75));

    // A reset forgets what was taken, and ends no block: that of a login may come too late.
    limiter.block("mallory", HOUR).await.unwrap();
    assert_eq!(limiter.reset("mallory").await.unwrap().outcome(), refused_for(HOUR));
    assert_eq!(ask(&limiter, 1).await.outcome(), refused_for(HOUR));
    assert_eq!(limiter.unblock("mallory").await.unwrap().remaining(), Some(100));
}

/// A caller that has a slot already runs then.
#[tokio::test(start_paused = true)]
async fn a_waiting_request_keeps_its_slot() {
    let limiter = Memory::new("jobs", TokenBucket::new(Quota::per_second(1).burst(1)));
    let _ = ask(&limiter, 1).await;
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("mallory").await.map(|decision| decision.waited()) }
    });
    while ask(&limiter, 1).await.retry_after() <= Some(SECOND) {
        tokio::task::yield_now().await;
    }
    limiter.block("mallory", HOUR).await.unwrap();
    let begin = tokio::time::Instant::now();
    assert_eq!(waiting.await.unwrap().unwrap(), SECOND);
    assert_eq!(begin.elapsed(), SECOND);
    assert!(!ask(&limiter, 1).await.is_admitted());
}

fn store() -> Memory<TokenBucket> {
    Memory::new("api", TokenBucket::new(Quota::per_day(1_000)))
}

/// Limiters around a store, each with its name.
pub(crate) fn wrappers() -> Vec<(&'static str, Boxed)> {
    let keys = |charge: &Charge| [charge.clone(), Charge::new("all")];
    #[allow(unused_mut, reason = "features add some")]
    let mut wrapped = vec![
        ("timeout", store().timeout(SECOND).boxed()),
        ("or_else", store().or_else(store()).boxed()),
        ("breaker", store().breaker(Breaker::default()).boxed()),
        ("deny_cache", store().deny_cache().boxed()),
        ("lease", store().lease(100).boxed()),
        ("lease, deny_cache", store().deny_cache().lease(100).boxed()),
        ("switch", store().switch(&Switch::new()).boxed()),
        ("inspect", store().inspect(|_: &Charge, _: Result<&Decision, &Error>| {}).boxed()),
        ("describe", store().describe(Description::new().names(["own"])).boxed()),
        (
            "several",
            Memory::new(
                "two",
                (TokenBucket::new(Quota::per_day(1_000)), SlidingLog::new(Quota::per_day(1_000))),
            )
            .boxed(),
        ),
        ("all in turn", AllInTurn::new([store().boxed(), store().boxed()], keys).boxed()),
    ];
    #[cfg(feature = "metrics")]
    wrapped.push(("metrics", tower_sluice::limiter::MetricsExt::metrics(store(), "api").boxed()));
    #[cfg(feature = "tracing")]
    wrapped.push(("trace", tower_sluice::limiter::TraceExt::trace(store(), "api").boxed()));
    wrapped
}

#[tokio::test(start_paused = true)]
async fn every_wrapper_passes_a_block_on() {
    for (name, limiter) in wrappers() {
        // Enough for a lease.
        for _ in 0..200 {
            assert!(ask(&limiter, 1).await.is_admitted(), "{name}");
        }
        assert_eq!(limiter.block("mallory", HOUR).await.unwrap().outcome(), refused_for(HOUR));
        for _ in 0..3 {
            assert_eq!(ask(&limiter, 1).await.outcome(), refused_for(HOUR), "{name}");
            tokio::task::yield_now().await;
        }
        assert_eq!(limiter.peek("mallory").await.unwrap().outcome(), refused_for(HOUR), "{name}");
        limiter.unblock("mallory").await.unwrap();
        assert!(ask(&limiter, 1).await.is_admitted(), "{name}");
    }

    // A shadow refuses nothing, and says what it would have done.
    let shadow = store().shadow();
    shadow.block("mallory", HOUR).await.unwrap();
    let admitted = ask(&shadow, 1).await;
    assert!(matches!(admitted.shadowed(), Some(Ok(one)) if one == refused_for(HOUR)));
    // A block outlives the time in which a switch is off.
    let switch = Switch::new();
    let limiter = store().switch(&switch);
    switch.set(SwitchMode::Off);
    limiter.block("mallory", HOUR).await.unwrap();
    assert!(ask(&limiter, 1).await.is_admitted());
    switch.set(SwitchMode::On);
    assert!(!ask(&limiter, 1).await.is_admitted());
}

/// Units that were leased before are not spent under a block, and come back.
#[tokio::test(start_paused = true)]
async fn a_block_ends_the_lease_of_its_key() {
    let store = Memory::new("api", FixedWindow::new(Quota::per_day(1_000)).anchored());
    let limiter = store.clone().lease(100);
    let mut asked = 0;
    while asked < 50 || store.peek("mallory").await.unwrap().remaining() == Some(1_000 - asked) {
        assert!(ask(&limiter, 1).await.is_admitted());
        asked += 1;
    }
    // Some are leased, and not spent.
    limiter.block("mallory", HOUR).await.unwrap();
    assert_eq!(ask(&limiter, 1).await.outcome(), refused_for(HOUR));
    assert_eq!(store.unblock("mallory").await.unwrap().remaining(), Some(1_000 - asked));
}

/// Neither does a cached refusal hide a block, nor a cached block its end.
/// Decides at once, and answers a second later.
struct Slow(Memory<FixedWindow>);

impl Limiter for Slow {
    type Future = BoxedFuture;

    fn check(&self, charge: &Charge) -> BoxedFuture {
        let decided = self.0.check(charge);
        Box::pin(async {
            let decision = decided.await;
            tokio::time::sleep(SECOND).await;
            decision
        })
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        self.0.settle(reservation, actual)
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<BoxedFuture> {
        Some(Box::pin(self.0.operate(operation, charge)?))
    }
}

/// Units that a lease is about to get when a key is blocked go back.
#[tokio::test(start_paused = true)]
async fn a_block_gives_back_what_a_lease_asked_for() {
    let limiter = Memory::new("api", FixedWindow::new(Quota::per_day(100)).anchored());
    let lease = Slow(limiter.clone()).lease(20).valid_for(10 * SECOND);
    let mut taken = 0;
    // Until a call is under way that takes more than one unit.
    let last = loop {
        let (lease, charge) = (lease.clone(), Charge::new("mallory"));
        let asked = tokio::spawn(async move { lease.check(&charge).await.unwrap() });
        tokio::time::sleep(SECOND / 2).await;
        let left = limiter.peek("mallory").await.unwrap().remaining().unwrap();
        if left + taken + 1 < 100 {
            break asked;
        }
        taken += u64::from(asked.await.unwrap().is_admitted());
    };
    lease.block("mallory", SECOND).await.unwrap();
    taken += u64::from(last.await.unwrap().is_admitted());
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(limiter.peek("mallory").await.unwrap().remaining(), Some(100 - taken));
}

#[tokio::test(start_paused = true)]
async fn a_deny_cache_forgets_what_a_block_changes() {
    let limiter = Memory::new("api", FixedWindow::new(Quota::new(1, 60 * SECOND)).anchored());
    let limiter = limiter.deny_cache().max_age(Duration::MAX);
    let _ = ask(&limiter, 1).await;
    let cached = async |origin, wait| {
        let decision = ask(&limiter, 1).await;
        assert_eq!((decision.origin(), decision.outcome()), (origin, refused_for(wait)));
    };
    for _ in 0..2 {
        cached(Origin::Local, 60 * SECOND).await;
        cached(Origin::Cache, 60 * SECOND).await;
        limiter.block("mallory", HOUR).await.unwrap();
        cached(Origin::Local, HOUR).await;
        cached(Origin::Cache, HOUR).await;
        limiter.unblock("mallory").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_block_says_so() {
    let admits = |_: &Charge| -> Ready<Result<Decision, Error>> { ready(Ok(Decision::admitted())) };
    for limiter in [admits.boxed(), admits.timeout(SECOND).or_else(FailOpen).boxed()] {
        let error = limiter.block("mallory", HOUR).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert_eq!(limiter.unblock("mallory").await.unwrap_err().kind(), ErrorKind::Configuration);
    }
    // A member that cannot leaves the others as they are.
    let store = Memory::new("api", TokenBucket::new(Quota::per_day(1_000)));
    let keys = |charge: &Charge| [charge.clone(), charge.clone()];
    let both = AllInTurn::new([store.clone().boxed(), admits.boxed()], keys);
    assert!(both.block("mallory", HOUR).await.is_err());
    assert!(ask(&store, 1).await.is_admitted());
}

/// A full memory has no room for a block, as for a charge, and a block is no key that may go.
#[tokio::test(start_paused = true)]
async fn a_block_is_kept_as_long_as_it_lasts() {
    let limiter = Memory::new("api", TokenBucket::new(Quota::per_second(1_000))).max_keys(2);
    limiter.block("mallory", HOUR).await.unwrap();
    limiter.block("trudy", 2 * HOUR).await.unwrap();
    assert_eq!(limiter.block("oscar", HOUR).await.unwrap_err().kind(), ErrorKind::Capacity);
    tokio::time::advance(HOUR - SECOND).await;
    assert_eq!(limiter.check(&Charge::new("oscar")).await.unwrap_err().kind(), ErrorKind::Capacity);
    assert_eq!(ask(&limiter, 1).await.outcome(), refused_for(SECOND));
    tokio::time::advance(SECOND).await;
    limiter.block("oscar", HOUR).await.unwrap();
    assert_eq!(limiter.len(), 2);
}

#[cfg(feature = "redis")]
mod over_redis {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use tower_sluice::algorithm::{
        Budget, InLua, IntoAlgorithm, SlidingCounter, SlidingWindow, SmoothBursty, SmoothWarmingUp,
    };
    use tower_sluice::limiter::Reservation;
    use tower_sluice::redis::AllAtOnce;
    use tower_sluice::{Pool, Redis};

    use super::*;
    use support::Server;
    use support::algorithms::{Visit, each_algorithm};
    use support::dice::{Dice, times};

    const PATIENT: Duration = Duration::from_secs(20);

    fn said(decision: &Decision) -> String {
        let each: Vec<_> = decision
            .policies()
            .map(|one| (one.outcome(), one.remaining(), one.reset_after()))
            .collect();
        let report = (decision.remaining(), decision.reset_after(), decision.paused_for());
        format!("{:?} {report:?} {each:?}", decision.outcome())
    }

    /// Does the same to a limiter in memory and to one in Redis, at random.
    async fn assert_same<A: InLua>(algorithm: A, pool: &Pool, seed: u64) -> [u32; 3] {
        let now = Arc::new(AtomicU64::new(1_767_225_600_000_000));
        let clock = || support::clock_at(&now);
        // Algorithms of one kind share the keys of a name.
        static NAMES: AtomicU64 = AtomicU64::new(0);
        let name = NAMES.fetch_add(1, Relaxed).to_string();
        let memory = Memory::new(name.clone(), algorithm.clone()).clock(clock());
        let redis = Redis::new(name, algorithm, pool.clone()).clock(clock());
        let redis = redis.decision_timeout(PATIENT);
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15 ^ seed);
        let mut reservations: Vec<[Reservation; 2]> = Vec::new();
        let mut seen = [0; 3];
        for step in 0..150 {
            let later = dice.pick(&[0, 0, 1, 1_000, 100_000, 250_000, 1_000_000, 2_500_000]);
            now.fetch_add(later, Relaxed);
            let key = dice.pick(&["a", "b"]);
            let charge = Charge::new(key)
                .cost(dice.pick(&[0, 1, 1, 2, 3, 6]))
                .max_wait(dice.pick(&[Duration::ZERO, SECOND, HOUR]));
            let time = Duration::from_micros(dice.pick(&[0, 1, 200_000, 1_000_000, 3_000_000]));
            let which = dice.below(16);
            let place = format!("{memory:?}, {seed}, {step}: {which}");
            let without_done =
                |answer: Result<tower_sluice::limiter::Done, _>| answer.map(|done| done.0);
            let answers = match which {
                0 => [
                    memory.block(charge.clone(), time).await,
                    redis.block(charge.clone(), time).await,
                ]
                .map(without_done),
                1 => [memory.unblock(charge.clone()).await, redis.unblock(charge.clone()).await]
                    .map(without_done),
                2 => [memory.penalize(charge.clone()).await, redis.penalize(charge.clone()).await]
                    .map(without_done),
                3 if dice.below(3) == 0 => {
                    [memory.reset(charge.clone()).await, redis.reset(charge.clone()).await]
                        .map(without_done)
                }
                8 => [
                    memory.pause(charge.clone(), time).await,
                    redis.pause(charge.clone(), time).await,
                ]
                .map(without_done),
                4 => [memory.estimate(charge.clone()).await, redis.estimate(charge.clone()).await],
                5..=7 if !reservations.is_empty() => {
                    let [first, second] = match dice.below(2) {
                        0 => reservations.pop().expect("one"),
                        _ => reservations.remove(dice.below(reservations.len())),
                    };
                    let actual = dice.pick(&[0, 0, 1, first.cost(), first.cost() + 2]);
                    let first = memory.settle(first, actual).unwrap().await.unwrap();
                    let second = redis.settle(second, actual).unwrap().await.unwrap();
                    assert_eq!(first, second, "{place}: settled to {actual}");
                    seen[2] += u32::from(first.given_back > 0);
                    continue;
                }
                _ => [memory.check(&charge).await, redis.check(&charge).await],
            };
            let [first, second] = answers.map(Result::unwrap);
            assert_eq!(said(&first), said(&second), "{place} {charge:?}");
            seen[usize::from(first.is_admitted())] += 1;
            if let (Some(first), Some(second)) =
                (first.into_reservation(), second.into_reservation())
            {
                reservations.push([first, second]);
            }
        }
        seen
    }

    struct Twins {
        pool: Pool,
        runtime: tokio::runtime::Runtime,
    }

    impl Visit for Twins {
        fn visit<A: InLua>(&mut self, algorithm: A) {
            let mut seen = [0; 3];
            for seed in 0..3 * times() as u64 {
                let run = self.runtime.block_on(assert_same(algorithm.clone(), &self.pool, seed));
                seen = [0, 1, 2].map(|place| seen[place] + run[place]);
            }
            // Refused, admitted, given back.
            assert!(seen.iter().all(|count| *count > 10), "{seen:?} {algorithm:?}");
        }
    }

    /// All of it, in random order: charges, blocks, pauses, penalties, and refunds of what blocked
    /// keys took.
    #[test]
    fn blocks_in_redis_are_those_in_memory() {
        let server = Server::start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut twins = Twins { pool: server.pool(), runtime };
        each_algorithm(Quota::per_second(5), &mut twins);
        let (fast, slow) = (Quota::per_second(5), Quota::new(20, 10 * SECOND));
        twins.visit(
            (TokenBucket::new(Quota::new(3, SECOND).burst(7)), FixedWindow::new(slow))
                .into_algorithm(),
        );
        twins.visit((SlidingLog::new(fast), SmoothBursty::new(slow)).into_algorithm());
        twins.visit((Budget::new(slow), FixedWindow::new(slow)).into_algorithm());
        twins.visit(
            (
                SlidingWindow::new(fast),
                SlidingCounter::new(slow),
                SmoothWarmingUp::new(fast, SECOND),
                SlidingLog::new(slow),
            )
                .into_algorithm(),
        );
    }

    fn limiter<A: InLua>(
        server: &Server,
        name: &str,
        algorithm: impl IntoAlgorithm<Algorithm = A>,
    ) -> Redis<A> {
        Redis::new(name.to_owned(), algorithm, server.pool()).decision_timeout(PATIENT)
    }

    /// Another process sees it at once, beside charges of other keys in the same calls.
    #[tokio::test]
    async fn a_block_is_seen_by_every_process_and_harms_no_other_key() {
        let server = Server::start();
        let quota = Quota::per_day(1_000);
        let [mine, other] = [(); 2].map(|()| limiter(&server, "api", TokenBucket::new(quota)));
        let _ = ask(&mine, 10).await;
        mine.block("mallory", HOUR).await.unwrap();
        let keys = ["alice", "mallory", "bob"];
        let checks = (0..90).map(|place| {
            let other = other.clone();
            tokio::spawn(async move { other.check(&Charge::new(keys[place % 3])).await })
        });
        for (place, check) in checks.collect::<Vec<_>>().into_iter().enumerate() {
            let decision = check.await.unwrap().unwrap();
            assert_eq!(decision.is_admitted(), keys[place % 3] != "mallory");
            if !decision.is_admitted() {
                let wait = decision.retry_after().unwrap();
                assert!(wait > HOUR - PATIENT && wait <= HOUR, "{wait:?}");
            }
        }
        // The key lives as long as the block.
        let mut connection = server.connection().await;
        let ttl: i64 = redis::cmd("PTTL")
            .arg("sluice:api:tb1:{mallory}")
            .query_async(&mut connection)
            .await
            .unwrap();
        assert!(ttl > 3_500_000, "{ttl}");
        assert_eq!(other.unblock("mallory").await.unwrap().remaining(), Some(990));
        assert_eq!(ask(&mine, 1).await.remaining(), Some(989));
        // Where nothing was taken, nothing stays.
        mine.block("trudy", HOUR).await.unwrap();
        mine.unblock("trudy").await.unwrap();
        let left: bool = redis::cmd("EXISTS")
            .arg("sluice:api:tb1:{trudy}")
            .query_async(&mut connection)
            .await
            .unwrap();
        assert!(!left);
    }

    /// By the server's own clock a block ends by itself, and what was taken before it counts again.
    #[tokio::test]
    async fn a_block_ends_by_itself() {
        let server = Server::start();
        let quota = Quota::per_day(10);
        let bucket = limiter(&server, "bucket", TokenBucket::new(quota)).boxed();
        let log = limiter(&server, "log", SlidingLog::new(quota)).boxed();
        let both =
            limiter(&server, "both", (FixedWindow::new(quota), SlidingLog::new(quota))).boxed();
        for limiter in [bucket, log, both] {
            let _ = ask(&limiter, 4).await;
            let until = limiter.block("mallory", Duration::from_millis(30)).await.unwrap();
            tokio::time::sleep(until.retry_after().unwrap()).await;
            while !ask(&limiter, 0).await.is_admitted() {
                tokio::task::yield_now().await;
            }
            assert_eq!(ask(&limiter, 1).await.remaining(), Some(5));
            assert_eq!(limiter.unblock("mallory").await.unwrap().remaining(), Some(5));
        }
    }

    /// The longest block counts, and no member takes anything.
    #[tokio::test]
    async fn a_member_that_is_blocked_refuses_for_all() {
        let (_server, pool) = Server::pooled();
        let user = Redis::new("user", TokenBucket::new(Quota::per_day(10)), pool.clone());
        let address = Redis::new("address", SlidingLog::new(Quota::per_day(10)), pool.clone());
        let (user, address) = (user.decision_timeout(PATIENT), address.decision_timeout(PATIENT));
        let keys = |charge: &Charge| [charge.clone(), Charge::new("192.0.2.7")];
        let both = AllAtOnce::new((user.clone(), address.clone()), keys);
        address.block("192.0.2.7", HOUR).await.unwrap();
        for _ in 0..2 {
            let refused = ask(&both, 1).await.retry_after().unwrap();
            assert!(refused > HOUR - PATIENT && refused <= HOUR);
            user.block("mallory", SECOND).await.unwrap();
        }
        user.block("mallory", 3 * HOUR).await.unwrap();
        for decision in [ask(&both, 1).await, both.estimate(Charge::new("mallory")).await.unwrap()]
        {
            assert!(decision.retry_after() > Some(2 * HOUR));
        }
        user.unblock("mallory").await.unwrap();
        address.unblock("192.0.2.7").await.unwrap();
        let admitted = ask(&both, 1).await;
        assert_eq!(
            admitted.policies().map(|one| one.remaining()).collect::<Vec<_>>(),
            [Some(9); 2]
        );

        // Through the combination each of its keys is blocked.
        both.block("mallory", HOUR).await.unwrap();
        let addressed = address.peek("192.0.2.7").await.unwrap();
        assert!(!ask(&user, 1).await.is_admitted() && !addressed.is_admitted());
        both.unblock("mallory").await.unwrap();
        assert!(ask(&user, 1).await.is_admitted());
    }
}
