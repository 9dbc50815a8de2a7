//! Many pure steps of one algorithm, for `instructions.sh` to count:
//! `steps <algorithm> <steps>`.

use std::hint::black_box;

use support::algorithms::{Visit, each_algorithm};
use tower_sluice::Quota;
use tower_sluice::algorithm::{Check, InLua};

/// Runs the algorithm of this name.
struct Run {
    name: String,
    steps: i64,
    found: bool,
}

fn main() {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with("--"));
    let (Some(name), Some(steps)) = (words.next(), words.next()) else { return };
    let steps = steps.parse().expect("a number of steps");
    let mut run = Run { name, steps, found: false };
    each_algorithm(Quota::per_second(1_000), &mut run);
    assert!(run.found, "no algorithm is called {}", run.name);
}

impl Visit for Run {
    /// Charges one key again and again: admitted, reserved and refused in turn.
    fn visit<A: InLua>(&mut self, algorithm: A) {
        if A::NAME != self.name {
            return;
        }
        self.found = true;
        let rule = algorithm.rule(algorithm.quota()).expect("a quota that it follows");
        let mut state = None;
        for step in 0..self.steps {
            let now = 1_767_225_600_000_000 + step * 900;
            let check = Check::new(1, step % 3 * 500);
            black_box(A::step(black_box(&rule), &mut state, now, check));
        }
    }
}
