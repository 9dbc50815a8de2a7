//! The row of a policy as it is written.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use serde::Deserialize;

use super::bans::BanRow;
#[cfg(feature = "redisson")]
use super::chosen_algorithm::JavaRateType;
use super::chosen_algorithm::{CalendarSpan, Name};
use super::pattern::{self, Pattern};
use super::plans::PlanQuota;
use super::policy::OnError;
use super::policy_cost::PolicyCost;
use super::policy_key::PolicyKey;
use super::values::{Flag, KeptUnits, Span};

/// The row of a policy. The guide describes its fields.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Written {
    pub(crate) name: Option<String>,
    pub(crate) algorithm: Name,
    pub(crate) limit: Option<u64>,
    pub(crate) plan: Option<PolicyKey>,
    pub(crate) quotas: Option<BTreeMap<String, PlanQuota>>,
    pub(crate) period: Option<Span>,
    pub(crate) max_wait: Option<Span>,
    pub(crate) cache_ratio: Option<f64>,
    pub(crate) horizon: Option<Span>,
    pub(crate) keep_free: Option<KeptUnits>,
    pub(crate) key: Option<PolicyKey>,
    #[serde(rename = "match", deserialize_with = "pattern::written")]
    pub(crate) pattern: Pattern,
    pub(crate) cost: Option<PolicyCost>,
    pub(crate) on_error: OnError,
    pub(crate) ban_after: Option<BanRow>,
    pub(crate) enabled: Option<Flag>,
    /// False: `read_rows.rs` reads the others.
    #[serde(rename = "exempt")]
    pub(crate) _exempt: Option<Flag>,
    pub(crate) shadow: Option<Flag>,
    // Settings that only some algorithms have.
    pub(crate) burst: Option<NonZeroU64>,
    pub(crate) max_debt: Option<Span>,
    pub(crate) max_hold: Option<Span>,
    #[serde(deserialize_with = "Flag::read")]
    pub(crate) anchored: bool,
    pub(crate) calendar: Option<CalendarSpan>,
    pub(crate) time_zone: Option<String>,
    pub(crate) week_begins: Option<String>,
    pub(crate) month_begins: Option<u8>,
    pub(crate) max_limit: Option<NonZeroU64>,
    pub(crate) cells: Option<u8>,
    pub(crate) max_burst: Option<Span>,
    #[serde(deserialize_with = "Flag::read")]
    pub(crate) start_empty: bool,
    #[serde(deserialize_with = "Flag::read")]
    pub(crate) wait_for_own_cost: bool,
    pub(crate) warm_up: Option<Span>,
    pub(crate) cold_factor: Option<f64>,
    #[cfg(feature = "redisson")]
    pub(crate) rate_type: JavaRateType,
    #[cfg(feature = "redisson")]
    pub(crate) keep_alive: Option<Span>,
}
