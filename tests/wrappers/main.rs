//! Limiters that wrap another one.

mod breaker;
mod deny_cache;
#[path = "../support/dice.rs"]
mod dice;
mod lease;
mod shadow;
#[cfg(feature = "redis")]
#[path = "../support/mod.rs"]
mod support;
mod switch;
