// In rustdoc the guide is a module; the first definition of a link counts.
//! [guide]: crate::guide
//!
#![doc = include_str!("../README.md")]
// Without a feature, links to what it adds are plain text, and some matches have one arm.
#![cfg_attr(
    not(all(feature = "redis", feature = "redisson")),
    allow(rustdoc::broken_intra_doc_links, clippy::infallible_destructuring_match)
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![doc(test(attr(deny(unused_imports))))]

mod chosen_algorithm;
mod combinations;
mod decide_policies;
mod fields;
mod limited_policy;
mod path;
mod pattern;
mod policies;
mod policy;
mod policy_event;
mod policy_handle;
mod policy_key;
mod read_rows;
mod row;
mod setting;
mod table_error;
mod table_in_force;
mod table_watch;
mod values;
mod written;

/// The fields of rows, their values and their defaults.
pub mod guide {
    #![doc = include_str!("../policies.md")]
}

/// The crate of [`Row::with`]'s values.
pub use serde_json;

pub use policies::{Named, Policies, PoliciesBuilder};
pub use policy::{OnError, Policy};
pub use policy_event::PolicyEvent;
pub use policy_handle::PolicyHandle;
pub use row::{Row, Rows};
pub use table_error::{RowError, TableError};
#[cfg(feature = "metrics")]
pub use table_watch::METRICS;
pub use values::parse_duration;
