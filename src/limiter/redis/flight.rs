//! How a batch travels: a shared connection, one call, and to each charge its own answer.
//!
//! A call that may have landed is never sent again. When its deadline passes, the askers are told, and the answer
//! is awaited a little longer behind their backs, so that what was taken in vain can be given back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};

use super::dispatch::{Dispatcher, Route, Seat};
use super::error;
use super::lane::Waiting;
use super::reply::Reply;
use super::script::{Call, Script};
use super::source::SharedConnection;
use crate::limiter::terms::instant;
use crate::{Class, Error};

/// How long an answer is awaited behind the back of askers who are gone.
const GRACE: Duration = Duration::from_millis(500);

/// A journey: when it ends, everybody on board has been told.
pub(super) type Flight = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Carries one charge that found its lane idle, at once.
pub(super) fn alone(seat: Seat, charge: Waiting) -> Flight {
    Box::pin(async move {
        let dispatcher = Arc::clone(&seat.dispatcher);
        let pool = &dispatcher.route.pool;
        let opened = match dispatcher.wire() {
            Some(wire) => Ok(Ok(wire)),
            None => timeout_at(charge.deadline, pool.connection()).await,
        };
        match opened {
            Ok(Ok(wire)) => {
                dispatcher.keep(&wire);
                carry(&dispatcher, &wire, vec![charge]).await;
            }
            Ok(Err(error)) => charge.fail(error),
            Err(_) => charge.fail(pool.no_reply()),
        }
        drop(seat);
    })
}

/// Carries batch after batch, as long as there is somebody to carry.
pub(super) async fn in_batches(mut seat: Seat) {
    let dispatcher = Arc::clone(&seat.dispatcher);
    let mut held: Option<Arc<dyn SharedConnection>> = None;
    loop {
        let next = seat.next();
        let wire = match held.take().filter(|wire| wire.is_alive()) {
            Some(wire) => Ok(wire),
            None => dispatcher.route.pool.connection().await,
        };
        // Those who are about to ask come along.
        yield_now().await;
        match wire {
            Ok(wire) => {
                let batch = seat.board();
                if batch.is_empty() {
                    return;
                }
                carry(&dispatcher, &wire, batch).await;
                held = Some(wire);
            }
            Err(error) => seat.fail(next, &error),
        }
    }
}

/// Why a call has no answer.
enum Failure {
    /// Not by the deadline; it may still come.
    Overdue(Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>),
    Refused(RedisError),
}

/// Sends a batch, and tells each of its charges.
async fn carry(
    dispatcher: &Arc<Dispatcher>,
    wire: &Arc<dyn SharedConnection>,
    mut batch: Vec<Waiting>,
) {
    let route = &dispatcher.route;
    let now = match route.clock.as_ref().map(|clock| instant(clock())).transpose() {
        Ok(now) => now,
        Err(error) => return fail(batch, &error),
    };
    let deadline = batch.iter().map(|charge| charge.deadline).max().unwrap_or_else(Instant::now);

    let call = |script: fn(&Script, &Call<'_>) -> Cmd, batch: &[Waiting]| {
        let requests: Vec<_> = batch.iter().map(|charge| &charge.request).collect();
        let Route { scopes, rule, .. } = route;
        script(&route.script, &Call { now, scopes, rule, requests: &requests })
    };
    let mut command = call(Script::by_digest, &batch);
    let mut sent = send(dispatcher, &**wire, command, deadline).await;
    if let Err(Failure::Refused(error)) = &sent
        && error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
    {
        // Nothing was done: the text goes out, for those who still ask.
        batch.retain(Waiting::is_wanted);
        command = call(Script::by_text, &batch);
        sent = send(dispatcher, &**wire, command, deadline).await;
    }
    match sent {
        Ok(reply) => distribute(dispatcher, Some(&**wire), batch, &reply),
        Err(Failure::Refused(error)) => fail(batch, &error::call(error)),
        Err(Failure::Overdue(answer)) => {
            let dispatcher = Arc::clone(dispatcher);
            let error = Error::new(Class::Infrastructure, "redis did not answer in time");
            let gone = batch.into_iter().map(|charge| charge.dismiss(&error)).collect();
            tokio::spawn(async move {
                if let Ok(Ok(reply)) = timeout(GRACE, answer).await {
                    distribute(&dispatcher, None, gone, &reply);
                }
            });
        }
    }
}

async fn send(
    dispatcher: &Dispatcher,
    wire: &dyn SharedConnection,
    command: Cmd,
    deadline: Instant,
) -> Result<Value, Failure> {
    let pool = &dispatcher.route.pool;
    let sent = Instant::now();
    let mut answer = wire.send(command);
    match timeout_at(pool.reply_deadline(deadline), &mut answer).await {
        Ok(outcome) => {
            pool.note_answer();
            outcome.and_then(Value::extract_error).map_err(Failure::Refused)
        }
        Err(_) => {
            wire.record_timeout(sent);
            Err(Failure::Overdue(answer))
        }
    }
}

fn fail(batch: Vec<Waiting>, error: &Error) {
    for charge in batch {
        charge.fail(error.clone());
    }
}

/// Tells each charge what the reply says of it, and undoes what was decided for those who are gone.
fn distribute(
    dispatcher: &Arc<Dispatcher>,
    wire: Option<&dyn SharedConnection>,
    batch: Vec<Waiting>,
    reply: &Value,
) {
    let reply = match Reply::read(reply, batch.len(), dispatcher.route.scopes.len()) {
        Ok(reply) => reply,
        Err(error) => return fail(batch, &error),
    };
    if let Some(wire) = wire.filter(|_| reply.tells_read_only()) {
        wire.mark_read_only();
    }
    for (place, charge) in batch.into_iter().enumerate() {
        match reply.told(place, &charge.request) {
            Ok(told) => {
                if let Some(unheard) = charge.answer(reply.now, place, told) {
                    dispatcher.undo(unheard);
                }
            }
            Err(error) => charge.fail(error),
        }
    }
}
