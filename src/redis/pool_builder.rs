//! The settings of a pool.

use std::borrow::Cow;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use redis_once::Event;
use tokio::io::{AsyncRead, AsyncWrite};

use super::pool::Pool;
use crate::core::{Error, ErrorKind};
use crate::observe::{ConnectionWatch, primary_changed, slots_moved};

/// Settings of a [`Pool`]. Made by [`Pool::builder`].
#[derive(Clone)]
#[must_use]
pub struct PoolBuilder {
    client: redis_once::PoolBuilder,
    caller_clock: bool,
}

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
    /// `sentinelUsername=` and `sentinelPassword=`. Percent-encode characters such as `@`, `&` or
    /// `+` in any part.
    ///
    /// With the parameter `clock=caller`, limiters decide by the clock of this process: see
    /// [`caller_clock`](Self::caller_clock).
    ///
    /// The address must name the right kind of server. A plain address of a sentinel or of a node
    /// of a cluster gets no connection. The error says which address to write.
    ///
    /// Name all sentinels, each additional one as `node=`. The pool asks each of them at least once
    /// a second, and they publish a new primary at once. From then on, no call goes to the old
    /// primary. [Redis in production][sentinels] explains the cost of a failover.
    ///
    /// [sentinels]: crate::guide::redis_in_production
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
        PoolBuilder::parse(url)
    }
}

