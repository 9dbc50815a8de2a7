//! Switches: of a row, of a policy and of all; the laxest holds.

use tower_sluice::RateLimitLayer;
use tower_sluice::limiter::Switch;
use tower_sluice_policies::PolicyEvent;

use super::*;

const TWO: &str = "{ name = 'a', limit = 2, period = '1h' },
     { name = 'b', limit = 4, period = '1h' },";

/// Policies whose events are noted as these texts, and what takes the texts out.
fn observed(
    table: &str,
    text: impl Fn(&PolicyEvent<'_>) -> String + Send + Sync + 'static,
) -> (Policies, impl Fn() -> Vec<String>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&seen);
    let builder = Policies::builder();
    let builder = builder.on_decision(move |event| sink.lock().unwrap().push(text(event)));
    let policies = builder.build(&rows(table)).expect("a table");
    (policies, move || std::mem::take(&mut *seen.lock().unwrap()))
}

/// The units left of both policies.
async fn both(policies: &Policies) -> (u64, u64) {
    (left(policies, "a", "global").await, left(policies, "b", "global").await)
}

#[tokio::test(start_paused = true)]
async fn off_takes_nothing_and_back_on_finds_the_state_as_it_was() {
    let policies = policies(TWO);
    let call = request("GET", "/", &[]);
    assert_eq!(burst(&policies, &call, 1).await, (1, vec![], 0));
    policies.global_switch().set(SwitchMode::Off);
    policies.load(&rows(TWO)).unwrap();
    assert!(check(&policies, &call).await.is_none());
    assert_eq!(both(&policies).await, (1, 3));
    policies.global_switch().set(SwitchMode::On);
    let a = policies.get("a").unwrap();
    a.switch().set(SwitchMode::Off);
    assert_eq!(burst(&policies, &call, 5).await, (3, vec![], 2));
    assert_eq!(both(&policies).await, (1, 0));
    // A switch outlives the table.
    policies.load(&rows(TWO)).unwrap();
    assert_eq!(policies.get("a").unwrap().mode(), SwitchMode::Off);
    policies.get("a").unwrap().switch().set(SwitchMode::On);
    assert!(!decide(&policies, &call).await.is_admitted());
    assert_eq!(left(&policies, "a", "global").await, 1);
}

