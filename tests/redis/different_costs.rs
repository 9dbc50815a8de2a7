//! Members of `AllAtOnce` that have different costs are asked in one call all the same.

use super::*;

const NAMES: [&str; 3] = ["user", "address", "login"];

fn quota(limit: u64) -> Quota {
    Quota::new(limit, 300 * HOUR)
}

/// Three limiters in one Redis, with 10,000 units each.
fn three(pool: &Pool) -> (Redis<TokenBucket>, Redis<SlidingLog>, Redis<FixedWindow>) {
    let quota = quota(10_000);
    (
        Redis::new(NAMES[0], TokenBucket::new(quota), pool.clone()).decision_timeout(PATIENT),
        Redis::new(NAMES[1], SlidingLog::new(quota), pool.clone()).decision_timeout(PATIENT),
        Redis::new(NAMES[2], FixedWindow::new(quota), pool.clone()).decision_timeout(PATIENT),
    )
}

/// A charge of those parts that have a cost. A part's key is the name of its limiter.
fn parts(costs: [u64; 3]) -> Charge {
    let part = |(name, cost)| (cost > 0).then(|| Charge::new(name).cost(cost));
    Charge::several([0, 1, 2].map(|index| part((NAMES[index], costs[index]))))
}

/// The units that the key of each limiter has taken.
async fn taken(pool: &Pool) -> [u64; 3] {
    let (user, address, login) = three(pool);
    let mut taken = [10_000; 3];
    for (index, limiter) in [user.boxed(), address.boxed(), login.boxed()].iter().enumerate() {
        taken[index] -= limiter.peek(NAMES[index]).await.unwrap().remaining().unwrap();
    }
    taken
}

/// Whichever parts are exempt, and whether or not the others cost the same.
// Case 158.
#[tokio::test]
async fn one_call_takes_each_members_own_cost() {
    const CROWD: u64 = 200;
    let (server, pool) = Server::pooled();
    // In a cluster, too, if the keys lie in one slot.
    let (user, address, login) = three(&pool.clone().by_hash_slot());
    let in_cluster = (user.buckets(1), address.buckets(1), login.buckets(1));
    let mut connection = server.connection().await;
    for (name, all) in [
        ("one server", AllAtOnce::of_parts(three(&pool))),
        ("a cluster", AllAtOnce::of_parts(in_cluster)),
    ] {
        for costs in
            [[1, 1, 1], [1, 0, 1], [0, 0, 1], [3, 2, 0], [1, 0, 4], [0, 2, 1], [3, 2, 2], [1, 2, 3]]
        {
            let charge = parts(costs);
            // The scripts travel with the first.
            assert!(all.check(&charge).await.unwrap().is_admitted());
            let before = script_calls(&mut connection).await;
            for _ in 0..5 {
                assert!(all.check(&charge).await.unwrap().is_admitted());
            }
            assert_eq!(script_calls(&mut connection).await - before, 5, "{name}, {costs:?}");
            let mut asking = JoinSet::new();
            for _ in 0..CROWD {
                let (all, charge) = (all.clone(), charge.clone());
                asking.spawn(async move { all.check(&charge).await.unwrap().is_admitted() });
            }
            assert!(asking.join_all().await.into_iter().all(|admitted| admitted));
            let calls = script_calls(&mut connection).await - before - 5;
            assert!(calls <= CROWD / 16, "{name}, {costs:?}: {calls} calls");
            all.reset(parts([1; 3])).await.unwrap();
        }
    }
    let all = AllAtOnce::of_parts(three(&pool));
    for costs in [[3, 2, 0], [1, 2, 3]] {
        assert!(all.check(&parts(costs)).await.unwrap().is_admitted());
    }
    assert_eq!(taken(&pool).await, [4, 4, 3]);
}

/// A part that takes nothing, beside one that pays, is peeked at: a log would note it otherwise.
#[tokio::test]
async fn a_part_that_takes_nothing_leaves_no_trace() {
    let (server, pool) = Server::pooled();
    let all = AllAtOnce::of_parts(three(&pool));
    let mixed =
        [Charge::new(NAMES[0]).cost(2), Charge::new(NAMES[1]), Charge::new(NAMES[2]).peek()];
    assert!(all.check(&Charge::several(mixed)).await.unwrap().is_admitted());
    assert_eq!(taken(&pool).await, [2, 1, 0]);
    let mut connection = server.connection().await;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    assert_eq!(keys.len(), 2, "{keys:?}");
}

/// The name, the units left, and the outcome under each policy.
fn each(decision: &Decision) -> Vec<(String, Option<u64>, bool)> {
    let report = |one: tower_sluice::limiter::PolicyReport<'_>| {
        (one.name().to_owned(), one.remaining(), one.is_admitted())
    };
    decision.policies().map(report).collect()
}

/// Takes each member's own cost, and at most what its sums can hold, as each alone would.
#[tokio::test]
async fn a_penalty_takes_each_members_own_cost() {
    let (server, pool) = Server::pooled();
    let at_once = AllAtOnce::of_parts(three(&pool));
    let in_memory: [Boxed; 3] = [
        Memory::new(NAMES[0], TokenBucket::new(quota(10_000))).boxed(),
        Memory::new(NAMES[1], SlidingLog::new(quota(10_000))).boxed(),
        Memory::new(NAMES[2], FixedWindow::new(quota(10_000))).boxed(),
    ];
    let in_turn = AllInTurn::of_parts(in_memory);
    let mut connection = server.connection().await;
    for costs in [[1, 2, 3], [7, 0, 9], [4_000, 9_999, 1], [1 << 50, 5, 1], [2, 11_000, 1]] {
        let before = script_calls(&mut connection).await;
        let one = at_once.penalize(parts(costs)).await.unwrap();
        assert!(script_calls(&mut connection).await - before <= 2);
        let other = in_turn.penalize(parts(costs)).await.unwrap();
        assert_eq!(each(&one), each(&other), "{costs:?}");
        assert_eq!(one.is_admitted(), other.is_admitted(), "{costs:?}");
        assert_eq!(one.not_taken(), other.not_taken(), "{costs:?}");
        at_once.reset(parts([1; 3])).await.unwrap();
        in_turn.reset(parts([1; 3])).await.unwrap();
    }
}
