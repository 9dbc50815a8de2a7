//! Compares what Redis holds and has counted with what the models say (S4).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};
use tokio::runtime;

use super::algorithms::SECOND;
use super::model::Model;
use crate::{Server, stats};

/// Returns what is not as it must be on a server that nobody else uses: each key's state, no more
/// script runs than `calls`, and as many writes as `changes` says: none for a refusal or a peek
/// (S5).
pub fn faults(
    server: &Server,
    models: &BTreeMap<u32, Box<dyn Model>>,
    calls: usize,
    changes: RangeInclusive<usize>,
) -> Vec<String> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut connection = server.connection().await;
        let mut faults = Vec::new();
        let (runs, writes) = counted(&mut connection).await;
        if runs > calls {
            faults.push(format!("{calls} calls, but {runs} scripts ran"));
        }
        if !changes.contains(&writes) {
            faults.push(format!("{changes:?} changes, but {writes} writes"));
        }
        let names: Vec<String> =
            cmd("KEYS").arg("*").query_async(&mut connection).await.expect("names of keys");
        let wrong = wrong_states(&mut connection, names, models).await;
        faults.extend(wrong.expect("a server that answers"));
        faults
    })
}

/// Returns which of the keys called `names` do not hold what their models say, and which of the
/// models has no key although its state counts.
///
/// # Errors
///
/// If the server does not answer.
pub async fn wrong_states(
    connection: &mut MultiplexedConnection,
    names: Vec<String>,
    models: &BTreeMap<u32, Box<dyn Model>>,
) -> RedisResult<Vec<String>> {
    let mut faults = Vec::new();
    let held = held(connection, names).await?;
    let now = time(connection).await?;
    for (key, model) in models {
        let right = match held.get(key) {
            Some(text) => model.is_stored_as(text),
            None => model.reset_after(now) == 0,
        };
        if !right {
            let model: String = format!("{model:?}").chars().take(500).collect();
            faults.push(format!("key {key} holds {:?} for {model}", held.get(key)));
        }
    }
    faults.extend(
        held.keys()
            .filter(|key| !models.contains_key(key))
            .map(|key| format!("key {key} was never asked for")),
    );
    Ok(faults)
}

/// The scripts that ran to their end, and the values that they wrote.
pub async fn counted(connection: &mut MultiplexedConnection) -> (usize, usize) {
    let all = stats::all(connection).await;
    let of = |command: &str| all.get(command).copied().unwrap_or_default();
    let scripts: u64 = ["eval", "evalsha"].map(of).map(|of| of.calls - of.failed).iter().sum();
    let [set, incrby, zadd, unlink] =
        ["set", "incrby", "zadd", "unlink"].map(of).map(|of| of.calls);
    // Before a log begins again, a ZADD that adds nothing asks for memory.
    let writes = set + incrby + zadd.saturating_sub(unlink);
    (scripts as usize, writes as usize)
}

/// The value of each key, by the key's own name: what stands between the braces, after a prefix, or
/// behind a bucket.
async fn held(
    connection: &mut MultiplexedConnection,
    mut names: Vec<String>,
) -> RedisResult<BTreeMap<u32, String>> {
    // A configuration is no state.
    names.retain(|name| name.contains('{'));
    names.sort();
    let mut held = BTreeMap::new();
    for name in names {
        let mut parts = name.split(['{', '}']).skip(1).map(|part| part.rsplit(':').next());
        let mut number = || parts.next().flatten().and_then(|key| key.parse::<u32>().ok());
        let (in_braces, behind) = (number(), number());
        let key = behind.or(in_braces);
        if let Some(value) = value(connection, &name).await? {
            let key: u32 = key.expect("a number in braces");
            let held: &mut String = held.entry(key % SECOND).or_default();
            held.push_str(if held.is_empty() { "" } else { " & " });
            held.push_str(&value);
        }
    }
    Ok(held)
}

/// The value of a key, if it is still there: a text, or the members of a sorted set,
/// each with its score.
pub async fn value(
    connection: &mut MultiplexedConnection,
    name: &str,
) -> RedisResult<Option<String>> {
    let kind: String = cmd("TYPE").arg(name).query_async(connection).await?;
    if kind == "hash" {
        let fields: Vec<String> = cmd("HGETALL").arg(name).query_async(connection).await?;
        return Ok(Some(fields.join(" ")));
    }
    if kind != "zset" {
        return cmd("GET").arg(name).query_async(connection).await;
    }
    let mut range = cmd("ZRANGE");
    range.arg(name).arg(0).arg(-1).arg("WITHSCORES");
    let pairs: Vec<(Vec<u8>, String)> = range.query_async(connection).await?;
    // Those of Redisson are no text.
    let text = |member: Vec<u8>| match name.ends_with(":permits") {
        true => member.iter().map(|byte| format!("{byte:02x}")).collect(),
        false => String::from_utf8(member).expect("text"),
    };
    let members: Vec<_> =
        pairs.into_iter().map(|(member, score)| format!("{}@{score}", text(member))).collect();
    Ok((!members.is_empty()).then(|| members.join(" ")))
}

/// The server's clock, in µs.
async fn time(connection: &mut MultiplexedConnection) -> RedisResult<i128> {
    let (seconds, micros): (i128, i128) = cmd("TIME").query_async(connection).await?;
    Ok(seconds * 1_000_000 + micros)
}