#[tokio::test(start_paused = true)]
async fn what_passes_since_a_policy_is_off_is_shown_under_its_name() {
    let (policies, seen) = observed(TWO, |event| {
        format!("{} {:?} {:?}", event.policy.name(), event.result, event.origin)
    });
    let call = request("GET", "/", &[]);
    let decided = async |call: &http::Request<()>| {
        let Keyed::Charge(charge) = policies.charge(Head::from(call)) else { return None };
        let decision = policies.check(&charge).await.expect("a decision");
        Some((decision.is_admitted(), decision.origin() == Origin::Off, seen()))
    };
    let off = |name| format!("{name} Ok(Allow) Some(Off)");
    policies.global_switch().set(SwitchMode::Off);
    assert_eq!(decided(&call).await, Some((true, true, vec![off("a"), off("b")])));
    policies.global_switch().set(SwitchMode::On);
    policies.get("a").unwrap().switch().set(SwitchMode::Off);
    for _ in 0..4 {
        let (is_admitted, is_off, seen) = decided(&call).await.expect("policies take it");
        assert!(is_admitted && !is_off && seen.contains(&off("a")), "{seen:?}");
    }
    // The other one refuses, so nothing passes.
    let (is_admitted, _, seen) = decided(&call).await.expect("policies take it");
    assert!(!is_admitted && seen.len() == 1 && seen[0].starts_with("b "), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shadow_neither_refuses_nor_delays_while_the_others_do() {
    let policies = policies(
        "{ name = 'watched', limit = 2, period = '1s', max_wait = '1s', shadow = true },
         { name = 'enforced', limit = 5, period = '1h' },",
    );
    let call = request("GET", "/", &[]);
    assert_eq!(burst(&policies, &call, 7).await, (5, vec![], 2));
    assert_eq!(left(&policies, "watched", "global").await, 0);
    assert_eq!(policies.get("watched").unwrap().mode(), SwitchMode::Shadow);
}

// Case 160.
#[tokio::test(start_paused = true)]
async fn a_policy_refuses_no_request_without_its_key_unless_it_is_on() {
    let keyed = "[[policy]]\nname = 'a'\nlimit = 1\nperiod = '1s'\nkey = 'header:x'";
    let (policies, seen) = observed(keyed, |event| {
        let said = event.result.map_or_else(ToString::to_string, |_| String::from("passes"));
        let shadow = if event.in_shadow { " in shadow" } else { "" };
        format!("{}{shadow}: {said}", event.policy.name())
    });
    let own = policies.get("a").unwrap().switch().clone();
    let around = Switch::new();
    let limit = RateLimitLayer::new(
        tower_sluice::LimiterExt::switch(policies.clone(), &around),
        policies.clone(),
    );
    let inner = tower::service_fn(async |_: http::Request<()>| {
        Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
    });
    let status = async || {
        let service = tower::Layer::layer(&limit, inner);
        let response = tower::ServiceExt::oneshot(service, request("GET", "/", &[])).await;
        (response.unwrap().status().as_u16(), seen())
    };
    let refused = || vec![String::from("a: request has no header x to limit by")];
    let shadowed = || vec![String::from("a in shadow: request has no header x to limit by")];
    for of_all in [false, true] {
        let switch = if of_all { policies.global_switch() } else { &own };
        assert_eq!(status().await, (400, refused()));
        switch.set(SwitchMode::Shadow);
        assert_eq!(status().await, (200, shadowed()));
        switch.set(SwitchMode::Off);
        assert_eq!(status().await, (200, vec![String::from("a: passes")]));
        switch.set(SwitchMode::On);
    }
    assert_eq!(own.shadow_counts().undecided, 2);
    assert_eq!(policies.global_switch().shadow_counts().undecided, 1);
    // A switch around all of them.
    around.set(SwitchMode::Shadow);
    assert_eq!(status().await, (200, refused()));
    assert_eq!(around.shadow_counts().undecided, 1);
    around.set(SwitchMode::Off);
    assert_eq!(status().await, (200, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_shadow_without_its_key_is_counted_beside_a_policy_in_force() {
    let policies = policies(
        "{ name = 'watched', limit = 1, period = '1s', key = 'header:x', shadow = true },
         { name = 'enforced', limit = 1, period = '1h' },",
    );
    let call = request("GET", "/", &[]);
    assert_eq!(burst(&policies, &call, 2).await, (1, vec![], 1));
    let watched = policies.get("watched").unwrap().switch().shadow_counts();
    assert_eq!((watched.admitted, watched.undecided), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn what_an_enforced_policy_refuses_a_shadow_does_not_take() {
    let policies = policies(TWO);
    policies.get("b").unwrap().switch().set(SwitchMode::Shadow);
    let call = request("GET", "/", &[]);
    assert_eq!(burst(&policies, &call, 4).await, (2, vec![], 2));
    assert_eq!(both(&policies).await, (0, 2));
    policies.global_switch().set(SwitchMode::Shadow);
    assert_eq!(burst(&policies, &call, 4).await, (4, vec![], 0));
    let decision = decide(&policies, &call).await;
    assert_eq!(decision.outcome(), Outcome::Allow);
    assert!(matches!(decision.shadowed(), Some(Ok(Outcome::Deny { .. }))));
}

#[tokio::test(start_paused = true)]
async fn the_laxest_of_row_policy_and_all_holds() {
    let policies = policies(&TWO.replace("name = 'a'", "name = 'a', shadow = true"));
    let policy = policies.get("a").unwrap();
    for (own, all, mode) in [
        (SwitchMode::On, SwitchMode::On, SwitchMode::Shadow),
        (SwitchMode::Off, SwitchMode::On, SwitchMode::Off),
        (SwitchMode::On, SwitchMode::Off, SwitchMode::Off),
        (SwitchMode::Shadow, SwitchMode::On, SwitchMode::Shadow),
    ] {
        policy.switch().set(own);
        policies.global_switch().set(all);
        assert_eq!(policy.mode(), mode);
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_what_each_policy_decided() {
    let (policies, seen) = observed(TWO, |event| {
        let outcome = match event.result {
            Ok(Outcome::Allow) => "admitted",
            Ok(Outcome::Wait(_)) => "delayed",
            Ok(_) => "denied",
            Err(_) => "undecided",
        };
        let shadow = if event.in_shadow { " in shadow" } else { "" };
        format!("{} {outcome}{shadow}", event.policy.name())
    });
    let call = request("GET", "/", &[]);
    let told = async || {
        let _ = decide(&policies, &call).await;
        seen()
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

/// By its row, by its own switch, and by that of all.
#[tokio::test(start_paused = true)]
async fn a_policy_that_is_off_says_so_for_each_request_that_passes() {
    let off = TWO.replacen("period", "enabled = false, match = '/a', period", 1);
    let (policies, taken) = observed(&off, |event| {
        format!("{} {:?}", event.policy.name(), event.decision().unwrap().origin())
    });
    let seen = async |path| {
        let _ = check(&policies, &request("GET", path, &[])).await;
        taken()
    };
    policies.get("a").unwrap().switch().set(SwitchMode::On);
    assert_eq!(policies.get("a").unwrap().mode(), SwitchMode::Off);
    assert_eq!(seen("/a").await, ["b Local", "a Off"]);
    assert_eq!(seen("/").await, ["b Local"]);
    policies.global_switch().set(SwitchMode::Off);
    assert_eq!(seen("/a").await, ["a Off", "b Off"]);
}
