//! The body of an answer, whoever gives it.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use crate::bill::Bill;
use crate::http1::AnswerBody;
use serving::port::Sent;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// The body of an answer on the port of callers.
pub(crate) struct Body {
    source: Source,
    /// The units of its request, until it has ended.
    bill: Option<Bill>,
}

/// The sender of a body.
pub(crate) enum Source {
    /// A text of the gateway or of its limits. None once it is taken.
    Text(Option<Bytes>),
    /// The caller's own.
    Echo(Sent),
    /// The upstream's, by HTTP/1.1 or by HTTP/2.
    One(AnswerBody),
    Two(Incoming),
}

impl Body {
    /// Settles a request when the body of its answer has ended.
    pub(crate) fn settle(answer: &mut Response<Self>, mut bill: Bill) {
        bill.read_head(answer);
        match answer.body().is_end_stream() {
            true => bill.ended(),
            false => answer.body_mut().bill = Some(bill),
        }
    }
}

impl From<Source> for Body {
    fn from(source: Source) -> Self {
        Self { source, bill: None }
    }
}

impl Default for Body {
    fn default() -> Self {
        Source::Text(None).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<Bytes> for Body {
    fn from(text: Bytes) -> Self {
        Source::Text(Some(text).filter(|text| !text.is_empty())).into()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let frame = ready!(match &mut this.source {
            Source::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Source::Echo(body) => Pin::new(body).poll_frame(cx),
            Source::One(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Source::Two(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        });
        if let Some(bill) = &mut this.bill {
            let part = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
            part.into_iter().for_each(|part| bill.read(part));
            let broke_off = matches!(frame, Some(Err(_)));
            // If a body says that it has ended, it may not be polled again.
            if frame.is_none() || broke_off || this.source.is_end_stream() {
                this.bill.take().into_iter().filter(|_| !broke_off).for_each(Bill::ended);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Text(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
            Source::Echo(body) => body.size_hint(),
            Source::One(body) => body.size_hint(),
            Source::Two(body) => body.size_hint(),
        }
    }
}

impl Source {
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Echo(body) => body.is_end_stream(),
            Self::One(body) => body.is_end_stream(),
            Self::Two(body) => body.is_end_stream(),
        }
    }
}
