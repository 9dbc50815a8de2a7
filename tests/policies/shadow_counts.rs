//! A switch counts what those that it puts into a shadow would have decided.

use tower_sluice::limiter::{ShadowCounts, SwitchMode};

use super::{burst, policies, request};

fn counted(counts: ShadowCounts) -> [u64; 4] {
    [counts.admitted, counts.delayed, counts.refused, counts.undecided]
}

const TWO: &str = "
    [[policy]]
    name = 'a'
    limit = 2
    period = '1s'
    max_wait = '500ms'

    [[policy]]
    name = 'b'
    limit = 4
    period = '1h'
    shadow = true
";

#[tokio::test(start_paused = true)]
async fn switches_count_what_would_have_been() {
    let policies = policies(TWO);
    let call = request("GET", "/", &[]);
    let counts = || {
        let own = |name| counted(policies.get(name).unwrap().switch().shadow_counts());
        (counted(policies.switch().shadow_counts()), own("a"), own("b"))
    };
    // Of the policy's switch, whatever put the policy into a shadow.
    assert_eq!(burst(&policies, &call, 2).await, (2, vec![], 0));
    assert_eq!(counts(), ([0; 4], [0; 4], [2, 0, 0, 0]));
    policies.get("a").unwrap().switch().set(SwitchMode::Shadow);
    assert_eq!(burst(&policies, &call, 2).await, (2, vec![], 0));
    assert_eq!(counts(), ([0; 4], [0, 1, 1, 0], [4, 0, 0, 0]));
    // Of the switch of all, while it is the one.
    policies.switch().set(SwitchMode::Shadow);
    assert_eq!(burst(&policies, &call, 2).await, (2, vec![], 0));
    assert_eq!(counts(), ([0, 0, 4, 0], [0, 1, 3, 0], [4, 0, 2, 0]));
    policies.switch().set(SwitchMode::On);
    policies.get("a").unwrap().switch().set(SwitchMode::On);
    policies.get("b").unwrap().peek(&["global"]).await.unwrap();
    assert_eq!(counts(), ([0, 0, 4, 0], [0, 1, 3, 0], [4, 0, 2, 0]));
}
