//! Limiters around policies.

use std::sync::atomic::AtomicUsize;

use tower_sluice::LimiterExt;
use tower_sluice::key::KeyExtractor;

use super::*;

use support::hides;

fn table(limit: u64) -> String {
    format!(
        "[[policy]]\nname = 'api'\nalgorithm = 'fixed_window'\nanchored = true\nlimit = {limit}\nperiod = '1h'"
    )
}

#[tokio::test(start_paused = true)]
async fn a_deny_cache_repeats_no_refusal_of_another_table_or_switch() {
    let policies = policies(&table(1));
    let cached = policies.clone().deny_cache();
    let call = request("GET", "/", &[]);
    let told = async || {
        let decision = cached.check(&charge(&policies, &call)).await.unwrap();
        (decision.is_admitted(), decision.origin())
    };
    assert_eq!(told().await, (true, Origin::Local));
    assert_eq!(told().await, (false, Origin::Local));
    assert_eq!(told().await, (false, Origin::Cache));
    // Another table holds from the next request on.
    policies.load(&rows(&table(2))).unwrap();
    assert_eq!(told().await, (true, Origin::Local));
    assert_eq!(told().await, (false, Origin::Local));
    policies.get("api").unwrap().switch().set(SwitchMode::Shadow);
    assert!(told().await.0);
    policies.get("api").unwrap().switch().set(SwitchMode::On);
    assert!(!told().await.0);
}

/// The first policy charges one for every request, and only the second knows the length.
#[tokio::test(start_paused = true)]
async fn a_deny_cache_repeats_no_refusal_of_a_longer_body() {
    let policies = policies(
        "{ name = 'requests', limit = 100, period = '1h' },
         { name = 'bytes', limit = 10, period = '1h', cost = 'content_length_kb' },",
    );
    let cached = policies.clone().deny_cache();
    let told = async |length: &str| {
        let call = request("POST", "/", &[&format!("content-length: {length}")]);
        let decision = cached.check(&charge(&policies, &call)).await.unwrap();
        (decision.is_admitted(), decision.origin())
    };
    assert_eq!(told("4096").await, (true, Origin::Local));
    assert_eq!(told("8192").await, (false, Origin::Local));
    assert_eq!(told("8192").await, (false, Origin::Cache));
    assert_eq!(told("1024").await, (true, Origin::Local));
}

/// Keys are often API keys, and logs are read by many.
// Case 127.
#[tokio::test]
async fn debug_output_of_no_type_of_policies_shows_a_key() {
    let table = "{ name = 'paths', limit = 1, period = '1h', key = 'path' },
         { name = 'keys', limit = 1, period = '1h', key = 'header:x-api-key', \
           match = { name = 'named' } },";
    let events = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&events);
    let policies = Policies::builder().on_decision(move |event| {
        seen.fetch_add(1, Relaxed);
        hides(event);
        hides(&event.decision());
    });
    let policies = policies.build(&rows(table)).expect("a table");
    let call = request("GET", "/sk_live_4242", &["x-api-key: sk_live_4242"]);
    let named = policies.named("named");
    for limiter in [policies.clone().boxed(), policies.clone().lease(10).deny_cache().boxed()] {
        for keyed in [policies.charge(Head::from(&call)), named.extract(&call)] {
            hides(&keyed);
            let Keyed::Charge(charge) = keyed else { panic!("no charge") };
            hides(&charge);
            let asked = limiter.check(&charge);
            hides(&asked.await);
        }
    }
    let mut decision = decide(&policies, &request("GET", "/sk_live_4343", &[])).await;
    hides(&decision);
    hides(&decision.take_reservation().expect("taken"));
    hides(&policies);
    hides(&named);
    hides(&policies.policies());
    assert!(events.load(Relaxed) > 2, "no event was seen");
}
