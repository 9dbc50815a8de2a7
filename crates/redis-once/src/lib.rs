#![doc = include_str!("../README.md")]
// - `pool.rs`: the pool that calls share. It hides which of the sources below implements the traits
//   in `connection.rs`. `builder.rs` makes it from the address that `address.rs` reads. `send.rs`
//   sends single commands, and scripts of `script.rs`. `resend.rs` sends items, and sends those
//   again that a server did not run.
// - `own_pool.rs`: the crate's own connections, to one `server.rs`, or to the primary that
//   `sentinel/` finds. `backoff.rs` computes the pauses between attempts to connect, and
//   `connection.rs` checks if a connection is usable.
// - `socket.rs` opens a connection, over a socket of `wire.rs`. `dialer.rs` holds functions of the
//   application: they find the server's IP address, or open the socket. `tls.rs` sets up TLS, and
//   `probe.rs` checks if the server expects it. `greeting.rs` asks a server for its kind and its
//   role. `event.rs` tells the application of connections that were made, failed or lost.
// - `cluster/`: one such pool for each server of a cluster, chosen by hash slots.
//
// One server, sentinels, bb8 and a given connection differ only in their `Connections`. A cluster
// is the exception: `Pool` also has `cluster: Option<Arc<Cluster>>`. These branch on it: in
// `pool.rs` `is_routed`, `hash_slot`, `partition`, `connect_partition`, `connection_to`,
// `first_tags`, `keys_apart` and `missed_error`; in `resend.rs` `step`, `exchange` and
// `record_error`. Another topology that routes by key needs an arm in each.
//
// - `bb8_pool.rs`: a pool that the application owns. `given_connection.rs`: one connection that the
//   application made.
// - `error.rs`: the error type. `failure.rs`: the failure of a command, which says if it ran.
//   `error_reply.rs` finds the kind of an error reply, and of a connection that was lost. `fault.rs`
//   decides if the server or this process caused a missing answer; `on_time.rs` checks if this
//   process is on time. `closings.rs` recognizes a server that closes in place of an answer.
//   `times.rs` has every duration, with its reason.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod address;
mod backoff;
#[cfg(feature = "bb8")]
mod bb8_pool;
mod builder;
mod closings;
mod cluster;
mod connection;
mod dialer;
mod error;
mod error_reply;
mod event;
mod failure;
mod fault;
mod given_connection;
mod greeting;
mod hearing;
mod lock;
mod on_time;
mod own_pool;
mod pool;
mod probe;
mod resend;
mod script;
mod send;
mod sentinel;
mod server;
#[cfg(any(test, feature = "testing"))]
mod silent_fake;
#[cfg(test)]
mod simulated;
mod socket;
mod times;
#[cfg_attr(not(feature = "rustls"), path = "no_tls.rs")]
mod tls;
mod wire;

pub use self::builder::PoolBuilder;
pub use self::error::{Cause, Error, ErrorKind};
pub use self::event::Event;
pub use self::failure::{Failure, LateReply};
pub use self::pool::Pool;
pub use self::script::Script;

#[cfg(feature = "bb8")]
pub use ::bb8_redis;
pub use ::redis;

/// The parts of a call, for an application that sends many commands in one write, and decides
/// itself what follows a redirect.
pub mod calls {
    pub use super::address::Host;
    pub use super::cluster::slot_map::{HASH_SLOTS, Partition, hash_slot};
    pub use super::connection::{
        ConnectionFuture, Connections, RepliesFuture, ReplyFuture, SharedConnection,
    };
    pub use super::error_reply::{from_error_reply, is_read_only};
    pub use super::fault::{Deadline, Facts, Progress, Stage};
    pub use super::resend::{Items, Rejected};
    pub use super::times::MAX_SILENCE;
}

/// A server for tests.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    pub use super::silent_fake::SilentFake;
}
