//! The limiter that many processes share: one script call decides.
//!
//! - `redis_limiter.rs`: the limiter, its settings, and the future of a decision. It converts a
//!   charge to a request about a key, which `key_names.rs` names. `all_at_once.rs` lets several
//!   limiters decide in `one_call.rs`.
//!   `stored_key.rs` reads names and states without a script, for tools that look into Redis.
//! - `pool.rs`: the settings that limiters share, over connections of the crate `redis-once`, which
//!   knows no limit. `pool_builder.rs` makes it, and `client_error.rs` converts the client's
//!   errors. `ready.rs` checks the servers when an application starts, and `one_server.rs` notices
//!   several servers behind one address. `decision_times.rs` has all durations.
//! - `send/`: puts charges into calls, sends the calls, and awaits their answers. It uses
//!   `script/`, which does not use it.
//! - `script/`: the scripts that the server runs, and the reader of their replies. It uses no
//!   connection.

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
