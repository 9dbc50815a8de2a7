//! A key of one policy is blocked, and the others of a request take nothing of what it refuses.

use super::{
    over_redis::{PATIENT, over},
    rows,
};

use super::*;

const TABLE: &str = "{ name = 'all', algorithm = 'fixed_window', limit = 10, period = '300h' },
     { name = 'user', limit = 10, period = '300h', key = 'header:x-user' },";

/// Blocks and unblocks a user; `slack` is for a clock that runs meanwhile.
async fn blocks(policies: &Policies, slack: Duration) {
    let call = request("GET", "/", &["x-user: mallory"]);
    let user = policies.get("user").expect("a policy");
    assert!(decide(policies, &call).await.is_admitted());
    user.block(&["mallory"], HOUR).await.expect("blocked");
    for _ in 0..2 {
        let refused = decide(policies, &call).await;
        let Outcome::Deny { retry_after: Some(wait) } = refused.outcome() else {
            panic!("{refused:?}");
        };
        assert!(wait <= HOUR && wait + slack >= HOUR, "{wait:?}");
    }
    assert!(!user.peek(&["mallory"]).await.expect("a decision").is_admitted());
    assert!(decide(policies, &request("GET", "/", &["x-user: alice"])).await.is_admitted());
    // In a shadow it refuses nothing.
    user.switch().set(SwitchMode::Shadow);
    assert!(decide(policies, &call).await.is_admitted());
    user.switch().set(SwitchMode::On);
    assert_eq!(user.unblock(&["mallory"]).await.expect("unblocked").remaining(), Some(9));
    let left = decide(policies, &call).await;
    let left: Vec<_> = left.policies().map(|policy| policy.remaining()).collect();
    assert_eq!(left, [Some(6), Some(8)]);
}

#[tokio::test(start_paused = true)]
async fn a_policy_blocks_a_key_in_memory() {
    blocks(&policies(TABLE), Duration::ZERO).await;
}

#[tokio::test]
async fn a_policy_blocks_a_key_in_redis() {
    let server = support::Server::start();
    blocks(&over(&server).build(&rows(TABLE)).expect("a table"), PATIENT).await;
}

/// The share holds one key at most, and a blocked key stays.
#[tokio::test]
async fn a_full_local_share_keeps_no_block_from_the_store() {
    let server = support::Server::start();
    let table = "[[policy]]\nname = 'user'\nlimit = 10\nperiod = '1h'\nkey = 'header:x-user'
        on_error = { local = 2 }";
    let policies = over(&server).max_keys(1).build(&rows(table)).unwrap();
    let user = policies.get("user").unwrap();
    user.block(&["alice"], HOUR).await.unwrap();
    let error = user.block(&["bob"], HOUR).await.unwrap_err();
    assert_eq!(error.kind(), tower_sluice::ErrorKind::Capacity);
    for name in ["alice", "bob"] {
        let call = request("GET", "/", &[&format!("x-user: {name}")]);
        assert!(!decide(&policies, &call).await.is_admitted(), "{name}");
    }
}
