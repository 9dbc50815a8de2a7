//! A policy serializes as a row that decides alike.

use std::sync::atomic::AtomicU64;

use serde_json::Value;

use super::*;

/// Settings, each for two units in a second, or at once.
const SETTINGS: [&str; 21] = [
    "burst = 7\nmax_wait = '400ms'\nhorizon = '200ms'",
    "cache_ratio = 0.7\nshadow = true\nenabled = false",
    "algorithm = 'budget'\nburst = 7\nmax_hold = '3s'\nmax_wait = '1s'\nmax_debt = '2h'",
    "algorithm = 'concurrency'\nmax_hold = '500ms'",
    "algorithm = 'fixed_window'\nanchored = true\nmax_wait = '1s'",
    "algorithm = 'sliding_log'\nmax_limit = 3\nhorizon = '2s'",
    "algorithm = 'sliding_window'\ncells = 2\nmax_wait = '700ms'",
    "algorithm = 'sliding_counter'\ncost = 2",
    "algorithm = 'smooth_bursty'\nburst = 5",
    "algorithm = 'smooth_bursty'\nmax_burst = '1500ms'\nmax_wait = '1s'",
    "algorithm = 'smooth_bursty'\nstart_empty = true",
    "algorithm = 'smooth_bursty'\nwait_for_own_cost = true\ncache_ratio = 0.5",
    "algorithm = 'smooth_warming_up'\nwarm_up = '3s'\nmax_wait = '5s'",
    "algorithm = 'smooth_warming_up'\ncold_factor = 9.5\nmax_wait = '5s'",
    "algorithm = 'smooth_warming_up'\nwait_for_own_cost = true\nmax_wait = '5s'",
    "algorithm = 'redisson'\nrate_type = 'per_client'\nkeep_alive = '1h'",
    "key = ['host', 'path', 'global']\non_error = { local = 3 }\ncost = 'content_length_kb'",
    "cost = 'request_header:x-cost'",
    "cost = { request_header = 'x-other', default = 2 }",
    "plan = 'header:x-plan'\nquotas = { gold = 5, big = { limit = 3, burst = 4 }, free = 1 }",
    "match = { path = ['/', '/{x}'], method = 'get', header = 'host' }\non_error = 'allow'",
];

/// The rows that policies serialize as.
fn again(policies: &Policies) -> Rows {
    let row = |value: Value| serde_json::from_value::<Row>(value).expect("a row");
    let values = policies.policies().into_iter().map(|one| serde_json::to_value(one.policy()));
    let mut rows = Rows::default();
    rows.policy = values.map(|value| row(value.expect("a value"))).collect();
    rows
}

fn built(rows: &Rows, now: &Arc<AtomicU64>) -> Policies {
    Policies::builder().clock(support::clock_at(now)).build(rows).expect("a table")
}

/// Asserts that two tables decide alike about the same requests.
async fn assert_alike(one: &Policies, other: &Policies, now: &AtomicU64) {
    let call = request("GET", "/x", &["host: a.example", "content-length: 1500", "x-cost: 1"]);
    for step in [0, 0, 0, 100_000, 0, 300_000, 900_000, 0, 0, 0, 1_400_000, 0, 50_000, 7_000_000] {
        now.fetch_add(step, Relaxed);
        for _ in 0..2 {
            let told = async |policies| {
                let decision = decide(policies, &call).await;
                let left = (decision.remaining(), decision.reset_after());
                (decision.outcome(), left, decision.shadowed().map(|own| own.unwrap()))
            };
            assert_eq!(told(one).await, told(other).await);
        }
    }
}

#[tokio::test]
async fn a_row_read_again_decides_alike() {
    for setting in SETTINGS {
        if setting.contains("redisson") && cfg!(not(feature = "redisson")) {
            continue;
        }
        let now = Arc::new(AtomicU64::new(1_767_225_600_000_000));
        let period = if setting.contains("concurrency") { "" } else { "period = '1s'\n" };
        let row = format!("[[policy]]\nname = 'a'\nlimit = 2\n{period}{setting}");
        let one = built(&rows(&row), &now);
        let other = built(&again(&one), &now);
        assert_eq!(again(&other), again(&one), "{setting}");
        if !setting.contains("enabled = false") {
            assert_alike(&one, &other, &now).await;
        }
    }
    let now = Arc::new(AtomicU64::new(1_767_225_600_000_000));
    let one = built(&rows("[[interface]]\nname = 'x'\nrate = 3\ncache = 0.8\nstatus = 1"), &now);
    let other = built(&again(&one), &now);
    assert_alike(&one, &other, &now).await;
}
