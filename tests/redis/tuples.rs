//! Several quotas of one key on a real server: one call, all or nothing.

use tower::BoxError;
use tower_sluice::HttpResponder;
use tower_sluice::redis::script_texts;

use super::*;

/// As Bucket4j has it: whoever hangs up, the latest first, takes back all that it took.
#[tokio::test]
async fn fifty_waiters_of_a_tuple_that_hang_up_close_the_key_to_nobody() {
    let server = Server::start();
    let fast = Quota::per_second(100).burst(50);
    let slow = Quota::per_minute(100).burst(20);
    let (minute, second) = (Quota::per_minute(200), Quota::per_second(40));
    let buckets = (TokenBucket::new(fast), TokenBucket::new(slow));
    let windows = (FixedWindow::new(minute), TokenBucket::new(slow), SlidingWindow::new(second));
    let counters = (SlidingCounter::new(second), SlidingLog::new(minute), TokenBucket::new(slow));
    assert_eq!(after_fifty_hung_up(&server, buckets).await, [0, 20, 20]);
    assert_eq!(after_fifty_hung_up(&server, windows).await, [0, 20, 20]);
    assert_eq!(after_fifty_hung_up(&server, counters).await, [0, 20, 20]);
}

/// Returns how many are admitted at once after 20 were and 50 that waited hung up: at that moment,
/// 12 s later, and a minute later.
async fn after_fifty_hung_up<A: InLua>(
    server: &Server,
    algorithm: impl IntoAlgorithm<Algorithm = A>,
) -> [usize; 3] {
    let now = Arc::new(AtomicU64::new(1_767_225_600));
    let clock = Arc::clone(&now);
    let limiter = Redis::new(A::NAME, algorithm, server.pool())
        .decision_timeout(PATIENT)
        .clock(move || Duration::from_secs(clock.load(Relaxed)));
    let fill = async || {
        let mut admitted = 0;
        while limiter.check(&Charge::new("key")).await.unwrap().is_admitted() {
            admitted += 1;
        }
        admitted
    };
    limiter.reset("key").await.unwrap();
    assert_eq!(fill().await, 20);
    let waiter = Charge::new("key").max_wait(Duration::from_secs(60));
    let mut waiters = Vec::new();
    for _ in 0..50 {
        let mut decision = limiter.check(&waiter).await.unwrap();
        assert!(matches!(decision.outcome(), Outcome::Wait(_)));
        waiters.push(decision.take_reservation().unwrap());
    }
    for waiter in waiters.into_iter().rev() {
        assert_eq!(limiter.settle(waiter, 0).expect("its own").await.unwrap().given_back, 1);
    }
    let mut admitted = [0; 3];
    for (admitted, step) in admitted.iter_mut().zip([0, 12, 48]) {
        now.fetch_add(step, Relaxed);
        *admitted = fill().await;
    }
    admitted
}

// Case 113.
#[tokio::test]
async fn several_quotas_take_one_call_and_all_or_nothing() {
    let (server, mut connection) = Server::connected().await;
    let [hour, day] =
        [5, 8].map(|limit| Quota::new(limit, Duration::from_secs(400 * 86_400 / limit)));
    let log = Quota::new(6, Duration::from_secs(3_600));
    let all = (TokenBucket::new(hour), FixedWindow::new(day), SlidingLog::new(log));
    let limiter = Redis::new("test", all, server.pool()).decision_timeout(PATIENT);

    // The script travels with the first.
    let _ = limiter.peek("x").await.unwrap();
    let before = script_calls(&mut connection).await;
    let first = limiter.check(&Charge::new("x").cost(3)).await.unwrap();
    assert_eq!((first.remaining(), first.quota()), (Some(2), Some(hour)));
    assert_eq!(script_calls(&mut connection).await, before + 1);
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    let mut keys: Vec<_> = keys.iter().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["sluice:test:1tb1:{x}", "sluice:test:2fw1:{x}", "sluice:test:3sl1:{x}"]);

    // A refusal by any takes from none, and names the one.
    for (cost, by) in [(3, hour), (9, hour)] {
        let refused = limiter.check(&Charge::new("x").cost(cost)).await.unwrap();
        assert!(!refused.is_admitted());
        assert_eq!((refused.remaining(), refused.quota()), (Some(2), Some(by)));
    }
    let plan = (hour.burst(100), Quota::new(100, day.period()), log);
    let refused = limiter.check(&Charge::new("x").cost(4).quota(plan)).await.unwrap();
    assert_eq!((refused.remaining(), refused.quota()), (Some(3), Some(log)));
    assert!(refused.retry_after() <= Some(log.period()));

    // One broken key fails the charge, and nothing is taken under the others.
    run(&mut connection, &["DEL", "sluice:test:3sl1:{x}"]).await;
    run(&mut connection, &["SET", "sluice:test:3sl1:{x}", "1"]).await;
    assert_eq!(limiter.check(&Charge::new("x")).await.unwrap_err().kind(), ErrorKind::State);
    run(&mut connection, &["DEL", "sluice:test:3sl1:{x}"]).await;
    let mut reserved = limiter.check(&Charge::new("x").cost(2)).await.unwrap();
    assert_eq!(reserved.remaining(), Some(0));
    assert_eq!(
        limiter
            .settle(reserved.take_reservation().unwrap(), 0)
            .expect("its own")
            .await
            .unwrap()
            .given_back,
        2
    );
    assert_eq!(limiter.peek("x").await.unwrap().remaining(), Some(2));

    let error = limiter.check(&Charge::new("x").quota((hour, day))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert_eq!(limiter.reset("x").await.unwrap().remaining(), Some(5));
    assert_eq!(calls(&mut connection, "unlink").await, 3);
    assert_eq!(limiter.penalize(Charge::new("x").cost(4)).await.unwrap().remaining(), Some(1));
}

