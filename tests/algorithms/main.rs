//! The algorithms in Lua and in Rust: they answer alike, and keep their bounds.

mod clocks;
#[cfg(feature = "redis")]
mod composition;
mod every_history;
#[cfg(feature = "redis")]
mod scripts;
#[cfg(feature = "redis")]
mod states;
#[cfg(feature = "redis")]
mod twins;
