//! Re-exports the crates whose types stand in public signatures, in the matching versions.
//!
//! | crate | used by |
//! |---|---|
//! | `redis` | `Pool::from_connection` |
//! | `redis_once` | `Pool::from` |
//! | `bb8`, `bb8_redis` | `Pool::from_bb8` |
//! | `http_body` | [`RateLimitLayer::settle_later`](crate::RateLimitLayer::settle_later) |
//! | `ipnet` | [`ClientIp::trusted_networks`](crate::key::ClientIp::trusted_networks) |
//!
//! ```
//! use tower_sluice::crates::ipnet::IpNet;
//! use tower_sluice::key::ClientIp;
//!
//! let proxies: IpNet = "10.0.0.0/8".parse().unwrap();
//! let by_ip = ClientIp::new().trusted_networks([proxies]);
//! # let _ = by_ip;
//! ```

#[cfg(feature = "redis")]
pub use ::{redis, redis_once};
#[cfg(feature = "bb8")]
pub use ::bb8_redis::{self, bb8};
pub use ::http_body;
pub use ::ipnet;
