//! Helpers that the tests share: the built gateway as a process, a client, and upstreams, all over
//! real sockets on free ports of the loopback.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test binary uses a part")]

pub mod client;
pub mod gateway;
pub mod grpc;
pub mod upstream;

pub use client::{Answer, get, request};
pub use gateway::Gateway;

use std::sync::atomic::{AtomicBool, Ordering};

/// The token that tests set.
pub const TOKEN: &str = "secret";

/// A policy file that limits nothing, and says that this is no mistake.
pub const NO_POLICIES: &str = "allow_empty = true\n";

/// Sets a flag at the end of a scope, however it ends.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
