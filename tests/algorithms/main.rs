//! The algorithms in Lua and in Rust: they answer alike, and keep their bounds.

mod clocks;
#[cfg(feature = "redis")]
mod composition;
#[path = "../support/dice.rs"]
mod dice;
#[allow(unreachable_pub, reason = "the modules are private to this test")]
mod every_history;
mod hang_ups;
#[cfg(feature = "redis")]
mod scripts;
#[cfg(feature = "redis")]
mod states;
#[cfg(feature = "redis")]
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "redis")]
mod twins;
