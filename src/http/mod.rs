//! The HTTP edge: what a refused caller sees, and keys from the head of a request.

mod body;
mod head;
mod refusal;
mod responder;

pub use head::{ByHead, Head, by_head};
pub use refusal::HttpRefusal;
pub use responder::HttpResponder;
