//! HTTP: responses to callers, and keys from the head of a request.
//!
//! - **Keys**: `head.rs` reads the head of a request. `client_ip.rs` and `api_key.rs` find keys in
//!   it.
//! - **Refusals**: `http_responder.rs` chooses the answer, by the content type of the request.
//!   `http_refusal.rs` is a refusal as its caller sees it. `body.rs` and `problem.rs` write it as
//!   text and JSON, `grpc.rs` and `connect.rs` as the error of an RPC, with the details of
//!   `rpc_status.rs`. `drain_refused.rs` reads the rest of a refused request.
//! - **Header fields**: `headers.rs` has the styles. `standing.rs` has the numbers of a decision,
//!   and `header_fields.rs` writes them, with the lists of `structured.rs` and `policy_list.rs`.
//! - **Costs that are known later**: `hand_out.rs` gives the units to a handler or to a body, and
//!   `count_body.rs` counts in one. `answer.rs` and `cost_in_response.rs` read a response.
//! - **Clients**: `retry_after.rs` reads what responders write. `obey_upstream.rs` then pauses a
//!   key, and `obey_retry_after.rs` retries.
//! - **Frameworks**: `frameworks.rs` has what axum and tonic need besides.

mod answer;
mod api_key;
mod body;
pub(crate) mod client_ip;
mod connect;
mod cost_in_response;
mod count_body;
mod drain_refused;
mod frameworks;
mod grpc;
mod hand_out;
mod head;
mod header_fields;
mod headers;
mod http_refusal;
mod http_responder;
#[cfg(feature = "retry")]
mod obey_retry_after;
mod obey_upstream;
mod policy_list;
mod problem;
mod retry_after;
mod rpc_status;
mod standing;
mod structured;

pub use api_key::{ApiKey, by_api_key, by_bearer_token};
pub use body::{ConnectBody, PlainText};
#[cfg(any(feature = "axum", feature = "tonic"))]
pub use client_ip::by_client_ip;
pub use client_ip::{ClientAddr, ClientIp, FindPeer, KnownPeers, PeerAddr};
pub use cost_in_response::{CostInResponse, ReadHeaders};
pub use count_body::{CountedBody, count_bytes};
pub use drain_refused::DrainRefused;
pub use hand_out::{InHandler, WithBody};
pub use head::{ByHead, Head, by_head};
pub use headers::{HeaderStyle, OnAdmitted, RateLimitHeaders};
pub use http_refusal::HttpRefusal;
pub use http_responder::HttpResponder;
#[cfg(feature = "retry")]
pub use obey_retry_after::ObeyRetryAfter;
pub use obey_upstream::ObeyUpstream;
pub use problem::ProblemJson;
pub use retry_after::{grpc_retry_after, retry_after};
