//! The right to change anything, of the caller that sends `Authorization: Bearer` and the token.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use super::problem;

/// `ADMIN_TOKEN`, or none, which nobody can send.
#[derive(Clone)]
pub(super) struct Token(Option<Arc<str>>);

impl Token {
    pub(super) fn new(token: Option<&str>) -> Self {
        Self(token.map(str::trim).filter(|token| !token.is_empty()).map(Arc::from))
    }

    /// Compares in a time that says nothing about how much of it is right.
    fn is_in(&self, authorization: Option<&HeaderValue>) -> bool {
        let (Some(token), Some(value)) = (&self.0, authorization) else { return false };
        let Some((scheme, sent)) = value.as_bytes().split_at_checked("Bearer ".len()) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"Bearer ")
            && bool::from(sent.trim_ascii().ct_eq(token.as_bytes()))
    }
}

/// Lets a request with the token pass.
pub(super) async fn check(State(token): State<Token>, request: Request, next: Next) -> Response {
    if token.0.is_none() {
        return problem(StatusCode::FORBIDDEN, "ADMIN_TOKEN is not set");
    }
    if token.is_in(request.headers().get(header::AUTHORIZATION)) {
        return next.run(request).await;
    }
    let asks = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
    (asks, problem(StatusCode::UNAUTHORIZED, "the token is missing or wrong")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = Token::new(Some("secret"));
        let sent = |value: &'static str| token.is_in(Some(&HeaderValue::from_static(value)));
        assert!(sent("Bearer secret"));
        assert!(sent("bearer secret"));
        for wrong in
            ["", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Basic secret", "secret"]
        {
            assert!(!sent(wrong), "{wrong}");
        }
        assert!(!token.is_in(None));
    }

    #[test]
    fn without_a_token_nobody_has_it() {
        for token in [Token::new(None), Token::new(Some("")), Token::new(Some(" "))] {
            assert!(!token.is_in(Some(&HeaderValue::from_static("Bearer "))));
        }
    }
}
