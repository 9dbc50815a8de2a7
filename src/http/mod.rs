//! The HTTP edge: what a refused caller sees, and keys from the head of a request.

mod api_key;
mod body;
mod head;
mod refusal;
mod responder;

pub use api_key::{ApiKey, by_api_key, by_bearer_token};
pub use head::{ByHead, Head, by_head};
pub use refusal::HttpRefusal;
pub use responder::HttpResponder;
