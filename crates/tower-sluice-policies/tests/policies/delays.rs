//! A policy that delays, under each switch.

use super::*;

/// Admits one at once, and delays two.
const SLOW: &str = "{ name = 'slow', limit = 1, period = '1s', max_wait = '2s' }";

/// Returns the outcomes of three requests; `None` if no policy takes them.
async fn three(policies: &Policies) -> Vec<Option<Outcome>> {
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        let decided = check(policies, &request("GET", "/", &[])).await;
        outcomes.push(decided.map(|decision| decision.expect("a decision").outcome()));
    }
    outcomes
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_off_or_in_a_shadow_delays_nobody() {
    let policies = policies(SLOW);
    let slow = policies.get("slow").unwrap();
    let seconds = |number| Some(Outcome::Wait(std::time::Duration::from_secs(number)));
    for switch in [policies.global_switch(), slow.switch()] {
        for mode in [SwitchMode::Off, SwitchMode::Shadow] {
            slow.reset(&["global"]).await.unwrap();
            assert_eq!(three(&policies).await, [Some(Outcome::Allow), seconds(1), seconds(2)]);
            switch.set(mode);
            let outcomes = three(&policies).await;
            let is_at_once =
                |outcome: &Option<Outcome>| outcome.is_none_or(|outcome| outcome == Outcome::Allow);
            assert!(outcomes.iter().all(is_at_once), "{mode:?}: {outcomes:?}");
            switch.set(SwitchMode::On);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_switch_of_all_policies_survives_a_reload() {
    let policies = policies(SLOW);
    for mode in [SwitchMode::Off, SwitchMode::Shadow] {
        policies.global_switch().set(mode);
        policies.load(&rows(&SLOW.replace("limit = 1", "limit = 2"))).unwrap();
        assert_eq!(policies.global_switch().mode(), mode);
        assert_eq!(policies.get("slow").unwrap().mode(), mode);
        policies.load(&rows(SLOW)).unwrap();
    }
}
