//! Looks at limits in Redis, and changes them key by key. `README.md` shows it at work.
//!
//! `options.rs` reads the command line, and `rules.rs` finds the algorithm of each limiter.
//! `scan.rs` finds keys, `read.rs` reads their states, and `show.rs` prints them. `rights.rs` turns
//! a refusal of the server into a sentence. The commands are here.

mod options;
mod read;
mod rights;
mod rules;
mod scan;
mod show;

use std::collections::{BTreeMap, HashMap};
use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fs};

use tokio::time::sleep;
use tower_sluice::redis::StoredKey;
use tower_sluice::{LimiterExt, Pool};

use options::{Change, Command, Connect, Listing, Named, Options, Top, Watch};
use read::{Clock, Row};
use rights::Stop;
use rules::Rules;
use scan::{Bounds, Found, TIMEOUT, scan};
use show::Show;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    command::ended("limits", run(command::parse(None)).await.or_else(Stop::ends))
}

async fn run(options: Options) -> Result<(), Stop> {
    let pool = connect(&options.connect).await?;
    let show = Show { json: options.connect.json };
    match options.command {
        Command::Ls(listing) => ls(&pool, show, &listing).await,
        Command::Top(options) => top(&pool, show, &options).await,
        Command::Peek(named) => peek(&pool, show, &named).await,
        Command::Watch(options) => watch(&pool, show, &options).await,
        Command::Reset(change) => reset(&pool, show, &change).await,
        Command::Block { change, time } => block(&pool, show, &change, time).await,
        Command::Pause { change, time } => pause(&pool, show, &change, time).await,
        Command::Unblock(change) => unblock(&pool, show, &change).await,
        Command::Grant { change, units } => grant(&pool, show, &change, units).await,
    }
}

/// Connects to the server, and to each master of a cluster. It runs no script.
async fn connect(options: &Connect) -> Result<Pool, Stop> {
    let url = &options.redis;
    let invalid = |error| Stop::Asked(format!("the address: {error:#}"));
    let mut builder = Pool::builder(url).map_err(invalid)?;
    if url.starts_with("rediss") || url.starts_with("valkeys") {
        // TLS needs a crypto provider, which an application chooses.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if let Some(path) = env::var_os("REDIS_CA") {
            let pem = fs::read(path).map_err(|error| Stop::Asked(format!("REDIS_CA: {error}")))?;
            builder = builder.root_certificate(pem);
        }
    }
    let pool = builder.build().map_err(invalid)?;
    let pool = match &options.prefix {
        Some(prefix) => pool.prefix(prefix.as_str()),
        None => pool,
    };
    pool.client().ready().await.map_err(|error| Stop::of(tower_sluice::Error::from(error)))?;
    Ok(pool)
}

/// Lists limiters, or the keys of one.
async fn ls(pool: &Pool, show: Show, options: &Listing) -> Result<(), Stop> {
    let limiter = options.limiter.as_deref();
    let bounds = Bounds { most: options.most.unwrap_or(100_000), time: options.time };
    let Some(name) = limiter else {
        let found = scan(pool, None, bounds).await?;
        let mut counts = BTreeMap::new();
        for key in &found.keys {
            *counts.entry((key.limiter(), key.algorithm(), key.quota())).or_insert(0_u64) += 1;
        }
        return show.limiters(&counts, &found);
    };
    let rules = Rules::of(pool, &options.rule, limiter)?;
    let found = scan(pool, limiter, bounds).await?;
    let found = of_quota(found, options.quota);
    if !rules.knows(name) {
        return show.keys(&found);
    }
    let clock = Clock::of(pool).await?;
    let mut rows = read::all(pool, &rules, &found.keys, &clock).await?;
    rows.sort_by(|a, b| a.key.name().cmp(b.key.name()));
    show.rows(&rows, &[], &found, &clock)
}

/// Leaves the keys of one quota.
fn of_quota(found: Found, quota: Option<usize>) -> Found {
    let place = quota.map(|number| number.saturating_sub(1));
    let (keys, others): (Vec<_>, Vec<_>) =
        found.keys.into_iter().partition(|key| key.quota() == place);
    Found { keys, of_other_quotas: others.len(), ..found }
}

