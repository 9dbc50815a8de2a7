//! The counts of several limiters that decide together: each under its own name.

use metrics_util::debugging::DebugValue;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::limiter::{AllInTurn, MetricsExt};
use tower_sluice::testing::Scripted;
use tower_sluice::{
    Charge, Decision, ErrorKind, FailOpen, Limiter, LimiterExt, Memory, Outcome, Quota,
};

use super::recorder::{Recorder, assert_counts};
use super::{SECOND, one};

#[tokio::test(start_paused = true)]
async fn members_of_a_combination_count_under_their_own_names() {
    let recorder = Recorder::new();
    let member = |name, limit| {
        Memory::new(name, TokenBucket::new(Quota::per_hour(limit))).metrics(name).boxed()
    };
    let members = [member("user", 2), member("all", 100)];
    let limiter = AllInTurn::new(members, |charge| [charge.clone(), Charge::new("all")]);
    for _ in 0..3 {
        let _ = limiter.check(&one()).await.unwrap();
    }
    assert_counts!(recorder, "decisions_total{limiter=all,outcome=admitted}": 2,
        "decisions_total{limiter=user,outcome=admitted}": 2,
        "decisions_total{limiter=user,outcome=denied}": 1);
}

/// In one decision, each policy by what it alone decides.
#[tokio::test(start_paused = true)]
async fn policies_of_a_combination_count_under_their_own_names() {
    let recorder = Recorder::new();
    let member = |name, limit| Memory::new(name, TokenBucket::new(Quota::per_hour(limit)));
    let watched = member("watched", 1).shadow();
    let members = [member("user", 2).boxed(), watched.boxed(), member("all", 100).boxed()];
    let limiter = AllInTurn::new(members, |charge| [(); 3].map(|()| charge.clone()));
    let limiter = limiter.metrics("gate").per_policy();
    for _ in 0..3 {
        let _ = limiter.check(&one()).await.unwrap();
    }
    assert_counts!(recorder, "decisions_total{limiter=all,outcome=admitted}": 2,
        "decisions_total{limiter=user,outcome=admitted}": 2,
        "decisions_total{limiter=user,outcome=denied}": 1,
        "decisions_total{limiter=watched,outcome=admitted}": 1,
        "decisions_total{limiter=watched,outcome=denied}": 2,
        "shadow_refusals_total{limiter=watched,outcome=denied}": 2);
}

/// Without the shadow, only the policy that refuses the third charge would count it.
#[tokio::test(start_paused = true)]
async fn policies_in_a_shadow_count_as_they_would_without_it() {
    let recorder = Recorder::new();
    let quotas = (
        TokenBucket::new(Quota::per_hour(2)),
        tower_sluice::algorithm::FixedWindow::new(Quota::per_hour(100)),
    );
    let limiter = Memory::new("gate", quotas).shadow().metrics("gate").per_policy();
    for _ in 0..3 {
        assert!(limiter.check(&one()).await.unwrap().is_admitted());
    }
    assert_counts!(recorder, "decisions_total{limiter=gate-1,outcome=admitted}": 2,
        "decisions_total{limiter=gate-1,outcome=denied}": 1,
        "decisions_total{limiter=gate-2,outcome=admitted}": 2,
        "shadow_refusals_total{limiter=gate-1,outcome=denied}": 1);
}

/// A denial of a limiter that lists no policy.
#[tokio::test(start_paused = true)]
async fn a_denial_that_no_policy_explains_keeps_the_name_of_the_whole() {
    let recorder = Recorder::new();
    let own = |_: &Charge| std::future::ready(Ok(Decision::denied(SECOND)));
    let user = |limit| Memory::new("user", TokenBucket::new(Quota::per_hour(limit)));
    for user in [user(9).boxed(), user(1).shadow().boxed()] {
        let limiter =
            AllInTurn::new([user, own.boxed()], |charge| [(); 2].map(|()| charge.clone()));
        let limiter = limiter.metrics("gate").per_policy();
        for _ in 0..2 {
            assert!(!limiter.check(&one()).await.unwrap().is_admitted());
        }
    }
    assert_counts!(recorder, "decisions_total{limiter=gate,outcome=denied}": 4);
}

#[tokio::test(start_paused = true)]
async fn what_no_policy_decided_keeps_the_name_of_the_whole() {
    let recorder = Recorder::new();
    let store = Scripted::new().allow().fail(ErrorKind::Infrastructure).fail(ErrorKind::State);
    let limiter = store.or_else(FailOpen).metrics("api").per_policy();
    for _ in 0..3 {
        let _ = limiter.check(&one()).await;
    }
    assert_counts!(recorder, "decisions_total{outcome=admitted}": 1,
        "decisions_total{outcome=undecided}": 1, "errors_total{kind=infrastructure}": 1,
        "errors_total{kind=state}": 1, "fail_open_total": 1);
}

/// A limiter of the application's own may name its policies as it likes.
#[tokio::test(start_paused = true)]
async fn a_thousand_policies_have_names_of_their_own() {
    let recorder = Recorder::new();
    let careless = |charge: &Charge| {
        let decision = Decision::new(Outcome::Allow);
        let decision = decision.with_limiter(charge.key().into(), Quota::per_second(1));
        std::future::ready(Ok(decision.with_report(0, SECOND)))
    };
    let limiter = careless.metrics("api").per_policy();
    for key in 0..3_000 {
        let _ = limiter.check(&Charge::new(format!("key-{key}"))).await.unwrap();
    }
    let series = recorder.take();
    assert_eq!(series.len(), 1_002 * 20);
    let others = "rate_limit_decisions_total{limiter=other,outcome=admitted}";
    assert!(series.contains(&(others.into(), DebugValue::Counter(2_000))));
}
