//! What it takes to send one call, for the limiters outside of this module.

pub(crate) use super::DEFAULT_DECISION_TIMEOUT;
pub(crate) use super::connection::SharedConnection;
pub(crate) use super::deadline::{Deadline, Stage};
pub(crate) use super::error::{from_failed_call, met_read_only};
pub(crate) use super::eval::{LATE_REPLY_TIMEOUT, eval, is_reply};
pub(crate) use super::pool::MAX_TIMEOUT;
pub(crate) use super::reply::malformed_reply;
pub(crate) use super::script::Script;
#[cfg(test)]
pub(crate) use super::slot::hash_slot;
