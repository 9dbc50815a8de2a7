//! Re-exports the crates whose types stand in public signatures, in the matching versions.
//!
//! | crate | used by |
//! |---|---|
//! | `redis` | `Pool::from_connection` |
//! | `redis_once` | `Pool::from` |
//! | `bb8`, `bb8_redis` | `Pool::from_bb8` |
//! | `http_body` | [`RateLimitLayer::settle_later`](crate::RateLimitLayer::settle_later) |
//! | `ipnet` | [`ClientIp::trusted_networks`](crate::key::ClientIp::trusted_networks) |

#[cfg(feature = "redis")]
pub use ::{redis, redis_once};
#[cfg(feature = "bb8")]
pub use ::bb8_redis::{self, bb8};
pub use ::http_body;
pub use ::ipnet;
