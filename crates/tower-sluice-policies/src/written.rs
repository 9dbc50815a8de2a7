//! The row of a policy as it is written.

use std::num::NonZeroU64;

use serde::Deserialize;

use super::checked_policy::{Cost, OnError};
use super::chosen_algorithm::Name;
#[cfg(feature = "redisson")]
use super::chosen_algorithm::RateType;
use super::pattern::{self, Pattern};
use super::policy_key::Key;
use super::values::{Flag, Span};

/// The row of a policy. The guide describes its fields.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Written {
    pub(super) name: Option<String>,
    pub(super) algorithm: Name,
    pub(super) limit: Option<u64>,
    pub(super) period: Option<Span>,
    pub(super) max_wait: Option<Span>,
    pub(super) cache_ratio: Option<f64>,
    pub(super) horizon: Option<Span>,
    pub(super) key: Option<Key>,
    #[serde(rename = "match", deserialize_with = "pattern::written")]
    pub(super) pattern: Pattern,
    pub(super) cost: Option<Cost>,
    pub(super) on_error: OnError,
    pub(super) enabled: Option<Flag>,
    pub(super) shadow: Option<Flag>,
    // Settings that only some algorithms have.
    pub(super) burst: Option<NonZeroU64>,
    pub(super) max_debt: Option<Span>,
    pub(super) max_hold: Option<Span>,
    pub(super) anchored: bool,
    pub(super) max_limit: Option<NonZeroU64>,
    pub(super) cells: Option<u8>,
    pub(super) max_burst: Option<Span>,
    pub(super) start_empty: bool,
    pub(super) wait_for_own_cost: bool,
    pub(super) warm_up: Option<Span>,
    pub(super) cold_factor: Option<f64>,
    #[cfg(feature = "redisson")]
    pub(super) rate_type: RateType,
    #[cfg(feature = "redisson")]
    pub(super) keep_alive: Option<Span>,
}
