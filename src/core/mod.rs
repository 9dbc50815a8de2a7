//! The values that every other room uses: charges, quotas, decisions, errors, reservations.

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
