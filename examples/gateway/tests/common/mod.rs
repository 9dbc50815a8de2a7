//! Helpers that the tests share: the built gateway as a process, a client, upstreams and Redis, all
//! over real sockets on free ports of the loopback.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test binary uses a part")]

pub mod client;
pub mod gateway;
pub mod grpc;
pub mod redis;
pub mod upstream;

pub use client::{Answer, get, request};
pub use gateway::Gateway;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The token that tests set.
pub const TOKEN: &str = "secret";

/// A policy file that limits nothing, and says that this is no mistake.
pub const NO_POLICIES: &str = "allow_empty = true\n";

/// Longer than anything takes that is not promised to be quick, on a busy machine too.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of the test's own, empty.
pub fn folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("gateway-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Waits until `happened`, and fails with `what` if it never does.
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sets a flag at the end of a scope, however it ends.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
