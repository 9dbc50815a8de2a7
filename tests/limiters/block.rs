//! A key that is blocked is refused until then, in memory and in Redis alike, and loses nothing.
//! The twins of `tests/algorithms/twins.rs` block and pause keys in random histories.

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
        assert!(decision.is_blocked() && decision.reservation().is_none());
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

/// A smaller quota refuses a peek, too: more units are taken than it has.
#[tokio::test(start_paused = true)]
async fn a_smaller_quota_is_no_block() {
    let limiter = Memory::new("api", FixedWindow::new(Quota::per_hour(10)));
    let smaller = || Charge::new("mallory").quota(Quota::per_hour(3));
    let _ = ask(&limiter, 10).await;
    for is_blocked in [false, true] {
        let peeked = limiter.peek(smaller()).await.unwrap();
        assert_eq!((peeked.is_admitted(), peeked.is_blocked()), (false, is_blocked));
        limiter.block("mallory", HOUR).await.unwrap();
    }
}

fn store() -> Memory<TokenBucket> {
    Memory::new("api", TokenBucket::new(Quota::per_day(1_000)))
}

/// Limiters around a store, each with its name.
fn wrappers() -> Vec<(&'static str, Boxed)> {
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
async fn every_wrapper_passes_a_block_and_a_pause_on() {
    let (minute, patient) = (60 * SECOND, Charge::new("mallory").max_wait(HOUR));
    for (name, limiter) in wrappers() {
        // Enough for a lease.
        for _ in 0..200 {
            assert!(ask(&limiter, 1).await.is_admitted(), "{name}");
        }
        for stop in [Operation::Block(minute), Operation::Pause(minute)] {
            let place = format!("{name}, {stop:?}");
            let _ = limiter.operate(stop, &patient).expect("it can").await.unwrap();
            let pause = (stop == Operation::Pause(minute)).then_some(minute);
            for _ in 0..3 {
                let refused = ask(&limiter, 1).await;
                let told = (refused.outcome(), refused.paused_for(), refused.is_blocked());
                assert_eq!(told, (refused_for(minute), pause, pause.is_none()), "{place}");
                tokio::task::yield_now().await;
            }
            let peeked = limiter.peek("mallory").await.unwrap();
            assert_eq!(peeked.outcome(), refused_for(minute), "{place}");
            // A cached refusal does not count for who may wait. Limiters in turn reserve no waits.
            let waiting = limiter.check(&patient).await.unwrap();
            let may_wait = pause.filter(|_| name != "all in turn").map(Outcome::Wait);
            assert_eq!(waiting.outcome(), may_wait.unwrap_or(refused_for(minute)), "{place}");
            if let Some(reservation) = waiting.into_reservation() {
                assert!(limiter.settle(reservation, 0).is_ok(), "{place}");
            }
            limiter.unblock("mallory").await.unwrap();
            let admitted = ask(&limiter, 1).await;
            assert!(admitted.is_admitted() && !admitted.is_blocked(), "{place}");
        }
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
    use tower_sluice::algorithm::InLua;
    use tower_sluice::limiter::PolicyReport;
    use tower_sluice::redis::AllAtOnce;

    use super::*;

    const PATIENT: Duration = Duration::from_secs(20);

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
        user.block("mallory", 3 * HOUR).await.unwrap();
        for decision in [ask(&both, 1).await, both.estimate(Charge::new("mallory")).await.unwrap()]
        {
            assert!(decision.retry_after() > Some(2 * HOUR));
        }
        user.unblock("mallory").await.unwrap();
        assert!(ask(&both, 1).await.retry_after() <= Some(HOUR));
        address.unblock("192.0.2.7").await.unwrap();
        let left: Vec<_> = ask(&both, 1).await.policies().map(|one| one.remaining()).collect();
        assert_eq!(left, [Some(9); 2]);

        // Through the combination each of its keys is blocked.
        both.block("mallory", HOUR).await.unwrap();
        let addressed = address.peek("192.0.2.7").await.unwrap();
        assert!(!ask(&user, 1).await.is_admitted() && !addressed.is_admitted());
        both.unblock("mallory").await.unwrap();
        assert!(ask(&user, 1).await.is_admitted());
    }

    /// Whose address is banned must not read that the account has nothing left.
    #[tokio::test]
    async fn a_block_says_nothing_about_the_other_members() {
        let (_server, pool) = Server::pooled();
        let now = Arc::new(AtomicU64::new(1_767_225_600_000_000));
        let minute = Quota::per_minute(10);
        let algorithms: [AnyAlgorithm; 9] = [
            TokenBucket::new(minute).into(),
            Budget::new(minute).into(),
            Concurrency::new(10).into(),
            FixedWindow::new(minute).into(),
            SlidingWindow::new(minute).into(),
            SlidingCounter::new(minute).into(),
            SlidingLog::new(minute).into(),
            SmoothBursty::new(minute).into(),
            SmoothWarmingUp::new(minute, 30 * SECOND).into(),
        ];
        for (index, algorithm) in algorithms.into_iter().enumerate() {
            let member = |name: &str, algorithm: AnyAlgorithm| {
                let limiter = Redis::new(format!("{name}{index}"), algorithm, pool.clone());
                limiter.decision_timeout(PATIENT).clock(support::clock_at(&now))
            };
            let (user, address) = (member("user", algorithm), member("address", minute_bucket()));
            let keys = |charge: &Charge| [charge.clone(), charge.clone()];
            let both = AllAtOnce::new((user.clone(), address.clone()), keys);
            address.block("mallory", HOUR).await.unwrap();
            for cost in [1, 4, 3, 5] {
                let alone = user.estimate(Charge::new("mallory").cost(cost)).await.unwrap();
                assert!(!alone.is_blocked());
                let expected = (alone.outcome(), alone.remaining(), alone.reset_after());
                let asked = Charge::new("mallory").cost(cost);
                for decision in [ask(&both, cost).await, both.estimate(asked).await.unwrap()] {
                    assert_eq!(
                        (decision.outcome(), decision.is_blocked()),
                        (refused_for(HOUR), true)
                    );
                    assert_eq!(decision.limiter(), Some(format!("address{index}").as_str()));
                    let each =
                        |one: PolicyReport<'_>| (one.outcome(), one.remaining(), one.reset_after());
                    let told: Vec<_> = decision.policies().map(each).collect();
                    let blocked = (refused_for(HOUR), Some(0), Some(HOUR));
                    assert_eq!(told, [expected, blocked], "{algorithm:?}");
                }
                let _ = ask(&user, cost).await;
                now.fetch_add(7_000_000, Relaxed);
                address.unblock("mallory").await.unwrap();
                address.block("mallory", HOUR).await.unwrap();
            }
            user.pause("mallory", HOUR / 2).await.unwrap();
            let told: Vec<_> =
                ask(&both, 1).await.policies().map(|one| one.retry_after()).collect();
            assert_eq!(told, [Some(HOUR / 2), Some(HOUR)], "{algorithm:?}");
        }
    }

    fn minute_bucket() -> AnyAlgorithm {
        TokenBucket::new(Quota::per_minute(10)).into()
    }
}
