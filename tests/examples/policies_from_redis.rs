//! The example that reads its table from a Redis hash, as a user runs it.

use std::process::Command;

use support::faults::{eventually, run};
use support::http::get;
use support::process::Process;
use support::{Server, example, until};

/// A row whose window begins with its first request.
fn hourly(limit: u32) -> String {
    let window = r#""algorithm": "fixed_window", "anchored": true, "period": "1h""#;
    format!(r#"{{{window}, "limit": {limit}, "key": "header:x-user"}}"#)
}

#[tokio::test]
async fn nothing_is_served_without_a_table_and_a_deleted_one_stays_in_force() {
    let server = Server::with(&[]);
    let mut connection = server.connection().await;
    let mut row = async |row: &str| {
        run(&mut connection, &["HSET", "policies", "api", row]).await;
    };
    let mut command = Command::new(example::built("policies_from_redis"));
    command.env("LISTEN", "127.0.0.1:0").env("REDIS_URL", server.url());
    let example = Process::start(&mut command).expect("a process");
    // It has written these words so often.
    let wrote = |text: &str, times| {
        until(text, || example.stderr().matches(text).count() >= times);
    };
    wrote("there is no hash policies", 1);
    row(&hourly(3)).await;
    wrote("1 policies", 1);
    let line = example.says("://").expect("a line");
    let address = line.trim().rsplit('/').next().unwrap().parse().expect("an address");
    // A busy machine may miss the deadline of a decision, so it asks again.
    let ask = async || {
        let mut status = 503;
        eventually("a decision", async || {
            status = get(address, "/", &[("x-user", "alice")]).await.status;
            status != 503
        })
        .await;
        status
    };
    for status in [200, 200, 200, 429] {
        assert_eq!(ask().await, status);
    }

    row(r#"{"limit": 3, "period": "0s"}"#).await;
    wrote("the period is 0", 1);
    assert_eq!(ask().await, 429);
    row(&hourly(4)).await;
    // One more unit.
    eventually("the new limit", async || ask().await == 200).await;
    assert_eq!(ask().await, 429);

    run(&mut connection, &["DEL", "policies"]).await;
    wrote("there is no hash policies", 2);
    assert_eq!(ask().await, 429);
}
