//! How a charge is decided: in its turn, by one call, and again if the limiter had no configuration.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::call::{
    BAD_CONFIGURATION, Caller, DONE, EXCEEDS, NO_CONFIGURATION, Question, REFUSED, Told,
};
use super::grant::{Grant, Grants};
use super::names::Names;
use super::queue::{Queues, Turn};
use super::rate::Rate;
use crate::limiter::redis::sending::malformed_reply;
use crate::limiter::timeout;
use crate::{Charge, Decision, Error, ErrorKind, Origin, Outcome, Owner, Reservation};

/// What a reservation remembers: the name of the limiter, and the bytes of the grant.
type Granted = (String, Grant);

/// What the clones of a limiter share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) caller: Caller,
    pub(super) owner: Owner,
    pub(super) name: Arc<str>,
    pub(super) client: Arc<str>,
    pub(super) deadline: Duration,
    pub(super) default_rate: Option<Rate>,
    pub(super) queues: Arc<Queues>,
    pub(super) grants: Arc<Grants>,
}

/// A charge, as it is asked for.
pub(super) struct Asked {
    pub(super) names: Names,
    pub(super) permits: u32,
    pub(super) patience: Duration,
    pub(super) deadline: Instant,
}

impl Shared {
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    pub(super) fn read(&self, charge: &Charge) -> Result<Asked, Error> {
        let names = Names::of(charge.key(), &self.client)?;
        if charge.get_quota().is_some() {
            let message = "a limiter of redisson has its rate in redis, and a charge brings none";
            return Err(Error::new(ErrorKind::Configuration, message));
        }
        let permits = u32::try_from(charge.get_cost()).map_err(|_| too_many())?;
        let deadline = timeout::deadline(charge, self.deadline);
        let patience = charge.get_max_wait().unwrap_or_default();
        Ok(Asked { names, permits, patience, deadline })
    }

    /// Decides, after others of this process if they ask already.
    pub(super) async fn decide(&self, asked: Asked) -> Result<Decision, Error> {
        let Asked { names, permits, patience, deadline } = asked;
        if permits == 0 {
            let question = Question::new(&names, "available", [""; 0]);
            let told =
                self.configured(&names, deadline, || self.caller.call(&question, deadline)).await?;
            return self.decision(&told, names.name(), None);
        }
        let asker = if patience.is_zero() {
            None
        } else {
            let now = Instant::now();
            let end = now + (deadline.saturating_duration_since(now) / 2).min(patience);
            let patience = now.checked_add(patience);
            match self.queues.turn(names.name(), permits, patience, end).await {
                Turn::Now(asker) => Some(asker),
                Turn::Later(pause) => return Ok(Decision::new(Outcome::Retry(pause))),
            }
        };
        let grant = self.grants.next();
        let ask = || self.caller.acquire(&names, permits, grant, deadline);
        let told = self.configured(&names, deadline, ask).await?;
        let decision = self.decision(&told, names.name(), Some((permits, grant)))?;
        if let Some(asker) = asker {
            let [wait, left, _, rate, _] = told.numbers()?;
            let rate = rate.max(0).cast_unsigned();
            match decision.outcome() {
                Outcome::Retry(wait) => asker.refused(wait, rate),
                Outcome::Allow => {
                    asker.admitted(left.max(0).cast_unsigned(), until(told.now, wait), rate);
                }
                _ => {}
            }
        }
        Ok(decision)
    }

    /// Asks, and once more if there was no configuration and a default one helps.
    pub(super) async fn configured<F>(
        &self,
        names: &Names,
        deadline: Instant,
        ask: impl Fn() -> F,
    ) -> Result<Told, Error>
    where
        F: Future<Output = Result<Told, Error>>,
    {
        let told = ask().await?;
        match self.default_rate {
            Some(rate) if told.outcome == NO_CONFIGURATION => {
                let question = Question::set_if_absent(names, rate)?;
                checked(self.caller.call(&question, deadline).await?)?;
                checked(ask().await?)
            }
            _ => checked(told),
        }
    }

    pub(super) fn decision(
        &self,
        told: &Told,
        key: &str,
        taken: Option<(u32, Grant)>,
    ) -> Result<Decision, Error> {
        let [wait, left, reset, rate, interval] = told.numbers()?;
        let outcome = match told.outcome {
            DONE => Outcome::Allow,
            REFUSED if wait > 0 => Outcome::Retry(until(told.now, wait)),
            EXCEEDS => Outcome::Deny { retry_after: None },
            _ => return Err(malformed_reply()),
        };
        let quota = Rate::told([rate, interval, 0, 0]).quota();
        let now = Duration::from_micros(told.now.max(0).cast_unsigned());
        let decision = Decision::new(outcome)
            .with_origin(Origin::Store)
            .with_report(left.max(0).cast_unsigned(), until(told.now, reset))
            .with_instant(now, 0);
        let decision = match quota {
            Some(quota) => decision.with_limiter(Arc::clone(&self.name), quota),
            None => decision,
        };
        Ok(match taken {
            Some((permits, grant)) if outcome == Outcome::Allow => {
                let granted: Granted = (key.to_owned(), grant);
                decision.with_reservation(Reservation::new(self.owner, permits.into(), granted))
            }
            _ => decision,
        })
    }

    /// Gives back some permits of a reservation, and tells how many were.
    pub(super) async fn put_back(
        &self,
        reservation: &Reservation,
        permits: u64,
        held: u64,
    ) -> Result<u64, Error> {
        let (names, question) = self.refund(reservation, permits, held)?;
        let answer = self.caller.call(&question, self.deadline()).await;
        self.queues.forget(names.name());
        let [freed] = checked(answer?)?.numbers()?;
        Ok(freed.max(0).cast_unsigned())
    }

    pub(super) fn refund(
        &self,
        reservation: &Reservation,
        permits: u64,
        held: u64,
    ) -> Result<(Names, Question), Error> {
        let granted =
            reservation.payload::<Granted>().filter(|_| reservation.owner() == self.owner);
        let Some((name, grant)) = granted else {
            return Err(Error::new(ErrorKind::Request, "the reservation is another limiter's"));
        };
        let names = Names::of(name, &self.client)?;
        let number = |permits: u64| u32::try_from(permits).map_err(|_| too_many());
        let (permits, held) = (number(permits)?, number(held)?);
        let question = Question::put_back(&names, permits, grant, held);
        Ok((names, question))
    }
}

/// What was told, if the limiter is configured.
pub(super) fn checked(told: Told) -> Result<Told, Error> {
    match told.outcome {
        NO_CONFIGURATION => {
            Err(Error::new(ErrorKind::Configuration, "RateLimiter is not initialized"))
        }
        BAD_CONFIGURATION => {
            let message = "the configuration that is stored cannot be: a rate or an interval of 0, or no numbers";
            Err(Error::new(ErrorKind::Configuration, message))
        }
        _ => Ok(told),
    }
}

fn too_many() -> Error {
    Error::new(ErrorKind::Request, "more than 4,294,967,295 permits at once")
}

/// The time until so many ms after the millisecond that holds `now`.
fn until(now: i64, millis: i64) -> Duration {
    let micros = millis.max(0).saturating_mul(1_000).saturating_sub(now % 1_000);
    Duration::from_micros(micros.max(0).cast_unsigned())
}
