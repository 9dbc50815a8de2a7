//! Connections to Redis, and the errors of its servers. The code here builds no charges: its
//! callers send commands and scripts, and read the replies.
//!
//! - `pool.rs`: the pool that limiters share. It hides which of the sources below implements the
//!   traits in `connection.rs`. `builder.rs` makes it from the address that `address.rs` reads.
//!   `one_server.rs` notices several servers behind one address.
//! - `own_pool.rs`: the crate's own connections, to one `server.rs`, or to the primary that
//!   `sentinel/` finds. `backoff.rs` computes the pauses between attempts to connect, and
//!   `connection.rs` checks if a connection is usable.
//! - `socket.rs` opens a connection, over a socket of `wire.rs`. `dialer.rs` holds functions of the
//!   application: they find the server's IP address, or open the socket. `tls.rs` sets up TLS, and
//!   `probe.rs` checks if the server expects it. `greeting.rs` asks a server for its kind and its
//!   role.
//! - `cluster/`: one such pool for each server of a cluster, chosen by hash slots. Single commands
//!   follow redirects over a connection of `redirected.rs`.
//! - `bb8_pool.rs`: a pool that the application owns. `given_connection.rs`: one connection that
//!   the application made.
//! - `script.rs` has a script's text and digest, and runs it by one of them.
//! - `times.rs`: every duration, with its reason.
//! - `error_reply.rs` finds the kind of an error reply. `fault.rs` decides if the server or this
//!   process caused a missing answer.

mod address;
mod backoff;
#[cfg(feature = "bb8")]
mod bb8_pool;
mod builder;
mod cluster;
mod connection;
mod dialer;
pub(crate) mod error_reply;
pub(crate) mod fault;
mod given_connection;
mod greeting;
mod one_server;
mod own_pool;
mod pool;
mod probe;
mod redirected;
mod script;
mod sentinel;
mod server;
#[cfg(test)]
mod silent;
#[cfg(test)]
mod simulated;
mod socket;
pub(crate) mod times;
#[cfg_attr(not(feature = "rustls"), path = "no_tls.rs")]
mod tls;
mod wire;

#[cfg(any(test, fuzzing))]
pub(crate) use self::address::Address;
pub(crate) use self::address::Host;
pub use self::builder::PoolBuilder;
pub(crate) use self::cluster::Cluster;
pub(crate) use self::cluster::redirect::{Next, ask, cannot_serve, next_reply, reply_after_asking};
pub(crate) use self::cluster::slot_map::{HASH_SLOTS, Partition, hash_slot};
pub(crate) use self::connection::SharedConnection;
#[cfg(test)]
pub(crate) use self::connection::{ConnectionFuture, Connections, RepliesFuture, ReplyFuture};
pub use self::pool::Pool;
pub(crate) use self::script::{Script, eval};
#[cfg(test)]
pub(crate) use self::silent::Silent;
