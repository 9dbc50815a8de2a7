//! One pool of connections for many limiters.
//!
//! Connections are shared, not checked out: a call takes a clone of one and gives it back at once, so
//! that many calls travel on one socket. The pool is lazy: it connects when it is first asked, and a
//! server that is away fails decisions, never the start of an application.
//!
//! A call that may have landed is never sent again. When its deadline passes, the asker is told at once, and the
//! answer is awaited a little longer behind its back, so that what was taken in vain can be given back.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bb8_redis::bb8::{self, ManageConnection, RunError};
use redis::aio::ConnectionLike;
use redis::{
    Cmd, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, RedisResult, ServerErrorKind,
    Value,
};
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::{LastTrouble, Line, Server};
use super::failure;
use crate::{Class, Error};

/// How long bb8 waits for a connection; it also shapes how soon it tries again.
const CHECKOUT: Duration = Duration::from_millis(500);

/// No timeout is longer: an instant that far away can still be told.
pub(super) const LONGEST: Duration = Duration::from_secs(86_400);

/// How long an answer is awaited behind the back of an asker who is gone.
const GRACE: Duration = Duration::from_millis(500);

/// Connections to Redis, shared by every clone and by many limiters.
#[derive(Clone)]
pub struct Pool {
    source: Arc<dyn Source>,
    prefix: Arc<str>,
}

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
        Ok(PoolBuilder {
            info: url.into_connection_info().map_err(unusable)?,
            size: 2,
            connect_timeout: Duration::from_secs(1),
            response_timeout: None,
        })
    }

    /// Connections of any bb8 pool whose connections are cheap clones that share one socket or know
    /// a whole cluster: a server, a cluster, a sentinel's primary.
    ///
    /// Leave `test_on_check_out` on: the managers that come with redis notice a dead connection in no
    /// other way. The pool belongs to limiters alone, since a blocking command would hold them all up.
    #[must_use]
    pub fn from_bb8<M>(pool: bb8::Pool<M>) -> Self
    where
        M: ManageConnection<Error = RedisError>,
        M::Connection: ConnectionLike + Clone + Sync,
    {
        Self::of(Shared {
            address: String::from("redis"),
            pool: OnceLock::from(pool),
            build: Mutex::new(None),
            trouble: LastTrouble::default(),
            response_timeout: None,
            overdue: |_: &M::Connection| (),
            answered: AtomicU64::new(0),
        })
    }

    /// Starts the keys of limiters made from here on with `prefix`. Default: `sluice`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    fn of(source: impl Source + 'static) -> Self {
        Self { source: Arc::new(source), prefix: "sluice".into() }
    }

    /// What keys start with.
    pub(super) fn key_prefix(&self) -> &str {
        &self.prefix
    }

    /// Waits until there is a connection: for applications that would rather not start without.
    ///
    /// # Errors
    ///
    /// If none is made within a second: the error names where to, and its source says why.
    pub async fn ready(&self) -> Result<(), Error> {
        Arc::clone(&self.source).ready(Instant::now() + Duration::from_secs(1)).await
    }

    /// Sends one command, and waits for the answer until `deadline`; one that comes later goes to `late`.
    pub(super) async fn call(
        &self,
        command: Cmd,
        deadline: Instant,
        late: Option<Late>,
    ) -> Result<Value, Failure> {
        Arc::clone(&self.source).call(command, deadline, late).await
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// A [`Pool`] being set up: see [`Pool::builder`].
#[derive(Clone)]
pub struct PoolBuilder {
    info: ConnectionInfo,
    size: u32,
    connect_timeout: Duration,
    response_timeout: Option<Duration>,
}

impl PoolBuilder {
    /// Sets how many connections are kept, at least 1. Default: 2.
    #[must_use]
    pub fn size(mut self, connections: u32) -> Self {
        self.size = connections.max(1);
        self
    }

    /// Sets how long a connection may take to be made. Default: 1 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long an answer is awaited at most. Default: as long as the decision's deadline allows.
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = Some(timeout.min(LONGEST));
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
    /// If the crate was built without what the address needs, as `rediss://` needs the feature `rustls`.
    pub fn build(self) -> Result<Pool, Error> {
        let address = format!("redis at {}", self.info.addr());
        let server = Server::new(self.info, self.connect_timeout).map_err(unusable)?;
        Ok(Pool::of(Shared {
            address,
            pool: OnceLock::new(),
            trouble: server.trouble(),
            build: Mutex::new(Some((server, self.size))),
            response_timeout: self.response_timeout,
            overdue: Line::overdue,
            answered: AtomicU64::new(0),
        }))
    }
}

impl fmt::Debug for PoolBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuilder").field("size", &self.size).finish_non_exhaustive()
    }
}

