//! Limiters that wrap another one.

mod shadow;
#[cfg(feature = "redis")]
#[path = "../support/mod.rs"]
mod support;
mod switch;
