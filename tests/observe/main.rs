//! What an operator sees of a limiter. Time is paused.

mod fallback_cause;
mod inspect;

use std::time::Duration;

use tower_sluice::Charge;

const SECOND: Duration = Duration::from_secs(1);

fn one() -> Charge {
    Charge::new("key")
}
