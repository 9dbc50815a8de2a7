//! So many pure steps of one algorithm, for `instructions.sh` to count:
//! `steps <algorithm> <steps>`.

use std::hint::black_box;
use std::time::Duration;

use tower_sluice::Quota;
use tower_sluice::algorithm::{
    Check, FixedWindow, InLua, SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty,
    SmoothWarmingUp, TokenBucket,
};

fn main() {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with("--"));
    let (Some(name), Some(steps)) = (words.next(), words.next()) else { return };
    let steps = steps.parse().expect("a number of steps");
    let quota = Quota::per_second(1_000);
    match name.as_str() {
        TokenBucket::NAME => run(&TokenBucket::new(quota), steps),
        FixedWindow::NAME => run(&FixedWindow::new(quota), steps),
        SlidingWindow::NAME => run(&SlidingWindow::new(quota), steps),
        SlidingCounter::NAME => run(&SlidingCounter::new(quota), steps),
        SlidingLog::NAME => run(&SlidingLog::new(quota), steps),
        SmoothBursty::NAME => run(&SmoothBursty::new(quota), steps),
        SmoothWarmingUp::NAME => {
            run(&SmoothWarmingUp::new(quota, Duration::from_secs(1)), steps);
        }
        _ => panic!("no algorithm is called {name}"),
    }
}

/// Charges one key again and again: admitted, reserved and refused in turn.
fn run<A: InLua>(algorithm: &A, steps: i64) {
    let rule = algorithm.rule(algorithm.quota()).expect("a quota that it follows");
    let mut state = None;
    for step in 0..steps {
        let now = 1_767_225_600_000_000 + step * 900;
        let check = Check { cost: 1, max_wait: step % 3 * 500 };
        black_box(A::step(black_box(&rule), &mut state, now, check));
    }
}
