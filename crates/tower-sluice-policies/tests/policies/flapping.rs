//! Switches and tables that change all the time, while many tasks send requests: no unit is lost
//! or taken twice, and nothing is refused while there is room.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use tower_sluice_policies::PoliciesBuilder;

use super::over_redis::over;
use super::*;

use support::Server;

/// Nothing comes back while a test runs.
const TABLE: &str = "{ name = 'bucket', limit = 300, period = '10000h' },
     { name = 'window', algorithm = 'fixed_window', limit = 200, period = '10000h' },
     { name = 'log', algorithm = 'sliding_log', limit = 400, period = '10000h', cost = 2 },";

const LIMITS: [(&str, u64, u64); 3] = [("bucket", 300, 1), ("window", 200, 1), ("log", 400, 2)];

/// Changes every switch and the table until `ended`.
async fn change_everything(policies: Policies, ended: Arc<AtomicBool>) {
    let modes = [SwitchMode::On, SwitchMode::Shadow, SwitchMode::Off];
    let watched = TABLE.replace("name = 'bucket'", "name = 'bucket', shadow = true");
    let off = TABLE.replace("name = 'window'", "name = 'window', enabled = false");
    let tables = [rows(TABLE), rows(&watched), rows(&off)];
    let mut dice = Dice(5);
    while !ended.load(Relaxed) {
        for (name, ..) in LIMITS {
            policies.get(name).expect("a policy").switch().set(dice.pick(&modes));
        }
        policies.global_switch().set(dice.pick(&modes));
        policies.load(&dice.pick(&tables)).expect("a table");
        tokio::task::yield_now().await;
    }
    policies.global_switch().set(SwitchMode::On);
    policies.load(&tables[0]).expect("a table");
    for (name, ..) in LIMITS {
        policies.get(name).expect("a policy").switch().set(SwitchMode::On);
    }
}

async fn every_unit_is_counted_once(builder: PoliciesBuilder, requests: usize) {
    let taken: Arc<Mutex<HashMap<String, u64>>> = Arc::default();
    let seen = Arc::clone(&taken);
    let builder = builder.on_decision(move |event| {
        let is_admitted = matches!(event.result, Ok(Outcome::Allow | Outcome::Wait(_)));
        if is_admitted && event.origin != Some(Origin::Off) {
            *seen.lock().unwrap().entry(event.policy.name().to_owned()).or_default() += 1;
        }
    });
    let policies = builder.build(&rows(TABLE)).unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let changes = tokio::spawn(change_everything(policies.clone(), Arc::clone(&ended)));
    let mut tasks = JoinSet::new();
    for _ in 0..64 {
        let policies = policies.clone();
        tasks.spawn(async move {
            let call = request("GET", "/", &[]);
            for _ in 0..requests {
                if let Some(decision) = check(&policies, &call).await {
                    let decision = decision.expect("a decision");
                    if !decision.is_admitted() {
                        // Nothing is given back, so what was full stays full.
                        let by = decision.limiter().expect("a policy");
                        assert!(left(&policies, by, "global").await < 2, "{decision:?}");
                    }
                }
                tokio::task::yield_now().await;
            }
        });
    }
    while tasks.join_next().await.transpose().expect("no task fails").is_some() {}
    ended.store(true, Relaxed);
    changes.await.expect("no change fails");
    let taken = std::mem::take(&mut *taken.lock().unwrap());
    let times = |name: &str| taken.get(name).copied().unwrap_or_default();
    for (name, limit, cost) in LIMITS {
        assert_eq!(left(&policies, name, "global").await, limit - cost * times(name), "{name}");
    }
    // Back on, all is as it was: what is full refuses, and the rest admits.
    let is_full = LIMITS.iter().any(|(name, limit, cost)| times(name) == limit / cost);
    let decision = decide(&policies, &request("GET", "/", &[])).await;
    assert_eq!(decision.is_admitted(), !is_full, "{taken:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn switches_that_change_all_the_time_lose_no_unit() {
    every_unit_is_counted_once(Policies::builder(), 40).await;
    // Before anything is full.
    every_unit_is_counted_once(Policies::builder(), 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn switches_that_change_all_the_time_lose_no_unit_in_redis() {
    let server = Server::start();
    every_unit_is_counted_once(over(&server), 30).await;
}
