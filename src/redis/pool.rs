//! The pool of limiters: connections of the client, with the settings of keys and of the clock.

use std::sync::Arc;

use redis::aio::ConnectionLike;

#[cfg(feature = "bb8")]
use bb8_redis::bb8::{self, ManageConnection};

use crate::core::Error;

/// Connections to Redis, shared by every clone and by many limiters.
///
/// It connects on first use. [`ready`](Pool::ready) waits for a connection. Connections are shared,
/// not checked out: one socket carries many calls at a time.
///
/// With a `redis-cluster://` address, each charge goes to the master of its hash slot. See
/// [clusters and proxies][cluster]. The crate sends a charge again only if a server says that it
/// did not run the charge.
///
/// [cluster]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/clusters_and_proxies/
#[derive(Clone)]
#[must_use]
pub struct Pool {
    pub(crate) client: redis_once::Pool,
    prefix: Arc<str>,
    /// True if limiters decide by the clock of this process.
    caller_clock: bool,
    /// True if keys of one call must be in one hash slot, although there is no cluster.
    by_hash_slot: bool,
}

impl Pool {
    /// Uses one connection of the application: any [`ConnectionLike`] whose clones share one
    /// connection. Examples are a `MultiplexedConnection` or a `ConnectionManager` of
    /// [`tower_sluice::crates::redis`](crate::crates::redis), and mocks.
    ///
    /// The crate only sends over the connection. It cannot do these things that a pool of
    /// [`connect`](Self::connect) does:
    ///
    /// - It does not replace a lost connection. With a `MultiplexedConnection`, every later
    ///   decision is an error of kind infrastructure. A `ConnectionManager` reconnects by itself.
    /// - It keeps using a connection that is silent, or whose primary was demoted.
    /// - The connection belongs to the runtime that made it, and is lost when that ends.
    /// - The connection has its own response timeout, half a second by default, which is an error
    ///   of kind saturation. Keep it longer than the
    ///   [`decision_timeout`](crate::Redis::decision_timeout).
    /// - The kind of the server is not checked: see [`several_servers`](Self::several_servers).
    ///
    /// The connection must give each reply to its own call, even after earlier callers were
    /// dropped. It must not send a command again, and must use one server: a cluster needs a
    /// `redis-cluster://` address. A blocking command or a transaction delays every charge.
    pub fn from_connection<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        redis_once::Pool::from_connection(connection).into()
    }

    /// Uses the connections of a bb8 pool: to a server, or to a sentinel's primary. A cluster needs
    /// a `redis-cluster://` address. Clones of a connection must be cheap, and share one socket.
    /// [`tower_sluice::crates`](crate::crates) has the matching versions.
    ///
    /// Leave `test_on_check_out` on: otherwise no dead connection is noticed. Use the pool only for
    /// limiters: a blocking command would block all of them. Keep the client's own response timeout
    /// longer than the time for a decision.
    ///
    /// A server that is read-only, as after a failover, loses every connection of the pool, and at
    /// most ten new ones are made a second. There are three differences from
    /// [`connect`](Self::connect). A silent connection stays until bb8's own test fails. An error
    /// does not say why connecting failed. Once a connection was lost, a charge that misses the
    /// next one blames the server, however long bb8 pauses between its attempts.
    #[cfg(feature = "bb8")]
    pub fn from_bb8<M>(pool: bb8::Pool<M>) -> Self
    where
        M: ManageConnection<Error = redis::RedisError>,
        M::Connection: ConnectionLike + Clone + Sync,
    {
        redis_once::Pool::from_bb8(pool).into()
    }

    /// Sets the first part of the keys of limiters over this pool. Default: `sluice`.
    ///
    /// It may contain colons. Braces and percent signs become `%7B`, `%7D` and `%25`, so that only
    /// the charge's key determines the hash slot. A colon in the name of a limiter becomes `%3A`.
    pub fn prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Lets all limiters over this pool decide by the clock of this process, for servers whose
    /// scripts may not call `TIME`, such as ElastiCache Serverless. Default: the server's clock.
    ///
    /// In an address, write `?clock=caller`. [`Redis::clock`](crate::Redis::clock) sets the clock
    /// of one limiter.
    ///
    /// The clocks of all processes must agree, and all must set it. Each key stays an hour longer
    /// in Redis.
    pub fn caller_clock(self) -> Self {
        Self { caller_clock: true, ..self }
    }

    /// Sets if several servers share the keys behind this address, as behind twemproxy or Envoy.
    /// Default: true over RESP2, else false.
    ///
    /// With several servers, each key has a call of its own, and the members of an
    /// [`AllAtOnce`](crate::redis::AllAtOnce) are asked in turn: otherwise limits would count
    /// twice. If one server is behind a proxy, set `false`. See [clusters and proxies][cluster].
    ///
    /// Set it before limiters are made. It has no effect for a cluster. The parameters
    /// `servers=several` and `servers=one` of an address are the same setting.
    ///
    /// [cluster]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/clusters_and_proxies/
    pub fn several_servers(mut self, several: bool) -> Self {
        self.client = self.client.several_servers(several);
        self
    }

    /// Changes the user and the password while the pool is used, for example after a rotation. If a
    /// server has only a password, the user is `default`.
    ///
    /// New connections log in with them, in every clone of the pool and to every server of a
    /// cluster. Existing connections stay. After a refused login, the next call connects again, in
    /// a cluster and with sentinels after a pause of at most 0.4 s.
    ///
    /// # Errors
    ///
    /// An error of kind [`Configuration`](crate::ErrorKind::Configuration), if the application made
    /// the connections, as with `from_bb8`. Then the application must log in.
    pub fn set_credentials(&self, user: &str, password: &str) -> Result<(), Error> {
        Ok(self.client.set_credentials(user, password)?)
    }

    /// Changes the user and the password of the sentinels while the pool is used.
    /// [`set_credentials`](Self::set_credentials) changes those of the servers that decide.
    ///
    /// # Errors
    ///
    /// An error of kind [`Configuration`](crate::ErrorKind::Configuration), if the address names no
    /// sentinels.
    pub fn set_sentinel_credentials(&self, user: &str, password: &str) -> Result<(), Error> {
        Ok(self.client.set_sentinel_credentials(user, password)?)
    }

    /// Changes the client certificate with its chain, and the private key, both in PEM, while the
    /// pool is used. Later connections show them, to sentinels too.
    ///
    /// # Errors
    ///
    /// An error of kind [`Configuration`](crate::ErrorKind::Configuration), if they cannot be used,
    /// or if the pool made no connections with TLS.
    #[cfg(feature = "rustls")]
    pub fn set_client_certificate(
        &self,
        certificate: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        Ok(self.client.set_client_certificate(certificate, key)?)
    }

    /// Lets one call decide about several keys of a charge only if they are in one hash slot, as in
    /// a cluster. It is for tests of this crate, where one server then replaces a cluster.
    #[doc(hidden)]
    pub fn by_hash_slot(self) -> Self {
        Self { by_hash_slot: true, ..self }
    }

    #[cfg(test)]
    pub(crate) fn new(source: Arc<impl redis_once::calls::Connections + 'static>) -> Self {
        redis_once::Pool::from_source(source).into()
    }

    /// Returns true if limiters decide by the clock of this process: see
    /// [`caller_clock`](Self::caller_clock).
    #[must_use]
    pub fn has_caller_clock(&self) -> bool {
        self.caller_clock
    }

    /// Returns the connections, over which a limiter of your own sends its own commands.
    pub fn client(&self) -> &redis_once::Pool {
        &self.client
    }

    pub(crate) fn key_prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns true if both pools share their connections, the first part of keys and the settings.
    pub(crate) fn is_same_as(&self, other: &Pool) -> bool {
        self.client.is_same_as(&other.client)
            && (&self.prefix, self.caller_clock) == (&other.prefix, other.caller_clock)
    }

    pub(crate) fn is_clustered(&self) -> bool {
        self.by_hash_slot || self.client.is_routed()
    }
}

/// The pool sends over the connections of the client, with the default settings for keys.
impl From<redis_once::Pool> for Pool {
    fn from(client: redis_once::Pool) -> Self {
        Self { client, prefix: "sluice".into(), caller_clock: false, by_hash_slot: false }
    }
}

debug_by_name!([] Pool: prefix);
