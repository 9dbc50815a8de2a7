//! Sends requests to the script.
//!
//! The client sends a request again only if a server says that it did not run it.
//! `take_permits.rs` sends the requests that may be sent twice.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use redis::{Cmd, RedisError, RedisResult, Value};
use redis_once::Script;
use redis_once::calls::{Deadline, SharedConnection, Stage, eval, from_failed_call, met_read_only};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::keys::Keys;
use super::messages::Request;
use super::messages::ScriptReply;
use crate::limiter::charge_numbers::{Clock, instant, system_time};
use crate::limiter::redis::from_sources;
use crate::limiter::runtime;
use crate::{Error, ErrorKind, Pool};

/// The most requests in flight, including those whose replies are late.
const MAX_IN_FLIGHT: usize = 16_384;

const SCRIPT: [&str; 3] = [
    include_str!("../../scripts/redisson.lua"),
    include_str!("../../scripts/redisson_settings.lua"),
    "return run()\n",
];

/// Sends requests to the servers of a pool.
#[derive(Clone)]
pub(super) struct Sender {
    pub(super) pool: Pool,
    /// The caller's clock; `None`: the server's.
    pub(super) clock: Option<Clock>,
    script: Script,
    in_flight: Arc<Semaphore>,
}

/// A future reply. `None`: nothing was sent, because the deadline had passed.
pub(super) type PendingReply = Pin<Box<dyn Future<Output = Option<RedisResult<Value>>> + Send>>;

/// The reason why a request has no reply from the script.
pub(super) enum Failure {
    /// The deadline passed after the request was sent.
    TimedOut(Error),
    /// The deadline passed before anything was sent, or while servers refused to run it.
    Unsent(Error),
    /// The server replied with an error, or the connection broke.
    Failed(RedisError),
}

impl Sender {
    pub(super) fn new(pool: Pool) -> Self {
        let in_flight = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
        let clock = pool.has_caller_clock().then(|| Arc::new(system_time) as Clock);
        Self { pool, clock, script: from_sources(&SCRIPT), in_flight }
    }

    /// Sends a request and awaits its reply.
    pub(super) async fn call(
        &self,
        request: &Request,
        deadline: Instant,
    ) -> Result<ScriptReply, Error> {
        let _in_flight = self.in_flight_permit()?;
        self.exchange(request, deadline).await
    }

    /// Makes a deadline for the server that holds a limiter's keys.
    pub(super) fn deadline(&self, keys: &Keys, at: Instant) -> Deadline {
        Deadline::new(self.pool.client.reply_deadline(at), self.pool.client.hash_slot(keys.name()))
    }

    /// Works like [`call`](Self::call), for a request that already counts as in flight.
    pub(super) async fn exchange(
        &self,
        request: &Request,
        deadline: Instant,
    ) -> Result<ScriptReply, Error> {
        let deadline = self.deadline(&request.keys, deadline);
        let connection = self.connection(deadline).await?;
        match self.send(&connection, request, &mut None, deadline).await? {
            Ok(reply) => ScriptReply::read(reply),
            Err(failure) => Err(failure.into_error(&request.keys)),
        }
    }

    /// Counts a request as in flight until the permit is dropped.
    pub(super) fn in_flight_permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        Arc::clone(&self.in_flight)
            .try_acquire_owned()
            .map_err(|_| Error::new(ErrorKind::Saturation, "too many calls are in flight"))
    }

    /// Waits for a connection until the deadline.
    pub(super) async fn connection(
        &self,
        deadline: Deadline,
    ) -> Result<Arc<dyn SharedConnection>, Error> {
        runtime::current()?;
        let connection = self.pool.client.connection_by(deadline).await?;
        Ok(self.pool.client.redirecting(connection, deadline))
    }

    /// Sends a request. A reply that misses the deadline stays in `reply`, for the refund.
    pub(super) async fn send(
        &self,
        connection: &Arc<dyn SharedConnection>,
        request: &Request,
        reply: &mut Option<PendingReply>,
        deadline: Deadline,
    ) -> Result<Result<Value, Failure>, Error> {
        let now = self.clock.as_ref().map(|clock| instant(clock())).transpose()?;
        let (shared, script) = (Arc::clone(connection), self.script.clone());
        let request = request.clone();
        let pending = Box::pin(async move {
            let arguments = |command: &mut Cmd| {
                let keys = request.keys.all();
                command.arg(keys.len()).arg(keys);
                match now {
                    Some(now) => command.arg(now),
                    None => command.arg(""),
                };
                command.arg(request.operation).arg(&request.arguments);
                Instant::now() <= deadline.at
            };
            eval(shared, &script, arguments).await
        });
        let answer = self.await_reply(&**connection, reply.insert(pending), deadline).await;
        if !matches!(answer, Err(Failure::TimedOut(_))) {
            *reply = None;
        }
        Ok(answer)
    }

    /// Awaits a reply until the deadline, and records if the server replied, did not reply, or is
    /// read-only.
    async fn await_reply(
        &self,
        connection: &dyn SharedConnection,
        reply: &mut PendingReply,
        deadline: Deadline,
    ) -> Result<Value, Failure> {
        let reply = Pin::new(reply);
        let answer = self.pool.client.reply_by(&deadline, Some(connection), reply).await;
        let stage = connection.stage();
        let missed = || self.pool.client.missed_error(&deadline, &stage).into();
        let answer = answer.ok_or_else(|| match stage {
            Stage::TurnedAway(_) => Failure::Unsent(missed()),
            _ => Failure::TimedOut(missed()),
        })?;
        let answer = answer.ok_or_else(|| Failure::Unsent(missed()))?;
        let answer = answer.and_then(Value::extract_error).map_err(Failure::Failed);
        if let Err(Failure::Failed(error)) = &answer
            && met_read_only(error)
        {
            connection.mark_read_only();
        }
        answer
    }
}

impl Failure {
    /// Makes the error of a request about these keys.
    pub(super) fn into_error(self, keys: &Keys) -> Error {
        match self {
            Self::TimedOut(error) | Self::Unsent(error) => error,
            Self::Failed(error) => {
                from_failed_call(error, keys.all().iter().map(String::as_str)).into()
            }
        }
    }
}
