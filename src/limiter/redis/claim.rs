//! Lets a charge with several keys be decided while its slot moves to another server.
//!
//! The server that a slot moves to runs no script on several keys unless it has all of them, and
//! the one that it leaves runs none unless it still has all. New keys are on neither. So each key
//! that neither has is made where a new key belongs, with a content that stands for no state. That
//! is a write of one key, which the cluster redirects as any other. Then the script runs as soon as
//! the other keys have moved.

use std::sync::Arc;

use redis::{Cmd, cmd};

use super::cluster::Cluster;
use super::cluster::redirect::{Next, ask};
use super::config::Config;
use super::request::key_suffixes;

/// How long a key without state is kept, in ms.
const KEPT_MS: u32 = 1_000;

/// Makes a key unless it is there; `none` is what `scripts/` read as no state.
const TEXT: &str = "return redis.call('SET', KEYS[1], 'none', 'PX', ARGV[1], 'NX')";

/// The same, of a sorted set. Its one member has a total that no charge leaves.
const LOG: &str = "if redis.call('ZCARD', KEYS[1]) == 0 then \
    redis.call('ZADD', KEYS[1], 0, '00000000000000000000:1') \
    redis.call('PEXPIRE', KEYS[1], ARGV[1]) end";

/// Makes those keys of a request that no server has. A failure shows when the request is sent.
pub(super) async fn claim(config: &Config, cluster: &Arc<Cluster>, hash_slot: u16, keys: &str) {
    let quotas = config.key_prefixes.len();
    if quotas == 1 {
        return;
    }
    let Ok(connection) = cluster.connection_for(hash_slot).await else { return };
    let suffixes = key_suffixes(keys, quotas).collect::<Vec<_>>();
    let commands = config.key_prefixes.iter().zip(&config.keeps_text).enumerate();
    let commands = commands.map(|(index, (prefix, keeps_text))| {
        let suffix = suffixes.get(index).or(suffixes.last()).copied().unwrap_or_default();
        let mut command = cmd("EVAL");
        command.arg(if *keeps_text { TEXT } else { LOG }).arg(1);
        command.arg(format!("{prefix}{suffix}")).arg(KEPT_MS).take()
    });
    for command in commands.collect::<Vec<Cmd>>() {
        let Ok(reply) = connection.send(command.clone()).await else { return };
        let redirect = reply.extract_error().err();
        let next = redirect.and_then(|error| Next::of(&error, connection.address()));
        if let Some(Next::Ask(host)) = next
            && let Ok(target) = cluster.connection_to(&host, hash_slot).await
        {
            let _ = ask(&*target, command).await;
        }
    }
}
