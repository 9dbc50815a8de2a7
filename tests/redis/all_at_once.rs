//! Limiters over different keys: per user and for everybody, all or nothing.

use super::*;

use support::hides;

fn user(pool: &Pool, limit: u64) -> Redis<TokenBucket> {
    let quota = Quota::new(limit, 300 * HOUR);
    Redis::new("user", TokenBucket::new(quota), pool.clone()).decision_timeout(PATIENT)
}

fn everybody(pool: &Pool, limit: u64) -> Redis<SlidingLog> {
    let quota = Quota::new(limit, 300 * HOUR);
    Redis::new("everybody", SlidingLog::new(quota), pool.clone()).decision_timeout(PATIENT)
}

fn keys(charge: &Charge) -> [Charge; 2] {
    [charge.clone(), Charge::new("all")]
}

/// Many users in one batch see what each other take of what all share.
// Case 113.
#[tokio::test]
async fn a_crowd_takes_exactly_what_there_is_and_nobody_pays_for_a_refusal() {
    const USERS: usize = 300;
    for clustered in [false, true] {
        let server = Server::start();
        let mut pool = server.pool();
        if clustered {
            pool = pool.by_hash_slot();
        }
        let (user, everybody) = (user(&pool, 5), everybody(&pool, 50));
        let both = AllAtOnce::new((user.clone(), everybody.clone()), keys);
        let mut asking = JoinSet::new();
        for number in 0..USERS {
            let both = both.clone();
            asking.spawn(async move {
                let charge = Charge::new(number.to_string());
                (number, both.check(&charge).await.unwrap().is_admitted())
            });
        }
        let verdicts = asking.join_all().await;
        assert_eq!(verdicts.iter().filter(|(_, admitted)| *admitted).count(), 50, "{clustered}");
        assert_eq!(everybody.peek("all").await.unwrap().remaining(), Some(0));
        for (number, admitted) in verdicts {
            let left = if admitted { 4 } else { 5 };
            // In turn, what a refused user took comes back a moment later.
            let is_back =
                async || user.peek(number.to_string()).await.unwrap().remaining() == Some(left);
            assert!(clustered || is_back().await, "user {number}");
            eventually("what a refused user took", is_back).await;
        }
    }
}

#[tokio::test]
async fn keys_that_cannot_be_are_errors() {
    let (_server, pool) = Server::pooled();
    let same = AllAtOnce::new((user(&pool, 3), user(&pool, 3)), |charge: &Charge| {
        [charge.clone(), charge.clone()]
    });
    let kind = |answer: Result<Decision, tower_sluice::Error>| answer.unwrap_err().kind();
    assert_eq!(kind(same.check(&Charge::new("alice")).await), ErrorKind::Request);
    let empty = AllAtOnce::new((user(&pool, 3), everybody(&pool, 3)), |charge: &Charge| {
        [charge.clone(), Charge::new("")]
    });
    assert_eq!(kind(empty.check(&Charge::new("alice")).await), ErrorKind::Request);
    let two = (Quota::per_second(1), Quota::per_second(2));
    let many = AllAtOnce::new((user(&pool, 3), everybody(&pool, 3)), move |charge: &Charge| {
        [charge.clone().quota(two), Charge::new("all")]
    });
    assert_eq!(kind(many.check(&Charge::new("alice")).await), ErrorKind::Configuration);
}

#[test]
#[should_panic(expected = "the limiters must share one pool")]
fn members_share_a_pool() {
    let pools = [1, 2].map(|port| Pool::connect(&format!("redis://127.0.0.1:{port}")).unwrap());
    let _ = AllAtOnce::new((user(&pools[0], 3), everybody(&pools[1], 3)), keys);
}

#[tokio::test(start_paused = true)]
async fn in_turn_a_later_refusal_gives_back_and_so_does_who_hangs_up() {
    let user = Arc::new(Memory::new("user", TokenBucket::new(Quota::new(3, 300 * HOUR))));
    let slow = |_: &Charge| async {
        tokio::time::sleep(PATIENT).await;
        Ok(Decision::new(Outcome::Deny { retry_after: None }))
    };
    let all = AllInTurn::new([Arc::clone(&user).boxed(), slow.boxed()], keys);
    assert!(!all.check(&Charge::new("alice")).await.unwrap().is_admitted());
    assert_eq!(user.peek("alice").await.unwrap().remaining(), Some(3));

    let hung_up = tokio::time::timeout(PATIENT / 2, all.check(&Charge::new("alice"))).await;
    assert!(hung_up.is_err());
    assert_eq!(user.peek("alice").await.unwrap().remaining(), Some(3));

    // Nobody waits in turn, however patient.
    let ready = |_: &Charge| std::future::ready(Ok(Decision::new(Outcome::Allow)));
    let all = AllInTurn::new([Arc::clone(&user).boxed(), ready.boxed()], keys);
    let patient = Charge::new("alice").cost(3).max_wait(400 * HOUR);
    let mut admitted = all.check(&patient).await.unwrap();
    assert!(matches!(all.check(&patient).await.unwrap().outcome(), Outcome::Deny { .. }));
    assert!(all.refund(admitted.take_reservation().unwrap()).is_ok());
    assert_eq!(user.peek("alice").await.unwrap().remaining(), Some(3));
}

/// Keys are often API keys, and logs are read by many.
// Case 127.
#[tokio::test]
async fn debug_output_of_no_public_type_over_redis_shows_a_key() {
    // The keys of two formats.
    let server = Server::with(&[]);
    let pool = server.pool();
    let charge = Charge::new("sk_live_4242");
    let one = user(&pool, 3);
    let both = AllAtOnce::new((one.clone(), everybody(&pool, 3)), keys);
    for mut decision in [one.check(&charge).await.unwrap(), both.check(&charge).await.unwrap()] {
        hides(&decision);
        hides(&decision.take_reservation().unwrap());
    }
    hides(&one);
    hides(&both);
    hides(&one.check(&charge));
    hides(&both.peek("sk_live_4242").await);
    hides(&Charge::new(("sk_live_4242", ("sk_live_4242", "all"))));

    let redisson =
        Redisson::new(pool).decision_timeout(PATIENT).default_rate(Rate::overall(3, HOUR));
    hides(&redisson.check(&charge).await.unwrap());
    let named = redisson.rate_limiter("sk_live_4242").unwrap();
    hides(&named);
    hides(&named.try_acquire(1).await.unwrap().unwrap());
    hides(&redisson);
}
