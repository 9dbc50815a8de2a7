//! Sends requests to the script.
//!
//! The client sends a request again only if a server says that it did not run it.
//! `take_permits.rs` sends the requests that may be sent twice.

use std::pin::Pin;
use std::sync::Arc;

use redis_once::redis::Value;
use redis_once::{Failure, Script};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tower_sluice::{Error, ErrorKind, Pool};

use super::clock::{EpochClock, instant, system_time};
use super::messages::{PermitCall, ScriptReply};

/// The most requests in flight, including those whose replies are late.
const MAX_IN_FLIGHT: usize = 16_384;

/// Sends requests to the servers of a pool.
#[derive(Clone)]
pub(super) struct Sender {
    pub(super) pool: Pool,
    /// The caller's clock; `None`: the server's.
    pub(super) clock: Option<EpochClock>,
    script: Script,
    in_flight: Arc<Semaphore>,
}

/// The future reply to a request.
pub(super) type PendingReply = Pin<Box<dyn Future<Output = Result<Value, Failure>> + Send>>;

impl Sender {
    pub(super) fn new(pool: Pool) -> Self {
        let in_flight = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
        let clock = pool.has_caller_clock().then(|| Arc::new(system_time) as EpochClock);
        let script = concat!(
            include_str!("../scripts/redisson.lua"),
            include_str!("../scripts/redisson_settings.lua"),
        );
        Self { pool, clock, script: Script::new(script), in_flight }
    }

    /// Sends a request and awaits its reply.
    pub(super) async fn call(
        &self,
        request: &PermitCall,
        deadline: Instant,
    ) -> Result<ScriptReply, Error> {
        let _in_flight = self.in_flight_permit()?;
        self.exchange(request, deadline).await
    }

    /// Works like [`call`](Self::call), for a request that already counts as in flight.
    pub(super) async fn exchange(
        &self,
        request: &PermitCall,
        deadline: Instant,
    ) -> Result<ScriptReply, Error> {
        let reply = self.send(request, deadline, || ())?.await;
        ScriptReply::read(reply.map_err(redis_once::Error::from)?)
    }

    /// Counts a request as in flight until the permit is dropped.
    pub(super) fn in_flight_permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        Arc::clone(&self.in_flight)
            .try_acquire_owned()
            .map_err(|_| Error::new(ErrorKind::Saturation, "too many calls are in flight"))
    }

    /// Returns true if most requests are in use: then what can be left out is left out.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.available_permits() < MAX_IN_FLIGHT / 2
    }

    /// Returns the reply to a request. Calls `connected` right before it is sent.
    pub(super) fn send(
        &self,
        request: &PermitCall,
        deadline: Instant,
        connected: impl FnOnce() + Send + 'static,
    ) -> Result<PendingReply, Error> {
        let now = self.clock.as_ref().map(|clock| instant(clock())).transpose()?;
        let now = now.map(|now| now.to_string()).unwrap_or_default();
        let PermitCall { keys, operation, arguments } = request.clone();
        let words = [vec![now.into_bytes(), operation.as_bytes().to_vec()], arguments].concat();
        let (client, script) = (self.pool.client().clone(), self.script.clone());
        Ok(Box::pin(async move {
            let keys: Vec<_> = keys.all().iter().map(String::as_str).collect();
            client.run_when_connected(&script, &keys, words, deadline, connected).await
        }))
    }
}
