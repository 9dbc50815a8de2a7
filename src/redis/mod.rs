//! The limiter that many processes share: one script call decides.
//!
//! `redis_limiter.rs` converts a charge to a request about a key, which `key_names.rs` names.
//! `send/` puts charges into calls, by `script/`, which does not use it. `pool.rs` has the settings
//! that limiters share, over connections of the crate `redis-once`, which knows no limit.

mod all_at_once;
mod client_error;
mod decision_times;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz_replies;
mod key_names;
mod one_call;
mod one_server;
mod pool;
mod pool_builder;
mod ready;
mod redis_limiter;
mod script;
mod send;
mod stored_key;

pub use all_at_once::{AllAtOnce, Members};
pub use pool::Pool;
pub use pool_builder::PoolBuilder;
pub use redis_limiter::{Redis, RedisFuture};
pub use script::texts as script_texts;
pub use stored_key::{StoredKey, StoredState};
