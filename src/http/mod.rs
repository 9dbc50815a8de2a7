//! The HTTP edge: what a refused caller sees, and keys from the head of a request.

mod api_key;
mod body;
pub(crate) mod client_ip;
mod head;
mod refusal;
mod responder;

pub use api_key::{ApiKey, by_api_key, by_bearer_token};
#[cfg(any(feature = "axum", feature = "tonic"))]
pub use client_ip::by_client_ip;
pub use client_ip::{ClientAddr, ClientIp, FindPeer, KnownPeers, NetworksError, PeerAddr};
pub use head::{ByHead, Head, by_head};
pub use refusal::HttpRefusal;
pub use responder::HttpResponder;
