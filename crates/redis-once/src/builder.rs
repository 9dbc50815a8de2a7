//! The settings of a pool.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use super::address::{Address, Topology};
use super::cluster::Cluster;
use super::dialer::{Dialer, Resolver};
use super::error::{Error, ErrorKind};
use super::event::{Event, Listener};
use super::greeting::ServerKind;
use super::own_pool::{OwnPool, Target};
use super::pool::Pool;
use super::sentinel::Sentinels;
use super::server::{Connector, Login};
use super::times::{DEFAULT_CONNECT_TIMEOUT, MAX_TIMEOUT};
#[cfg(feature = "rustls")]
use super::tls::Roots;
use super::tls::{Tls, TlsParams};

impl Pool {
    /// Makes a pool for the server, the cluster or the sentinels in `url`. It connects on first
    /// use.
    ///
    /// | address | server |
    /// |---|---|
    /// | `redis://user:password@host:6379/0` | one server; `/0` is the number of the database |
    /// | `redis-cluster://host:6379?node=host2:6379` | a cluster: one node that answers is enough |
    /// | `redis-sentinel://host?node=host2&sentinelServiceName=main` | the primary called `main` |
    /// | `redis+unix:///run/redis.sock?db=0` | one server over a Unix socket |
    ///
    /// With TLS, an address begins with `rediss://`, `rediss-cluster://` or `rediss-sentinel://`.
    /// You may write `valkey` and `valkeys` instead of `redis` and `rediss`. User, password and
    /// database are those of the servers that decide. Sentinels may have others:
    /// `sentinelUsername=` and `sentinelPassword=`, and `sentinelTls=no` or `yes`. Percent-encode
    /// characters such as `@`, `&` or `+` in any part.
    ///
    /// The address must name the right kind of server. A plain address of a sentinel or of a node
    /// of a cluster gets no connection. The error says which address to write.
    ///
    /// Name all sentinels, each additional one as `node=`. The pool asks each of them at least once
    /// a second, and they publish a new primary at once. From then on, no call goes to the old
    /// primary.
    ///
    /// # Errors
    ///
    /// An error of kind [`Configuration`](crate::ErrorKind::Configuration), if the address is not
    /// one of these, or if [`build`](PoolBuilder::build) fails. Errors do not show passwords.
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url)?.build()
    }

    /// Returns a builder for further settings. `url` is an address as in
    /// [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// An error of kind [`Configuration`](crate::ErrorKind::Configuration), if the address is not
    /// one of those in [`connect`](Self::connect). Errors do not show passwords.
    pub fn builder(url: &str) -> Result<PoolBuilder, Error> {
        Address::parse(url).map(PoolBuilder::new)
    }
}

/// Settings of a [`Pool`]. Made by [`Pool::builder`].
///
/// `B` is the result of [`build`](Self::build), which a crate over this one [maps](Self::map).
#[derive(Clone)]
#[must_use]
pub struct PoolBuilder<B = Result<Pool, Error>> {
    address: Address,
    size: u32,
    connect_timeout: Duration,
    response_timeout: Option<Duration>,
    resolver: Option<Resolver>,
    dialer: Option<Dialer>,
    listener: Listener,
    tls: Tls,
    finish: Arc<dyn Fn(Result<Pool, Error>) -> B + Send + Sync>,
}

impl PoolBuilder {
    fn new(address: Address) -> Self {
        Self {
            address,
            size: 1,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            response_timeout: None,
            resolver: None,
            dialer: None,
            listener: Listener::default(),
            tls: Tls::default(),
            finish: Arc::new(|pool| pool),
        }
    }
}

