//! The number of connections that the limit of open files allows, and `MAX_CONNECTIONS`.

use std::thread::available_parallelism;
use std::{cmp, fs};

/// The most connections of the admin port, which are kept free for it.
pub const ADMIN: usize = 32;
/// Listening sockets, Redis, the policy file, and connections that are just accepted or refused: as
/// many at least, and these for the process and for each worker.
const OTHERS: usize = 32;
const OF_PROCESS: usize = 16;
const OF_WORKER: usize = 8;
/// The number of open files that makes one more worker worth its own.
const FOR_WORKER: usize = 64;
/// The most connections of callers where `MAX_CONNECTIONS` does not say.
const DEFAULT_MAX: usize = 10_000;
/// The limit where the system does not say.
const USUAL: usize = 1_024;

/// Returns the number of threads that serve callers: one for each core, where there are files for
/// them.
pub fn workers() -> usize {
    let cores = available_parallelism().map_or(1, usize::from);
    cores.min(limit() / FOR_WORKER).max(1)
}

/// Returns the most connections that callers may have beside `others`, where each needs so many
/// files.
pub fn most_connections(others: usize, of_caller: usize) -> usize {
    let others = others + cmp::max(OTHERS, OF_PROCESS + workers() * OF_WORKER);
    (limit().saturating_sub(others) / of_caller).max(1)
}

/// Returns the most connections of callers: as `MAX_CONNECTIONS` says, which may be `most`.
///
/// # Errors
///
/// A text that names the variable.
pub fn max_connections(set: Option<usize>, most: usize) -> Result<usize, String> {
    let known = format!("from 1 to {most}, which the limit of open files allows");
    match set {
        None => Ok(most.min(DEFAULT_MAX)),
        Some(set) if (1..=most).contains(&set) => Ok(set),
        Some(set) => Err(format!("MAX_CONNECTIONS is {set}, and must be {known}")),
    }
}

/// The most files that the process may have open.
pub fn limit() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    soft_limit(&limits).unwrap_or(USUAL)
}

/// The soft limit of open files, from Linux' table of limits.
fn soft_limit(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(usize::MAX >> 8),
        limit => limit.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_the_first_number() {
        let table = |limit: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units\n\
                 Max processes             7823                 7823                 processes\n\
                 Max open files            {limit:<20} 1048576              files\n"
            )
        };
        assert_eq!(soft_limit(&table("128")), Some(128));
        assert!(soft_limit(&table("unlimited")).unwrap() > DEFAULT_MAX);
        assert_eq!(soft_limit(""), None);
    }
}
