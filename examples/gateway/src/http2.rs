//! One connection of HTTP/2 to the upstream. All requests share it; it is opened when the first one
//! comes, and again when it has closed or its upstream is silent.

use std::time::{Duration, Instant};

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
use crate::sent::Sent;
use serving::causes::causes;

/// The longest silence of an upstream while requests wait for it: one whose host is gone does not
/// close its connection.
const MOST_SILENCE: Duration = Duration::from_secs(10);

/// A client of HTTP/2.
pub(crate) struct Http2 {
    connector: HttpsConnector<Bounded>,
    target: Uri,
    /// The time after which a silent upstream is asked whether it is still there, and the time that
    /// it has for its answer.
    patience: Duration,
    state: Mutex<State>,
}

enum State {
    Closed,
    Open(SendRequest<Sent>),
    /// The instant at which the last attempt to connect failed, and the reason.
    Failed(Instant, String),
}

impl Http2 {
    /// A client of the host of `target`, whose answers may take `timeout` to begin.
    pub(crate) fn new(connector: HttpsConnector<Bounded>, target: Uri, timeout: Duration) -> Self {
        let patience = timeout.min(MOST_SILENCE);
        Self { connector, target, patience, state: Mutex::new(State::Closed) }
    }

    /// Sends a request; over another connection if this one closes before anything was sent.
    pub(crate) async fn send(
        &self,
        mut request: Request<Sent>,
    ) -> Result<Response<Incoming>, BoxError> {
        let mut is_again = false;
        loop {
            let answer = self.connection().await?.try_send_request(request).await;
            match answer.map_err(|mut error| (error.take_message(), error)) {
                Ok(response) => return Ok(response),
                Err((Some(unsent), _)) if !is_again => {
                    (request, is_again) = (unsent, true);
                }
                Err((_, error)) => return Err(error.into_error().into()),
            }
        }
    }

    /// The connection. Who waits while another caller fails to open it does not try once more.
    async fn connection(&self) -> Result<SendRequest<Sent>, BoxError> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        match &*state {
            State::Open(sender) if !sender.is_closed() => return Ok(sender.clone()),
            State::Failed(at, why) if *at >= asked => return Err(why.clone().into()),
            _ => {}
        }
        let opened = self.open().await;
        *state = match &opened {
            Ok(sender) => State::Open(sender.clone()),
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
        http.timer(TokioTimer::new())
            .keep_alive_interval(self.patience)
            .keep_alive_timeout(self.patience);
        let (sender, connection) = http.handshake(stream).await?;
        tokio::spawn(async move {
            // Its requests are answered with the error, too.
            let _ = connection.await;
        });
        Ok(sender)
    }
}
