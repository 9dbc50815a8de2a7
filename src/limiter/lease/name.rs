//! The name of a leased key.

use std::sync::Arc;

/// The name of a key, and its hash: one hash finds the shard and the key in it.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) text: Arc<str>,
    pub(super) hash: u64,
}
