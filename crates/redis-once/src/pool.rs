//! The pool: connections that calls share, and waits for connections and replies.
//!
//! Connections are shared, not checked out: each call uses a clone, so one socket carries many
//! calls. The pool connects on first use. So if a server is away, commands fail, but not the start
//! of an application.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::time::{Instant, sleep};

use super::address::Host;
use super::cluster::Cluster;
use super::cluster::slot_map::{self, Partition};
use super::connection::{ConnectionFuture, Connections, SharedConnection};
use super::error::{Error, ErrorKind};
use super::fault::{Deadline, Facts, Stage};
use super::server::Login;
use super::times::{FIRST_RESEND_PAUSE, MAX_CONNECTION_WAIT, READY_WITHIN};
use super::tls::TlsParams;

/// Connections to Redis, shared by every clone.
///
/// It connects on first use. So if a server is away, commands fail, but not the start of an
/// application. [`ready`](Pool::ready) waits for a connection. Connections are shared, not checked
/// out: one socket carries many calls at a time. So a blocking command, a transaction or a
/// subscription has no place here.
///
/// # A cluster
///
/// With a `redis-cluster://` address, each command goes to the master of its key's hash slot. The
/// pool has its own connections to each master, and follows slots that move. While a master is
/// away, only the commands of its slots fail. For that, set `cluster-require-full-coverage no`:
/// otherwise the servers then refuse all commands. The pool finds a promoted replica within half a
/// second after a call has failed. It never asks replicas.
///
/// A command is sent again only if a server says that it did not run the command. It is not sent
/// again after a lost connection or a timeout.
#[derive(Clone)]
#[must_use]
pub struct Pool {
    connections: Arc<dyn Connections>,
    /// The same connections, if the address names a cluster.
    cluster: Option<Arc<Cluster>>,
    response_timeout: Option<Duration>,
    /// The setting of [`several_servers`](Self::several_servers).
    several: Option<bool>,
    /// The logins for the servers that decide, and for the sentinels.
    logins: [Option<Login>; 2],
    /// TLS, to the servers or to the sentinels or to both.
    #[cfg_attr(not(feature = "rustls"), expect(dead_code, reason = "nothing changes it"))]
    tls: TlsParams,
}

impl Pool {
    /// Makes a pool over another source of connections, such as a fake in a test.
    pub fn from_source(source: Arc<impl Connections + 'static>) -> Self {
        Self::new(source, None)
    }

    pub(super) fn new(
        connections: Arc<impl Connections + 'static>,
        response_timeout: Option<Duration>,
    ) -> Self {
        Self {
            connections,
            cluster: None,
            response_timeout,
            several: None,
            logins: [None, None],
            tls: TlsParams::default(),
        }
    }

    /// Sets if several servers share the keys behind this address, as behind twemproxy or Envoy.
    /// Default: true over RESP2, else false.
    ///
    /// A proxy sends a script to the server of its first key, and says nothing if its other keys
    /// are elsewhere. Only [`keys_apart`](Self::keys_apart) depends on it: the caller must then
    /// send one call for each key.
    ///
    /// It has no effect for a cluster. The parameters `servers=several` and `servers=one` of an
    /// address are the same setting.
    pub fn several_servers(mut self, several: bool) -> Self {
        self.several = Some(several);
        self
    }

