//! Finds keys with `SCAN`, in small steps and within a bound, on every master of a cluster.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use tower_sluice::crates::redis::{FromRedisValue, cmd, from_redis_value};
use tower_sluice::redis::StoredKey;
use tower_sluice::{Error, ErrorKind, Pool};

use crate::rights::Stop;

/// The longest time of each command.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// The keys of the server that one step looks at. A step takes well below a millisecond.
const STEP: usize = 100;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) most: usize,
    pub(crate) time: Duration,
}

/// The keys that were found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) keys: Vec<StoredKey>,
    /// Keys with the same begin that no limiter writes.
    pub(crate) foreign: usize,
    /// Keys of a quota that was not asked for.
    pub(crate) of_other_quotas: usize,
    /// The bound that ended the search. `None`: it is complete.
    pub(crate) ended_by: Option<&'static str>,
    /// The keys on all servers, of limiters and others, if the user may ask.
    pub(crate) on_servers: Option<u64>,
}

/// Finds the keys of a limiter, or of all.
pub(crate) async fn scan(
    pool: &Pool,
    limiter: Option<&str>,
    bounds: Bounds,
) -> Result<Found, Stop> {
    let (mut found, mut seen) = (Found::default(), HashSet::new());
    let pattern = StoredKey::pattern(pool, limiter);
    let begun = Instant::now();
    'search: for tag in pool.client().first_tags() {
        // Any key with this hash tag leads to the server.
        let server = format!("{{{tag}}}");
        let mut cursor = String::from("0");
        loop {
            // Only one more key shows that there are more.
            if seen.len() > bounds.most {
                found.ended_by = Some("--most");
                break 'search;
            }
            if begun.elapsed() >= bounds.time {
                found.ended_by = Some("--time");
                break 'search;
            }
            let mut command = cmd("SCAN");
            command.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(STEP);
            let (next, names): (String, Vec<Vec<u8>>) = ask(pool, command, &server).await?;
            // `SCAN` may return a key twice.
            for name in names.into_iter().filter(|name| seen.insert(name.clone())) {
                let key = str::from_utf8(&name).ok().and_then(|name| StoredKey::parse(pool, name));
                match key {
                    Some(key) if limiter.is_none_or(|own| key.limiter() == own) => {
                        found.keys.push(key);
                    }
                    _ => found.foreign += 1,
                }
            }
            if next == "0" {
                break;
            }
            cursor = next;
        }
    }
    if seen.len() > bounds.most {
        found.ended_by.get_or_insert("--most");
    }
    found.keys.truncate(bounds.most);
    if found.ended_by.is_some() {
        let mut all = Some(0);
        for tag in pool.client().first_tags() {
            let size: Result<u64, _> = ask(pool, cmd("DBSIZE"), &format!("{{{tag}}}")).await;
            all = all.zip(size.ok()).map(|(all, size)| all + size);
        }
        found.on_servers = all;
    }
    Ok(found)
}

/// Sends a command to the server that has `key`.
pub(crate) async fn ask<T: FromRedisValue>(
    pool: &Pool,
    command: tower_sluice::crates::redis::Cmd,
    key: &str,
) -> Result<T, Stop> {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    let reply = pool.client().send(command, key, deadline).await;
    let reply = reply.map_err(|failure| {
        Stop::of(Error::from(tower_sluice::crates::redis_once::Error::from(failure)))
    })?;
    from_redis_value(reply).map_err(|error| {
        let unread = "redis answered with another type";
        Stop::of(Error::new(ErrorKind::State, unread).with_source(error))
    })
}
