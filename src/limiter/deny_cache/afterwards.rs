//! The step that the cache takes after an answer, or when the caller leaves.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::cache::{Cache, Miss};
use crate::core::Decision;

/// The step that the cache takes after an answer.
pub(super) enum Afterwards {
    /// Keeps the answer if it is a refusal.
    Learn(Miss),
    /// Forgets the key, which was changed.
    Forget(NonZeroU64),
}

/// A question without an answer yet.
pub struct OpenQuestion {
    cache: Arc<Cache>,
    afterwards: Afterwards,
}

impl OpenQuestion {
    pub(super) fn new(cache: &Arc<Cache>, afterwards: Afterwards) -> Self {
        Self { cache: Arc::clone(cache), afterwards }
    }

    pub(super) fn answered(self, decision: &mut Decision) {
        match self.afterwards {
            Afterwards::Learn(miss) => self.cache.learn(miss, decision),
            Afterwards::Forget(key) => self.cache.forget(key),
        }
    }

    /// Its charge may be taken and refunded, or its reset may be done.
    pub(super) fn without_answer(self) {
        match self.afterwards {
            Afterwards::Learn(miss) => self.cache.unanswered(&miss),
            Afterwards::Forget(key) => self.cache.forget_settling(key),
        }
    }
}

debug_by_name!([] OpenQuestion);
