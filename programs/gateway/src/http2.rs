//! HTTP/2 to the upstream. The connection of each caller has one there of its own, which is opened
//! with its first request and closed at most 2 s after it. So callers cannot hold each other up:
//! the window and the bound on streams, which all requests of a connection share, are one caller's.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::TokioTimer;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::body::BoxError;
use serving::causes::causes;
use serving::port::now;
use serving::port::{Sending, Sent, starting_tasks};

/// The window of an answer. That of the connection is as large as 16, so a caller that takes none
/// of many answers gets no others until these are given up.
const STREAM_WINDOW: u32 = 128 << 10;
/// The number of streams that were reset here, and of which parts may be on the way.
const MAX_RESET: usize = 1_024;

/// A client of HTTP/2.
pub(crate) struct Http2 {
    connector: HttpsConnector<HttpConnector>,
    target: Uri,
}

/// The connection that belongs to a caller's.
#[derive(Default)]
pub(crate) struct Own {
    state: Mutex<State>,
    /// The time of the last answer, as `connections::now` counts.
    answered: AtomicU64,
}

#[derive(Default)]
enum State {
    #[default]
    Closed,
    /// For a request of this time, as `connections::now` counts.
    Open(SendRequest<Sent>, u64),
    /// The instant at which the last attempt to connect failed, and the reason.
    Failed(Instant, String),
}

impl Own {
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
}

impl Http2 {
    /// A client of the host of `target`.
    pub(crate) fn new(connector: HttpsConnector<HttpConnector>, target: Uri) -> Self {
        Self { connector, target }
    }

    /// Sends a request; over another connection if this one closes before anything was sent.
    pub(crate) async fn send(
        &self,
        mut request: Request<Sent>,
        asked_at: u64,
    ) -> Result<Response<Incoming>, BoxError> {
        let exchange = request.body().exchange().clone();
        exchange.goes_by_http2();
        let caller = &exchange.caller;
        let own: &Own = caller.own();
        let mut is_again = false;
        loop {
            let mut connection = self.connection(own, &caller.over, asked_at).await?;
            let answer = connection.try_send_request(request).await;
            match answer.map_err(|mut error| (error.take_message(), error)) {
                Ok(response) => {
                    own.answered.store(now(), Relaxed);
                    return Ok(response);
                }
                Err((Some(unsent), _)) if !is_again => {
                    (request, is_again) = (unsent, true);
                }
                Err((_, error)) => return Err(error.into_error().into()),
            }
        }
    }

    /// The connection. Who waits while another request fails to open it does not try once more.
    async fn connection(
        &self,
        own: &Own,
        over: &CancellationToken,
        asked_at: u64,
    ) -> Result<SendRequest<Sent>, BoxError> {
        let asked = Instant::now();
        let mut state = own.state.lock().await;
        match &*state {
            State::Open(sender, _) if !sender.is_closed() => return Ok(sender.clone()),
            State::Failed(at, why) if *at >= asked => return Err(why.clone().into()),
            _ => {}
        }
        let opened = self.open(over.clone()).await;
        *state = match &opened {
            Ok(sender) => State::Open(sender.clone(), asked_at),
            Err(error) => State::Failed(Instant::now(), causes(&**error)),
        };
        opened
    }

    async fn open(&self, over: CancellationToken) -> Result<SendRequest<Sent>, BoxError> {
        let stream = self.connector.clone().oneshot(self.target.clone()).await?;
        if self.target.scheme_str() == Some("https") && !stream.connected().is_negotiated_h2() {
            return Err("the upstream does not speak HTTP/2".into());
        }
        let mut http = Builder::new(Sending { over: over.clone() });
        http.timer(TokioTimer::new());
        http.initial_stream_window_size(STREAM_WINDOW);
        http.initial_connection_window_size(16 * STREAM_WINDOW);
        // Calls that are given up are no fault of the upstream's, however many they are.
        http.max_concurrent_reset_streams(MAX_RESET).max_local_error_reset_streams(None);
        let (sender, connection) = http.handshake(stream).await?;
        // Its requests are answered with the error, too.
        tokio::spawn(async move { over.run_until_cancelled(starting_tasks(connection)).await });
        Ok(sender)
    }
}
