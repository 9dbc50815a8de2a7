//! The settings of a pool.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use tokio::io::{AsyncRead, AsyncWrite};

use super::address::{Address, Topology};
use super::cluster::{Cluster, NodeSettings};
use super::dialer::{Dialer, Resolver};
use super::own_pool::{OwnPool, Target};
use super::pool::{MAX_TIMEOUT, Pool};
use super::sentinel::Sentinels;
use super::server::{Connector, Login};
use super::tls::Tls;
use crate::{Error, ErrorKind};

impl Pool {
    /// Connections to what `url` names. Connects on first use.
    ///
    /// | address | leads to |
    /// |---|---|
    /// | `redis://user:password@host:6379/0` | one server; the database is 0 to 15 |
    /// | `redis-cluster://host:6379?node=host2:6379&node=host3:6379` | a cluster: one node that answers is enough |
    /// | `redis-sentinel://host:26379/0?node=host2:26379&sentinelServiceName=main` | the primary that sentinels call `main` |
    /// | `redis+unix:///run/redis.sock?db=0` | one server over a socket of the system |
    ///
    /// With TLS, an address begins with `rediss://`, `rediss-cluster://` or `rediss-sentinel://`;
    /// `valkey` and `valkeys` may stand for `redis` and `rediss`. User, password and database are
    /// those of the servers that decide. Sentinels may have others: `sentinelUsername=` and
    /// `sentinelPassword=`. What holds characters such as `@`, `&` or `+` is percent-encoded.
    ///
    /// The address must say what is there: a plain address that leads to a sentinel or to a node
    /// of a cluster gets no connection. The error says which address to write.
    ///
    /// Name all sentinels. They are asked every second, and say at once when the primary changes:
    /// then no call goes to the old one any more. [When Redis fails][sentinels] says what a
    /// failover can cost.
    ///
    /// [sentinels]: crate::guide::when_redis_fails#sentinels
    ///
    /// # Errors
    ///
    /// Of kind [`Configuration`](crate::ErrorKind::Configuration), if the address is not one of
    /// these. No error repeats a password.
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url)?.build()
    }

    /// Connections to what `url` names, as in [`connect`](Self::connect), to be set up further.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub fn builder(url: &str) -> Result<PoolBuilder, Error> {
        Address::parse(url).map(PoolBuilder::new)
    }
}

/// A [`Pool`] being set up: see [`Pool::builder`].
#[derive(Clone)]
pub struct PoolBuilder {
    address: Address,
    size: u32,
    connect_timeout: Duration,
    response_timeout: Option<Duration>,
    resolver: Option<Resolver>,
    dialer: Option<Dialer>,
    tls: Tls,
}

