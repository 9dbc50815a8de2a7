//! Resolves host names, by the application's own function.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use redis::RedisFuture;
use redis::io::AsyncDNSResolver;

pub(super) type Resolved = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Resolves host names, anew for each connection.
#[derive(Clone)]
pub(super) struct Resolver(Arc<dyn Fn(String, u16) -> Resolved + Send + Sync>);

impl Resolver {
    pub(super) fn new<F>(resolve: impl Fn(String, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        Self(Arc::new(move |host, port| Box::pin(resolve(host, port))))
    }

    /// The addresses of a host.
    pub(super) fn addresses(&self, host: String, port: u16) -> Resolved {
        (self.0)(host, port)
    }
}

impl AsyncDNSResolver for Resolver {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        let resolved = self.addresses(host.to_owned(), port);
        Box::pin(async move { Ok(Box::new(resolved.await?.into_iter()) as Box<_>) })
    }
}
