//! Reads the states of keys, by `GET` and `ZRANGE` alone.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;
use tower_sluice::crates::redis::cmd;
use tower_sluice::redis::{StoredKey, StoredState};
use tower_sluice::{Error, ErrorKind, Pool};

use crate::rights::Stop;
use crate::rules::Rules;
use crate::scan::{TIMEOUT, ask};

/// The keys that are read at a time.
const AT_A_TIME: usize = 64;

/// The instant for which states are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now: Duration,
    /// Why the time is that of this machine.
    pub(crate) is_local: bool,
}

impl Clock {
    /// Asks a server for its time. If it refuses, the time is that of this machine.
    pub(crate) async fn of(pool: &Pool) -> Result<Self, Stop> {
        let tag = pool.client().first_tags().first().copied().unwrap_or_default();
        match ask::<(u64, u64)>(pool, cmd("TIME"), &format!("{{{tag}}}")).await {
            Ok((seconds, micros)) => {
                let now = Duration::from_secs(seconds) + Duration::from_micros(micros);
                Ok(Self { now, is_local: false })
            }
            Err(stop) if stop.may_end() => Err(stop),
            Err(_) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Ok(Self { now, is_local: true })
            }
        }
    }
}

/// A key with its state.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) key: StoredKey,
    pub(crate) state: Result<StoredState, Error>,
}

impl Row {
    /// Returns true unless nothing is stored.
    pub(crate) fn is_stored(&self) -> bool {
        self.state.as_ref().map_or(true, StoredState::is_stored)
    }

    pub(crate) fn known(&self) -> Option<&StoredState> {
        self.state.as_ref().ok()
    }

    /// The units that are left, and the most that can be.
    pub(crate) fn left(&self) -> Option<(u64, u64)> {
        self.known().map(|state| (state.remaining(), state.burst()))
    }

    /// Returns true if the key is blocked or paused.
    pub(crate) fn is_stopped(&self) -> bool {
        let stopped = |state: &StoredState| state.blocked_for().or(state.paused_for());
        self.known().and_then(stopped).is_some()
    }

    pub(crate) fn is_full(&self) -> bool {
        !self.is_stopped() && self.left().is_some_and(|(left, most)| left >= most)
    }

    /// Returns true if a charge of one unit would be refused.
    pub(crate) fn is_empty(&self) -> bool {
        self.known().is_some_and(|state| state.retry_after() != Some(Duration::ZERO))
    }

    /// The order of `top`: values that are not states, blocked and paused keys, least left, longest
    /// wait.
    pub(crate) fn order(&self) -> impl Ord + use<> {
        let state = self.known();
        let share = self.left().map(|(left, most)| left.saturating_mul(1_000_000) / most.max(1));
        let wait = state.map(|state| state.retry_after().unwrap_or(Duration::MAX));
        (share, !self.is_stopped(), Reverse(wait), Reverse(state.map(StoredState::reset_after)))
    }

    /// An error if the value is not a state.
    pub(crate) fn result(&self) -> Result<(), Stop> {
        self.state.as_ref().map(drop).map_err(|error| Stop::of(error.clone()))
    }
}

/// Reads keys. A value that is not a state is the error of its row; any other error ends it.
pub(crate) async fn all(
    pool: &Pool,
    rules: &Rules,
    keys: &[StoredKey],
    clock: &Clock,
) -> Result<Vec<Row>, Stop> {
    let mut rows = Vec::with_capacity(keys.len());
    for some in keys.chunks(AT_A_TIME) {
        let mut reads = JoinSet::new();
        for key in some {
            let (pool, key, now) = (pool.clone(), key.clone(), clock.now);
            let algorithm = rules.algorithm(key.limiter())?;
            reads.spawn(async move {
                let state = key.read(&pool, algorithm, now, TIMEOUT).await;
                Row { key, state }
            });
        }
        for row in reads.join_all().await {
            match &row.state {
                Err(error) if !is_of_row(error) => return Err(Stop::of(error.clone())),
                _ => rows.push(row),
            }
        }
    }
    Ok(rows)
}

/// Returns true if an error is about one key alone.
fn is_of_row(error: &Error) -> bool {
    error.kind() == ErrorKind::State || error.to_string().starts_with("the key is of")
}
