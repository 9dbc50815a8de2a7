//! One call of Redisson's script: sent, perhaps again, and undone if nobody is left to hear.
//!
//! A grant is known by its random bytes, so a call for one may be sent again over another connection: it is taken once.
//! No other call is, unless the server said that it did not run. The answer to a grant whose asker is gone is awaited a
//! little longer, and what was taken is given back.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use super::grant::Grant;
use super::names::Names;
use super::rate::Rate;
use crate::algorithm::LATEST;
use crate::limiter::named::{Clock, instant};
use crate::limiter::redis::sending::{
    Deadline, LATE, Script, SharedConnection, call_error, eval, is_reply, malformed_reply,
    met_read_only,
};
use crate::{Error, ErrorKind, Pool};

/// How soon a server is asked again that moves the keys elsewhere.
const PAUSE: Duration = Duration::from_millis(5);

/// The most calls under way, late answers that are awaited included.
const BACKLOG: usize = 16_384;

const SCRIPT: [&str; 3] = [
    include_str!("../../scripts/redisson.lua"),
    include_str!("../../scripts/redisson_settings.lua"),
    "return run()\n",
];

/// The outcomes that the script tells.
pub(super) const DONE: i64 = 0;
pub(super) const REFUSED: i64 = 1;
pub(super) const EXCEEDS: i64 = 2;
pub(super) const NO_CONFIGURATION: i64 = 3;
pub(super) const BAD_CONFIGURATION: i64 = 4;

/// What is asked about one limiter.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) names: Names,
    pub(super) operation: &'static str,
    pub(super) arguments: Vec<Vec<u8>>,
}

impl Question {
    pub(super) fn new<T: AsRef<[u8]>>(
        names: &Names,
        operation: &'static str,
        arguments: impl IntoIterator<Item = T>,
    ) -> Self {
        let arguments = arguments.into_iter().map(|argument| argument.as_ref().to_vec()).collect();
        Self { names: names.clone(), operation, arguments }
    }

    /// Takes permits.
    pub(super) fn acquire(names: &Names, permits: u32, grant: &Grant) -> Self {
        Self::new(names, "acquire", [permits.to_string().as_bytes(), grant])
    }

    /// Gives a limiter a rate if there is nothing under its name.
    pub(super) fn set_if_absent(names: &Names, rate: Rate) -> Result<Self, Error> {
        let only_if_absent = String::from("1");
        Ok(Self::new(names, "try_set", [only_if_absent].into_iter().chain(rate.arguments()?)))
    }

    /// Gives back permits of a grant that took `held`.
    pub(super) fn put_back(names: &Names, permits: u32, grant: &Grant, held: u32) -> Self {
        let (permits, held) = (permits.to_string(), held.to_string());
        Self::new(names, "return", [permits.as_bytes(), grant, held.as_bytes()])
    }
}

/// What the script said.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) outcome: i64,
    /// When, in µs since the Unix epoch.
    pub(super) now: i64,
    numbers: Vec<i64>,
}

impl Told {
    fn read(reply: Value) -> Result<Self, Error> {
        let numbers: Vec<i64> = redis::from_redis_value(reply).map_err(|_| malformed_reply())?;
        match numbers[..] {
            [outcome, now @ 0..=LATEST, ref numbers @ ..] => {
                Ok(Self { outcome, now, numbers: numbers.to_vec() })
            }
            _ => Err(malformed_reply()),
        }
    }

    /// What it tells besides.
    ///
    /// # Errors
    ///
    /// If that is not so many numbers.
    pub(super) fn numbers<const N: usize>(&self) -> Result<[i64; N], Error> {
        self.numbers.as_slice().try_into().map_err(|_| malformed_reply())
    }
}

/// Asks a server, by its clock or the caller's.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) pool: Pool,
    pub(super) clock: Option<Clock>,
    script: Arc<Script>,
    under_way: Arc<Semaphore>,
}

/// A call under way. `None`: nothing was sent, since the deadline had passed.
type Evaluating = Pin<Box<dyn Future<Output = Option<RedisResult<Value>>> + Send>>;

