//! The name of a leased key.

use std::sync::Arc;

use crate::Charge;
use crate::limiter::named::one_key;

/// The name of a key, and its hash: one hash finds the shard and the key in it.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) text: Arc<str>,
    pub(super) hash: u64,
}

/// Returns true if a charge has one key, which may be leased. One that the inner limiter refuses,
/// since it is empty or too long, is not even digested.
pub(super) fn may_be_leased(charge: &Charge) -> bool {
    one_key(charge).is_ok()
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;
    use crate::{Decision, Error, Limiter, LimiterExt, Outcome};

    #[tokio::test]
    async fn a_key_that_is_too_long_is_not_digested_for_a_lease() {
        let inner = |_: &Charge| ready(Ok::<_, Error>(Decision::new(Outcome::Allow)));
        let limiter = inner.lease(10);
        let long = |length| Charge::new("x".repeat(length));
        limiter.check(&long(64 * 1024 + 1)).await.expect("asked alone");
        assert!(limiter.leases.is_empty());
        limiter.check(&long(64 * 1024)).await.expect("asked alone, and watched");
        assert!(!limiter.leases.is_empty());
    }
}
