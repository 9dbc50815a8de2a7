//! The listening side: connections, and a graceful end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, Version};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tower::{Service, ServiceExt};
use tower_sluice::PeerAddr;

use crate::lingering::Lingering;
use crate::running::Running;
use crate::sent::Sent;
use crate::stalled::{Moved, Patience};
use crate::{built_in, head};

/// How long a caller may take for the head of a request, or keep an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long connections may take to close once nothing runs any more.
const CLOSING: Duration = Duration::from_secs(2);

/// Serves until `ended`. Then it closes the listening socket and idle connections, and returns when
/// the requests and tunnels that run have ended. Callers that stop in the middle are given up.
pub(crate) async fn serve<S>(
    listener: TcpListener,
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
    let mut http = Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    http.http2().timer(TokioTimer::new()).keep_alive_interval(HEAD_TIMEOUT);
    let closing = GracefulShutdown::new();

    tokio::pin!(ended);
    loop {
        let (stream, peer) = tokio::select! {
            accepted = accept(&listener) => accepted,
            () = &mut ended => break,
        };
        let patience = Patience::new(running.clone(), Moved::default());
        let stream = Lingering::new(stream, patience);
        let (service, running, tunnel) = (service.clone(), running.clone(), stream.tunnel());
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let (service, one, tunnel) = (service.clone(), running.begin(), tunnel.clone());
            let patience = Patience::new(running.clone(), one.moved());
            let unread = (request.version() == Version::HTTP_2).then(|| one.unread());
            async move {
                if let Some((status, why)) = head::wrong(&request) {
                    let mut response = built_in::status(status, why);
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    return Ok(response);
                }
                let mut request = request.map(|body| Sent::body(body, patience, unread));
                request.extensions_mut().insert(tunnel);
                request.extensions_mut().insert(PeerAddr(peer));
                request.extensions_mut().insert(ConnectInfo::<SocketAddr>(peer));
                service.oneshot(request).await.map(|response| one.until_end_of(response))
            }
        });
        let connection = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let connection = closing.watch(connection.into_owned());
        tokio::spawn(async move {
            // A caller that breaks its connection or its protocol harms itself alone.
            let _ = connection.await;
        });
    }

    drop(listener);
    running.end();
    eprintln!("gateway: ending, {} requests run", running.count());
    let late = async {
        running.idle().await;
        tokio::time::sleep(CLOSING).await;
    };
    // Idle connections close at once, the others after the response that they carry. A tunnel has
    // left its connection, so it is waited for besides.
    let closed = async { tokio::join!(closing.shutdown(), running.idle()) };
    tokio::select! {
        _ = closed => {}
        () = late => {}
    }
}

/// The next connection. Without a free file descriptor it waits for one.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Small answers leave at once.
                let _ = stream.set_nodelay(true);
                return (stream, peer);
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                eprintln!("gateway: cannot accept connections: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
