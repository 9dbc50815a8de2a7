//! Redisson's limiter: its steps, its object, what it stores, who waits for it, what misbehaves,
//! and its twin.

#![cfg(feature = "redisson")]

mod faults;
mod object;
mod state;
mod steps;
#[path = "../support/mod.rs"]
mod support;
mod twin;
mod waiting;
