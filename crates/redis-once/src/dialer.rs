//! The application's functions that find a server's addresses, or open sockets to it.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::lookup_host;

type Resolved = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Resolves host names, again for each connection.
pub(super) type Resolver = Arc<dyn Fn(String, u16) -> Resolved + Send + Sync>;

/// Returns the IP addresses of a host, by the application's function or the system.
pub(super) async fn addresses(
    host: &str,
    port: u16,
    resolver: Option<&Resolver>,
) -> io::Result<Vec<SocketAddr>> {
    match resolver {
        Some(resolve) => resolve(host.to_owned(), port).await,
        None => Ok(lookup_host((host, port)).await?.collect()),
    }
}

/// The bytes of a connection: TCP, TLS, a Unix socket, or a socket that an application opened.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Opens a socket to a host and port, again for each connection.
#[derive(Clone)]
pub(super) struct Dialer(Arc<dyn Fn(String, u16) -> Dialing + Send + Sync>);

impl Dialer {
    pub(super) fn new<F, S>(dial: impl Fn(String, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self(Arc::new(move |host, port| {
            let dialed = dial(host, port);
            Box::pin(async move { Ok(Box::new(dialed.await?) as Box<dyn Stream>) })
        }))
    }

    /// Opens a socket.
    pub(super) fn dial(&self, host: String, port: u16) -> Dialing {
        (self.0)(host, port)
    }
}
