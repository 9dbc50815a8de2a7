//! Events of connections, primaries and slots.

use tracing::{debug, info, warn};

use super::kind;
use crate::Error;

const CONNECTION: &str = "tower_sluice::connection";

pub(in crate::observe) fn connected(address: &str) {
    debug!(target: CONNECTION, address, "connected");
}

/// After a connection was lost, or an attempt failed.
pub(in crate::observe) fn connected_again(address: &str, suppressed: u64) {
    info!(target: CONNECTION, address, suppressed, "connected again");
}

pub(in crate::observe) fn connect_failed(address: &str, error: &Error, suppressed: u64) {
    warn!(
        target: CONNECTION,
        address,
        kind = kind(error),
        error = format!("{error:#}"),
        suppressed,
        "could not connect"
    );
}

pub(in crate::observe) fn connection_lost(address: &str, reason: &str, suppressed: u64) {
    info!(target: CONNECTION, address, reason, suppressed, "a connection was lost");
}

pub(in crate::observe) fn primary_changed(service: &str, address: &str) {
    info!(target: CONNECTION, service, address, "the sentinels name another primary");
}

pub(in crate::observe) fn slots_moved(slots: usize) {
    info!(target: CONNECTION, slots, "slots of the cluster have moved");
}
