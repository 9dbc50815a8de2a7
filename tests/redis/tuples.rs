//! Several quotas of one key on a real server: one call, all or nothing.

use tower::BoxError;
use tower_sluice::HttpResponder;
use tower_sluice::redis::script_texts;

use super::*;

/// As Bucket4j has it: whoever hangs up, the latest first, takes back all that it took. The twins
/// of `tests/algorithms/twins.rs` give back as much in Redis.
// Case 99.
#[tokio::test(start_paused = true)]
async fn fifty_waiters_of_a_tuple_that_hang_up_close_the_key_to_nobody() {
    let slow = TokenBucket::new(Quota::per_minute(100).burst(20));
    let (minute, second) = (Quota::per_minute(200), Quota::per_second(40));
    let fast = TokenBucket::new(Quota::per_second(100).burst(50));
    for limiter in [
        Memory::new("buckets", (fast, slow)).boxed(),
        Memory::new("windows", (FixedWindow::new(minute), slow, SlidingWindow::new(second)))
            .boxed(),
        Memory::new("counters", (SlidingCounter::new(second), SlidingLog::new(minute), slow))
            .boxed(),
    ] {
        let fill = async || {
            let mut admitted = 0;
            while limiter.check(&Charge::new("key")).await.unwrap().is_admitted() {
                admitted += 1;
            }
            admitted
        };
        assert_eq!(fill().await, 20);
        let waiter = Charge::new("key").max_wait(Duration::from_secs(60));
        let mut waiters = Vec::new();
        for _ in 0..50 {
            let decision = limiter.check(&waiter).await.unwrap();
            assert!(matches!(decision.outcome(), Outcome::Wait(_)));
            waiters.push(decision.into_reservation().unwrap());
        }
        for waiter in waiters.into_iter().rev() {
            assert_eq!(limiter.settle(waiter, 0).unwrap().await.unwrap().given_back, 1);
        }
        for (later, admitted) in [(0, 0), (12, 20), (48, 20)] {
            tokio::time::advance(Duration::from_secs(later)).await;
            assert_eq!(fill().await, admitted);
        }
    }
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
    let settled = limiter.settle(reserved.take_reservation().unwrap(), 0).unwrap().await;
    assert_eq!(settled.unwrap().given_back, 2);
    assert_eq!(limiter.peek("x").await.unwrap().remaining(), Some(2));

    let error = limiter.check(&Charge::new("x").quota((hour, day))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert_eq!(limiter.reset("x").await.unwrap().remaining(), Some(5));
    assert_eq!(calls(&mut connection, "unlink").await, 3);
    assert_eq!(limiter.penalize(Charge::new("x").cost(4)).await.unwrap().remaining(), Some(1));
}

/// Both have one script, and store under the same keys. So they decide alike.
fn assert_same<A: InLua, B: InLua>(fixed: impl IntoAlgorithm<Algorithm = A>, dynamic: B) {
    let (pool, fixed) = (Pool::connect("redis://127.0.0.1").unwrap(), fixed.into_algorithm());
    assert_eq!(script_texts(&fixed), script_texts(&dynamic));
    let one = Redis::new("api", fixed, pool.clone()).stored_keys("key");
    assert_eq!(one, Redis::new("api", dynamic, pool).stored_keys("key"));
}

#[test]
fn algorithms_chosen_at_run_time_keep_keys_and_scripts() {
    let (quota, minute) = (Quota::per_second(5), Quota::per_minute(9));
    let (bucket, window) = (TokenBucket::new(quota), FixedWindow::new(minute));
    let (log, bursty) = (SlidingLog::new(minute), SmoothBursty::new(quota));
    assert_same(bucket, AnyAlgorithm::from(bucket));
    assert_same(log, vec![AnyAlgorithm::from(log)]);
    assert_same(bursty, AnyAlgorithm::from(bursty));
    // A tuple, whose members may have one type, and a list of any.
    assert_same((bucket, window, log), vec![AnyAlgorithm::from(bucket), window.into(), log.into()]);
    let warming = SmoothWarmingUp::new(quota, Duration::from_secs(1));
    let (cells, counter) = (SlidingWindow::new(quota), SlidingCounter::new(quota));
    let budget = Budget::new(quota);
    assert_same(
        (cells, budget, counter, bursty, warming, window),
        vec![
            AnyAlgorithm::from(cells),
            budget.into(),
            counter.into(),
            bursty.into(),
            warming.into(),
            window.into(),
        ],
    );
    assert!(Memory::try_new("none", Vec::<AnyAlgorithm>::new()).is_err());
    assert!(Memory::try_new("nine", vec![AnyAlgorithm::from(bucket); 9]).is_err());
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