/// All that is stored under a limiter's name: what follows the name in a key, and its value.
async fn stored(connection: &mut MultiplexedConnection, name: &str) -> Vec<(String, Vec<u8>)> {
    let begin = format!("sluice:{name}:");
    let pattern = format!("{begin}*");
    let keys: Vec<String> =
        redis::cmd("KEYS").arg(pattern).query_async(connection).await.expect("keys");
    let mut all = Vec::new();
    for key in keys {
        let value = redis::cmd("DUMP").arg(&key).query_async(connection).await.expect("a value");
        all.push((key.replace(&begin, ""), value));
    }
    all.sort();
    all
}

/// Returns what a decision says, whoever made it.
fn said(decision: &Decision) -> String {
    let quota = (decision.quota(), decision.remaining(), decision.reset_after());
    format!("{:?} {quota:?} {:?}", decision.outcome(), decision.reservation().is_some())
}

/// Both have one script, and store the same under the same keys. So they decide alike, since a
/// script that gets the same decides the same.
async fn assert_same<A: InLua, B: InLua>(
    server: &Server,
    fixed: impl IntoAlgorithm<Algorithm = A>,
    dynamic: B,
) {
    let fixed = fixed.into_algorithm();
    assert_eq!(script_texts(&fixed), script_texts(&dynamic));
    let now = Arc::new(AtomicU64::new(1_767_225_600_000_000));
    let clock = || support::clock_at(&now);
    let one = Redis::new("fixed", fixed, server.pool()).decision_timeout(PATIENT).clock(clock());
    let other = Redis::new("dynamic", dynamic.clone(), server.pool());
    let other = other.decision_timeout(PATIENT).clock(clock());
    let memory = Memory::new("dynamic", dynamic).clock(clock());
    let mut connection = server.connection().await;
    for cost in [2, 1, 0, 3, 6] {
        now.fetch_add(50_000, Relaxed);
        let charge = Charge::new("key").cost(cost).max_wait(Duration::from_secs(60));
        let expected = said(&one.check(&charge).await.unwrap());
        assert_eq!(said(&other.check(&charge).await.unwrap()), expected, "{charge:?}");
        assert_eq!(said(&memory.check(&charge).await.unwrap()), expected, "{charge:?}");
        let [a, b] =
            [stored(&mut connection, "fixed").await, stored(&mut connection, "dynamic").await];
        assert_eq!(a, b, "{charge:?}");
    }
    run(&mut connection, &["FLUSHALL"]).await;
}

#[tokio::test]
async fn algorithms_chosen_at_run_time_keep_keys_scripts_states_and_decisions() {
    let server = Server::start();
    let quota = Quota::per_second(5);
    let bucket = AnyAlgorithm::from(TokenBucket::new(quota));
    assert_same(&server, TokenBucket::new(quota), bucket).await;
    assert_same(&server, SlidingLog::new(quota), vec![AnyAlgorithm::from(SlidingLog::new(quota))])
        .await;
    assert_same(&server, SmoothBursty::new(quota), AnyAlgorithm::from(SmoothBursty::new(quota)))
        .await;
    let minute = Quota::per_minute(9);
    let warming = SmoothWarmingUp::new(quota, Duration::from_secs(1));
    // A tuple, whose members may have one type, and a list of any.
    assert_same(
        &server,
        (TokenBucket::new(quota), FixedWindow::new(minute), SlidingLog::new(minute)),
        vec![bucket, FixedWindow::new(minute).into(), SlidingLog::new(minute).into()],
    )
    .await;
    assert_same(
        &server,
        (
            SlidingWindow::new(quota),
            Budget::new(quota),
            SlidingCounter::new(quota),
            SmoothBursty::new(quota),
            warming,
            FixedWindow::new(quota),
        ),
        vec![
            AnyAlgorithm::from(SlidingWindow::new(quota)),
            Budget::new(quota).into(),
            SlidingCounter::new(quota).into(),
            SmoothBursty::new(quota).into(),
            warming.into(),
            FixedWindow::new(quota).into(),
        ],
    )
    .await;
    assert!(Memory::try_new("none", Vec::<AnyAlgorithm>::new()).is_err());
    assert!(Memory::try_new("nine", vec![bucket; 9]).is_err());
}

