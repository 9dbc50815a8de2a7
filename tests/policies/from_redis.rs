//! The example that reads its table from a Redis hash, as a user runs it.

use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};

use super::support::faults::{eventually, run};
use super::support::http::get;
use super::support::{Server, example};

/// The running example, ended when it is dropped.
struct Example {
    child: Child,
    said: Lines<BufReader<ChildStderr>>,
}

impl Example {
    fn start(server: &Server) -> Self {
        let mut command = Command::new(example::built("policies_from_redis"));
        command.env("REDIS_URL", server.url()).env("LISTEN", "127.0.0.1:0");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the example is built");
        let said = BufReader::new(child.stderr.take().expect("its words")).lines();
        Self { child, said }
    }

    /// Reads what it says until a line contains `text`.
    fn until(&mut self, text: &str) {
        assert!(self.said.any(|line| line.expect("a line").contains(text)), "{text}");
    }

    /// Returns the address at which it listens, once it does.
    fn address(&mut self) -> SocketAddr {
        let out = BufReader::new(self.child.stdout.take().expect("its output"));
        let line = out.lines().next().expect("a line").expect("a text");
        line.rsplit('/').next().expect("an address").parse().expect("an address")
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
    let address = example.address();
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
