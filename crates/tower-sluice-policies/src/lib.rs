// In rustdoc the guide is a module; the first definition of a link counts.
//! [guide]: crate::guide
//!
#![doc = include_str!("../README.md")]
// From a file to a policy:
// - `row.rs`: rows as a file has them, not checked. `written.rs`: the fields that a row may have.
//   `values.rs`: types of several fields, such as a period.
// - `read_rows.rs`: reads each row into a policy. `fields.rs` keeps the error of each field, and
//   `table_error.rs` has the errors of the table.
// - `setting.rs`: checks the algorithm, quota and waits of a row. `chosen_algorithm.rs` lists the
//   algorithms and the settings that only some have. `plans.rs`: quotas by a value of the request.
// - `pattern.rs`: the requests that a policy takes; `path.rs` reads their paths. `policy_key.rs`:
//   the key that it charges; `request_values.rs` reads cookies and queries.
// - `policy.rs`: a policy, which is a row whose fields were all checked. `policy_cost.rs`: its cost.
// From a request to a decision:
// - `policies.rs`: the key extractor and the limiter of a layer. It has the table in force, and
//   exchanges it.
// - `table_in_force.rs`: finds the policies that take a request, and their keys.
// - `decide_policies.rs`: decides all or nothing. `limited_policy.rs`: a policy with its limiter.
//   `combinations.rs`: the limiters of policies that decide together. `response_costs.rs`: the
//   costs that a response states.
// - `bans.rs`: blocks a key that a policy refuses too often.
// - `policy_handle.rs`: one policy, to operate on its keys. `policy_event.rs` and `table_watch.rs`:
//   events and metrics.
// Without a feature, links to what it adds are plain text, and some matches have one arm.
#![cfg_attr(
    not(all(feature = "redis", feature = "redisson")),
    allow(rustdoc::broken_intra_doc_links, clippy::infallible_destructuring_match)
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![doc(test(attr(deny(unused_imports))))]

mod bans;
mod chosen_algorithm;
mod combinations;
mod decide_policies;
mod fields;
mod limited_policy;
mod path;
mod pattern;
mod plans;
mod policies;
mod policy;
mod policy_cost;
mod policy_event;
mod policy_handle;
mod policy_key;
mod read_rows;
mod request_values;
mod response_costs;
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
pub use read_rows::Exemption;
pub use response_costs::ResponseCosts;
pub use row::{Row, Rows};
pub use table_error::{RowError, TableError};
#[cfg(feature = "metrics")]
pub use table_watch::METRICS;
pub use values::parse_duration;
