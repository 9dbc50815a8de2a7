//! The step that the cache takes after an answer, or when the caller leaves.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::cache::{Cache, Miss};
use crate::{Decision, Error};

/// The step that the cache takes after an answer.
pub(super) enum Afterwards {
    /// Keeps the answer if it is a refusal.
    Learn(Miss),
    /// Forgets the key, which was changed.
    Forget(NonZeroU64),
}

impl Afterwards {
    fn answered(self, cache: &Cache, decision: &mut Decision) {
        match self {
            Self::Learn(miss) => cache.learn(miss, decision),
            Self::Forget(key) => cache.forget(key),
        }
    }

    fn without_answer(self, cache: &Cache) {
        match self {
            Self::Learn(miss) => cache.unanswered(&miss),
            Self::Forget(key) => cache.forget_settling(key),
        }
    }
}

/// A question without an answer yet. After it has begun, it may be dropped without an answer. Its
/// charge may then be taken and refunded, or its reset may be done.
pub struct Asked {
    /// `None` after the step is done.
    afterwards: Option<(Arc<Cache>, Afterwards)>,
    pub(super) is_begun: bool,
}

impl Asked {
    pub(super) fn new(cache: &Arc<Cache>, afterwards: Afterwards) -> Self {
        Self { afterwards: Some((Arc::clone(cache), afterwards)), is_begun: false }
    }

    pub(super) fn end(mut self, answer: &mut Result<Decision, Error>) {
        let Some((cache, afterwards)) = self.afterwards.take() else { return };
        match answer {
            Ok(decision) => afterwards.answered(&cache, decision),
            Err(_) => afterwards.without_answer(&cache),
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some((cache, afterwards)) = self.afterwards.take().filter(|_| self.is_begun) {
            afterwards.without_answer(&cache);
        }
    }
}

debug_by_name!([] Asked);