/// Shows the keys with the least left, again and again.
async fn top(pool: &Pool, show: Show, options: &Top) -> Result<(), Stop> {
    let listing = &options.listing;
    let limiter = listing.limiter.as_deref();
    let rules = Rules::of(pool, &listing.rule, limiter)?;
    let bounds = Bounds { most: listing.most.unwrap_or(10_000), time: listing.time };
    let on_screen = stdout().is_terminal() && !show.json;
    let rounds = options.rounds.unwrap_or(if on_screen { u64::MAX } else { 1 });
    let mut empty: HashMap<String, u64> = HashMap::new();
    for round in 1..=rounds {
        let begun = Instant::now();
        let found = of_quota(scan(pool, limiter, bounds).await?, listing.quota);
        let known: Vec<_> =
            found.keys.iter().filter(|key| rules.knows(key.limiter())).cloned().collect();
        let clock = Clock::of(pool).await?;
        let mut rows = read::all(pool, &rules, &known, &clock).await?;
        rows.retain(|row| !row.is_full());
        for row in rows.iter().filter(|row| row.is_empty()) {
            *empty.entry(row.key.name().to_owned()).or_default() += 1;
        }
        rows.sort_by_cached_key(|row| {
            let often = empty.get(row.key.name()).copied().unwrap_or(0);
            (row.order(), std::cmp::Reverse(often), row.key.name().to_owned())
        });
        rows.truncate(options.rows);
        let often: Vec<_> = rows
            .iter()
            .map(|row| (empty.get(row.key.name()).copied().unwrap_or(0), round))
            .collect();
        if on_screen {
            show.clear()?;
        }
        show.head(&clock, known.len(), begun.elapsed())?;
        show.rows(&rows, &often, &found, &clock)?;
        if round < rounds {
            sleep(options.interval).await;
        }
    }
    Ok(())
}

/// Reads one key.
async fn one(pool: &Pool, rules: &Rules, key: &StoredKey) -> Result<(Row, Clock), Stop> {
    let clock = Clock::of(pool).await?;
    let mut rows = read::all(pool, rules, std::slice::from_ref(key), &clock).await?;
    Ok((rows.remove(0), clock))
}

async fn peek(pool: &Pool, show: Show, named: &Named) -> Result<(), Stop> {
    let rules = Rules::of(pool, &named.rule, Some(&named.limiter))?;
    let (row, clock) = one(pool, &rules, &rules.stored_key(pool, named)?).await?;
    show.row(&row, &clock)?;
    row.result()
}

/// Follows a key, and prints a line for each change.
async fn watch(pool: &Pool, show: Show, options: &Watch) -> Result<(), Stop> {
    let rules = Rules::of(pool, &options.named.rule, Some(&options.named.limiter))?;
    let key = rules.stored_key(pool, &options.named)?;
    let mut last = None;
    for round in 1..=options.rounds.unwrap_or(u64::MAX) {
        let now = match one(pool, &rules, &key).await {
            Ok((row, clock)) => show.change(&row, &clock, &mut last),
            // A server may be away for a while.
            Err(stop) if stop.may_end() => show.trouble(&stop, &mut last),
            Err(stop) => Err(stop),
        };
        now?;
        if options.rounds != Some(round) {
            sleep(options.interval).await;
        }
    }
    Ok(())
}

/// Reads the key that a command will change, and stops a trial run.
async fn before(
    pool: &Pool,
    show: Show,
    change: &Change,
    rules: &Rules,
    what: &str,
) -> Result<Option<Row>, Stop> {
    let key = rules.stored_key(pool, &change.named)?;
    let (row, _) = one(pool, rules, &key).await?;
    if change.dry_run {
        show.done(&format!("would {what}"), &row)?;
        return Ok(None);
    }
    Ok(Some(row))
}

/// The limiter of a change, and the key of its charge.
macro_rules! operate {
    ($pool:ident, $show:ident, $change:ident, $what:expr, $did:expr, $exists:expr, |$limiter:ident, $key:ident| $do:expr) => {{
        let rules = Rules::of($pool, &$change.named.rule, Some(&$change.named.limiter))?;
        let ($limiter, $key) = rules.limiter($pool, &$change.named)?;
        let Some(row) = before($pool, $show, $change, &rules, $what).await? else { return Ok(()) };
        if $exists && !row.is_stored() {
            return Err(Stop::Nothing(row.key.name().to_owned()));
        }
        let $limiter = $limiter.decision_timeout(TIMEOUT);
        $do.await.map_err(Stop::of)?;
        let (after, _) = one($pool, &rules, &row.key).await?;
        $show.done($did, &after)
    }};
}

async fn reset(pool: &Pool, show: Show, change: &Change) -> Result<(), Stop> {
    operate!(pool, show, change, "reset", "reset", true, |limiter, key| limiter.reset(key))
}

async fn block(pool: &Pool, show: Show, change: &Change, time: Duration) -> Result<(), Stop> {
    operate!(pool, show, change, "block", "blocked", false, |limiter, key| limiter.block(key, time))
}

async fn pause(pool: &Pool, show: Show, change: &Change, time: Duration) -> Result<(), Stop> {
    operate!(pool, show, change, "pause", "paused", false, |limiter, key| limiter.pause(key, time))
}

async fn unblock(pool: &Pool, show: Show, change: &Change) -> Result<(), Stop> {
    operate!(pool, show, change, "unblock", "unblocked", true, |limiter, key| limiter.unblock(key))
}

async fn grant(pool: &Pool, show: Show, change: &Change, units: u64) -> Result<(), Stop> {
    operate!(pool, show, change, "grant to", "granted to", true, |limiter, key| {
        limiter.grant(key, units)
    })
}