fn unusable(error: RedisError) -> Error {
    Error::new(Class::Configuration, "the address of redis cannot be used").because(error)
}

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server does not know the script: nothing was done.
    NoScript,
    Error(Error),
}

/// What is done with an answer that nobody waits for any more.
pub(super) type Late = Arc<dyn Fn(&Value) + Send + Sync>;

type Ready = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

type Called = Pin<Box<dyn Future<Output = Result<Value, Failure>> + Send>>;

/// Where connections come from, whatever their type.
trait Source: Send + Sync {
    fn ready(self: Arc<Self>, deadline: Instant) -> Ready;
    fn call(self: Arc<Self>, command: Cmd, deadline: Instant, late: Option<Late>) -> Called;
}

/// A bb8 pool whose connections are shared by clone.
struct Shared<M: ManageConnection> {
    /// Host and port, for errors.
    address: String,
    pool: OnceLock<bb8::Pool<M>>,
    /// What the pool is built of on first use, since that needs a runtime.
    build: Mutex<Option<(M, u32)>>,
    trouble: LastTrouble,
    response_timeout: Option<Duration>,
    /// Tells a connection that a call over it was not answered in time.
    overdue: fn(&M::Connection),
    /// Calls that were answered in time: whether a silence is the server's or a queue's.
    answered: AtomicU64,
}

impl<M> Shared<M>
where
    M: ManageConnection<Error = RedisError>,
{
    fn pool(&self) -> &bb8::Pool<M> {
        self.pool.get_or_init(|| {
            let build = self.build.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (manager, size) = build.expect("built once");
            bb8::Pool::builder()
                .max_size(size)
                .min_idle(size)
                .connection_timeout(CHECKOUT)
                // Connections go when they are dead, and no task outlives the pool to see to their age.
                .max_lifetime(None)
                .idle_timeout(None)
                .error_sink(Box::new(self.trouble.clone()))
                .build_unchecked(manager)
        })
    }

    async fn connection(&self, deadline: Instant) -> Result<M::Connection, Error>
    where
        M::Connection: Clone,
    {
        let answered = self.answered.load(Relaxed);
        match timeout_at(deadline, self.pool().get()).await {
            Ok(Ok(connection)) => Ok(connection.clone()),
            Ok(Err(RunError::User(error))) => Err(failure::call(error)),
            Ok(Err(RunError::TimedOut)) | Err(_) if self.answered.load(Relaxed) > answered => {
                Err(Error::new(Class::Saturation, "no connection came free in time"))
            }
            // bb8 keeps the cause to itself, so the last failure to connect tells the class.
            Ok(Err(RunError::TimedOut)) | Err(_) => Err(match self.trouble.get() {
                Some(cause) => {
                    let cause = failure::call(cause);
                    Error::new(cause.class(), format!("no connection to {}", self.address))
                        .because(cause)
                }
                None => {
                    let message = format!("no connection to {} in time", self.address);
                    Error::new(Class::Infrastructure, message)
                }
            }),
        }
    }

    fn read(outcome: RedisResult<Value>) -> Result<Value, Failure> {
        outcome.and_then(Value::extract_error).map_err(|error| match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => Failure::NoScript,
            _ => Failure::Error(failure::call(error)),
        })
    }
}

impl<M> Source for Shared<M>
where
    M: ManageConnection<Error = RedisError>,
    M::Connection: ConnectionLike + Clone + Sync,
{
    fn ready(self: Arc<Self>, deadline: Instant) -> Ready {
        Box::pin(async move { self.connection(deadline).await.map(drop) })
    }

    fn call(self: Arc<Self>, command: Cmd, deadline: Instant, late: Option<Late>) -> Called {
        Box::pin(async move {
            let connection = self.connection(deadline).await.map_err(Failure::Error)?;
            let mut sender = connection.clone();
            let mut answer = Box::pin(async move { sender.req_packed_command(&command).await });
            let cut = match self.response_timeout {
                Some(timeout) => deadline.min(Instant::now() + timeout),
                None => deadline,
            };
            if let Ok(outcome) = timeout_at(cut, &mut answer).await {
                self.answered.fetch_add(1, Relaxed);
                return Self::read(outcome);
            }
            (self.overdue)(&connection);
            if let Some(late) = late {
                tokio::spawn(async move {
                    let outcome = timeout(GRACE, answer).await;
                    if let Some(Ok(reply)) = outcome.ok().map(Self::read) {
                        late(&reply);
                    }
                });
            }
            let error = Error::new(Class::Infrastructure, "redis did not answer in time");
            Err(Failure::Error(error))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_a_feature_and_never_a_downgrade() {
        let built = Pool::connect("rediss://127.0.0.1:1");
        match cfg!(feature = "rustls") {
            true => assert!(built.is_ok()),
            false => assert_eq!(built.unwrap_err().class(), Class::Configuration),
        }
    }
}