/// Why there is no answer.
enum Failure {
    Overdue(Error),
    /// The deadline passed before anything was sent.
    Unsent(Error),
    Refused(RedisError),
}

impl Caller {
    pub(super) fn new(pool: Pool) -> Self {
        let under_way = Arc::new(Semaphore::new(BACKLOG));
        Self { pool, clock: None, script: Arc::new(Script::with_head(&SCRIPT)), under_way }
    }

    /// Asks once.
    pub(super) async fn call(&self, question: &Question, deadline: Instant) -> Result<Told, Error> {
        let _place = self.place()?;
        self.ask(question, deadline).await
    }

    /// A deadline for the server that holds a limiter's keys.
    fn deadline(&self, names: &Names, at: Instant) -> Deadline {
        Deadline::new(self.pool.reply_deadline(at), &self.pool, self.pool.slot(names.name()))
    }

    async fn ask(&self, question: &Question, deadline: Instant) -> Result<Told, Error> {
        let deadline = self.deadline(&question.names, deadline);
        loop {
            let wire = self.wire(deadline).await?;
            let mut reply = None;
            match self.send(&wire, question, &mut reply, deadline).await? {
                Ok(reply) => return Told::read(reply),
                Err(Failure::Refused(error)) if moves(&error) && soon(deadline.at) => {
                    sleep(PAUSE).await;
                }
                Err(failure) => return Err(why(failure)),
            }
        }
    }

    /// Takes permits for a grant. What was taken for an asker who is gone is given back.
    pub(super) async fn acquire(
        &self,
        names: &Names,
        permits: u32,
        grant: Grant,
        deadline: Instant,
    ) -> Result<Told, Error> {
        let question = Question::acquire(names, permits, &grant);
        let deadline = self.deadline(names, deadline);
        let mut undo = Undo {
            caller: self,
            taken: (names, permits, grant),
            place: Some(self.place()?),
            wire: None,
            reply: None,
            is_needed: false,
        };
        let mut sent_again = false;
        loop {
            let wire = self.wire(deadline).await?;
            (undo.wire, undo.is_needed) = (Some(Arc::clone(&wire)), true);
            match self.send(&wire, &question, &mut undo.reply, deadline).await? {
                Ok(reply) => {
                    let told = Told::read(reply)?;
                    // Or it is no answer of the script; or what was sent first is still on its way.
                    undo.is_needed = match told.outcome {
                        DONE => told.numbers::<5>().is_err(),
                        _ => sent_again,
                    };
                    return Ok(told);
                }
                Err(Failure::Refused(error)) if moves(&error) && soon(deadline.at) => {
                    sleep(PAUSE).await;
                }
                Err(Failure::Refused(error)) if error.is_io_error() && !sent_again => {
                    sent_again = true;
                }
                Err(failure) => {
                    undo.is_needed = sent_again || !is_refused(&failure);
                    return Err(why(failure));
                }
            }
        }
    }