    /// Waits until there is a connection to each server, at most for a second: the server of the
    /// address, each master of a cluster, or the primary that sentinels name. Call it if the
    /// application must not start without Redis, or if its first command should find a connection.
    ///
    /// # Errors
    ///
    /// If a server has no connection within a second. The error names the server, and its source
    /// has the reason, if known.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn ready(&self) -> Result<(), Error> {
        let end = Instant::now() + READY_WITHIN;
        // In a cluster any slot works: this waits for the slot map first.
        self.connect_by(end, 0).await?;
        for tag in self.first_tags() {
            self.connect_by(end, self.hash_slot(&tag.to_string())).await?;
        }
        Ok(())
    }

    /// Waits for a connection longer than calls do. A server that is set up wrongly ends it.
    async fn connect_by(&self, end: Instant, hash_slot: u16) -> Result<(), Error> {
        loop {
            match self.connection_by(Deadline::new(end, hash_slot)).await {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Configuration => return Err(error),
                Err(error) if Instant::now() + FIRST_RESEND_PAUSE >= end => return Err(error),
                Err(_) => sleep(FIRST_RESEND_PAUSE).await,
            }
        }
    }

    /// Returns a number for each known server whose keys have a hash tag with this number: `{7}`,
    /// for example. One for a server that is not part of a cluster.
    pub fn first_tags(&self) -> Vec<u32> {
        self.cluster.as_ref().map_or_else(|| vec![0], |cluster| cluster.first_tags())
    }

    /// Returns the pool with the logins of the servers and of the sentinels, with their TLS, and
    /// with the setting of [`several_servers`](Self::several_servers).
    pub(super) fn with(
        self,
        logins: [Option<Login>; 2],
        tls: TlsParams,
        several: Option<bool>,
    ) -> Self {
        Self { logins, tls, several, ..self }
    }

    pub(super) fn of_cluster(cluster: Cluster, response_timeout: Option<Duration>) -> Self {
        let cluster = Arc::new(cluster);
        let pool = Self::new(Arc::clone(&cluster), response_timeout);
        Self { cluster: Some(cluster), ..pool }
    }

    /// Changes the user and the password while the pool is used, for example after a rotation. If a
    /// server has only a password, the user is `default`.
    ///
    /// New connections log in with them, in every clone of the pool and to every server of a
    /// cluster. Existing connections stay, as long as the server keeps them. After a refused login,
    /// the next call connects again. In a cluster and with sentinels, it may first wait for the end
    /// of a pause, at most 0.4 s.
    ///
    /// ```
    /// use redis_once::Pool;
    ///
    /// let pool = Pool::connect("redis://app:old@127.0.0.1:6379")?;
    /// // Later, when the password has changed:
    /// pool.set_credentials("app", "new")?;
    /// # Ok::<(), redis_once::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// An error of kind [`Configuration`](ErrorKind::Configuration), if the application made the
    /// connections, as with `from_bb8`. Then the application must log in.
    pub fn set_credentials(&self, user: &str, password: &str) -> Result<(), Error> {
        let [servers, _] = &self.logins;
        let login = servers.as_ref().ok_or_else(|| {
            let message = "the application made the connections of this pool, and logs in itself";
            Error::new(ErrorKind::Configuration, message)
        })?;
        login.set(user, password);
        Ok(())
    }

    /// Changes the user and the password of the sentinels while the pool is used.
    /// [`set_credentials`](Self::set_credentials) changes those of the servers that decide.
    ///
    /// # Errors
    ///
    /// An error of kind [`Configuration`](ErrorKind::Configuration), if the address names no
    /// sentinels.
    pub fn set_sentinel_credentials(&self, user: &str, password: &str) -> Result<(), Error> {
        let [_, sentinels] = &self.logins;
        let login = sentinels.as_ref().ok_or_else(|| {
            let message = "the address of this pool names no sentinels";
            Error::new(ErrorKind::Configuration, message)
        })?;
        login.set(user, password);
        Ok(())
    }

    /// Changes the client certificate with its chain, and the private key, both in PEM, while the
    /// pool is used: before they expire. Later connections show them, to sentinels too. Existing
    /// connections stay.
    ///
    /// # Errors
    ///
    /// An error of kind [`Configuration`](ErrorKind::Configuration), if they cannot be used, if the
    /// pool is without TLS, or if the application made the connections. The pool then keeps the
    /// certificate that it has.
    #[cfg(feature = "rustls")]
    pub fn set_client_certificate(
        &self,
        certificate: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        self.tls.set_identity(certificate.as_ref(), key.as_ref())
    }

    /// Returns true if both pools share their connections, and have the same settings.
    pub fn is_same_as(&self, other: &Pool) -> bool {
        Arc::ptr_eq(&self.connections, &other.connections) && self.several == other.several
    }

    /// Returns true if each key needs its own call over this connection.
    pub fn keys_apart_over(&self, connection: &dyn SharedConnection) -> bool {
        !self.is_routed() && self.several.unwrap_or_else(|| connection.keys_apart())
    }

    /// Returns true if each key needs its own call; `None` before the first connection.
    pub fn keys_apart(&self) -> Option<bool> {
        if self.is_routed() {
            Some(false)
        } else {
            self.several.or_else(|| self.connections.keys_apart())
        }
    }

    /// Returns the cluster, if the address names one.
    pub(super) fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.as_ref()
    }

    /// Returns true if the crate itself sends each call to the server that holds its hash slot.
    pub fn is_routed(&self) -> bool {
        self.cluster.is_some()
    }

    /// Returns the partition that holds a hash slot; 0 on a plain server.
    pub fn partition(&self, hash_slot: u16) -> Partition {
        self.cluster.as_ref().map_or(0, |cluster| cluster.partition(hash_slot))
    }

    /// Waits for a connection to the server that holds a hash slot. The error says why there is
    /// none.
    pub(super) fn connection(&self, hash_slot: u16) -> ConnectionFuture {
        self.connection_to(None, hash_slot)
    }

    /// Waits until a partition has a connection, or until the slot has left the partition. Then the
    /// other slots need not wait for this slot's new server.
    pub async fn connect_partition(
        self,
        partition: Partition,
        hash_slot: u16,
    ) -> Result<(), Error> {
        let connecting = self.connection(hash_slot);
        let Some(cluster) = &self.cluster else { return connecting.await.map(drop) };
        select! {
            biased;
            outcome = connecting => outcome.map(drop),
            () = cluster.left(partition, hash_slot) => Ok(()),
        }
    }

    /// Waits for a connection to the server that a cluster names for a slot that moves, or to the
    /// one that holds the slot.
    pub(super) fn connection_to(&self, asked: Option<&Host>, hash_slot: u16) -> ConnectionFuture {
        let (pool, asked) = (self.clone(), asked.cloned());
        Box::pin(async move {
            let mut connecting = match (&asked, &pool.cluster) {
                (Some(host), Some(cluster)) => cluster.connection_to(host, hash_slot)?,
                _ => Arc::clone(&pool.connections).connection(hash_slot),
            };
            loop {
                let end = Deadline::new(Instant::now() + MAX_CONNECTION_WAIT, hash_slot);
                if let Some(connected) = end.wait_for(connecting.as_mut()).await {
                    return connected;
                }
                let stage = asked.clone().map_or(Stage::Waiting, Stage::Redirected);
                let error = pool.missed_error(&end, &stage);
                if error.kind() != ErrorKind::Saturation || !end.is_late() {
                    return Err(error);
                }
                // This process was paused, so wait again. Callers have their own deadlines.
            }
        })
    }

    /// Waits for a connection to the server that holds a hash slot, until the deadline.
    pub async fn connection_by(
        &self,
        deadline: Deadline,
    ) -> Result<Arc<dyn SharedConnection>, Error> {
        let connecting = pin!(self.connection(deadline.hash_slot));
        let connected = deadline.wait_for(connecting).await;
        connected.unwrap_or_else(|| Err(self.missed_error(&deadline, &Stage::Waiting)))
    }

    /// Waits for a reply until the deadline. Records that none came over `connection`: the first one
    /// over which the call was sent, or `None` to record nothing.
    pub async fn reply_by<F: Future + ?Sized>(
        &self,
        deadline: &Deadline,
        connection: Option<&dyn SharedConnection>,
        reply: Pin<&mut F>,
    ) -> Option<F::Output> {
        let reply = deadline.wait_for(reply).await;
        if let (None, Some(connection)) = (&reply, connection) {
            connection.record_timeout();
        }
        reply
    }

    /// Returns the number of connections that the calls of one partition share, at least 1.
    pub fn size(&self) -> usize {
        self.connections.size()
    }

    /// Returns the instant at which a reply is given up, for the caller's deadline.
    pub fn reply_deadline(&self, deadline: Instant) -> Instant {
        self.response_timeout.map_or(deadline, |own| deadline.min(Instant::now() + own))
    }

    /// Returns the hash slot of a key; 0 on a plain server, where all keys share calls.
    pub fn hash_slot(&self, key: &str) -> u16 {
        if self.is_routed() { slot_map::hash_slot(key) } else { 0 }
    }

    /// Returns a connection that is ready, if there is one.
    pub fn ready_connection(&self, hash_slot: u16) -> Option<Arc<dyn SharedConnection>> {
        Arc::clone(&self.connections).ready_connection(hash_slot)
    }

    /// Returns the known facts about the server of a hash slot.
    pub(super) fn facts(&self, hash_slot: u16) -> Facts {
        self.connections.facts(hash_slot)
    }

    /// Returns the error of a call that has no answer at its deadline.
    pub fn missed_error(&self, deadline: &Deadline, stage: &Stage) -> Error {
        let facts = match (stage, &self.cluster) {
            (Stage::Redirected(host), Some(cluster)) => cluster.facts_at(host),
            _ => Ok(self.facts(deadline.hash_slot)),
        };
        facts.map_or_else(|error| error, |facts| deadline.missed_error(&facts, stage))
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("size", &self.size()).finish_non_exhaustive()
    }
}
