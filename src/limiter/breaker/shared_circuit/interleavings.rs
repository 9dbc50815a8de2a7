//! All interleavings of calls that end while a breaker opens and closes.

use super::*;
use crate::core::sync::interleavings::{each, thread};

/// Makes a breaker that opens after one failure, and admits a probe at once.
fn breaker() -> Arc<SharedCircuit> {
    let settings = Settings { min_failures: 1, pause: Duration::ZERO, ..Settings::DEFAULT };
    Arc::new(SharedCircuit::new(settings, None))
}

fn call(breaker: &SharedCircuit, outcome: Ending) {
    if let Ok(permit) = breaker.admit() {
        breaker.end(permit, outcome, None);
    }
}

#[test]
fn the_period_that_callers_read_is_the_circuits() {
    each("breaker", || {
        let breaker = breaker();
        let others = [Ending::Failed, Ending::Answered].map(|outcome| {
            let breaker = Arc::clone(&breaker);
            thread::spawn(move || call(&breaker, outcome))
        });
        call(&breaker, Ending::Failed);
        others.into_iter().for_each(|other| other.join().unwrap());
        let period = lock(&breaker.guarded).circuit.closed_period();
        assert_eq!(breaker.closed_period.load(Relaxed), period.unwrap_or(0));
    });
}

/// A permit of a period that has passed changes nothing.
#[test]
fn a_late_end_neither_opens_nor_closes() {
    each("breaker_late_end", || {
        let breaker = breaker();
        let late = breaker.admit().expect("closed");
        let other = {
            let breaker = Arc::clone(&breaker);
            thread::spawn(move || breaker.end(late, Ending::Failed, None))
        };
        call(&breaker, Ending::Failed);
        other.join().unwrap();
        assert_eq!(breaker.counts().opened, 1, "the second failure is one of a past period");
        assert_eq!(breaker.closed_period.load(Relaxed), 0);
    });
}
