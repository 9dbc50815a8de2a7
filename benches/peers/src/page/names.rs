//! The names of the peers on the page, and what it says of each.

pub(super) struct Name {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    /// The package in `Cargo.lock`.
    pub(super) package: Option<&'static str>,
    pub(super) how: &'static str,
}

/// The row of this crate that stands beside the others: most of them are layers too.
pub(super) const OWN: &str = "sluice_layer";

/// The rows of this crate.
pub(super) fn is_own(name: &str) -> bool {
    name.starts_with("sluice")
}

pub(super) const OVER_REDIS: &[Name] = &[
    name(
        "evalsha",
        "one EVALSHA each",
        Some("redis"),
        "the yardstick: `benches/lean.lua` once for each decision, on one shared connection",
    ),
    name(
        "redis_benchmark",
        "redis-benchmark",
        None,
        "the same script, one connection, a pipeline as deep as there are tasks",
    ),
    name("evalsha_hot", "one EVALSHA each, one key", Some("redis"), "the yardstick on one hot key"),
    name(OWN, "tower-sluice", Some("tower-sluice"), "token bucket in its layer"),
    name(
        "sluice_token_bucket",
        "tower-sluice, no layer",
        Some("tower-sluice"),
        "token bucket, the limiter alone; one unit per second and key",
    ),
    name(
        "sluice_slow_quota",
        "tower-sluice, slow quota",
        Some("tower-sluice"),
        "the limiter alone; one unit per hour and key, so that each decision sets an expiry",
    ),
    name(
        "sluice_fixed_window",
        "tower-sluice, fixed window",
        Some("tower-sluice"),
        "the limiter alone",
    ),
    name(
        "sluice_hot",
        "tower-sluice, one key",
        Some("tower-sluice"),
        "token bucket, the limiter alone, one hot key",
    ),
    name(
        "sluice_lease",
        "tower-sluice, leases",
        Some("tower-sluice"),
        "one hot key, up to 100 units of which are leased in a call: `.lease(100)`",
    ),
    name(
        "sluice_deny_cache",
        "tower-sluice, refused key",
        Some("tower-sluice"),
        "one refused key, whose refusals the process repeats: `.deny_cache()`",
    ),
    name(
        "tower_redis_cell",
        "tower-redis-cell",
        Some("tower-redis-cell"),
        "GCRA in a native module of the server; its layer, one shared connection",
    ),
    name(
        "tower_rate_limit_redis",
        "tower-rate-limit-redis",
        Some("tower-rate-limit-redis"),
        "GCRA in a script; its layer, one shared connection",
    ),
    name(
        "tower_rate_limit_fred",
        "tower-rate-limit-fred",
        Some("tower-rate-limit-fred"),
        "GCRA in a script; its layer, one client of Fred",
    ),
    name(
        "tower_rate_limiter",
        "tower-rate-limiter",
        Some("tower-rate-limiter"),
        "GCRA in a script; its layer, one shared connection; it also writes `RateLimit` headers",
    ),
    name(
        "limitador",
        "limitador",
        Some("limitador"),
        "fixed window, the limiter alone with its Redis storage, which takes two calls for each decision",
    ),
    name(
        "bb8",
        "bb8 pool",
        Some("bb8-redis"),
        "`benches/lean.lua` over a pool with its defaults: ten connections, a PING before each decision",
    ),
    name(
        "actix_limitation",
        "actix-limitation",
        Some("actix-limitation"),
        "fixed window, the limiter alone, which opens a connection for each decision",
    ),
];

pub(super) const IN_PROCESS: &[Name] = &[
    name(
        "service",
        "a service alone",
        None,
        "makes a request with a key in a header, and the response",
    ),
    name(
        "sluice_layer",
        "tower-sluice",
        Some("tower-sluice"),
        "`Memory`, token bucket, in its layer",
    ),
    name(
        "tower_governor",
        "tower_governor",
        Some("tower_governor"),
        "its layer, keyed by `String`",
    ),
    name("sluice_memory", "`Memory`", Some("tower-sluice"), "token bucket, the limiter alone"),
    name(
        "sluice_memory_window",
        "`Memory`, fixed window",
        Some("tower-sluice"),
        "the limiter alone",
    ),
    name("governor", "governor", Some("governor"), "the limiter alone, keyed by `String`"),
];

const fn name(
    name: &'static str,
    label: &'static str,
    package: Option<&'static str>,
    how: &'static str,
) -> Name {
    Name { name, label, package, how }
}

/// A package's version in `Cargo.lock`. Of two the last one.
pub(super) fn version(package: &str) -> Option<&'static str> {
    let lock = include_str!("../../Cargo.lock");
    let (_, rest) = lock.rsplit_once(&format!("name = \"{package}\"\nversion = \""))?;
    Some(rest.split_once('"')?.0)
}