/// A cost that may not wait long enough never fits, where each caller waits for its own cost.
// Case 163.
#[tokio::test]
async fn a_cost_that_may_not_wait_for_itself_gets_no_time_to_come_back() {
    let server = Server::start();
    let five = Quota::per_second(5);
    let bursty = SmoothBursty::new(five).wait_for_own_cost();
    let warming_up = SmoothWarmingUp::new(five, Duration::from_secs(4)).wait_for_own_cost();
    let bucket = TokenBucket::new(Quota::per_hour(1_000));
    never_fits(&server, bursty, 6).await;
    never_fits(&server, warming_up, 1).await;
    never_fits(&server, (bucket, bursty), 6).await;
    never_fits(&server, vec![AnyAlgorithm::from(warming_up), bucket.into()], 1).await;
}

/// While all units are held, nothing is reserved. A later quota still has an instant.
#[tokio::test]
async fn a_full_budget_says_when_beside_a_pace_of_own_costs() {
    let server = Server::start();
    let five = Quota::per_second(5);
    let (budget, bursty) = (Budget::new(five), SmoothBursty::new(five).wait_for_own_cost());
    let memory = Memory::new("memory", (budget, bursty)).boxed();
    let redis = Redis::new("redis", (budget, bursty), server.pool());
    for limiter in [memory, redis.decision_timeout(PATIENT).boxed()] {
        let patient = Charge::new("key").max_wait(Duration::from_secs(9));
        let mut held = limiter.check(&patient.clone().cost(5)).await.unwrap();
        let _reservation = held.take_reservation().expect("held");
        let refused = limiter.check(&patient).await.unwrap();
        assert!(refused.retry_after().is_some(), "{limiter:?}: {refused:?}");
    }
}

/// The capacity is 2^53 of the steps in which a bucket counts: one more than it counts unchecked.
#[tokio::test]
async fn a_charge_of_the_largest_bursts_takes_and_gives_back_all() {
    const ALL: u64 = 1 << 50;
    let server = Server::start();
    let bucket = TokenBucket::new(Quota::new(9, Duration::from_micros(8)).burst(ALL));
    let memory = Memory::new("memory", (bucket, bucket)).boxed();
    let redis = Redis::new("redis", (bucket, bucket), server.pool()).decision_timeout(PATIENT);
    for limiter in [memory, redis.boxed()] {
        let mut taken = limiter.check(&Charge::new("key").cost(ALL)).await.unwrap();
        assert_eq!((taken.is_admitted(), taken.remaining()), (true, Some(0)), "{limiter:?}");
        let reservation = taken.take_reservation().unwrap();
        let given = limiter.settle(reservation, 0).unwrap().await.unwrap();
        assert_eq!(given.given_back, ALL, "{limiter:?}");
    }
}

async fn never_fits<A: InLua>(
    server: &Server,
    algorithm: impl IntoAlgorithm<Algorithm = A>,
    cost: u64,
) {
    let algorithm = algorithm.into_algorithm();
    let memory = Memory::new(A::NAME, algorithm.clone()).boxed();
    let redis = Redis::new(A::NAME, algorithm, server.pool()).decision_timeout(PATIENT).boxed();
    for limiter in [memory, redis] {
        let charge = || Charge::new("key").cost(cost);
        let never = Outcome::Deny { retry_after: None };
        assert_eq!(limiter.check(&charge()).await.unwrap().outcome(), never, "{limiter:?}");
        assert_eq!(limiter.estimate(charge()).await.unwrap().outcome(), never);
        let (status, retry_after) = answer(limiter.clone(), charge()).await;
        assert_eq!((status, retry_after), (429, None));
        // With enough patience it is admitted, and the next one may come later.
        let patient = || charge().max_wait(Duration::from_millis(900));
        assert!(matches!(limiter.check(&patient()).await.unwrap().outcome(), Outcome::Wait(_)));
        assert!(limiter.peek("key").await.unwrap().remaining().is_some());
        limiter.penalize(Charge::new("key").cost(5)).await.unwrap();
        let later = limiter.check(&patient()).await.unwrap();
        assert!(later.retry_after().is_some(), "{later:?}");
    }
}

/// The status of the answer to a request behind a layer, and its `Retry-After`.
async fn answer(limiter: Boxed, charge: Charge) -> (u16, Option<String>) {
    let layer = RateLimitLayer::new(limiter, move |_: &http::Request<()>| charge.clone())
        .respond(HttpResponder::new());
    let inner = service_fn(async |_: http::Request<()>| Ok::<_, BoxError>(http::Response::new(())));
    let answer = layer.layer(inner).oneshot(http::Request::new(())).await.unwrap();
    let retry_after = answer.headers().get("retry-after").map(|value| value.to_str().unwrap());
    (answer.status().as_u16(), retry_after.map(str::to_owned))
}
