//! The frameworks axum and tonic: the answer that a refusal becomes after `?`, and the URI before
//! `nest`.

#[cfg(feature = "tonic")]
use http::{HeaderMap, StatusCode};

#[cfg(feature = "tonic")]
use super::grpc;
use super::head::Head;
#[cfg(feature = "tonic")]
use super::http_refusal::HttpRefusal;
#[cfg(feature = "axum")]
use super::http_responder::HttpResponder;
#[cfg(feature = "tonic")]
use super::rpc_status::RESOURCE_EXHAUSTED;

impl<'a> Head<'a> {
    /// The URI that the caller sent. With the feature `axum` this is true inside of `nest` and
    /// `nest_service`, too, which strip a prefix from [`uri`](Head::uri). Otherwise it is that
    /// `uri`.
    ///
    /// So that two nested routers do not share keys, make keys of its `path()`. Scheme, host and
    /// query are what the caller likes.
    #[must_use]
    pub fn original_uri(&self) -> &'a http::Uri {
        #[cfg(feature = "axum")]
        if let Some(original) = self.extensions().get::<axum::extract::OriginalUri>() {
            return &original.0;
        }
        self.uri()
    }
}

/// Answers as a layer with [`HttpResponder::new`] does, so that `limiter.try_acquire(..).await?`
/// works in a handler.
#[cfg(feature = "axum")]
impl axum::response::IntoResponse for crate::core::Refusal {
    fn into_response(self) -> axum::response::Response {
        HttpResponder::new().refuse_in_handler(http::Request::new(()), self)
    }
}

/// The status that a layer with [`HttpResponder::new`] answers, so that `?` works in a method. The
/// refusal is its [`source`](std::error::Error::source), which no caller sees.
#[cfg(feature = "tonic")]
impl From<crate::core::Refusal> for tonic::Status {
    fn from(refusal: crate::core::Refusal) -> Self {
        let request = http::Request::new(());
        let refusal = HttpRefusal::new(refusal, StatusCode::BAD_REQUEST, request);
        let mut headers = HeaderMap::new();
        grpc::write(&mut headers, &refusal, RESOURCE_EXHAUSTED);
        let status = tonic::Status::from_header_map(&headers);
        let mut status = status.unwrap_or_else(|| tonic::Status::unknown(refusal.to_string()));
        status.set_source(std::sync::Arc::new(refusal.refusal));
        status
    }
}
