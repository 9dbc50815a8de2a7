//! Every duration of a decision in Redis, each with its reason.
//!
//! `times.rs` of the crate `redis-once` has those of connections. Scripts say how long keys live.

use std::time::Duration;

pub(crate) use crate::limiter::on_time::MAX_TIMEOUT;

pub(crate) const DEFAULT_DECISION_TIMEOUT: Duration = Duration::from_millis(100);

/// The time that callers may take before they count as slow. Then the answers that have come are
/// passed on together: each turn would take as long, and the last callers would get theirs too late.
pub(crate) const SLOW_TURN: Duration = Duration::from_millis(2);

/// The longest time for which one call blocks others, which may have little time. After it, a call
/// without a reply no longer counts as in flight, and a refund that a cluster still redirects is
/// dropped.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// The time for which a late reply is awaited after its deadline, so that the units of the call can
/// be refunded.
pub(crate) const LATE_REPLY_TIMEOUT: Duration = Duration::from_millis(500);

/// The interval at which a late call checks that its connection is still used.
pub(crate) const ALIVE_CHECK: Duration = Duration::from_millis(20);

/// The lifetime of a key without state, which a charge with several keys creates while its slot
/// moves. It is longer than a decision.
pub(crate) const PLACEHOLDER_LIFETIME: Duration = Duration::from_secs(1);

/// The time that `Pool::ready` waits for each server. It is documented.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(1);
