//! One connection of HTTP/2 to the upstream. All requests share it; it is opened when the first one
//! comes, and again when it has closed or answers nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::Connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::Mutex;
use tower::ServiceExt;

use crate::body::BoxError;
use crate::bounded::Bounded;
use crate::connections::now;
use crate::sent::Sent;
use serving::causes::causes;

/// A client of HTTP/2.
pub(crate) struct Http2 {
    connector: HttpsConnector<Bounded>,
    target: Uri,
    state: Mutex<State>,
    /// The time of the last answer, as `connections::now` counts.
    answered: AtomicU64,
}

enum State {
    Closed,
    /// For a request of this time, as `connections::now` counts.
    Open(SendRequest<Sent>, u64),
    /// The instant at which the last attempt to connect failed, and the reason.
    Failed(Instant, String),
}

impl Http2 {
    /// A client of the host of `target`.
    pub(crate) fn new(connector: HttpsConnector<Bounded>, target: Uri) -> Self {
        let (state, answered) = (Mutex::new(State::Closed), AtomicU64::new(0));
        Self { connector, target, state, answered }
    }

    /// Sends a request; over another connection if this one closes before anything was sent.
    pub(crate) async fn send(
        &self,
        mut request: Request<Sent>,
        asked_at: u64,
    ) -> Result<Response<Incoming>, BoxError> {
        let mut is_again = false;
        loop {
            let answer = self.connection(asked_at).await?.try_send_request(request).await;
            match answer.map_err(|mut error| (error.take_message(), error)) {
                Ok(response) => {
                    self.answered.store(now(), Relaxed);
                    return Ok(response);
                }
                Err((Some(unsent), _)) if !is_again => {
                    (request, is_again) = (unsent, true);
                }
                Err((_, error)) => return Err(error.into_error().into()),
            }
        }
    }

    /// A request of this time has no answer. If no other had one since, the next requests open
    /// another connection: that of a host which is gone stays open for minutes. Its streams go on.
    /// No ping asks, since servers of gRPC close a connection for pings.
    pub(crate) fn is_late(&self, asked: u64) {
        if self.answered.load(Relaxed) < asked
            && let Ok(mut state) = self.state.try_lock()
            && matches!(&*state, State::Open(_, asked_at) if *asked_at <= asked)
        {
            *state = State::Closed;
        }
    }

    /// The connection. Who waits while another caller fails to open it does not try once more.
    async fn connection(&self, asked_at: u64) -> Result<SendRequest<Sent>, BoxError> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        match &*state {
            State::Open(sender, _) if !sender.is_closed() => return Ok(sender.clone()),
            State::Failed(at, why) if *at >= asked => return Err(why.clone().into()),
            _ => {}
        }
        let opened = self.open().await;
        *state = match &opened {
            Ok(sender) => State::Open(sender.clone(), asked_at),
            Err(error) => State::Failed(Instant::now(), causes(&**error)),
        };
        opened
    }

    async fn open(&self) -> Result<SendRequest<Sent>, BoxError> {
        let stream = self.connector.clone().oneshot(self.target.clone()).await?;
        if self.target.scheme_str() == Some("https") && !stream.connected().is_negotiated_h2() {
            return Err("the upstream does not speak HTTP/2".into());
        }
        let mut http = Builder::new(TokioExecutor::new());
        let (sender, connection) = http.timer(TokioTimer::new()).handshake(stream).await?;
        tokio::spawn(async move {
            // Its requests are answered with the error, too.
            let _ = connection.await;
        });
        Ok(sender)
    }
}
