//! How many connections the limit of open files allows.

use std::fs;

/// The most connections of the admin port, which are kept free for it.
pub(crate) const ADMIN: usize = 32;
/// Listening sockets, Redis, the policy file, and connections that are just accepted or refused.
const OTHERS: usize = 32;
/// The most connections of callers where `MAX_CONNECTIONS` does not say.
pub(crate) const DEFAULT_MAX: usize = 10_000;
/// The limit where the system does not say.
const USUAL: usize = 1_024;

/// How many connections callers may have. With an upstream each may need one more there.
pub(crate) fn max_connections(has_upstream: bool) -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let room = soft_limit(&limits).unwrap_or(USUAL).saturating_sub(ADMIN + OTHERS);
    (if has_upstream { room / 2 } else { room }).max(1)
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
