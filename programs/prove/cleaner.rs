//! Resets all keys that were used: by the limiters that made them, since that needs no further
//! rights. With the right to list keys, it then deletes them.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tower_sluice::limiter::Boxed;
use tower_sluice::{Charge, Error, LimiterExt};

use support::trial::algorithms::Judged;

use crate::check::{Proof, obstacle};
use crate::table::Row;

type Reset = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Deletes one key of a limiter.
type Resets = Box<dyn Fn(&str) -> Reset + Send + Sync>;

/// The keys that have to be deleted.
#[derive(Default)]
pub(crate) struct Cleaner {
    owed: Mutex<Vec<(Resets, Vec<String>)>>,
}

impl Cleaner {
    /// Notes keys of a limiter, before they are used.
    pub(crate) fn owe(&self, limiter: Boxed, keys: Vec<String>) {
        let reset = move |key: &str| -> Reset {
            let reset = limiter.reset(Charge::new(key.to_owned()));
            Box::pin(async move { reset.await.map(drop) })
        };
        self.push(Box::new(reset), keys);
    }

    /// The same for a limiter of the oracle.
    pub(crate) fn owe_judged(
        &self,
        limiter: &Arc<dyn Judged>,
        keys: impl IntoIterator<Item = u32>,
    ) {
        let limiter = Arc::clone(limiter);
        let reset = move |key: &str| -> Reset { limiter.delete(&Charge::new(key.to_owned())) };
        self.push(Box::new(reset), keys.into_iter().map(|key| key.to_string()).collect());
    }

    fn push(&self, reset: Resets, keys: Vec<String>) {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner).push((reset, keys));
    }
}

/// Resets that are under way at once.
const AT_ONCE: usize = 256;

/// Times that a key is deleted, where the network fails.
const ROUNDS: usize = 5;

/// Resets the keys, and deletes them.
pub(crate) async fn clean(proof: &Proof) -> Row {
    // Refunds of callers that have left are still on their way.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let owed =
        std::mem::take(&mut *proof.cleaner.owed.lock().unwrap_or_else(PoisonError::into_inner));
    let mut todo: Vec<_> =
        owed.iter().flat_map(|(reset, keys)| keys.iter().map(move |key| (reset, key))).collect();
    let count = todo.len();
    let mut failed: Vec<Error> = Vec::new();
    for _ in 0..ROUNDS {
        failed.clear();
        let mut again = Vec::new();
        for some in todo.chunks(AT_ONCE) {
            let mut resets = JoinSet::new();
            for (place, (reset, key)) in some.iter().enumerate() {
                let reset = reset(key);
                resets.spawn(async move { (place, reset.await) });
            }
            for (place, done) in resets.join_all().await {
                // What could not be checked could not be written either.
                if let Err(error) = done
                    && obstacle(&error).is_none()
                {
                    again.push(some[place]);
                    failed.push(error);
                }
            }
        }
        todo = again;
    }
    let mut errors: Vec<_> = failed.iter().map(|error| format!("{error:#}")).collect();
    let done = format!("{count} keys of {}", proof.prefix);
    let name = "cleaned up";
    let Ok(connections) = &proof.connections else {
        return Row::judged(name, done, &errors);
    };
    match connections.names(&proof.prefix).await {
        Ok(left) => {
            let deleted = connections.unlink(&left).await;
            errors.extend(deleted.err());
            Row::judged(name, format!("{done}, none is left"), &errors)
        }
        Err(why) => {
            Row::judged(name, format!("{done}, which stay empty for ten minutes: {why}"), &errors)
        }
    }
}
