//! The servers that may know the slot map, asked one after another.

use std::sync::Arc;
use std::time::Duration;

use redis::cmd;
use tokio::select;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::super::address::Host;
use super::super::connections::SharedConnection;
use super::super::error::{from_redis_error, weight};
use super::super::server::Server;
use super::slot_map::SlotMap;
use crate::limiter::grace_period::unless_busy;
use crate::{Error, ErrorKind};

/// A server that has not answered after this time is not waited for alone.
const PATIENCE: Duration = Duration::from_millis(100);

/// A server that may know the map.
pub(super) struct Candidate {
    pub(super) host: Host,
    pub(super) server: Server,
    /// Its connection, if there is one.
    pub(super) connection: Option<Arc<dyn SharedConnection>>,
}

impl Candidate {
    async fn ask(self) -> Result<SlotMap, Error> {
        let end = Instant::now() + self.server.connect_timeout;
        unless_busy(end, self.read_map(end)).await
    }

    async fn read_map(self, end: Instant) -> Result<SlotMap, Error> {
        let connection = match self.connection {
            Some(connection) => connection,
            None => Arc::new(self.server.connect().await?),
        };
        let reply = connection.send(cmd("CLUSTER").arg("SLOTS").take());
        let reply = timeout_at(end, reply).await.map_err(|_| {
            let message = format!("{} did not answer in time", self.server.address());
            Error::new(ErrorKind::Infrastructure, message)
        })?;
        let reply = reply.and_then(redis::Value::extract_error).map_err(from_redis_error)?;
        let map = SlotMap::read(&reply, &self.host)?;
        if map.is_empty() {
            let message = format!("{} knows no slots", self.server.address());
            return Err(Error::new(ErrorKind::Infrastructure, message));
        }
        Ok(map)
    }
}

/// Asks one after another, and does not wait long for one alone. The first map counts.
pub(super) async fn first_map(candidates: Vec<Candidate>) -> Result<SlotMap, Error> {
    let mut error = Error::new(ErrorKind::Infrastructure, "no server of the cluster is known");
    let (mut candidates, mut asked) = (candidates.into_iter(), JoinSet::new());
    loop {
        if let Some(candidate) = candidates.next() {
            asked.spawn(candidate.ask());
        }
        let answer = select! {
            answer = asked.join_next() => answer,
            () = sleep(PATIENCE), if candidates.len() > 0 => continue,
        };
        match answer {
            Some(Ok(Ok(map))) => return Ok(map),
            Some(Ok(Err(why))) if weight(&why) >= weight(&error) => error = why,
            // As of a resolver that panics: no fallback may admit for it.
            Some(Err(ended)) if ended.is_panic() => {
                let message = "a panic ended the attempt to connect to redis";
                error = Error::new(ErrorKind::Configuration, message);
            }
            Some(_) => {}
            None => return Err(error),
        }
    }
}
