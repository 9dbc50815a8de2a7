//! Which types are algorithms: those of this crate.

use super::{
    FixedWindow, SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp,
    TokenBucket,
};

pub trait Sealed {}

/// An algorithm of one quota, as a tuple's members are.
pub trait Single {}

impl Single for TokenBucket {}
impl Single for FixedWindow {}
impl Single for SlidingLog {}
impl Single for SlidingWindow {}
impl Single for SlidingCounter {}
impl Single for SmoothBursty {}
impl Single for SmoothWarmingUp {}
