//! Limits as rows of a table, from a file, a database or any other source. The table can be
//! replaced while requests run.
//!
//! [`Policies::layer`] limits the requests of a service. Each row of the table is a policy:
//!
//! ```toml
//! [[policy]]
//! name = "api"
//! algorithm = "token_bucket"
//! limit = 5
//! period = "1s"
//! burst = 5
//! max_wait = "500ms"
//! key = "header:x-api-key"
//! match = { path = ["/api", "/api/{*rest}"], method = ["GET", "POST"] }
//! cost = 1
//! on_error = "deny"
//! enabled = true
//! shadow = false
//! ```
//!
//! The [guide](crate::guide::policies) has all fields, their values and their defaults. These rules
//! surprise some people:
//!
//! - A policy with a `path` refuses a path that servers read in several ways, such as `//login` and
//!   `/a%2Fb`, with 400. [`Rows::allow_in_paths`] changes that.
//! - A request without the policy's key gets 400. A request that no policy takes passes.
//! - If several policies take a request, all of them decide, all or nothing.
//! - A table without policies is an error, unless it has [`Rows::allow_empty`].

mod checked_policy;
mod chosen_algorithm;
mod combinations;
mod decide_policies;
mod fields;
mod limited_policy;
mod path;
mod pattern;
mod policies;
mod policy_event;
mod policy_handle;
mod policy_key;
mod read_rows;
mod row;
mod setting;
mod table;
mod table_error;
mod table_watch;
mod values;
mod written;

pub use checked_policy::{OnError, Policy};
pub use policies::{Named, Policies, PoliciesBuilder, Source};
pub use policy_event::Event;
pub use policy_handle::PolicyHandle;
pub use row::{Row, Rows};
pub use table_error::{RowError, TableError};
#[cfg(feature = "metrics")]
pub use table_watch::METRICS;
pub use values::parse_duration;
