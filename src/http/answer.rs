//! The parts of an HTTP answer that closures read to settle.

use http::Response;

use crate::tower::settle::Answer;

impl<'a, B, E> Answer<'a, Response<B>, E> {
    /// The response. `None` if the inner service failed.
    #[must_use]
    pub fn response(&self) -> Option<&'a Response<B>> {
        self.result().ok()
    }

    /// The status of the response. `None` if the inner service failed.
    ///
    /// An error of gRPC has the status 200, and `grpc-status` in the headers or the trailers: read
    /// the headers of [`response`](Self::response), or the trailers with
    /// [`settle_later`](crate::RateLimitLayer::settle_later). The error of a stream of Connect has
    /// the status 200, too.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.response().map(|response| response.status().as_u16())
    }
}
