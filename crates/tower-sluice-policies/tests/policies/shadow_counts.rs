//! A switch counts what those that it puts into a shadow would have decided.

use tower_sluice::limiter::ShadowCounts;

use super::*;

fn counted(counts: ShadowCounts) -> [u64; 4] {
    [counts.admitted, counts.delayed, counts.refused, counts.undecided]
}

/// An observer changes no count.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_a_policy_in_force_makes_anyway_is_counted() {
    let table = TWO.replace(", max_wait = '500ms'", "").replace("limit = 4", "limit = 2");
    for builder in [Policies::builder(), Policies::builder().on_decision(|_| {})] {
        let policies = builder.build(&rows(&table)).unwrap();
        assert_eq!(burst(&policies, &request("GET", "/", &[]), 5).await, (2, vec![], 3));
        let shadow = policies.get("b").unwrap();
        assert_eq!(counted(shadow.switch().shadow_counts()), [2, 0, 3, 0]);
    }
}

const TWO: &str = "{ name = 'a', limit = 2, period = '1s', max_wait = '500ms' },
     { name = 'b', limit = 4, period = '1h', shadow = true },";

#[tokio::test(start_paused = true)]
async fn switches_count_what_would_have_been() {
    let policies = policies(TWO);
    let call = request("GET", "/", &[]);
    let counts = || {
        let own = |name| counted(policies.get(name).unwrap().switch().shadow_counts());
        (counted(policies.global_switch().shadow_counts()), own("a"), own("b"))
    };
    // Of the policy's switch, whatever put the policy into a shadow.
    assert_eq!(burst(&policies, &call, 2).await, (2, vec![], 0));
    assert_eq!(counts(), ([0; 4], [0; 4], [2, 0, 0, 0]));
    policies.get("a").unwrap().switch().set(SwitchMode::Shadow);
    assert_eq!(burst(&policies, &call, 2).await, (2, vec![], 0));
    assert_eq!(counts(), ([0; 4], [0, 1, 1, 0], [4, 0, 0, 0]));
    // Of the switch of all, while it is the one.
    policies.global_switch().set(SwitchMode::Shadow);
    assert_eq!(burst(&policies, &call, 2).await, (2, vec![], 0));
    assert_eq!(counts(), ([0, 0, 4, 0], [0, 1, 3, 0], [4, 0, 2, 0]));
    policies.global_switch().set(SwitchMode::On);
    policies.get("a").unwrap().switch().set(SwitchMode::On);
    let _ = policies.get("b").unwrap().peek(&["global"]).await.unwrap();
    assert_eq!(counts(), ([0, 0, 4, 0], [0, 1, 3, 0], [4, 0, 2, 0]));
}
