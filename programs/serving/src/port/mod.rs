//! A port: connections of HTTP/1.1 and HTTP/2, and a graceful end.
//!
//! `connections.rs` bounds their number and the silence of each, `exchange.rs` that within a
//! request. `sent.rs` is the body that a caller sends, `running.rs` the answer until it has left.
//! `streams.rs` ends streams of HTTP/2, and `lingering.rs` the connection.

mod bounds;
mod connections;
mod exchange;
mod framing;
mod head;
mod lingering;
mod pace;
mod peer;
mod running;
mod sent;
mod streams;
mod timeouts;

pub use self::bounds::{Bounds, Callers};
pub use self::connections::{Caller, millis, now};
pub use self::exchange::Exchange;
pub use self::peer::Peer;
pub use self::running::Running;
pub use self::sent::{Sending, Sent, starting_tasks};
pub use self::timeouts::{Timeouts, seconds};

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::{self, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Bytes;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::{Builder, UpgradeableConnection};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio_util::task::TaskTracker;
use tower::{Service, ServiceExt};
use tower_sluice::key::PeerAddr;

use self::connections::OpenConnections;
use self::lingering::Lingering;
use self::running::{RunningBody, RunningRequest};
use self::streams::Streams;
use crate::log::Log;
use crate::program;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// The time after which a silent connection is asked whether its caller is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// The pause between two such questions of TCP, of which nine are asked.
const PROBE: Duration = Duration::from_secs(10);
/// The most bytes of a head. By HTTP/2 they are 16 KiB.
const MAX_HEAD: usize = 64 * 1_024;
/// The most requests that a connection of HTTP/2 may have at once.
const MAX_STREAMS: u32 = 128;

/// The bytes of a request's body that may wait here. The connection may hold those of 16.
const STREAM_WINDOW: u32 = 256 << 10;

static NOT_ACCEPTED: Log = Log::new();

/// A port to serve. Clones are one port: each worker has its own.
#[derive(Clone)]
pub struct Port {
    name: &'static str,
    listener: Arc<net::TcpListener>,
    connections: Arc<OpenConnections>,
    tasks: TaskTracker,
    running: Running,
    timeouts: Timeouts,
}

impl Port {
    /// Begins to listen. `name` is what logs say.
    pub async fn bind(
        name: &'static str,
        address: &str,
        bounds: Bounds,
        running: Running,
    ) -> Result<Self, String> {
        let bound = async { TcpListener::bind(address).await?.into_std() };
        let bound = bound.await;
        let listener =
            bound.map_err(|error| format!("{name} {address:?} cannot be bound: {error}"))?;
        Ok(Self {
            name,
            listener: Arc::new(listener),
            timeouts: bounds.timeouts,
            connections: Arc::new(OpenConnections::new(name, bounds)),
            tasks: TaskTracker::new(),
            running,
        })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves on the current runtime until `ended`. Then it closes the listening socket and idle
    /// connections, and returns when the requests and tunnels that run have ended, those of other
    /// workers too. Callers that stop in the middle are given up.
    pub async fn serve<S, B>(self, service: S, ended: impl Future<Output = ()>) -> io::Result<()>
    where
        S: Service<Request<Sent>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
        B: Body<Data = Bytes> + From<&'static str> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let Self { name, listener, connections, tasks, running, timeouts } = self;
        let own = TcpListener::from_std(listener.try_clone()?)?;
        drop(listener);
        let mut http = Builder::new(Streams);
        http.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(MAX_HEAD);
        http.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(16 * STREAM_WINDOW);

        tokio::pin!(ended);
        loop {
            let accepted = async {
                loop {
                    let (stream, peer) = accept(&own, name).await;
                    let caller = Caller::new(peer, running.clone(), timeouts);
                    // Closed where its address has too many.
                    let Some(place) = connections.enter(&caller).await else { continue };
                    return (Lingering::new(stream, Arc::clone(&caller), place), caller);
                }
            };
            let (stream, caller) = tokio::select! {
                accepted = accepted => accepted,
                () = &mut ended => break,
            };
            let (service, of) = (service.clone(), Arc::clone(&caller));
            let service = hyper::service::service_fn(move |request| {
                let one = RunningRequest::new(&of, request.version());
                answer(service.clone(), request, one)
            });
            let connection = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
            let (connection, of) = (connection.into_owned(), Arc::clone(&caller));
            // A caller that breaks its connection or its protocol harms itself alone.
            let task = tasks.spawn(async move {
                of.drive(connection, UpgradeableConnection::graceful_shutdown).await;
            });
            caller.set_task(task.abort_handle());
            // What has come runs first: meanwhile a worker with less to do accepts the next one.
            yield_now().await;
        }

        drop(own);
        if running.end() {
            eprintln!("{}: ending, {} requests run", program(), running.count());
        }
        connections.wake();
        tasks.close();
        // A tunnel has left its connection, so it is waited for besides.
        tokio::join!(tasks.wait(), running.idle());
        Ok(())
    }
}

/// The answer to one request.
async fn answer<S, B>(
    service: S,
    request: Request<Incoming>,
    one: RunningRequest,
) -> Result<Response<RunningBody<B>>, Infallible>
where
    S: Service<Request<Sent>, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes> + From<&'static str>,
{
    streams::watch(&one);
    // By HTTP/2 always, where no request has a transfer coding.
    let has_two_framings = one.exchange().caller.asks_with_two_framings();
    if let Some((status, why)) = head::wrong(&request, has_two_framings) {
        return Ok(one.until_end_of(last(status, why)));
    }
    let mut request = Sent::of(request, one.exchange());
    request.extensions_mut().insert(PeerAddr(one.exchange().caller.peer.socket));
    let response = service.oneshot(request).await?;
    Ok(match one.exchange().is_given_up() {
        true => one.until_end_of(last(StatusCode::REQUEST_TIMEOUT, "the body does not come\n")),
        false => one.until_end_of(response),
    })
}

/// An answer after which the connection closes.
fn last<B: From<&'static str>>(status: StatusCode, why: &'static str) -> Response<B> {
    let mut response = Response::new(why.into());
    *response.status_mut() = status;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The next connection. Without a free file descriptor it waits for one.
async fn accept(listener: &TcpListener, name: &str) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Small answers leave at once.
                let _ = stream.set_nodelay(true);
                // A caller that is gone without a word is noticed while its answer is quiet.
                let alive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(PROBE);
                let _ = SockRef::from(&stream).set_tcp_keepalive(&alive);
                return (stream, peer);
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                NOT_ACCEPTED.say(|| format!("{name} cannot accept connections: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_caller_that_is_gone_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = accept(&listener, "LISTEN").await;
        assert!(SockRef::from(&stream).keepalive().unwrap());
    }
}
