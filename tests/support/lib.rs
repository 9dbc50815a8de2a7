//! What the tests share, and the benches with them: the real servers of `tests/servers/`, faults,
//! scripts, services, and the trial of an algorithm.

#![doc(test(attr(deny(unused_imports))))]

pub mod algorithms;
pub mod dice;
pub mod example;
#[cfg(feature = "redis")]
pub mod faults;
pub mod forwarded;
pub mod retry_after;
// Its blocks need what the tests need, and the guide has no dependencies.
#[cfg(doctest)]
#[path = "../../docs/guide/lib.rs"]
pub mod guide;
pub mod http;
pub mod installed;
#[cfg(feature = "redis")]
pub mod script;
pub mod served;
pub mod strict;
#[cfg(feature = "policies")]
pub mod swaps;
pub mod trial;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub use servers::*;

/// A clock of a limiter that reads the microseconds which a test sets.
pub fn clock_at(micros: &Arc<AtomicU64>) -> impl Fn() -> Duration + Send + Sync + use<> {
    let micros = Arc::clone(micros);
    move || Duration::from_micros(micros.load(Relaxed))
}

/// Fails if a secret key can be read in what `value` prints: it begins with `sk_live`.
pub fn hides(value: &dyn std::fmt::Debug) {
    let printed = format!("{value:?} {value:#?}");
    assert!(!printed.contains("sk_live"), "{printed}");
}
