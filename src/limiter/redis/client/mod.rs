//! Connections to Redis, and what servers answer over them. Nothing here knows a charge or a script:
//! who calls sends commands, and reads the replies.
//!
//! - `pool.rs`: what limiters share. It hides which of the sources below implements the traits in
//!   `connection.rs`. `builder.rs` makes it, from what `address.rs` reads.
//! - `own_pool.rs`: connections of the crate's own, to one `server.rs`, or to the primary that
//!   `sentinel/` names. `backoff.rs` says when to connect again, and `health.rs` whether a
//!   connection is usable.
//! - `dialer.rs` finds the server's IP address, or opens the socket, by the application's own
//!   function. `tls.rs` sets up TLS, and `probe.rs` finds out whether the server expects it. It
//!   says in its `greeting.rs` what it is.
//! - `cluster/`: such a pool for each server of a cluster, by the hash slots of `slot.rs`.
//! - `bb8_pool.rs`: a pool of the application's own. `given_connection.rs`: one connection.
//! - `error.rs` finds the kind of an error, and `liveness.rs` tells a silent server from a busy
//!   process.

mod address;
mod backoff;
mod bb8_pool;
mod builder;
mod cluster;
mod connection;
mod dialer;
pub(crate) mod error;
mod given_connection;
mod greeting;
mod health;
mod liveness;
mod own_pool;
mod pool;
mod probe;
mod sentinel;
mod server;
#[cfg(test)]
mod silent;
mod slot;
#[cfg_attr(not(feature = "rustls"), path = "no_tls.rs")]
mod tls;

#[cfg(any(test, fuzzing))]
pub(crate) use self::address::Address;
pub(crate) use self::address::Host;
pub use self::builder::PoolBuilder;
pub(crate) use self::cluster::Cluster;
pub(crate) use self::cluster::redirect::{Next, ask, cannot_serve, next_reply, reply_after_asking};
pub(crate) use self::connection::SharedConnection;
#[cfg(test)]
pub(crate) use self::connection::{
    ConnectionFuture, Connections, MAX_CONNECTION_WAIT, RepliesFuture, ReplyFuture,
};
#[cfg(test)]
pub(crate) use self::health::BUSY_FACTOR;
pub(crate) use self::health::MAX_SILENCE;
pub use self::pool::Pool;
pub(crate) use self::pool::{MAX_ERROR_AGE, MAX_TIMEOUT};
#[cfg(test)]
pub(crate) use self::silent::Silent;
pub(crate) use self::slot::{HASH_SLOTS, Partition, hash_slot};
