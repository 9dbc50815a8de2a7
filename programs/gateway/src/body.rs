//! The body of an answer, whoever gives it.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use crate::http1::AnswerBody;
use serving::port::Sent;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// The body of an answer on the port of callers.
pub(crate) enum Body {
    /// A text of the gateway or of its limits. None once it is taken.
    Text(Option<Bytes>),
    /// The caller's own.
    Echo(Sent),
    /// The upstream's, by HTTP/1.1 or by HTTP/2.
    One(AnswerBody),
    Two(Incoming),
}

impl Default for Body {
    fn default() -> Self {
        Self::Text(None)
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::Text(Some(Bytes::from_static(text.as_bytes())).filter(|text| !text.is_empty()))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Text(Some(Bytes::from(text)).filter(|text| !text.is_empty()))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Echo(body) => Pin::new(body).poll_frame(cx),
            Self::One(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Two(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Echo(body) => body.is_end_stream(),
            Self::One(body) => body.is_end_stream(),
            Self::Two(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
            Self::Echo(body) => body.size_hint(),
            Self::One(body) => body.size_hint(),
            Self::Two(body) => body.size_hint(),
        }
    }
}
