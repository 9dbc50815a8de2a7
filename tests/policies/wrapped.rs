//! Limiters around policies.

use tower_sluice::{Charge, Head, Keyed, Limiter, LimiterExt, Origin, SwitchMode};

use super::{policies, request, rows};

fn table(limit: u64) -> String {
    format!("[[policy]]\nname = 'api'\nalgorithm = 'fixed_window'\nlimit = {limit}\nperiod = '1h'")
}

#[tokio::test(start_paused = true)]
async fn a_deny_cache_repeats_no_refusal_of_another_table_or_switch() {
    let policies = policies(&table(1));
    let cached = policies.clone().deny_cache();
    let call = request("GET", "/", &[]);
    let charge = || -> Charge {
        match policies.charge(Head::from(&call)) {
            Keyed::Charge(charge) => charge,
            other => panic!("{other:?}"),
        }
    };
    let told = async || {
        let decision = cached.check(&charge()).await.unwrap();
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
