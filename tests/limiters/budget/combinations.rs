//! Budgets beside other limits over Redis: each part is settled by its own, and who holds nothing
//! costs no call.

use tower_sluice::redis::AllAtOnce;

use super::left;

use crate::*;

const HOUR: Quota = Quota::per_hour(100);

async fn hold_and_settle<L: Limiter>(limiter: &L, charge: Charge, used: u64) -> u64 {
    let mut decision = limiter.check(&charge).await.expect("a decision");
    let reservation = decision.take_reservation().expect("taken");
    limiter.settle(reservation, used).expect("its own").await.expect("settled").given_back
}

#[tokio::test]
async fn only_what_is_held_is_settled_when_all_was_used() {
    let (server, mut connection) = Server::connected().await;
    let pool = server.pool();
    let bucket = Redis::new("a", TokenBucket::new(HOUR), pool.clone()).decision_timeout(LONG);
    let budget = Redis::new("b", Budget::new(HOUR), pool.clone()).decision_timeout(LONG);
    let both = (Budget::new(HOUR), FixedWindow::new(HOUR));
    let both = Redis::new("c", both, pool).decision_timeout(LONG);
    // The first calls bring the scripts.
    let ten = || Charge::new("alice").cost(10);
    for used in [0, 20] {
        hold_and_settle(&bucket, ten(), used).await;
        hold_and_settle(&budget, ten(), used).await;
        hold_and_settle(&both, ten(), used).await;
    }
    let before = script_calls(&mut connection).await;
    assert_eq!(hold_and_settle(&bucket, ten(), 10).await, 0);
    assert_eq!(script_calls(&mut connection).await - before, 1);
    assert_eq!(hold_and_settle(&budget, ten(), 10).await, 0);
    assert_eq!(script_calls(&mut connection).await - before, 3);
    assert_eq!(hold_and_settle(&both, ten(), 10).await, 0);
    assert_eq!(script_calls(&mut connection).await - before, 5);
    assert_eq!(left(&both, "alice").await, 70);
}

/// Of members over different keys in one call, each keeps or settles its own.
#[tokio::test]
async fn members_at_once_are_settled_each_by_its_own() {
    let (_server, pool) = Server::pooled();
    let tokens = Redis::new("tokens", Budget::new(HOUR), pool.clone()).decision_timeout(LONG);
    let all = Redis::new("all", TokenBucket::new(HOUR), pool).decision_timeout(LONG);
    let keys = |charge: &Charge| [charge.clone(), Charge::new("all")];
    let both = AllAtOnce::new((tokens.clone(), all.clone()), keys);
    for (used, given_back, tokens_left, all_left) in
        [(10, 0, 90, 90), (4, 6, 86, 86), (30, 0, 56, 56), (0, 10, 56, 56)]
    {
        let charge = Charge::new("alice").cost(10);
        assert_eq!(hold_and_settle(&both, charge, used).await, given_back, "{used}");
        // Of an hour's quota a unit refills in 36 s.
        assert_eq!(
            [left(&tokens, "alice").await, left(&all, "all").await],
            [tokens_left, all_left]
        );
    }
    // Stated costs stay, and are settled.
    let stated = |charge: &Charge| [charge.clone().cost(7), Charge::new("all").cost(7)];
    let both = AllAtOnce::new((tokens.clone(), all.clone()), stated);
    assert_eq!(hold_and_settle(&both, Charge::new("alice"), 1).await, 0);
    assert_eq!([left(&tokens, "alice").await, left(&all, "all").await], [49, 49]);
    tokens.reset("alice").await.expect("forgotten");
    let charge = Charge::new("alice").cost(100).max_wait(Duration::from_secs(60));
    assert!(tokens.check(&charge).await.expect("a decision").is_admitted());
}

/// Tokens, requests and calls at once, of which the tokens alone are known afterwards.
#[tokio::test]
async fn the_only_part_with_a_cost_is_settled() {
    let (_server, pool) = Server::pooled();
    let tokens = Redis::new("tokens", Budget::new(HOUR), pool.clone()).decision_timeout(LONG);
    let requests = Redis::new("requests", FixedWindow::new(HOUR), pool.clone());
    let at_once = Redis::new("at once", Concurrency::new(3), pool);
    let in_turn = [tokens.clone().boxed(), requests.clone().boxed(), at_once.clone().boxed()];
    let in_turn = AllInTurn::of_parts(in_turn);
    let one_call = AllAtOnce::of_parts((tokens.clone(), requests.clone(), at_once.clone()));
    for limiter in [in_turn.boxed(), one_call.boxed()] {
        let charge = || Charge::new((Charge::new("alice").cost(50), "alice", "alice"));
        for (used, tokens_left, requests_left) in [(20, 80, 99), (0, 80, 99), (70, 10, 98)] {
            hold_and_settle(&limiter, charge(), used).await;
            let left = (left(&tokens, "alice").await, left(&requests, "alice").await);
            assert_eq!(left, (tokens_left, requests_left), "{used}");
            assert_eq!(at_once.peek("alice").await.unwrap().remaining(), Some(3));
        }
        tokens.reset("alice").await.unwrap();
        // A layer that settles nothing, and a guard that is dropped, settle this cost.
        let taken = limiter.check(&charge()).await.unwrap().into_reservation().unwrap();
        assert_eq!(taken.cost(), 50);
        limiter.settle(taken, 50).unwrap().await.unwrap();
        assert_eq!(left(&tokens, "alice").await, 50);
        tokens.reset("alice").await.unwrap();
        requests.reset("alice").await.unwrap();
    }
}