impl PoolBuilder {
    /// Reads an address, whose parameter `clock=` is not the client's.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let (url, caller_clock) = without_clock(url)?;
        let watch = ConnectionWatch::default();
        let client = redis_once::Pool::builder(&url)?.on_event(move |event| report(&watch, event));
        Ok(Self { client, caller_clock })
    }

    fn with(self, set: impl FnOnce(redis_once::PoolBuilder) -> redis_once::PoolBuilder) -> Self {
        Self { client: set(self.client), ..self }
    }

    /// Sets the number of connections to a server, for each runtime, at least 1. Default: 2.
    pub fn size(self, connections: u32) -> Self {
        self.with(|client| client.size(connections))
    }

    /// Sets the longest time of an attempt to connect. Default: 1 s.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        self.with(|client| client.connect_timeout(timeout))
    }

    /// Sets the longest wait for a reply. Default: until the deadline of the decision.
    pub fn response_timeout(self, timeout: Duration) -> Self {
        self.with(|client| client.response_timeout(timeout))
    }

    /// Resolves host names with `resolve`, again for each connection: for example for service
    /// discovery. If the name has several addresses, replicas among them are left for the primary.
    /// Default: the system's resolver.
    pub fn resolver<F>(self, resolve: impl Fn(String, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        self.with(|client| client.resolver(resolve))
    }

    /// Opens each socket with `dial`, which takes host and port. Use it for a proxy, a tunnel, or a
    /// server inside a test. Default: TCP.
    ///
    /// The pool does not bound the replies of such a socket. It cannot ask the system if the socket
    /// was closed while this process stood still, so the first call after that may fail.
    ///
    /// It replaces the [`resolver`](Self::resolver). `dial` must then encrypt itself, if wanted:
    /// [`build`](Self::build) fails if the address asks for TLS, or names a Unix socket.
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
    pub fn dial<F, S>(self, dial: impl Fn(String, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.with(|client| client.dial(dial))
    }

    /// Sets the number of the database. Default: that of the address, or else 0.
    pub fn database(self, number: u32) -> Self {
        self.with(|client| client.database(number))
    }

    /// Sets the user and the password. [`Pool::set_credentials`] changes them later. Default: those
    /// of the address, or else none.
    pub fn credentials(self, user: &str, password: &str) -> Self {
        self.with(|client| client.credentials(user, password))
    }

    /// Sets the user and the password of the sentinels, if the address names sentinels. Default:
    /// those of the address, or else none.
    pub fn sentinel_credentials(self, user: &str, password: &str) -> Self {
        self.with(|client| client.sentinel_credentials(user, password))
    }

    /// Trusts only the authorities whose certificates are in `pem`. Each call adds authorities.
    /// Default: the authorities of the system.
    ///
    /// `rustls-native-certs` finds the authorities of the system. If the variable `SSL_CERT_FILE`
    /// or `SSL_CERT_DIR` is set, it reads only that file or those folders. [`build`](Self::build)
    /// reads them once.
    #[cfg(feature = "rustls")]
    pub fn root_certificate(self, pem: impl AsRef<[u8]>) -> Self {
        self.with(|client| client.root_certificate(pem))
    }

    /// Trusts the authorities that Mozilla trusts, as listed in the crate `webpki-roots`: for
    /// containers without system authorities. Default: the authorities of the system.
    #[cfg(feature = "rustls")]
    pub fn webpki_roots(self) -> Self {
        self.with(redis_once::PoolBuilder::webpki_roots)
    }

    /// Sets the client certificate with its chain, and the private key, both in PEM. Default: none.
    #[cfg(feature = "rustls")]
    pub fn client_certificate(self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.with(|client| client.client_certificate(certificate, key))
    }

    /// Verifies the certificate of every server against `name`, and sends it as the server's name.
    /// Default: the host in the address, or the one that a cluster or a sentinel announces.
    ///
    /// Clusters and sentinels often announce IP addresses that no certificate names. With this name
    /// their servers are verified as strictly as by their own.
    #[cfg(feature = "rustls")]
    pub fn tls_server_name(self, name: &str) -> Self {
        self.with(|client| client.tls_server_name(name))
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
    /// - The address names a cluster, and a database other than 0 was set.
    /// - The address does not ask for TLS, and a certificate, authorities or a name were set.
    pub fn build(self) -> Result<Pool, Error> {
        let pool = Pool::from(self.client.build()?);
        Ok(if self.caller_clock { pool.caller_clock() } else { pool })
    }
}

/// Returns an address without the parameter `clock=caller`, and true if it had one.
fn without_clock(url: &str) -> Result<(Cow<'_, str>, bool), Error> {
    let Some((address, query)) = url.split_once('?') else { return Ok((url.into(), false)) };
    let (clocks, others): (Vec<_>, Vec<_>) =
        query.split('&').partition(|parameter| parameter.starts_with("clock="));
    if clocks.iter().any(|clock| *clock != "clock=caller") {
        let message = "the address of redis cannot be used: the only value of clock= is caller";
        return Err(Error::new(ErrorKind::Configuration, message));
    }
    Ok(match (clocks.is_empty(), others.is_empty()) {
        (true, _) => (url.into(), false),
        (false, true) => (address.into(), true),
        (false, false) => (format!("{address}?{}", others.join("&")).into(), true),
    })
}

/// Counts an event of the client, and makes an event for logs of it.
fn report(watch: &ConnectionWatch, event: &Event<'_>) {
    match *event {
        Event::Connected { address, again } => watch.made(address, again),
        Event::Failed { address, error } => watch.failed(address, &error.clone().into()),
        Event::Lost { address, reason } => watch.lost(address, reason),
        Event::PrimaryChanged { service, address } => primary_changed(service, address),
        Event::SlotsMoved { slots } => slots_moved(slots),
        // An event of a later version.
        _ => {}
    }
}

debug_by_name!([] PoolBuilder: client);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_an_address_is_not_the_clients() {
        let table = [
            ("redis://h/1", Some(("redis://h/1", false))),
            ("redis://h?protocol=resp2", Some(("redis://h?protocol=resp2", false))),
            ("redis://h?clock=caller", Some(("redis://h", true))),
            ("unix:///s?db=2&clock=caller&pass=x", Some(("unix:///s?db=2&pass=x", true))),
            ("redis://h?clock=server", None),
            ("redis://h?clock=", None),
        ];
        for (url, expected) in table {
            let read = without_clock(url).ok();
            assert_eq!(read.as_ref().map(|(url, clock)| (&**url, *clock)), expected, "{url}");
        }
        let pool = Pool::connect("redis-cluster://h?node=g&clock=caller").expect("an address");
        assert!(pool.has_caller_clock());
    }
}
