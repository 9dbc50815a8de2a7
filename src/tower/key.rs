//! Finds the key that a request is charged to.
//!
//! A layer calls its [`KeyExtractor`] for each request. The result is a [`Charge`](crate::Charge)
//! of one key or several, or [`Exempt`], or the lack of a key, which is refused with 400.
//!
//! | the key is | write |
//! |---|---|
//! | a header field, the path, an extension | [`by_head`]`(\|head\| head.header("x-user"))` |
//! | an API key, or a bearer token | [`by_api_key`]`("x-api-key")`, [`by_bearer_token`]`()` |
//! | the address of the client | [`ClientIp`]; without a proxy [`by_client_ip`] |
//! | the same for all requests | [`Global`] |
//! | found in a request of any type | a closure over the whole request |
//!
//! A closure returns a type that implements [`IntoCharge`]: a text, an address, a tuple of keys, an
//! option of these, or a [`Charge`](crate::Charge). A charge can state a cost, a quota and a
//! longest wait. [`Head`] reads the parts of the head that most keys are made of.
//!
//! ```
//! use tower_sluice::algorithm::TokenBucket;
//! use tower_sluice::key::Head;
//! use tower_sluice::{Charge, Memory, Quota, RateLimitLayer, by_head};
//!
//! // Each tenant has 100 units a second. An export costs ten of them.
//! let by_tenant = |head: Head<'_>| {
//!     let cost = if head.uri().path() == "/export" { 10 } else { 1 };
//!     Some(Charge::new(head.header("x-tenant")?).cost(cost))
//! };
//! let tenants = Memory::new("tenants", TokenBucket::new(Quota::per_second(100)));
//! let layer = RateLimitLayer::new(tenants, by_head(by_tenant));
//! # let _ = layer;
//! ```
//!
//! Fields that a client sends do not prove its identity. [`ClientIp`] trusts a proxy's header
//! fields only if the proxy is in [`trusted_networks`](ClientIp::trusted_networks). [`ApiKey`]
//! limits keys before anybody has checked them.

pub use crate::core::extractor::{Exempt, Global, IntoCharge, KeyExtractor, Keyed};
#[cfg(any(feature = "axum", feature = "tonic"))]
pub use crate::http::by_client_ip;
pub use crate::http::{
    ApiKey, ByHead, ClientAddr, ClientIp, FindPeer, Head, KnownPeers, PeerAddr, by_api_key,
    by_bearer_token, by_head,
};
