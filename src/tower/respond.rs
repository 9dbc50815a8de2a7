//! Answers requests that do not pass, and settles those that do.
//!
//! A [`Respond`] answers a [`Refusal`](crate::Refusal). A layer starts with [`HttpResponder`]: 429
//! with `retry-after`, 400 without a key, 503 if the store failed, and for gRPC and Connect the
//! matching status. [`Raise`] returns the refusal as an error, for services that do not speak HTTP.
//!
//! | wanted | set |
//! |---|---|
//! | a body: a text, a problem document, or from a closure | [`HttpResponder::text`], [`problem_json`](HttpResponder::problem_json), [`body`](HttpResponder::body) |
//! | header fields that show the limit | [`HttpResponder::headers`] with a [`HeaderStyle`] |
//! | the decision in a handler | [`HttpResponder::report_in_request`] |
//! | a cost that is known after the response | [`RateLimitLayer::settle`](crate::RateLimitLayer::settle) with a [`Settle`](crate::Settle) |
//! | a cost that the handler knows, or that is counted while a body streams | [`RateLimitLayer::settle_later`](crate::RateLimitLayer::settle_later) |
//!
//! ```
//! use http::{Request, Response, StatusCode};
//! use tower_sluice::respond::{HeaderStyle, Respond};
//! use tower_sluice::{Decision, HttpResponder, Outcome, Refusal};
//!
//! let responder = HttpResponder::new().problem_json().headers(HeaderStyle::Legacy);
//! let refusal = Refusal::Denied(Decision::new(Outcome::Deny { retry_after: None }));
//! let response: Response<String> = responder.refuse_in_handler(Request::new(()), refusal);
//! assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(response.headers()["content-type"], "application/problem+json");
//!
//! // A closure makes the whole answer.
//! let teapot = |_: Request<()>, _: &Refusal| {
//!     let mut response = Response::new("");
//!     *response.status_mut() = StatusCode::IM_A_TEAPOT;
//!     response
//! };
//! let refusal = Refusal::Denied(Decision::new(Outcome::Deny { retry_after: None }));
//! let response: Result<Response<&str>, std::io::Error> = teapot.reject(Request::new(()), refusal);
//! assert_eq!(response.unwrap().status(), 418);
//! ```

pub use crate::core::decision::DecisionReport;
pub use crate::http::{
    ConnectBody, CountedBody, DrainRefused, HeaderStyle, HttpRefusal, HttpResponder, InHandler,
    OnAdmitted, PlainText, ProblemJson, RateLimitHeaders, WithBody, count_bytes,
};
pub use crate::tower::reject::{Drain, Raise, Respond};
pub use crate::tower::settle::{
    Answer, Later, NotSet, SettleAnswered, SettleGuard, SettleHandle, SettleLater, Unsettled,
};
pub use crate::tower::shared::Hooks;
