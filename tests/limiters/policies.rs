//! The report of a decision about every policy that took part.

use tower_sluice::limiter::{PolicyReport, QuotaUnit};

use super::*;

const TEN: Quota = Quota::per_second(10);
const DAILY: Quota = Quota::per_day(1_000);
const DAY: Duration = Duration::from_secs(86_400);

fn deny(seconds: u32) -> Outcome {
    Outcome::Deny { retry_after: Some(seconds * SECOND) }
}

/// Name, outcome, units left, and time until all are back of each policy.
fn each(decision: &Decision) -> Vec<(String, Outcome, Option<u64>, Option<Duration>)> {
    let report = |policy: PolicyReport<'_>| {
        let name = policy.name().to_owned();
        (name, policy.outcome(), policy.remaining(), policy.reset_after())
    };
    decision.policies().map(report).collect()
}

fn names(decision: &Decision) -> Vec<&str> {
    decision.policies().map(|policy| policy.name()).collect()
}

#[tokio::test(start_paused = true)]
async fn one_quota_is_one_policy() {
    let limiter = Memory::new("api", TokenBucket::new(TEN));
    let decision = limiter.check(&one().cost(4)).await.unwrap();
    let left = (Some(6), Some(SECOND * 4 / 10));
    assert_eq!(each(&decision), [("api".into(), Outcome::Allow, left.0, left.1)]);
    assert_eq!(decision.tightest(), decision.policies().next());

    let refused = limiter.check(&one().cost(7)).await.unwrap();
    let outcome = Outcome::Deny { retry_after: Some(SECOND / 10) };
    assert_eq!(each(&refused), [("api".into(), outcome, left.0, left.1)]);
}

