//! The body of a request, as the caller sends it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use crate::stalled::Patience;

/// What a caller still sends when nobody reads it any more, kept until its response has left.
/// Dropped before, it would reset the stream of HTTP/2, and the caller would lose the response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread(Arc<Mutex<Option<Incoming>>>);

/// A body that ends with an error when its caller is given up.
pub(crate) struct Sent {
    /// Taken when it is dropped.
    body: Option<Incoming>,
    patience: Patience,
    unread: Unread,
}

impl Sent {
    pub(crate) fn body(body: Incoming, patience: Patience, unread: Unread) -> Body {
        Body::new(Self { body: Some(body), patience, unread })
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !body.is_end_stream());
        *self.unread.0.lock().unwrap_or_else(PoisonError::into_inner) = rest;
    }
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match Pin::new(body).poll_frame(cx) {
            Poll::Ready(frame) => {
                self.patience.renew();
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => self.patience.poll_over(cx).map(|over| Some(Err(over.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Incoming::size_hint)
    }
}
