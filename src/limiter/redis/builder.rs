//! The settings of a pool.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use std::{fmt, io};

use redis::{ConnectionInfo, IntoConnectionInfo};

use super::own_pool::OwnPool;
use super::pool::{MAX_TIMEOUT, Pool};
use super::server::{Resolver, Server, invalid_address};
use crate::Error;

impl Pool {
    /// Connections to the server at `url`, such as `redis://127.0.0.1:6379`. Connects on first use.
    ///
    /// # Errors
    ///
    /// If `url` does not parse.
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url)?.build()
    }

    /// Connections to the server at `url`, to be set up further.
    ///
    /// # Errors
    ///
    /// If `url` does not parse.
    pub fn builder(url: &str) -> Result<PoolBuilder, Error> {
        url.into_connection_info().map(PoolBuilder::new).map_err(invalid_address)
    }
}

/// A [`Pool`] being set up: see [`Pool::builder`].
#[derive(Clone)]
pub struct PoolBuilder {
    info: ConnectionInfo,
    size: u32,
    connect_timeout: Duration,
    response_timeout: Option<Duration>,
    resolver: Option<Resolver>,
}

impl PoolBuilder {
    pub(super) fn new(info: ConnectionInfo) -> Self {
        Self {
            info,
            size: 2,
            connect_timeout: Duration::from_secs(1),
            response_timeout: None,
            resolver: None,
        }
    }

    /// Sets how many connections each runtime has, at least 1. Default: 2.
    #[must_use]
    pub fn size(mut self, connections: u32) -> Self {
        self.size = connections.max(1);
        self
    }

    /// Sets how long connecting may take. Default: 1 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout.min(MAX_TIMEOUT);
        self
    }

    /// Sets the longest wait for a reply. Default: until the deadline of the decision.
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = Some(timeout.min(MAX_TIMEOUT));
        self
    }

    /// Resolves the host's name by `resolve`, anew for each connection: for service discovery.
    /// Default: the system's resolver.
    #[must_use]
    pub fn resolver<F>(mut self, resolve: impl Fn(String, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        self.resolver = Some(Resolver::new(resolve));
        self
    }

    /// Sets the number of the database. Default: the address's, else 0.
    #[must_use]
    pub fn database(mut self, number: u32) -> Self {
        let settings = self.info.redis_settings().clone().set_db(number.into());
        self.info = self.info.set_redis_settings(settings);
        self
    }

    /// Sets user and password. Default: the address's, else none.
    #[must_use]
    pub fn credentials(mut self, user: &str, password: &str) -> Self {
        let settings = self.info.redis_settings().clone();
        self.info =
            self.info.set_redis_settings(settings.set_username(user).set_password(password));
        self
    }

    /// Makes the pool, which connects on first use.
    ///
    /// # Errors
    ///
    /// Of kind [`Configuration`](crate::ErrorKind::Configuration), if the crate was built without
    /// what the address needs: `rediss://` needs the feature `rustls`, and a crypto provider that
    /// the application installs before.
    pub fn build(self) -> Result<Pool, Error> {
        let server = Server::new(self.info, self.connect_timeout, self.resolver)?;
        Ok(Pool::new(OwnPool::new(server, self.size as usize), self.response_timeout))
    }
}

impl fmt::Debug for PoolBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuilder").field("size", &self.size).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::ErrorKind;

    use super::*;

    #[test]
    fn tls_is_a_feature_and_never_a_downgrade() {
        let error = Pool::connect("rediss://127.0.0.1:1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        // With the feature, what lacks is a crypto provider.
        assert_eq!(cfg!(feature = "rustls"), error.to_string().contains("install_default"));
    }
}
