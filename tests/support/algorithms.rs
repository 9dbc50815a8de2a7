//! Every algorithm once: the list for tests and benchmarks that run all of them.
//!
//! A new algorithm is added here, and they all run it.

use std::time::Duration;

use tower_sluice::Quota;
use tower_sluice::algorithm::{
    Budget, Concurrency, FixedWindow, InLua, SlidingCounter, SlidingLog, SlidingWindow,
    SmoothBursty, SmoothWarmingUp, TokenBucket,
};

/// Does something with each algorithm.
pub trait Visit {
    fn visit<A: InLua>(&mut self, algorithm: A);
}

/// Runs a block for each algorithm that the support file for scripts has, in an async test.
#[macro_export]
macro_rules! for_each_script {
    (|$algorithm:ident| $block:block) => {
        $crate::for_each_script!(@ $algorithm $block: TOKEN_BUCKET, BUDGET, CONCURRENCY,
            FIXED_WINDOW, SLIDING_LOG, SLIDING_WINDOW, SLIDING_COUNTER, SMOOTH_BURSTY, SMOOTH_WARMING_UP);
    };
    (@ $algorithm:ident $block:block: $($each:ident),+) => {
        $({ let $algorithm = $crate::script::$each; $block })+
    };
}

/// Shows every algorithm under a quota, which has no burst, to a visitor.
pub fn each_algorithm(quota: Quota, visitor: &mut impl Visit) {
    visitor.visit(TokenBucket::new(quota));
    visitor.visit(Budget::new(quota));
    visitor.visit(Concurrency::of(quota));
    visitor.visit(FixedWindow::new(quota));
    visitor.visit(SlidingLog::new(quota));
    visitor.visit(SlidingWindow::new(quota));
    visitor.visit(SlidingCounter::new(quota));
    visitor.visit(SmoothBursty::new(quota));
    visitor.visit(SmoothWarmingUp::new(quota, Duration::from_secs(1)));
}

/// The names of all algorithms.
pub fn names() -> Vec<&'static str> {
    struct Names(Vec<&'static str>);
    impl Visit for Names {
        fn visit<A: InLua>(&mut self, _algorithm: A) {
            self.0.push(A::NAME);
        }
    }
    let mut names = Names(Vec::new());
    each_algorithm(Quota::per_second(5), &mut names);
    names.0
}