    /// Sends one command that is no script.
    pub(super) async fn command(
        &self,
        names: &Names,
        command: Cmd,
        deadline: Instant,
    ) -> Result<i64, Error> {
        let _place = self.place()?;
        let deadline = self.deadline(names, deadline);
        let wire = self.wire(deadline).await?;
        let reply = wire.send(command);
        let mut reply: Evaluating = Box::pin(async move { Some(reply.await) });
        let reply = self.answer(&*wire, &mut reply, deadline).await.map_err(why)?;
        redis::from_redis_value(reply).map_err(|_| malformed_reply())
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, Error> {
        Arc::clone(&self.under_way)
            .try_acquire_owned()
            .map_err(|_| Error::new(ErrorKind::Saturation, "too many calls are under way"))
    }

    async fn wire(&self, deadline: Deadline) -> Result<Arc<dyn SharedConnection>, Error> {
        let connecting = pin!(self.pool.connection());
        let connection = deadline.answer(connecting).await;
        connection.unwrap_or_else(|| Err(deadline.missed(&self.pool, true)))
    }

    /// Sends a question. A reply that misses the deadline stays in `reply` for the undo.
    async fn send(
        &self,
        wire: &Arc<dyn SharedConnection>,
        question: &Question,
        reply: &mut Option<Evaluating>,
        deadline: Deadline,
    ) -> Result<Result<Value, Failure>, Error> {
        let now = self.clock.as_ref().map(|clock| instant(clock())).transpose()?;
        let (connection, script) = (Arc::clone(wire), Arc::clone(&self.script));
        let question = question.clone();
        let evaluating = Box::pin(async move {
            let arguments = |command: &mut Cmd| {
                let keys = question.names.keys();
                command.arg(keys.len()).arg(keys);
                match now {
                    Some(now) => command.arg(now),
                    None => command.arg(""),
                };
                command.arg(question.operation).arg(&question.arguments);
                Instant::now() <= deadline.at
            };
            eval(connection, &script, arguments).await
        });
        let answer = self.answer(&**wire, reply.insert(evaluating), deadline).await;
        if !matches!(answer, Err(Failure::Overdue(_))) {
            *reply = None;
        }
        Ok(answer)
    }

    async fn answer(
        &self,
        wire: &dyn SharedConnection,
        reply: &mut Evaluating,
        deadline: Deadline,
    ) -> Result<Value, Failure> {
        let was_answered = |reply: &Option<_>| reply.as_ref().is_some_and(is_reply);
        let answer = deadline.reply(&self.pool, wire, Pin::new(reply), was_answered).await;
        let missed = || deadline.missed(&self.pool, true);
        let answer = answer.ok_or_else(|| Failure::Overdue(missed()))?;
        let answer = answer.ok_or_else(|| Failure::Unsent(missed()))?;
        let answer = answer.and_then(Value::extract_error).map_err(Failure::Refused);
        if let Err(Failure::Refused(error)) = &answer
            && met_read_only(error)
        {
            wire.mark_read_only();
        }
        answer
    }
}

/// Gives a grant back when it is dropped, unless that was not needed.
struct Undo<'a> {
    caller: &'a Caller,
    taken: (&'a Names, u32, Grant),
    /// Its place among the calls under way.
    place: Option<OwnedSemaphorePermit>,
    /// What it was sent over last, and the answer to come.
    wire: Option<Arc<dyn SharedConnection>>,
    reply: Option<Evaluating>,
    is_needed: bool,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if !self.is_needed {
            return;
        }
        // Best effort: permits that do not come back err on the safe side, and expire.
        let Ok(runtime) = Handle::try_current() else { return };
        let (names, permits, grant) = self.taken;
        let put_back = Question::put_back(names, permits, &grant, permits);
        let caller = self.caller.clone();
        let place = self.place.take();
        let (wire, reply) = (self.wire.take(), self.reply.take());
        runtime.spawn(async move {
            let _place = place;
            if let Some(reply) = reply
                && let Ok(Some(Ok(reply))) = timeout(LATE, reply).await
                && let Ok(told) =
                    reply.extract_error().map_or_else(|_| Err(malformed_reply()), Told::read)
                && told.outcome != DONE
            {
                return;
            }
            // Over the same connection it comes after what it undoes, also if that was given up as silent.
            if let Some(wire) = wire {
                let end = caller.deadline(&put_back.names, Instant::now() + LATE);
                if let Ok(Ok(_)) = caller.send(&wire, &put_back, &mut None, end).await {
                    return;
                }
            }
            let _ = caller.ask(&put_back, Instant::now() + LATE).await;
        });
    }
}

/// Whether the server moves the keys elsewhere, and did nothing.
fn moves(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::TryAgain)
}

/// Whether the server said that it took nothing.
fn is_refused(failure: &Failure) -> bool {
    match failure {
        Failure::Overdue(_) => false,
        Failure::Unsent(_) => true,
        Failure::Refused(error) => {
            matches!(error.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension)
        }
    }
}

/// Whether there is time for another try.
fn soon(deadline: Instant) -> bool {
    Instant::now() + PAUSE < deadline
}

fn why(failure: Failure) -> Error {
    match failure {
        Failure::Overdue(error) | Failure::Unsent(error) => error,
        Failure::Refused(error) => call_error(error),
    }
}
