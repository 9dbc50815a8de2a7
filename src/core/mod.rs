//! The values that every other room uses, in the order of a request:
//!
//! - `extractor.rs` finds the key of a request. A `charge.rs` is that key with a cost, and perhaps
//!   with a `quota.rs`. `digest.rs` hides long keys and secrets.
//! - A limiter answers with a `decision.rs` or an `error.rs`. A `refusal.rs` is the reason why a
//!   request does not pass.
//! - A `reservation.rs` holds what an admission took, and the `mark.rs` of the state that it left.
//!   `waiters.rs` has its place in a line. A `settlement.rs` ends or renews it.
//! - `sync.rs` has the locks. `debug_by_name.rs` and `for_each_tuple.rs` have macros.

// Macros for all modules.
#[macro_use]
mod debug_by_name;
#[macro_use]
mod for_each_tuple;

pub(crate) mod charge;
pub(crate) mod decision;
pub(crate) mod digest;
pub(crate) mod error;
pub(crate) mod extractor;
pub(crate) mod mark;
pub(crate) mod quota;
pub(crate) mod refusal;
pub(crate) mod reservation;
pub(crate) mod settlement;
pub(crate) mod sync;
pub(crate) mod waiters;

pub use charge::Charge;
pub use decision::{Decision, Outcome};
pub use error::{Error, ErrorKind};
pub use extractor::Exempt;
pub use quota::Quota;
pub use refusal::Refusal;