impl PoolBuilder {
    fn new(address: Address) -> Self {
        Self {
            address,
            size: 2,
            connect_timeout: Duration::from_secs(1),
            response_timeout: None,
            resolver: None,
            dialer: None,
            tls: Tls::default(),
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

    /// Opens each socket by `dial`, which is given host and port: through a proxy or a tunnel, or
    /// to a server inside a test. Default: TCP.
    ///
    /// It takes the place of the [`resolver`](Self::resolver). Encryption is then up to `dial`, and
    /// an address that asks for TLS, or names a Unix socket, is an error of [`build`](Self::build).
    ///
    /// ```
    /// use tower_sluice::Pool;
    ///
    /// # fn main() -> Result<(), tower_sluice::Error> {
    /// let through_tunnel = Pool::builder("redis://cache.internal")?
    ///     .dial(|_host, _port| tokio::net::TcpStream::connect("127.0.0.1:16379"))
    ///     .build()?;
    /// # let _ = through_tunnel;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn dial<F, S>(mut self, dial: impl Fn(String, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.dialer = Some(Dialer::new(dial));
        self
    }

    /// Sets the number of the database. Default: the address's, else 0.
    #[must_use]
    pub fn database(mut self, number: u32) -> Self {
        self.address.settings = self.address.settings.set_db(number.into());
        self
    }

    /// Sets user and password. Default: the address's, else none. [`Pool::set_credentials`] sets
    /// others while the pool is used.
    #[must_use]
    pub fn credentials(mut self, user: &str, password: &str) -> Self {
        self.address.settings = self.address.settings.set_username(user).set_password(password);
        self
    }

    /// Sets user and password of the sentinels, where the address names sentinels. Default: the
    /// address's, else none.
    #[must_use]
    pub fn sentinel_credentials(mut self, user: &str, password: &str) -> Self {
        if let Topology::Sentinel { settings, .. } = &mut self.address.topology {
            *settings = settings.clone().set_username(user).set_password(password);
        }
        self
    }

    /// Trusts the authorities whose certificates are in `pem`, and no others; those of several
    /// calls add up. Default: the authorities of the system.
    ///
    /// `rustls-native-certs` finds those of the system: on Linux also in the file or the folder
    /// that `SSL_CERT_FILE` or `SSL_CERT_DIR` names. They are read once, by [`build`](Self::build).
    #[cfg(feature = "rustls")]
    #[must_use]
    pub fn root_certificate(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.tls.add_root(pem.as_ref());
        self
    }

    /// Trusts the authorities that Mozilla trusts, as they were known when the crate `webpki-roots`
    /// was compiled: for containers that hold no authorities of their own. Default: the authorities
    /// of the system.
    #[cfg(feature = "rustls")]
    #[must_use]
    pub fn webpki_roots(mut self) -> Self {
        self.tls.use_webpki_roots();
        self
    }

    /// Sets the certificate that this process shows to servers, with the chain behind it, and its
    /// private key; both in PEM. Default: none.
    #[cfg(feature = "rustls")]
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
    ) -> Self {
        self.tls.set_identity(certificate.as_ref(), key.as_ref());
        self
    }

    /// Makes the pool, which connects on first use.
    ///
    /// # Errors
    ///
    /// Of kind [`Configuration`](crate::ErrorKind::Configuration):
    ///
    /// - The address asks for TLS, and the crate was built without the feature `rustls`, or the
    ///   application has installed no crypto provider, or a certificate cannot be read, or nothing
    ///   was set and the system knows no authorities.
    /// - The address asks for TLS or names a Unix socket, and `dial` was set.
    /// - Something was set for TLS, and the address does not ask for TLS.
    pub fn build(self) -> Result<Pool, Error> {
        let Address { topology, uses_tls, settings } = self.address;
        if self.dialer.is_some() && (uses_tls || matches!(topology, Topology::Socket(_))) {
            let message = "sockets that are dialed are those of an address without TLS";
            return Err(Error::new(ErrorKind::Configuration, message));
        }
        let login = Login::new(settings);
        let connector = Connector {
            tls: self.tls.params(uses_tls)?,
            login: login.clone(),
            timeout: self.connect_timeout,
            resolver: self.resolver,
            dialer: self.dialer,
        };
        let (size, response_timeout) = (self.size as usize, self.response_timeout);
        let pool = |target| Pool::new(Arc::new(OwnPool::new(target, size)), response_timeout);
        let mut sentinel_login = None;
        let pool = match topology {
            Topology::Server(host) => pool(Target::from(connector.server(&host)?)),
            Topology::Socket(path) => pool(Target::from(connector.socket(path)?)),
            Topology::Cluster { nodes } => {
                let cluster = Cluster::new(NodeSettings { connector, size }, nodes)?;
                Pool::of_cluster(cluster, response_timeout)
            }
            Topology::Sentinel { sentinels, service_name, settings } => {
                let own = Login::new(settings);
                sentinel_login = Some(own.clone());
                let sentinels = Sentinels::new(&sentinels, own, &service_name, connector)?;
                pool(Target::Primary(Arc::new(sentinels)))
            }
        };
        Ok(pool.with_logins(login, sentinel_login))
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

    // Case 125.
    #[test]
    fn tls_is_a_feature_and_never_a_downgrade() {
        let error = Pool::connect("rediss://127.0.0.1:1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        // With the feature, what lacks is a crypto provider.
        assert_eq!(cfg!(feature = "rustls"), error.to_string().contains("install_default"));
    }
}
