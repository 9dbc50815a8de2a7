//! The parts of an HTTP answer that closures read to settle.

use http::Response;

use crate::settle::Answer;

impl<'a, B, E> Answer<'a, Response<B>, E> {
    /// The response. `None` if the inner service failed.
    #[must_use]
    pub fn response(&self) -> Option<&'a Response<B>> {
        self.result().ok()
    }

    /// The status of the response. `None` if the inner service failed.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.response().map(|response| response.status().as_u16())
    }
}
