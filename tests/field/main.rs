//! The refusals of the field: every command that the crate sends, and everything that servers,
//! managed services and proxies answer to it.
//!
//! `answers.rs` has the answers, and `commands.rs` the commands. `sessions.rs` plays the servers in
//! memory, and `scripts.rs` refuses commands inside the scripts of a real server. `matrix.rs` holds
//! each pair against the rules, and writes `docs/refusals.md`. `behind_proxies.rs` has proxies
//! before real servers.
//!
//! ```sh
//! UPDATE=1 cargo test -p tests --all-features --test field
//! ```

#![cfg(feature = "redisson")]

mod answers;
mod behind_proxies;
mod commands;
mod matrix;
mod scripts;
mod sessions;
