//! Every event of the crate, with its target, level and fields.

use tokio::time::Instant;
#[cfg(feature = "tracing")]
use tracing::{debug, event, info, warn};

use super::recorded_outcome::{AskedCharge, KINDS, RecordedOutcome, error_of, kind_index};
use crate::core::decision::Origin;
use crate::core::{Decision, Error};

/// Without the feature, the macros emit no events.
#[cfg(not(feature = "tracing"))]
macro_rules! info {
    ($($event:tt)*) => {{}};
}
#[cfg(not(feature = "tracing"))]
use {info as debug, info as event, info as warn};

/// The target of decisions: one event for each.
const DECISION: &str = "tower_sluice::decision";
/// The target of limiters' errors, and of the fallback or shadow that answered.
const FAULT: &str = "tower_sluice::fault";
const FALLBACK: &str = "tower_sluice::fallback";
const BREAKER: &str = "tower_sluice::breaker";

/// Returns true if a subscriber listens to decisions.
#[cfg(feature = "tracing")]
#[inline]
pub(crate) fn shows_decisions() -> bool {
    tracing::enabled!(target: DECISION, tracing::Level::DEBUG)
}

/// Emits one decision, without empty fields.
pub(crate) fn decided(
    limiter: &str,
    asked: &AskedCharge,
    key: Option<&str>,
    begun: Option<Instant>,
    result: Result<&Decision, &Error>,
) {
    let seconds = begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
    let recorded = asked.recorded(result, begun);
    let decision = result.ok();
    let wait = match recorded {
        RecordedOutcome::Delayed(wait) => Some(wait.as_secs_f64()),
        _ => None,
    };
    let retry_after = decision.and_then(Decision::retry_after).map(|time| time.as_secs_f64());
    let error = error_of(result);
    event!(
        target: DECISION,
        tracing::Level::DEBUG,
        limiter,
        outcome = recorded.name(),
        key,
        cost = asked.cost,
        policy = decision.and_then(Decision::limiter),
        remaining = decision.and_then(Decision::remaining),
        wait_seconds = wait,
        retry_after_seconds = retry_after,
        seconds,
        origin = decision.map(|decision| origin(decision.origin())),
        shadow = decision.and_then(Decision::shadowed).map(|_| true),
        kind = error.map(kind),
        error = error.map(tracing::field::display),
        "decided"
    );
}

/// Emits that a limiter could not decide, and its caller gets the error.
pub(crate) fn undecided(limiter: &str, error: &Error, suppressed: u64) {
    warn!(
        target: FAULT,
        limiter,
        kind = kind(error),
        error = format!("{error:#}"),
        suppressed,
        "a limiter could not decide"
    );
}

/// Emits that a limiter could not decide, and a fallback or a shadow answers.
pub(crate) fn stood_in(limiter: &str, decision: &Decision, error: &Error, suppressed: u64) {
    let answers = match decision.fallback_cause() {
        Some(_) => "its fallback answers",
        None => "its shadow admits",
    };
    warn!(
        target: FAULT,
        limiter,
        kind = kind(error),
        error = format!("{error:#}"),
        origin = origin(decision.origin()),
        admitted = decision.is_admitted(),
        suppressed,
        "a limiter could not decide, and {answers}"
    );
}

/// Emits the first request of a layer that has no key.
pub(super) fn no_key(why: &Error, admitted: bool) {
    warn!(
        target: FAULT,
        kind = kind(why),
        error = format!("{why:#}"),
        admitted,
        "a request has no key; later ones are only counted"
    );
}

/// Emits the first request of a layer that was refused undecided, for each kind of error.
pub(super) fn refused_undecided(why: &Error) {
    warn!(
        target: FAULT,
        kind = kind(why),
        error = format!("{why:#}"),
        "a request could not be decided; its layer warns of this kind once"
    );
}

/// Emits the first request of a layer whose limiter did not settle what the request took.
pub(super) fn unsettled() {
    warn!(
        target: FAULT,
        "a limiter did not settle what a request took, as a closure around a limiter; its layer \
         warns once"
    );
}

/// Emits that a request used more than its limit could take.
pub(super) fn not_taken(limiter: &str, units: u64) {
    debug!(target: DECISION, limiter, units, "a limit could not take all that was used");
}

pub(super) fn fallback_began(decision: &Decision, cause: &Error, suppressed: u64) {
    warn!(
        target: FALLBACK,
        fallback = decision.limiter(),
        origin = origin(decision.origin()),
        kind = kind(cause),
        error = format!("{cause:#}"),
        suppressed,
        "a fallback answers from now on"
    );
}

pub(super) fn fallback_ended(suppressed: u64) {
    info!(target: FALLBACK, suppressed, "the limiter decides again");
}

pub(super) fn breaker_opened(breaker: Option<&str>, refusal: &Error, suppressed: u64) {
    warn!(
        target: BREAKER,
        breaker,
        kind = kind(refusal),
        error = format!("{refusal:#}"),
        suppressed,
        "a breaker opened"
    );
}

pub(super) fn breaker_closed(breaker: Option<&str>, suppressed: u64) {
    info!(target: BREAKER, breaker, suppressed, "a breaker closed");
}

fn kind(error: &Error) -> &'static str {
    KINDS[kind_index(error)]
}

fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Store => "store",
        Origin::Local => "local",
        Origin::Cache => "cache",
        Origin::FailOpen => "fail_open",
        Origin::Shadow => "shadow",
        Origin::Off => "off",
        Origin::Exempt => "exempt",
    }
}

const CONNECTION: &str = "tower_sluice::connection";

pub(super) fn connected(address: &str) {
    debug!(target: CONNECTION, address, "connected");
}

/// Emits that a connection was made after one was lost, or after an attempt failed.
pub(super) fn connected_again(address: &str, suppressed: u64) {
    info!(target: CONNECTION, address, suppressed, "connected again");
}

pub(super) fn connect_failed(address: &str, error: &Error, suppressed: u64) {
    warn!(
        target: CONNECTION,
        address,
        kind = kind(error),
        error = format!("{error:#}"),
        suppressed,
        "could not connect"
    );
}

pub(super) fn connection_lost(address: &str, reason: &str, suppressed: u64) {
    info!(target: CONNECTION, address, reason, suppressed, "a connection was lost");
}

pub(crate) fn primary_changed(service: &str, address: &str) {
    info!(target: CONNECTION, service, address, "the sentinels name another primary");
}

pub(crate) fn slots_moved(slots: usize) {
    info!(target: CONNECTION, slots, "slots of the cluster have moved");
}
