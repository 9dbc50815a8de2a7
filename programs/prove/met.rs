//! The server that was met: its kind and version, its settings if it tells them, and its clock.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::Value;
use redis::aio::MultiplexedConnection;

use crate::access::{Access, Connections, Form, ask};
use crate::check::Shared;
use crate::table::Row;

pub(crate) struct Met {
    /// What is printed of it.
    pub(crate) text: String,
    /// The shortest time of a call and its answer.
    pub(crate) round_trip: Duration,
}

/// Asks the servers for what they are.
pub(crate) async fn meet(access: &Access, connections: &Result<Connections, String>) -> Met {
    let form = match access.form {
        Form::Server => "one server",
        Form::Cluster => "a cluster",
        Form::Sentinels => "a primary that sentinels name",
        Form::Socket => "one server over a Unix socket",
    };
    let tls = if access.uses_tls { "with TLS" } else { "without TLS" };
    let mut text = format!("{form}, {tls}");
    let mut round_trip = Duration::MAX;
    match connections {
        Ok(connections) => {
            if access.form == Form::Cluster {
                text += &format!(", {} masters", connections.nodes.len());
            }
            for node in &connections.nodes {
                let mut connection = node.connection.clone();
                text += &format!("\n{}", kind(&mut connection).await);
                for _ in 0..20 {
                    let begun = Instant::now();
                    if ask::<Value>(&mut connection, &["TIME"]).await.is_ok() {
                        round_trip = round_trip.min(begun.elapsed());
                    }
                }
            }
        }
        Err(why) => text += &format!("\nunknown kind: no connection beside the crate's: {why}"),
    }
    if round_trip == Duration::MAX {
        round_trip = Duration::from_millis(1);
    } else {
        text += &format!("\nround trip: {} us", round_trip.as_micros());
    }
    Met { text, round_trip }
}

/// The kind and version of a server, and the settings that matter to limits.
async fn kind(connection: &mut MultiplexedConnection) -> String {
    let hello: Result<HashMap<String, Value>, _> = ask(connection, &["HELLO"]).await;
    let hello = hello.unwrap_or_default();
    let field = |name: &str| {
        let value = hello.get(name).cloned();
        value.and_then(|value| redis::from_redis_value::<String>(value).ok())
    };
    let mut name = field("server").unwrap_or_else(|| String::from("a server without HELLO"));
    let mut version = field("version").unwrap_or_default();
    let mut more = Vec::new();
    match ask::<String>(connection, &["INFO"]).await {
        Ok(info) => {
            let line = |name: &str| {
                let found = info.lines().find_map(|line| line.strip_prefix(name));
                found.and_then(|rest| rest.strip_prefix(':')).map(str::to_owned)
            };
            // Some answer HELLO as if they were Redis.
            for other in ["dragonfly", "valkey", "keydb", "garnet"] {
                if let Some(own) = line(&format!("{other}_version")) {
                    (name, version) = (other.to_owned(), own);
                }
            }
            if line("executable").is_some_and(|path| path.contains("keydb")) {
                name = String::from("keydb");
            }
            let settings =
                ["maxmemory_policy", "maxmemory_human", "aof_enabled", "connected_slaves"];
            more.extend(settings.iter().filter_map(|name| Some(format!("{name} {}", line(name)?))));
        }
        Err(why) => more.push(format!("its settings are unknown: {why}")),
    }
    let roles = ["mode", "role"].iter().filter_map(|name| Some(format!("{name} {}", field(name)?)));
    let parts: Vec<String> = roles.chain(more).collect();
    format!("{name} {version}: {}", parts.join(", "))
}

/// Readings of a server's clock.
const READINGS: usize = 200;

/// Checks that the clock of each server runs forward, and reports how far it is from ours.
pub(crate) async fn time(proof: &Shared) {
    let name = "clock runs forward";
    let Ok(connections) = &proof.connections else {
        return proof.add(Row::not_checked(name, "no connection beside the crate's"));
    };
    let (mut faults, mut distances) = (Vec::new(), Vec::new());
    for node in &connections.nodes {
        let mut connection = node.connection.clone();
        let (mut last, mut least, mut most) = (0, i128::MIN, i128::MAX);
        for _ in 0..READINGS {
            let sent = micros();
            let (seconds, micro): (i128, i128) = match ask(&mut connection, &["TIME"]).await {
                Ok(time) => time,
                Err(why) => return proof.add(Row::not_checked(name, why)),
            };
            let (now, received) = (seconds * 1_000_000 + micro, micros());
            if now < last {
                faults.push(format!("it went back by {} us", last - now));
            }
            last = now;
            (least, most) = (least.max(now - received), most.min(now - sent));
        }
        distances.push(format!("{} us", i128::midpoint(least, most)));
    }
    let done = format!("{READINGS} readings, ahead of ours by {}", distances.join(", "));
    proof.add(Row::judged(name, done, &faults));
}

fn micros() -> i128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros().cast_signed()
}
