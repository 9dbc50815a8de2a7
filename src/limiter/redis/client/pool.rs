//! One pool of connections for many limiters.
//!
//! Connections are shared, not checked out: each call uses a clone, so that one socket carries many
//! calls. The pool is lazy: it connects when it is first asked,
//! and a server that is away fails decisions, never the start of an application.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::bb8::{self, ManageConnection};
use redis::RedisError;
use redis::aio::ConnectionLike;
use tokio::time::{Instant, timeout};

use super::bb8_pool::Bb8Pool;
use super::cluster::Cluster;
#[cfg(feature = "redisson")]
use super::cluster::Redirected;
use super::connection::{ConnectionFuture, Connections, MAX_CONNECTION_WAIT, SharedConnection};
use super::liveness::Liveness;
use super::server::Login;
use super::slot::{self, Partition};
use crate::limiter::grace_period::{too_busy_to_connect, watch_timers};
use crate::{Error, ErrorKind};

/// No timeout is longer: an instant that far away can still be represented.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(86_400);

/// So long ago at most an attempt to connect failed that says something about the server now, in a
/// process that is busy: pauses between attempts are shorter.
pub(crate) const MAX_ERROR_AGE: Duration = Duration::from_secs(1);

/// Connections to Redis, shared by every clone and by many limiters.
///
/// It is lazy: it connects when it is first asked, so a server that is away fails decisions and
/// never the start of an application. [`ready`](Pool::ready) waits for a connection. Connections
/// are shared, not checked out: many calls travel on one socket at a time.
///
/// # A cluster
///
/// With a `redis-cluster://` address each charge goes to the master of its hash slot, over
/// connections of the crate's own to each master. A slot that moves is followed. Where a master is
/// away, charges of its slots fail, and those of other slots do not; set
/// `cluster-require-full-coverage no`, or the servers themselves refuse all. A promoted replica is
/// found within half a second. Replicas are never asked.
///
/// A charge is sent again only if a server says that it did not run it. After a lost connection or
/// a timeout it is not.
#[derive(Clone)]
pub struct Pool {
    connections: Arc<dyn Connections>,
    /// The same, if they know a cluster's servers.
    cluster: Option<Arc<Cluster>>,
    response_timeout: Option<Duration>,
    liveness: Liveness,
    prefix: Arc<str>,
    clustered: bool,
    /// Of the servers that decide, and of the sentinels.
    logins: [Option<Login>; 2],
}

impl Pool {
    /// Connections of any bb8 pool whose connections are cheap clones that share one socket or know
    /// a whole cluster: a server, a cluster, a sentinel's primary. The crates in the versions that
    /// fit are [`tower_sluice::bb8`](crate::bb8) and [`tower_sluice::bb8_redis`](crate::bb8_redis).
    ///
    /// Leave `test_on_check_out` on: the managers that come with redis notice a dead
    /// connection in no other way. The pool belongs to limiters alone, since a blocking
    /// command would block them all.
    ///
    /// When a server turns out to be read-only, as a primary does after a failover, every
    /// connection of the pool is replaced in turn by a new one of its manager, at most ten a
    /// second. Unlike with [`connect`](Self::connect), a silent connection is left only when bb8's
    /// own test fails, and an error does not say why connecting failed. Keep the client's own
    /// response timeout longer than the time for a decision, as with
    /// [`from_connection`](Self::from_connection).
    #[must_use]
    pub fn from_bb8<M>(pool: bb8::Pool<M>) -> Self
    where
        M: ManageConnection<Error = RedisError>,
        M::Connection: ConnectionLike + Clone + Sync,
    {
        Self::new(Arc::new(Bb8Pool::new(pool)), None)
    }

