//! One call of Redisson's script: sent, perhaps again, and undone if nobody is left to hear.
//!
//! A grant is known by its random bytes, so a call for one may be sent again over another connection: it is taken once.
//! No other call is, unless the server said that it did not run.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout_at};

use super::super::failure;
use super::super::pool::Pool;
use super::super::reply::odd;
use super::super::script::Script;
use super::super::source::Wire;
use super::names::Names;
use crate::limiter::terms::{Clock, instant};
use crate::{Class, Error};

/// How soon a server is asked again that moves the keys elsewhere.
const PAUSE: Duration = Duration::from_millis(5);

/// How long what nobody waits for may take.
const UNASKED: Duration = Duration::from_millis(500);

/// The bytes that a grant is known by.
pub(super) type Grant = [u8; 16];

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
        let numbers: Vec<i64> =
            redis::from_redis_value(reply).map_err(|error| odd().because(error))?;
        match numbers[..] {
            [outcome, now, ref numbers @ ..] => {
                Ok(Self { outcome, now, numbers: numbers.to_vec() })
            }
            _ => Err(odd()),
        }
    }

    /// What it tells besides.
    ///
    /// # Errors
    ///
    /// If that is not so many numbers.
    pub(super) fn numbers<const N: usize>(&self) -> Result<[i64; N], Error> {
        self.numbers.as_slice().try_into().map_err(|_| odd())
    }
}

/// Asks a server, by its clock or the caller's.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) pool: Pool,
    pub(super) script: Script,
    pub(super) clock: Option<Clock>,
}

/// Why there is no answer.
enum Failure {
    Overdue,
    Refused(RedisError),
}

impl Caller {
    /// Asks once.
    pub(super) async fn call(&self, question: &Question, deadline: Instant) -> Result<Told, Error> {
        loop {
            let wire = self.wire(deadline).await?;
            match self.send(&*wire, question, self.now()?, deadline).await {
                Ok(reply) => return Told::read(reply),
                Err(Failure::Refused(error)) if moves(&error) && soon(deadline) => {
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
        let now = self.now()?;
        let mut undo = None;
        let mut sent_again = false;
        loop {
            let wire = self.wire(deadline).await?;
            let undoing = undo.get_or_insert_with(|| Undo::new(self, names, permits, grant));
            undoing.wire = Some(Arc::clone(&wire));
            match self.send(&*wire, &question, now, deadline).await {
                Ok(reply) => {
                    let told = Told::read(reply)?;
                    undoing.is_needed = false;
                    return Ok(told);
                }
                Err(Failure::Refused(error)) if moves(&error) && soon(deadline) => {
                    sleep(PAUSE).await;
                }
                Err(Failure::Refused(error)) if error.is_io_error() && !sent_again => {
                    sent_again = true;
                }
                Err(failure) => {
                    // A server that answered did not take anything.
                    undoing.is_needed = match &failure {
                        Failure::Overdue => true,
                        Failure::Refused(error) => sent_again || error.is_io_error(),
                    };
                    return Err(why(failure));
                }
            }
        }
    }

    /// Asks what nobody waits for.
    pub(super) fn send_off(&self, question: Question) {
        if let Ok(runtime) = Handle::try_current() {
            let caller = self.clone();
            runtime.spawn(async move {
                let _ = caller.call(&question, Instant::now() + UNASKED).await;
            });
        }
    }

    /// Sends one command that is no script.
    pub(super) async fn command(&self, command: Cmd, deadline: Instant) -> Result<i64, Error> {
        let wire = self.wire(deadline).await?;
        let reply = self.answer(&*wire, command, deadline).await.map_err(why)?;
        redis::from_redis_value(reply).map_err(|error| odd().because(error))
    }

    fn now(&self) -> Result<Option<i64>, Error> {
        self.clock.as_ref().map(|clock| instant(clock())).transpose()
    }

    async fn wire(&self, deadline: Instant) -> Result<Arc<dyn Wire>, Error> {
        timeout_at(deadline, self.pool.wire()).await.unwrap_or_else(|_| Err(self.pool.silence()))
    }

    async fn send(
        &self,
        wire: &dyn Wire,
        question: &Question,
        now: Option<i64>,
        deadline: Instant,
    ) -> Result<Value, Failure> {
        let command = |mut begun: Cmd| {
            let keys = question.names.keys();
            begun.arg(keys.len()).arg(keys);
            match now {
                Some(now) => begun.arg(now),
                None => begun.arg(""),
            };
            begun.arg(question.operation).arg(&question.arguments);
            begun
        };
        match self.answer(wire, command(self.script.digest_call()), deadline).await {
            Err(Failure::Refused(error))
                if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) =>
            {
                self.answer(wire, command(self.script.text_call()), deadline).await
            }
            answer => answer,
        }
    }

    async fn answer(
        &self,
        wire: &dyn Wire,
        command: Cmd,
        deadline: Instant,
    ) -> Result<Value, Failure> {
        let Ok(outcome) = timeout_at(self.pool.cut(deadline), wire.send(command)).await else {
            wire.overdue();
            return Err(Failure::Overdue);
        };
        self.pool.note_answer();
        let answer = outcome.and_then(Value::extract_error).map_err(Failure::Refused);
        if let Err(Failure::Refused(error)) = &answer
            && error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        {
            wire.demoted();
        }
        answer
    }
}

/// Gives a grant back when it is dropped, unless that was not needed.
struct Undo<'a> {
    caller: &'a Caller,
    question: Question,
    wire: Option<Arc<dyn Wire>>,
    is_needed: bool,
}

impl<'a> Undo<'a> {
    fn new(caller: &'a Caller, names: &Names, permits: u32, grant: Grant) -> Self {
        let question = Question::put_back(names, permits, &grant, permits);
        Self { caller, question, wire: None, is_needed: true }
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if let (true, Ok(runtime)) = (self.is_needed, Handle::try_current()) {
            let (caller, question) = (self.caller.clone(), self.question.clone());
            let wire = self.wire.take();
            runtime.spawn(async move {
                // Over the same connection it comes after what it undoes.
                if let (Some(wire), Ok(now)) = (wire, caller.now())
                    && caller.send(&*wire, &question, now, Instant::now() + UNASKED).await.is_ok()
                {
                    return;
                }
                let _ = caller.call(&question, Instant::now() + UNASKED).await;
            });
        }
    }
}

/// Whether the server moves the keys elsewhere, and did nothing.
fn moves(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::TryAgain)
}

/// Whether there is time for another try.
fn soon(deadline: Instant) -> bool {
    Instant::now() + PAUSE < deadline
}

fn why(failure: Failure) -> Error {
    match failure {
        Failure::Overdue => Error::new(Class::Infrastructure, "redis did not answer in time"),
        Failure::Refused(error) => failure::call(error),
    }
}
