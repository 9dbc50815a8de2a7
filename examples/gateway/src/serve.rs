//! The listening side: connections, and a graceful end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::{Builder, UpgradeableConnection};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;
use tower::{Service, ServiceExt};
use tower_sluice::PeerAddr;

use crate::connections::{Caller, Connections};
use crate::lingering::Lingering;
use crate::log::Log;
use crate::running::{One, Running};
use crate::sent::Sent;
use crate::settings::Timeouts;
use crate::{built_in, head};

/// How often a connection of HTTP/2 is asked whether its caller is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// The most bytes of a head. By HTTP/2 they are 16 KiB.
const MAX_HEAD: usize = 64 * 1_024;
/// How many requests a connection of HTTP/2 may have at once.
const MAX_STREAMS: u32 = 128;

static NOT_ACCEPTED: Log = Log::new();

/// A port to serve.
pub(crate) struct Port {
    /// As logs name it.
    pub(crate) name: &'static str,
    pub(crate) listener: TcpListener,
    pub(crate) max_connections: usize,
    pub(crate) timeouts: Timeouts,
}

impl Port {
    /// Serves until `ended`. Then it closes the listening socket and idle connections, and returns
    /// when the requests and tunnels that run have ended. Callers that stop in the middle are given
    /// up.
    pub(crate) async fn serve<S>(
        self,
        service: S,
        running: Running,
        ended: impl Future<Output = ()>,
    ) where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
    {
        let Self { name, listener, max_connections, timeouts } = self;
        let mut http = Builder::new(TokioExecutor::new());
        http.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(MAX_HEAD);
        http.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .max_concurrent_streams(MAX_STREAMS);
        let (mut connections, tasks) =
            (Connections::new(name, max_connections), TaskTracker::new());

        tokio::pin!(ended);
        loop {
            let accepted = async {
                let (stream, peer) = accept(&listener, name).await;
                let caller = Caller::new(running.clone(), timeouts);
                let place = connections.enter(&caller).await;
                (Lingering::new(stream, Arc::clone(&caller), place), caller, peer)
            };
            let (stream, caller, peer) = tokio::select! {
                accepted = accepted => accepted,
                () = &mut ended => break,
            };
            let (service, of) = (service.clone(), Arc::clone(&caller));
            let service = hyper::service::service_fn(move |request| {
                answer(service.clone(), request, One::new(&of), peer)
            });
            let connection = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
            let (connection, of) = (connection.into_owned(), Arc::clone(&caller));
            // A caller that breaks its connection or its protocol harms itself alone.
            let task = tasks.spawn(async move {
                of.drive(connection, UpgradeableConnection::graceful_shutdown).await;
            });
            caller.set_task(task.abort_handle());
        }

        drop(listener);
        running.end();
        connections.wake();
        tasks.close();
        eprintln!("gateway: ending, {} requests run", running.count());
        // A tunnel has left its connection, so it is waited for besides.
        tokio::join!(tasks.wait(), running.idle());
    }
}

/// The answer to one request.
async fn answer<S>(
    service: S,
    request: Request<Incoming>,
    one: One,
    peer: SocketAddr,
) -> Result<Response<Body>, Infallible>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let states_length = one.exchange().caller.states_length();
    if let Some((status, why)) = head::wrong(&request, states_length) {
        return Ok(last(status, why));
    }
    let mut request = Sent::of(request, one.exchange());
    request.extensions_mut().insert(Arc::clone(one.exchange()));
    request.extensions_mut().insert(PeerAddr(peer));
    request.extensions_mut().insert(ConnectInfo::<SocketAddr>(peer));
    let response = service.oneshot(request).await?;
    Ok(match one.exchange().is_given_up() {
        true => last(StatusCode::REQUEST_TIMEOUT, "the body does not come\n"),
        false => one.until_end_of(response),
    })
}

/// An answer after which the connection closes.
fn last(status: StatusCode, why: &'static str) -> Response<Body> {
    let mut response = built_in::status(status, why);
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
