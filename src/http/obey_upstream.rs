//! The hook of a client's layer that obeys an upstream that says stop.

use std::time::Duration;

use http::Response;

use super::retry_after::retry_after;
use crate::tower::settle::{Answer, Settle, SettleAnswered};

/// Pauses the key of a request that an upstream refuses: see
/// [`RateLimitLayer::obey_upstream`](crate::RateLimitLayer::obey_upstream).
#[derive(Clone, Copy, Debug)]
pub struct ObeyUpstream {
    longest: Duration,
}

impl ObeyUpstream {
    pub(crate) const fn new(longest: Duration) -> Self {
        Self { longest }
    }
}

impl<B, E> SettleAnswered<Response<B>, E> for ObeyUpstream {
    const NEEDS_CHARGE: bool = true;
    const LOOKS_AGAIN: bool = true;

    fn settle(&self, answer: Answer<'_, Response<B>, E>) -> Settle {
        let asked = answer.response().and_then(|response| retry_after(response, self.longest));
        asked.map_or(Settle::Later, Settle::Pause)
    }
}
