//! Answers requests that do not pass, and settles those that do.
//!
//! A [`Respond`] answers a [`Refusal`](crate::Refusal). A layer starts with [`HttpResponder`].
//! [`Raise`] returns the refusal as an error, for services that do not speak HTTP. [What callers
//! see][callers] says which setting does what, and [costs and budgets][costs] how to settle.
//!
//! [callers]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/what_callers_see/
//! [costs]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/costs_and_budgets/

pub use crate::core::decision::DecisionReport;
pub use crate::http::{
    ConnectBody, CostInResponse, CountedBody, DrainRefused, HeaderStyle, HttpRefusal,
    HttpResponder, InHandler, OnAdmitted, PlainText, ProblemJson, RateLimitHeaders, ReadHeaders,
    WithBody, count_bytes,
};
pub use crate::tower::reject::{Drain, Raise, Respond};
pub use crate::tower::settle::{
    Answer, Later, NotSet, SettleAnswered, SettleGuard, SettleHandle, SettleLater, Unsettled,
};
pub use crate::tower::shared::Hooks;
