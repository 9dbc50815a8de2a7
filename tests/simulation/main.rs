//! Simulated servers: real scripts in the real interpreter, without sockets, and with a clock that
//! the test owns.
//!
//! `server.rs` is what a world holds; `commands.rs` lists what a server understands.

#![cfg(feature = "redis")]
#![allow(unreachable_pub, reason = "the modules are private to this test")]

mod book;
mod commands;
mod compared;
mod keyspace;
mod lua;
mod packing;
mod promises;
mod resp;
mod server;
mod session_commands;
mod slots;
mod sorted_set;
#[path = "../support/mod.rs"]
mod support;
