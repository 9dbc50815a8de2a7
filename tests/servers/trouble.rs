//! Ways to wait for trouble and its end, and to look into a server meanwhile.

use std::future::Future;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::task::yield_now;
use tokio::time::sleep;

/// The deadline of one call.
pub const D: Duration = Duration::from_millis(50);
/// The time that may be added to it.
pub const SLACK: Duration = Duration::from_secs(2);
/// The time within which things must be well again, however slow the machine is.
pub const LONG: Duration = Duration::from_secs(30);

/// Awaits `call`, which must end by `limit`. A process that was paused finds all its timers expired
/// at once, so the call then gets a few turns more.
pub async fn in_time<F: Future>(limit: Duration, call: F) -> F::Output {
    let late = async {
        sleep(limit).await;
        for _ in 0..100 {
            yield_now().await;
        }
    };
    tokio::select! {
        biased;
        answer = call => answer,
        () = late => panic!("no answer in {limit:?}"),
    }
}

pub async fn run(connection: &mut MultiplexedConnection, words: &[&str]) {
    redis::cmd(words[0]).arg(&words[1..]).exec_async(connection).await.expect("a reply");
}

/// Ends all connections of others but those of replicas.
pub async fn cut(connection: &mut MultiplexedConnection) {
    run(connection, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
}

/// The numbers of the other clients that the server has. Its replicas are none.
pub async fn others(connection: &mut MultiplexedConnection) -> Vec<u64> {
    let own: u64 = redis::cmd("CLIENT").arg("ID").query_async(connection).await.expect("a number");
    let mut ask = redis::cmd("CLIENT");
    ask.arg("LIST").arg("TYPE").arg("normal");
    let list: String = ask.query_async(connection).await.expect("a list");
    let id = |line: &str| line.strip_prefix("id=")?.split(' ').next()?.parse::<u64>().ok();
    list.lines().filter_map(id).filter(|id| *id != own).collect()
}

/// One of the server's own statistics.
pub async fn figure(connection: &mut MultiplexedConnection, name: &str) -> u64 {
    let stats: String =
        redis::cmd("INFO").arg("stats").query_async(connection).await.expect("statistics");
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.expect("known").parse().expect("a number")
}

/// The size of a test that a command of its own makes larger.
pub fn size(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect(variable))
}

/// Connections that clients made to the server so far, this test's own included.
pub const RECEIVED: &str = "total_connections_received";