#[tokio::test(start_paused = true)]
async fn each_quota_of_a_tuple_reports_its_own() {
    let log = Quota::per_minute(20);
    let all = (TokenBucket::new(TEN), FixedWindow::new(DAILY).anchored(), SlidingLog::new(log));
    let limiter = Memory::new("api", all);
    let decision = limiter.check(&one().cost(8)).await.unwrap();
    let left = [
        ("api-1".into(), Outcome::Allow, Some(2), Some(SECOND * 8 / 10)),
        ("api-2".into(), Outcome::Allow, Some(992), Some(DAY)),
        ("api-3".into(), Outcome::Allow, Some(12), Some(60 * SECOND)),
    ];
    assert_eq!(each(&decision), left);
    assert_eq!((decision.limiter(), decision.quota()), (Some("api"), Some(TEN)));
    assert_eq!((decision.remaining(), decision.reset_after()), (Some(2), Some(DAY)));

    // The part left decides, and not the number: 2 of 20 are less than 5 of 10.
    advance(SECOND).await;
    let _ = limiter.check(&one().cost(5)).await.unwrap();
    let decision = limiter.check(&one().cost(5)).await.unwrap();
    assert_eq!(decision.tightest().map(|policy| policy.name()), Some("api-1"));
    advance(SECOND / 2).await;
    let peeked = limiter.peek("key").await.unwrap();
    let tightest = peeked.tightest().unwrap();
    assert_eq!((tightest.name(), tightest.remaining()), ("api-3", Some(2)));
    assert_eq!((peeked.quota(), peeked.remaining()), (Some(log), Some(2)));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_of_the_policy_that_refuses_longest() {
    let minute = Quota::per_minute(12);
    let limiter = Memory::new("api", (TokenBucket::new(TEN), TokenBucket::new(minute)));
    assert!(limiter.check(&one().cost(10)).await.unwrap().is_admitted());
    let refused = limiter.check(&one().cost(4)).await.unwrap();
    assert_eq!(refused.outcome(), deny(10));
    let tightest = refused.tightest().unwrap();
    assert_eq!((tightest.name(), tightest.outcome()), ("api-2", deny(10)));
    assert_eq!((tightest.remaining(), refused.remaining()), (Some(2), Some(0)));
    let outcomes: Vec<_> = refused.policies().map(|policy| policy.retry_after()).collect();
    assert_eq!(outcomes, [Some(SECOND * 4 / 10), Some(10 * SECOND)]);

    // One that can never fit refuses for ever, and one that fits does not refuse.
    let never = limiter.check(&one().cost(11)).await.unwrap();
    assert_eq!(never.retry_after(), None);
    assert_eq!(never.tightest().map(|policy| policy.name()), Some("api-1"));
    let cheap = limiter.check(&one()).await.unwrap();
    let admitted: Vec<_> = cheap.policies().map(|policy| policy.outcome()).collect();
    assert_eq!(admitted[1], Outcome::Allow);
    assert!(matches!(admitted[0], Outcome::Deny { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_of_the_policies_that_delay() {
    let limiter = Memory::new("api", (TokenBucket::new(TEN), TokenBucket::new(DAILY)));
    let _ = limiter.check(&one().cost(10)).await.unwrap();
    let decision = limiter.check(&one().cost(2).max_wait(SECOND)).await.unwrap();
    let wait = Outcome::Wait(SECOND / 5);
    assert_eq!(decision.outcome(), wait);
    let outcomes: Vec<_> = decision.policies().map(|policy| policy.outcome()).collect();
    assert_eq!(outcomes, [wait, Outcome::Allow]);
}

#[tokio::test(start_paused = true)]
async fn in_turn_all_members_are_reported_and_the_longest_refusal_wins() {
    let user = Memory::new("user", TokenBucket::new(TEN));
    let everybody = Memory::new("all", TokenBucket::new(Quota::per_minute(12)));
    let keys = |charge: &Charge| [charge.clone(), Charge::new("all")];
    let all = AllInTurn::new([user.clone().boxed(), everybody.clone().boxed()], keys);
    let decision = all.check(&one().cost(10)).await.unwrap();
    assert_eq!(names(&decision), ["user", "all"]);
    assert_eq!((decision.limiter(), decision.remaining()), (Some("user"), Some(0)));
    assert_eq!(decision.reset_after(), Some(50 * SECOND));

    // The member that was not asked says how long it would refuse.
    let refused = all.check(&one().cost(4)).await.unwrap();
    assert_eq!((refused.limiter(), refused.outcome()), (Some("all"), deny(10)));
    let waits: Vec<_> = refused.policies().map(|policy| policy.retry_after()).collect();
    assert_eq!(waits, [Some(SECOND * 4 / 10), Some(10 * SECOND)]);
    let estimated = all.estimate(one().cost(4)).await.unwrap();
    assert_eq!((estimated.limiter(), each(&estimated)), (Some("all"), each(&refused)));

    // Who comes back when it says is admitted.
    advance(10 * SECOND).await;
    assert!(all.check(&one().cost(4)).await.unwrap().is_admitted());
    assert_eq!(user.peek("key").await.unwrap().remaining(), Some(6));

    // What an earlier member took and is refunded counts as left.
    advance(SECOND).await;
    let first = Memory::new("first", FixedWindow::new(DAILY));
    let never = |_: &Charge| ready(Ok::<_, Error>(Decision::new(deny(2))));
    let all = AllInTurn::new([first.boxed(), never.boxed()], keys);
    let refused = all.check(&one().cost(3)).await.unwrap();
    assert_eq!(refused.outcome(), deny(2));
    assert_eq!((refused.limiter(), refused.quota()), (None, None));
    assert_eq!(refused.tightest().unwrap().remaining(), Some(1_000));
}

#[tokio::test(start_paused = true)]
async fn in_turn_a_member_that_takes_nothing_is_not_reported() {
    let member = |name: &'static str| Memory::new(name, TokenBucket::new(TEN)).boxed();
    let all = AllInTurn::new([member("user"), member("search"), member("user")], |charge| {
        [charge.clone(), Charge::new("search").peek(), Charge::new("other")]
    });
    assert_eq!(names(&all.check(&one()).await.unwrap()), ["user", "user-2"]);
    assert_eq!(names(&all.peek("key").await.unwrap()), ["user", "search", "user-2"]);
}

#[tokio::test(start_paused = true)]
async fn limiters_around_a_limiter_keep_its_policies() {
    let plain = || Memory::new("api", (TokenBucket::new(TEN), TokenBucket::new(DAILY)));
    let expected = plain().check(&one()).await.unwrap();
    let around = plain().timeout(SECOND).or_else(FailOpen).boxed();
    assert_eq!(each(&around.check(&one()).await.unwrap()), each(&expected));

    let cached = plain().deny_cache();
    let _ = cached.check(&one().cost(10)).await.unwrap();
    let refused = cached.check(&one().cost(5)).await.unwrap();
    advance(SECOND / 10).await;
    let repeated = cached.check(&one().cost(5)).await.unwrap();
    assert_eq!(repeated.origin(), Origin::Cache);
    let waits = |decision: &Decision| {
        let wait = |policy: PolicyReport<'_>| policy.retry_after();
        decision.policies().map(wait).collect::<Vec<_>>()
    };
    assert_eq!(waits(&refused), [Some(SECOND / 2), None]);
    assert_eq!(waits(&repeated), [Some(SECOND * 4 / 10), None]);

    let shadow = plain().shadow();
    let _ = shadow.check(&one().cost(10)).await.unwrap();
    let admitted = shadow.check(&one().cost(5)).await.unwrap();
    assert!(admitted.is_admitted() && admitted.policies().all(|policy| policy.is_shadow()));
    assert_eq!(admitted.tightest().unwrap().retry_after(), Some(SECOND / 2));
    let watched = Memory::new("new", TokenBucket::new(Quota::per_day(1))).shadow();
    let counts = Memory::new("old", TokenBucket::new(TEN));
    let both = |charge: &Charge| [charge.clone(), charge.clone()];
    let all = AllInTurn::new([counts.boxed(), watched.boxed()], both);
    let _ = all.check(&one()).await.unwrap();
    let admitted = all.check(&one()).await.unwrap();
    let shadows: Vec<_> = admitted.policies().map(|policy| policy.is_shadow()).collect();
    assert_eq!((shadows, admitted.limiter()), (vec![false, true], Some("new")));
    assert_eq!(admitted.tightest().unwrap().name(), "old");
    // What a shadow has left limits nobody.
    assert_eq!((admitted.remaining(), admitted.reset_after()), (Some(8), Some(SECOND / 5)));
}

#[tokio::test(start_paused = true)]
async fn a_lease_reports_each_policy_with_the_units_in_hand() {
    let quotas = (Quota::per_hour(1_000), Quota::per_day(5_000));
    let all = (TokenBucket::new(quotas.0), TokenBucket::new(quotas.1));
    let leased = Memory::new("api", all).lease(20);
    let mut left = Vec::new();
    for _ in 0..100 {
        let decision = leased.check(&one()).await.unwrap();
        left.push(
            decision.policies().map(|policy| policy.remaining().unwrap()).collect::<Vec<_>>(),
        );
    }
    assert_eq!((&left[0][..], &left[99][..]), (&[999, 4_999][..], &[900, 4_900][..]));
}

#[tokio::test(start_paused = true)]
async fn a_limiter_of_ones_own_reports_its_policies() {
    let mine = |_: &Charge| {
        let burst = PolicyReport::new("burst", TEN).with_report(9, SECOND);
        let daily = PolicyReport::new("daily", DAILY).with_report(100, DAY).with_outcome(deny(7));
        ready(Ok::<_, Error>(Decision::new(deny(7)).with_policies([burst, daily])))
    };
    let decision = mine.check(&one()).await.unwrap();
    assert_eq!(names(&decision), ["burst", "daily"]);
    assert_eq!((decision.limiter(), decision.quota()), (Some("daily"), Some(DAILY)));
    assert_eq!((decision.remaining(), decision.reset_after()), (Some(9), Some(DAY)));
    assert_eq!(decision.policies().count(), 2);

    let silent = Decision::new(Outcome::Allow);
    assert_eq!((silent.policies().count(), silent.tightest()), (0, None));
    let none = Decision::new(Outcome::Allow).with_policies([]);
    assert_eq!((none.policies().count(), none.limiter()), (0, None));
}

#[tokio::test(start_paused = true)]
async fn a_description_names_policies_and_units() {
    let description = Description::new().names(["burst"]).unit(QuotaUnit::ContentBytes);
    let tuple = (TokenBucket::new(TEN), TokenBucket::new(DAILY));
    let limiter = Memory::new("api", tuple).describe(description.partition_key());
    let decision = limiter.check(&Charge::new("user:42").cost(3)).await.unwrap();
    assert_eq!((names(&decision), decision.limiter()), (vec!["burst", "api-2"], Some("api")));
    assert_eq!((decision.remaining(), decision.quota()), (Some(7), Some(TEN)));
    for policy in decision.policies() {
        assert_eq!(policy.unit(), QuotaUnit::ContentBytes);
        assert_eq!(policy.partition_key(), Some(*b"\xea\x3f\xd4\x3b\xe1\xe5\x7d\x62"));
    }
    limiter.refund(limiter.check(&one()).await.unwrap().take_reservation().unwrap()).unwrap();
    assert_eq!(names(&limiter.peek("user:42").await.unwrap()), ["burst", "api-2"]);
    let unknown = (|_: &Charge| ready(Ok::<_, Error>(Decision::new(Outcome::Allow))))
        .describe(Description::new().names(["burst"]));
    assert_eq!(unknown.check(&one()).await.unwrap().policies().count(), 0);
}
