//! Every algorithm once: the list for tests and benchmarks that run all of them.
//!
//! A new algorithm is added here, and they all run it.

use std::time::Duration;

use tower_sluice::Quota;
use tower_sluice::algorithm::{
    FixedWindow, InLua, SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp,
    TokenBucket,
};

/// What is done with each algorithm.
pub trait Visit {
    fn visit<A: InLua>(&mut self, algorithm: A);
}

/// Shows every algorithm under a quota, which has no burst, to a visitor.
pub fn each_algorithm(quota: Quota, visitor: &mut impl Visit) {
    visitor.visit(TokenBucket::new(quota));
    visitor.visit(FixedWindow::new(quota));
    visitor.visit(SlidingLog::new(quota));
    visitor.visit(SlidingWindow::new(quota));
    visitor.visit(SlidingCounter::new(quota));
    visitor.visit(SmoothBursty::new(quota));
    visitor.visit(SmoothWarmingUp::new(quota, Duration::from_secs(1)));
}