    /// Starts the keys of limiters made from here on with `prefix`. Default: `sluice`.
    ///
    /// It may hold colons. Braces and percent signs become `%7B`, `%7D` and `%25`, so that a
    /// cluster finds the slot by the charge's key alone. The name of a limiter holds no colon in
    /// Redis: in `eu:api` it becomes `%3A`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    pub(crate) fn new(
        connections: Arc<impl Connections + 'static>,
        response_timeout: Option<Duration>,
    ) -> Self {
        Self {
            connections,
            cluster: None,
            response_timeout,
            liveness: Liveness::of_server(),
            prefix: "sluice".into(),
            clustered: false,
            logins: [None, None],
        }
    }

    /// The same, whose connections log in so.
    pub(super) fn with_logins(self, servers: Login, sentinels: Option<Login>) -> Self {
        Self { logins: [Some(servers), sentinels], ..self }
    }

    pub(super) fn of_cluster(cluster: Cluster, response_timeout: Option<Duration>) -> Self {
        let cluster = Arc::new(cluster);
        let pool = Self::new(Arc::clone(&cluster), response_timeout).clustered();
        Self { cluster: Some(cluster), ..pool }
    }

    /// What keys start with.
    pub(crate) fn key_prefix(&self) -> &str {
        &self.prefix
    }

    /// Sets user and password while the pool is used, for a password that is rotated. The user of
    /// a server that has a password alone is `default`.
    ///
    /// Connections that are made from now on log in so, of every clone of the pool and to every
    /// server of a cluster. Those that are there stay: Redis asks for no password again. A pool
    /// that was refused connects anew with the next call. In a cluster and behind sentinels the
    /// pause after the last failure comes first, 0.4 s at most.
    ///
    /// ```
    /// use tower_sluice::Pool;
    ///
    /// let pool = Pool::connect("redis://app:old@127.0.0.1:6379")?;
    /// // Later, when the password has changed:
    /// pool.set_credentials("app", "new")?;
    /// # Ok::<(), tower_sluice::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Of kind [`Configuration`](ErrorKind::Configuration), if the connections are the
    /// application's own, as with [`from_bb8`](Self::from_bb8): then it logs in.
    pub fn set_credentials(&self, user: &str, password: &str) -> Result<(), Error> {
        let [servers, _] = &self.logins;
        let login = servers.as_ref().ok_or_else(|| {
            let message = "the connections of this pool are the application's own, which logs in";
            Error::new(ErrorKind::Configuration, message)
        })?;
        login.set(user, password);
        Ok(())
    }

    /// Sets user and password of the sentinels while the pool is used, as
    /// [`set_credentials`](Self::set_credentials) does for the servers that decide.
    ///
    /// # Errors
    ///
    /// Of kind [`Configuration`](ErrorKind::Configuration), if the address names no sentinels.
    pub fn set_sentinel_credentials(&self, user: &str, password: &str) -> Result<(), Error> {
        let [_, sentinels] = &self.logins;
        let login = sentinels.as_ref().ok_or_else(|| {
            let message = "the address of this pool names no sentinels";
            Error::new(ErrorKind::Configuration, message)
        })?;
        login.set(user, password);
        Ok(())
    }

    /// Waits until there is a connection, for a second at most: for applications that should not
    /// start without Redis, and for the first request to find a connection. Of a cluster, until
    /// there is one to each master.
    ///
    /// # Errors
    ///
    /// If none is made within a second: the error names where to, and its source says why. Outside
    /// of a tokio runtime.
    pub async fn ready(&self) -> Result<(), Error> {
        crate::limiter::runtime::current()?;
        let ready = async {
            match &self.cluster {
                Some(cluster) => Arc::clone(cluster).ready().await,
                None => self.connection(0).await.map(drop),
            }
        };
        let ready = timeout(Duration::from_secs(1), ready).await;
        ready.unwrap_or_else(|_| Err(self.no_reply_error(0)))
    }

    /// For [`from_bb8`](Self::from_bb8) with a library's client of a cluster: a call then carries
    /// keys of one hash slot only. Default: the connections lead to one server.
    ///
    /// A `redis-cluster://` address needs no such client, and is better: a library's client may
    /// send a charge again after it lost a connection, so that one charge costs two.
    #[must_use]
    pub fn clustered(mut self) -> Self {
        self.clustered = true;
        self.liveness = Liveness::of_cluster();
        self
    }

    /// Whether both ask the same server, and name keys alike.
    pub(crate) fn is_same_as(&self, other: &Pool) -> bool {
        Arc::ptr_eq(&self.connections, &other.connections) && self.prefix == other.prefix
    }

    pub(crate) fn is_clustered(&self) -> bool {
        self.clustered
    }

    /// The cluster whose servers the connections know.
    pub(crate) fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.as_ref()
    }

    /// Whether calls are sent to the server that holds their hash slot.
    pub(crate) fn is_routed(&self) -> bool {
        self.cluster.is_some()
    }

    /// The partition that holds a hash slot.
    pub(crate) fn partition(&self, hash_slot: u16) -> Partition {
        self.cluster
            .as_ref()
            .map_or(Partition::from(hash_slot), |cluster| cluster.partition(hash_slot))
    }

    /// Waits for a connection to the server that holds a hash slot; the error says why there is
    /// none.
    pub(crate) fn connection(&self, hash_slot: u16) -> ConnectionFuture {
        let pool = self.clone();
        Box::pin(async move {
            let connecting = Arc::clone(&pool.connections).connection(hash_slot);
            pool.unless_busy(hash_slot, connecting).await
        })
    }

    /// Waits for a connection to the server that holds a hash slot. If it is not known why there is
    /// none, a process that was busy may have had no time to connect.
    pub(crate) async fn unless_busy<T>(
        &self,
        hash_slot: u16,
        connecting: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let begun = Instant::now();
        let (result, is_busy) = watch_timers(begun + MAX_CONNECTION_WAIT, connecting).await;
        result.map_err(|error| {
            let is_known = error.kind() != ErrorKind::Infrastructure
                || self.connect_error(hash_slot, begun.checked_sub(MAX_ERROR_AGE)).is_some();
            match is_known || !is_busy && !self.liveness.was_busy_since(begun) {
                true => error,
                false => too_busy_to_connect(error),
            }
        })
    }

    /// As [`connection`](Self::connection), for commands that are sent one by one: in a cluster it
    /// follows redirects.
    #[cfg(feature = "redisson")]
    pub(crate) fn redirected_connection(&self, hash_slot: u16) -> ConnectionFuture {
        let (connecting, cluster) = (self.connection(hash_slot), self.cluster.clone());
        Box::pin(async move {
            let connection = connecting.await?;
            Ok(match cluster {
                Some(cluster) => Redirected::over(cluster, hash_slot, connection),
                None => connection,
            })
        })
    }

    /// The number of connections that the calls of one partition share, at least 1.
    pub(crate) fn size(&self) -> usize {
        self.connections.size()
    }

    /// How long to wait for a reply, given the caller's timeout.
    pub(crate) fn reply_timeout(&self, timeout: Duration) -> Duration {
        self.response_timeout.map_or(timeout, |own| own.min(timeout))
    }

    /// The instant to give up on a reply, given the caller's deadline.
    #[cfg(feature = "redisson")]
    pub(crate) fn reply_deadline(&self, deadline: Instant) -> Instant {
        deadline.min(Instant::now() + self.reply_timeout(MAX_TIMEOUT))
    }

    /// The hash slot of a key, whose calls are shared: 0 on a plain server.
    pub(crate) fn hash_slot(&self, key: &str) -> u16 {
        if self.clustered { slot::hash_slot(key) } else { 0 }
    }

    /// Whether the servers answer, and this process is on time.
    pub(crate) fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// A connection that is ready.
    pub(crate) fn ready_connection(&self, hash_slot: u16) -> Option<Arc<dyn SharedConnection>> {
        Arc::clone(&self.connections).ready_connection(hash_slot)
    }

    /// Why there is no connection, if the last attempt to connect has failed, and not before
    /// `since`.
    pub(crate) fn connect_error(&self, hash_slot: u16, since: Option<Instant>) -> Option<Error> {
        self.connections.connect_error(hash_slot, since)
    }

    /// The error of a call that got neither a connection nor a reply in time.
    pub(crate) fn no_reply_error(&self, hash_slot: u16) -> Error {
        self.connections.no_reply_error(hash_slot)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
