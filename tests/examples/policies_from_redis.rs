//! The example that reads its table from a Redis hash, as a user runs it.

use std::io::{BufRead, BufReader, Lines};
use std::process::{ChildStderr, Command, Stdio};

use crate::running::Running;
use support::faults::{eventually, run};
use support::http::get;
use support::{Server, example};

/// The running example, and its words.
struct Example {
    running: Running,
    said: Lines<BufReader<ChildStderr>>,
}

impl Example {
    fn start(server: &Server) -> Self {
        let mut command = Command::new(example::built("policies_from_redis"));
        command.env("REDIS_URL", server.url()).stderr(Stdio::piped());
        let mut running = Running::start(command);
        let said = BufReader::new(running.0.stderr.take().expect("its words")).lines();
        Self { running, said }
    }

    /// Reads what it says until a line contains `text`.
    fn until(&mut self, text: &str) {
        assert!(self.said.any(|line| line.expect("a line").contains(text)), "{text}");
    }
}

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
    let mut example = Example::start(&server);
    example.until("there is no hash policies");
    row(&hourly(3)).await;
    example.until("1 policies");
    let address = example.running.address();
    let ask = async || get(address, "/", &[("x-user", "alice")]).await.status;
    for status in [200, 200, 200, 429] {
        assert_eq!(ask().await, status);
    }

    row(r#"{"limit": 0, "period": "1h"}"#).await;
    example.until("a quota of 0 admits nothing");
    assert_eq!(ask().await, 429);
    row(&hourly(4)).await;
    // One more unit.
    eventually("the new limit", async || ask().await == 200).await;
    assert_eq!(ask().await, 429);

    run(&mut connection, &["DEL", "policies"]).await;
    example.until("there is no hash policies");
    assert_eq!(ask().await, 429);
}
