//! Two routes over Redis: a tenant stores more than its quota, and reads the refusal.

use std::process::Command;

use support::faults::eventually;
use support::http::{get, send};
use support::process::Process;
use support::{Server, example};

#[tokio::test]
async fn the_axum_example_refuses_a_tenant_in_json() {
    let server = Server::start();
    let mut command = Command::new(example::built("axum"));
    command.env("LISTEN", "127.0.0.1:0").env("REDIS_URL", server.url());
    let (_running, [address]) = Process::listening(&mut command).expect("it starts");
    // A thousand MiB, as many as the units of a day.
    let large = [("x-tenant", "a"), ("content-length", "1048576000")];
    let mut refused = send("POST", address, "/upload", &large).await;
    // One is stored. A busy machine may miss the deadline of a decision, so it asks again.
    eventually("a refusal", async || {
        refused = send("POST", address, "/upload", &large).await;
        refused.status == 429
    })
    .await;
    assert_eq!(refused.header("content-type"), Some("application/json"));
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert!(refused.body.contains("retry_after_ms"), "{refused:?}");
    // The other route has a quota of its own, and a request without a tenant has no key.
    eventually("a search", async || {
        get(address, "/search", &[("x-tenant", "a")]).await.body == "found\n"
    })
    .await;
    assert_eq!(get(address, "/search", &[]).await.status, 400);
}
