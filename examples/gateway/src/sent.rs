//! The body of a request, as the caller sends it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::stalled::Patience;

/// How long a body is read on that nobody wants any more.
const LONGEST: Duration = Duration::from_secs(2);

/// What a caller of HTTP/2 still sends when nobody reads it any more. Dropped at once, it would
/// reset the stream, and the caller would lose the response. So it is kept until the response has
/// left, and then read to its end, within bounds: some callers take no answer before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread(Arc<Mutex<Option<Incoming>>>);

impl Unread {
    /// The response has left.
    pub(crate) fn read_on(&self) {
        let rest = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(mut rest), Ok(runtime)) = (rest, Handle::try_current()) else { return };
        runtime.spawn(async move {
            let end = poll_fn(|cx| {
                loop {
                    match ready!(Pin::new(&mut rest).poll_frame(cx)) {
                        Some(Ok(_)) => {}
                        _ => return Poll::Ready(()),
                    }
                }
            });
            let _ = timeout(LONGEST, end).await;
        });
    }
}

/// A body that ends with an error when its caller is given up.
pub(crate) struct Sent {
    /// Taken when it is dropped.
    body: Option<Incoming>,
    patience: Patience,
    unread: Option<Unread>,
}

impl Sent {
    /// `unread`: where the rest goes, if it is HTTP/2.
    pub(crate) fn body(body: Incoming, patience: Patience, unread: Option<Unread>) -> Body {
        Body::new(Self { body: Some(body), patience, unread })
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !body.is_end_stream());
        if let (Some(Unread(kept)), Some(rest)) = (&self.unread, rest) {
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(rest);
        }
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
