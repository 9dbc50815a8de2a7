//! The layer, its service, and the hooks that an application sets.

pub mod future;
pub mod key;
pub(crate) mod layer;
pub(crate) mod reject;
pub mod respond;
pub(crate) mod service;
pub(crate) mod settle;
pub(crate) mod shared;
pub mod upstream;

pub use layer::RateLimitLayer;
pub use service::RateLimit;
pub use settle::Settle;
