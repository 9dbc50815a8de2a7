//! Finds the key that a request is charged to.
//!
//! A layer calls its [`KeyExtractor`] for each request. The result is a [`Charge`](crate::Charge)
//! of one key or several, or [`Exempt`], or the lack of a key, which is refused with 400. [Keys and
//! client addresses][keys] says which one to take.
//!
//! Fields that a client sends do not prove its identity. [`ClientIp`] trusts a proxy's header
//! fields only if the proxy is in [`trusted_networks`](ClientIp::trusted_networks). [`ApiKey`]
//! limits keys before anybody has checked them.
//!
//! [keys]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/keys_and_client_addresses/

pub use crate::core::extractor::{Exempt, Global, IntoCharge, KeyExtractor, Keyed};
#[cfg(any(feature = "axum", feature = "tonic"))]
pub use crate::http::by_client_ip;
pub use crate::http::{
    ApiKey, ByHead, ClientAddr, ClientIp, FindPeer, Head, KnownPeers, PeerAddr, by_api_key,
    by_bearer_token, by_head,
};
