//! `benches/lean.lua`, the script of the yardstick, as a competitor would send it.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bb8_redis::RedisConnectionManager;
use bb8_redis::bb8::Pool;
use redis::Cmd;
use redis::aio::{ConnectionLike, MultiplexedConnection};

use super::Peer;
use crate::cost::{Cost, processor};
use crate::site::{KEYS, Site, Slot};

/// One unit per second and key. So a key has seldom expired when it is asked for again, and it
/// cannot run out of units during a run.
const UNIT: u64 = 1_000_000;
const BURST: u64 = 65_535;

/// Units taken from each key before anything is timed, so that it does not expire for an hour.
const FIRST: u64 = 3_600;

/// One EVALSHA for each decision, all on one shared connection.
pub(super) fn evalsha(site: &Site, name: &'static str) -> Peer {
    let (digest, connection) = prepare(site, site.database());
    Peer::new(name, move |key| call(&connection, evalsha_of(&digest, &key, UNIT, BURST, 1)))
}

/// The same for one key, with a million units per second.
pub(super) fn evalsha_hot(site: &Site, name: &'static str) -> Peer {
    let (digest, connection) = prepare(site, site.database());
    Peer::hot(name, move |_| call(&connection, evalsha_of(&digest, "hot", 1, 1_000_000, 1)))
}

/// `redis-benchmark` with a pipeline as deep as there are tasks.
pub(super) fn redis_benchmark(site: &Site, name: &'static str) -> Peer {
    let database = site.database();
    let (digest, _) = prepare(site, database);
    let rate = AtomicU64::new(20_000);
    let ask = move |site: &Site, slot: Slot| {
        let calls = (rate.load(Relaxed) as f64 * slot.length.as_secs_f64()) as u64;
        // A part of a pipeline at the end makes redis-benchmark give up now and then.
        let calls = calls.max(1_000).next_multiple_of(slot.tasks as u64);
        let cost = benchmark(site, slot.tasks, calls, database, &digest);
        rate.store(cost.per_second as u64, Relaxed);
        cost
    };
    Peer { name, ask: Box::new(ask) }
}

/// A pool of bb8 with its defaults: a connection belongs to one decision, after a PING.
pub(super) fn bb8(site: &Site, name: &'static str) -> Peer {
    let database = site.database();
    let (digest, _) = prepare(site, database);
    let manager = RedisConnectionManager::new(site.url(database)).expect("an address");
    let pool = site.runtime.block_on(Pool::builder().build(manager)).expect("a pool");
    Peer::new(name, move |key| {
        let (pool, command) = (pool.clone(), evalsha_of(&digest, &key, UNIT, BURST, 1));
        async move {
            let Ok(mut connection) = pool.get().await else { return false };
            admits(&command, &mut *connection).await
        }
    })
}

/// Loads the script and makes the keys. Returns the script's digest and a connection.
fn prepare(site: &Site, database: u16) -> (Arc<str>, MultiplexedConnection) {
    site.runtime.block_on(async {
        let mut connection = site.connection(database).await;
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(include_str!("../../../lean.lua"));
        let digest: String = load.query_async(&mut connection).await.expect("a digest");
        for keys in site.keys.chunks(1_000) {
            let mut calls = redis::pipe();
            for key in keys {
                calls.add_command(evalsha_of(&digest, key, UNIT, BURST, FIRST)).ignore();
            }
            calls.exec_async(&mut connection).await.expect("keys");
        }
        (digest.into(), connection)
    })
}

fn evalsha_of(digest: &str, key: &str, unit: u64, burst: u64, cost: u64) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(digest).arg(1).arg(format!("lean:{key}")).arg(&[unit, burst, cost]);
    command
}

fn call(
    connection: &MultiplexedConnection,
    command: Cmd,
) -> impl Future<Output = bool> + Send + use<> {
    let mut connection = connection.clone();
    async move { admits(&command, &mut connection).await }
}

async fn admits(command: &Cmd, connection: &mut (impl ConnectionLike + Send)) -> bool {
    let reply: Result<(i64, i64, i64), _> = command.query_async(connection).await;
    reply.is_ok_and(|(admitted, _, _)| admitted == 1)
}

fn benchmark(site: &Site, depth: usize, calls: u64, database: u16, digest: &str) -> Cost {
    let before = processor(site.server);
    let output = Command::new("redis-benchmark")
        .args(["-h", "127.0.0.1", "-p", &site.port.to_string(), "-c", "1", "--csv"])
        .args(["--dbnum", &database.to_string(), "-P", &depth.to_string()])
        .args(["-n", &calls.to_string(), "-r", &KEYS.to_string(), "EVALSHA", digest, "1"])
        .args(["lean:__rand_int__", &UNIT.to_string(), &BURST.to_string(), "1"])
        .output()
        .expect("redis-benchmark, which comes with redis-server");
    let spent = processor(site.server) - before;
    let text = String::from_utf8_lossy(&output.stdout);
    // The name of the test is the command, commas and all. The last seven fields are numbers. A
    // warning may stand before or after that line.
    let numbers = |line: &str| -> Option<Vec<f64>> {
        let fields = line.rsplit(',').take(7).map(|field| field.trim_matches('"').parse().ok());
        fields.collect::<Option<Vec<_>>>().filter(|fields| fields.len() == 7)
    };
    let fields = text.lines().rev().find_map(numbers);
    let fields = fields.unwrap_or_else(|| {
        panic!("{}: no numbers: {text}{}", output.status, String::from_utf8_lossy(&output.stderr))
    });
    let [_max, _p99, _p95, p50, _min, _mean, per_second] = fields[..] else { unreachable!() };
    Cost {
        per_second,
        p50_us: p50 * 1e3,
        server_us: spent.as_secs_f64() * 1e6 / calls as f64,
        ..Cost::default()
    }
}
