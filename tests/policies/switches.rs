//! Switches: of a row, of a policy and of all; the laxest holds.

use std::sync::{Arc, Mutex};

use tower_sluice::policy::Policies;
use tower_sluice::{Outcome, SwitchMode};

use super::{burst, check, decide, policies, request, rows};

const TWO: &str = "
    [[policy]]
    name = 'a'
    limit = 2
    period = '1h'

    [[policy]]
    name = 'b'
    limit = 4
    period = '1h'
";

async fn left(policies: &Policies, name: &str) -> u64 {
    let policy = policies.get(name).expect("a policy");
    policy.peek(&["global"]).await.expect("a decision").remaining().expect("told")
}

#[tokio::test(start_paused = true)]
async fn off_takes_nothing_and_back_on_finds_the_state_as_it_was() {
    let policies = policies(TWO);
    let call = request("GET", "/", &[]);
    assert_eq!(burst(&policies, &call, 1).await, (1, vec![], 0));
    policies.switch().set(SwitchMode::Off);
    assert!(check(&policies, &call).await.is_none());
    assert_eq!((left(&policies, "a").await, left(&policies, "b").await), (1, 3));
    policies.switch().set(SwitchMode::On);
    let a = policies.get("a").unwrap();
    a.switch().set(SwitchMode::Off);
    assert_eq!(burst(&policies, &call, 5).await, (3, vec![], 2));
    assert_eq!((left(&policies, "a").await, left(&policies, "b").await), (1, 0));
    // A switch outlives the table.
    policies.load(&rows(TWO)).unwrap();
    assert_eq!(policies.get("a").unwrap().mode(), SwitchMode::Off);
    policies.get("a").unwrap().switch().set(SwitchMode::On);
    assert!(!decide(&policies, &call).await.is_admitted());
    assert_eq!(left(&policies, "a").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_neither_refuses_nor_delays_while_the_others_do() {
    let policies = policies(
        "
        [[policy]]
        name = 'watched'
        limit = 2
        period = '1s'
        max_wait = '1s'
        shadow = true

        [[policy]]
        name = 'enforced'
        limit = 5
        period = '1h'
        ",
    );
    let call = request("GET", "/", &[]);
    assert_eq!(burst(&policies, &call, 7).await, (5, vec![], 2));
    assert_eq!(left(&policies, "watched").await, 0);
    assert_eq!(policies.get("watched").unwrap().mode(), SwitchMode::Shadow);
    // A key that is missing refuses nothing in a shadow.
    let keyed = super::policies(
        "[[policy]]\nname = 'a'\nlimit = 1\nperiod = '1s'\nkey = 'header:x'\nshadow = true",
    );
    assert!(check(&keyed, &call).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn what_an_enforced_policy_refuses_a_shadow_does_not_take() {
    let policies = policies(TWO);
    policies.get("b").unwrap().switch().set(SwitchMode::Shadow);
    let call = request("GET", "/", &[]);
    assert_eq!(burst(&policies, &call, 4).await, (2, vec![], 2));
    assert_eq!((left(&policies, "a").await, left(&policies, "b").await), (0, 2));
    policies.switch().set(SwitchMode::Shadow);
    assert_eq!(burst(&policies, &call, 4).await, (4, vec![], 0));
    let decision = decide(&policies, &call).await;
    assert_eq!(decision.outcome(), Outcome::Allow);
    assert!(matches!(decision.shadowed(), Some(Ok(Outcome::Deny { .. }))));
}

#[tokio::test(start_paused = true)]
async fn the_laxest_of_row_policy_and_all_holds() {
    let policies = policies(&TWO.replace("name = 'a'", "name = 'a'\nshadow = true"));
    let policy = policies.get("a").unwrap();
    for (own, all, mode) in [
        (SwitchMode::On, SwitchMode::On, SwitchMode::Shadow),
        (SwitchMode::Off, SwitchMode::On, SwitchMode::Off),
        (SwitchMode::On, SwitchMode::Off, SwitchMode::Off),
        (SwitchMode::Shadow, SwitchMode::On, SwitchMode::Shadow),
    ] {
        policy.switch().set(own);
        policies.switch().set(all);
        assert_eq!(policy.mode(), mode);
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_what_each_policy_decided() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&seen);
    let policies = Policies::builder().on_decision(move |event| {
        let outcome = match event.result {
            Ok(Outcome::Allow) => "admitted",
            Ok(Outcome::Wait(_)) => "delayed",
            Ok(_) => "denied",
            Err(_) => "undecided",
        };
        let shadow = if event.in_shadow { " in shadow" } else { "" };
        sink.lock().unwrap().push(format!("{} {outcome}{shadow}", event.policy.name()));
    });
    let policies = policies.build(&rows(TWO)).unwrap();
    let call = request("GET", "/", &[]);
    let told = async || {
        decide(&policies, &call).await;
        std::mem::take(&mut *seen.lock().unwrap())
    };
    assert_eq!(told().await, ["a admitted", "b admitted"]);
    told().await;
    assert_eq!(told().await, ["a denied"]);
    policies.get("a").unwrap().switch().set(SwitchMode::Shadow);
    assert_eq!(told().await, ["a denied in shadow", "b admitted"]);
    // A refusal names the policies that refuse it, also those in a shadow.
    told().await;
    assert_eq!(told().await, ["a denied in shadow", "b denied"]);
    policies.get("a").unwrap().reset(&["global"]).await.unwrap();
    assert_eq!(told().await, ["b denied"]);
}
