//! A policy of tower's `retry` that waits as long as the upstream asks.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tokio::time::{Sleep, sleep};
use tower::retry::Policy;
use tower::retry::budget::{Budget, TpsBudget};

use super::retry_after::retry_after;

/// A policy of tower's `retry` that tries a refused request again, after the time that the upstream
/// [asks to wait](retry_after). Needs the feature `retry`.
///
/// Retries are load too, so three bounds hold: for a request, three more attempts, each after 30 s
/// at most; for all requests of the policy and its clones together, one more attempt a second, and
/// one for each ten calls that are not refused. Up to a tenth of each time is added at random. The
/// first attempt comes after 100 ms at least, and each later one after twice as long.
///
/// - Only a refusal that names a time is tried again. An error of the service is not.
/// - If the upstream asks for a longer time than `longest`, its answer goes to the caller.
/// - Requests are cloned, so their body has to be [`Clone`]: a `Bytes` or a `String`, not a stream.
///
/// The guide's page on [clients] has an example,
/// `RetryLayer::new(ObeyRetryAfter::new()).layer(client)`.
///
/// [clients]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/clients/
#[derive(Clone, Debug)]
#[must_use]
pub struct ObeyRetryAfter {
    /// For a request: each has a clone of the policy.
    attempts_left: u32,
    /// The shortest wait before the next attempt.
    least: Duration,
    longest: Duration,
    /// Clones share it.
    budget: Arc<TpsBudget>,
}

impl ObeyRetryAfter {
    /// A policy with the bounds above.
    pub fn new() -> Self {
        let budget = TpsBudget::new(Duration::from_secs(10), 1, 0.1);
        let (least, longest) = (Duration::from_millis(100), Duration::from_secs(30));
        Self { attempts_left: 3, least, longest, budget: Arc::new(budget) }
    }

    /// Sets how often a request is tried again. Default: 3.
    pub const fn attempts(mut self, more: u32) -> Self {
        self.attempts_left = more;
        self
    }

    /// Sets the longest time that is waited before an attempt, without the random part. Default:
    /// 30 s.
    pub const fn longest(mut self, wait: Duration) -> Self {
        self.longest = wait;
        self
    }

    /// Sets the attempts of all requests together. Default: those above.
    pub fn budget(mut self, budget: TpsBudget) -> Self {
        self.budget = Arc::new(budget);
        self
    }
}

impl Default for ObeyRetryAfter {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Clone, B, E> Policy<Request<A>, Response<B>, E> for ObeyRetryAfter {
    type Future = Sleep;

    fn retry(&mut self, _: &mut Request<A>, result: &mut Result<Response<B>, E>) -> Option<Sleep> {
        let response = result.as_ref().ok();
        let Some(wait) = response.and_then(|response| retry_after(response, Duration::MAX)) else {
            self.budget.deposit();
            return None;
        };
        if wait > self.longest || self.attempts_left == 0 || !self.budget.withdraw() {
            return None;
        }
        self.attempts_left -= 1;
        // Many servers cut their wait to whole seconds, so 0 may mean 0.9 s.
        let wait = wait.max(self.least.min(self.longest));
        self.least = self.least.saturating_mul(2);
        Some(sleep(wait.saturating_add(wait.mul_f64(fastrand::f64() / 10.0))))
    }

    fn clone_request(&mut self, request: &Request<A>) -> Option<Request<A>> {
        Some(request.clone())
    }
}