impl<B: 'static> PoolBuilder<B> {
    /// Sets the number of connections to a server, for each runtime, at least 1. Default: 1.
    pub fn size(mut self, connections: u32) -> Self {
        self.size = connections.max(1);
        self
    }

    /// Sets the longest time of an attempt to connect. Default: 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout.min(MAX_TIMEOUT);
        self
    }

    /// Sets the longest wait for a reply. Default: until the deadline of the command.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = Some(timeout.min(MAX_TIMEOUT));
        self
    }

    /// Resolves host names with `resolve`, again for each connection: for example for service
    /// discovery. If the name has several addresses, replicas among them are left for the primary.
    /// Default: the system's resolver.
    pub fn resolver<F>(mut self, resolve: impl Fn(String, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        let resolver: Resolver = Arc::new(move |host, port| Box::pin(resolve(host, port)));
        self.resolver = Some(resolver);
        self
    }

    /// Opens each socket with `dial`, which takes host and port. Use it for a proxy, a tunnel, or a
    /// server inside a test. Default: TCP.
    ///
    /// The pool cannot ask the system if such a socket was closed while this process stood still, so
    /// the first call after that may fail.
    ///
    /// It replaces the [`resolver`](Self::resolver). `dial` must then encrypt itself, if wanted:
    /// [`build`](Self::build) fails if the address asks for TLS, or names a Unix socket.
    ///
    /// ```
    /// use redis_once::Pool;
    ///
    /// # fn main() -> Result<(), redis_once::Error> {
    /// let through_tunnel = Pool::builder("redis://cache.internal")?
    ///     .dial(|_host, _port| tokio::net::TcpStream::connect("127.0.0.1:16379"))
    ///     .build()?;
    /// # let _ = through_tunnel;
    /// # Ok(()) }
    /// ```
    pub fn dial<F, S>(mut self, dial: impl Fn(String, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.dialer = Some(Dialer::new(dial));
        self
    }

    /// Calls `on_event` for each change of connections, for logs and counters. Default: nothing.
    ///
    /// It runs in the tasks that connect, and in those of the calls that find a connection lost or a
    /// slot moved, without a lock. It should not block.
    pub fn on_event(mut self, on_event: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.listener = Listener::new(on_event);
        self
    }

    /// Sets the number of the database. Default: that of the address, or else 0.
    pub fn database(mut self, number: u32) -> Self {
        self.address.settings = self.address.settings.set_db(number.into());
        self
    }

    /// Sets the user and the password. [`Pool::set_credentials`] changes them later. Default: those
    /// of the address, or else none.
    pub fn credentials(mut self, user: &str, password: &str) -> Self {
        self.address.settings = self.address.settings.set_username(user).set_password(password);
        self
    }

    /// Sets the user and the password of the sentinels, if the address names sentinels. Default:
    /// those of the address, or else none.
    pub fn sentinel_credentials(mut self, user: &str, password: &str) -> Self {
        if let Topology::Sentinel { settings, .. } = &mut self.address.topology {
            *settings = settings.clone().set_username(user).set_password(password);
        }
        self
    }

    /// Trusts only the authorities whose certificates are in `pem`. Each call adds authorities.
    /// Default: the authorities of the system.
    ///
    /// `rustls-native-certs` finds the authorities of the system. If the variable `SSL_CERT_FILE`
    /// or `SSL_CERT_DIR` is set, it reads only that file or those folders. [`build`](Self::build)
    /// reads them once.
    #[cfg(feature = "rustls")]
    pub fn root_certificate(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.tls.add_root(pem.as_ref());
        self
    }

    /// Trusts the authorities that Mozilla trusts, as listed in the crate `webpki-roots`: for
    /// containers without system authorities. Default: the authorities of the system.
    #[cfg(feature = "rustls")]
    pub fn webpki_roots(mut self) -> Self {
        self.tls.roots = Roots::Webpki;
        self
    }

    /// Sets the client certificate with its chain, and the private key, both in PEM.
    /// [`Pool::set_client_certificate`] changes them later. Default: none.
    #[cfg(feature = "rustls")]
    pub fn client_certificate(
        mut self,
        certificate: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
    ) -> Self {
        self.tls.identity = Some((certificate.as_ref().to_vec(), key.as_ref().to_vec()));
        self
    }

    /// Verifies the certificate of every server against `name`, and sends it as the server's name.
    /// Default: the host in the address, or the one that a cluster or a sentinel announces.
    ///
    /// Clusters and sentinels often announce IP addresses that no certificate names. With this name
    /// their servers are verified as strictly as by their own.
    #[cfg(feature = "rustls")]
    pub fn tls_server_name(mut self, name: &str) -> Self {
        self.tls.server_name = Some(name.to_owned());
        self
    }

    /// Makes the pool, which connects on first use.
    ///
    /// # Errors
    ///
    /// An error of kind [`Configuration`](crate::ErrorKind::Configuration), in these cases:
    ///
    /// - The address asks for TLS, and the crate was built without the feature `rustls`.
    /// - The address asks for TLS, and the application has installed no crypto provider.
    /// - The address asks for TLS, and a certificate, the private key or the name cannot
    ///   be used.
    /// - The address asks for TLS, no authorities were set, and the system has none.
    /// - The address asks for TLS or names a Unix socket, and `dial` was set.
    /// - The address does not ask for TLS, and a certificate, authorities or a name were set.
    #[must_use]
    pub fn build(self) -> B {
        let finish = Arc::clone(&self.finish);
        finish(self.pool())
    }

    /// Converts the result of [`build`](Self::build): for a crate with a pool or an error of its
    /// own. Default: the pool of this crate, or its error.
    pub fn map<C>(self, convert: impl Fn(B) -> C + Send + Sync + 'static) -> PoolBuilder<C> {
        let finish = self.finish;
        PoolBuilder {
            address: self.address,
            size: self.size,
            connect_timeout: self.connect_timeout,
            response_timeout: self.response_timeout,
            resolver: self.resolver,
            dialer: self.dialer,
            listener: self.listener,
            tls: self.tls,
            finish: Arc::new(move |pool| convert(finish(pool))),
        }
    }

    fn pool(self) -> Result<Pool, Error> {
        let Address { topology, uses_tls, settings, protocol, several } = self.address;
        let sentinels_use_tls = match topology {
            Topology::Sentinel { uses_tls: own, .. } => own.unwrap_or(uses_tls),
            _ => uses_tls,
        };
        let some_use_tls = uses_tls || sentinels_use_tls;
        if self.dialer.is_some() && (some_use_tls || matches!(topology, Topology::Socket(_))) {
            let message = "`dial` needs an address without TLS and without a Unix socket";
            return Err(Error::new(ErrorKind::Configuration, message));
        }
        let login = Login::new(settings);
        let params = self.tls.params(some_use_tls)?;
        let tls = |uses_tls| if uses_tls { params.clone() } else { TlsParams::default() };
        let sentinel_tls = tls(sentinels_use_tls);
        let connector = Connector {
            tls: tls(uses_tls),
            login: login.clone(),
            protocol,
            size: self.size as usize,
            timeout: self.connect_timeout,
            resolver: self.resolver,
            dialer: self.dialer,
            listener: self.listener,
        };
        let own =
            |target| Pool::new(Arc::new(OwnPool::new(target, &connector)), self.response_timeout);
        let mut sentinel_login = None;
        let pool = match topology {
            Topology::Server(host) => own(connector.server(&host, ServerKind::Plain).into()),
            Topology::Socket(path) => own(connector.socket(path).into()),
            Topology::Cluster { nodes } => {
                Pool::of_cluster(Cluster::new(connector, &nodes), self.response_timeout)
            }
            Topology::Sentinel { sentinels, service_name, settings, .. } => {
                let login = Login::new(settings);
                sentinel_login = Some(login.clone());
                let asking = Connector { login, tls: sentinel_tls, ..connector.clone() };
                let sentinels = Sentinels::new(&sentinels, &asking, &service_name, &connector);
                own(Target::Primary(Arc::new(sentinels)))
            }
        };
        Ok(pool.with([Some(login), sentinel_login], params, several))
    }
}

impl<B> fmt::Debug for PoolBuilder<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuilder").field("size", &self.size).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::ErrorKind;

    use super::*;

    // Case 125.
    #[test]
    fn tls_is_a_feature_and_never_a_downgrade() {
        let error = Pool::connect("rediss://127.0.0.1:1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        // With the feature, the error is about the missing crypto provider.
        assert_eq!(cfg!(feature = "rustls"), error.to_string().contains("install_default"));
    }
}
