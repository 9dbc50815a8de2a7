//! Connections to Redis, and what servers answer over them. Nothing here knows a charge or a script:
//! a caller sends commands, and reads the replies.

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
