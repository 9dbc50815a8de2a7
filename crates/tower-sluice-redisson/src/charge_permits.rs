//! Decides a charge in its turn, by one call, and again if the limiter had no configuration.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tower_sluice::limiter::{Origin, Owner, Reservation};
use tower_sluice::{Charge, Decision, Error, ErrorKind, Outcome};

use super::grant::{GrantId, GrantIds};
use super::keys::{Keys, check_name};
use super::messages::{
    DONE, EXCEEDS, NO_CONFIGURATION, PermitCall, REFUSED, ScriptReply, malformed_reply,
};
use super::queues::{CallerTurn, Queues};
use super::rate::Rate;
use super::sender::Sender;

/// The payload of a reservation: the name of the limiter, and the id of the grant.
type NamedGrant = (String, GrantId);

/// The parts that clones of a [`Redisson`](super::Redisson) share.
#[derive(Clone)]
pub(super) struct SharedRedisson {
    pub(super) sender: Sender,
    pub(super) owner: Owner,
    pub(super) name: Arc<str>,
    pub(super) client: Arc<str>,
    pub(super) decision_timeout: Duration,
    pub(super) default_rate: Option<Rate>,
    pub(super) queues: Arc<Queues>,
    pub(super) grants: Arc<GrantIds>,
}

/// A charge, converted to the arguments of the script.
pub(super) struct ParsedCharge {
    pub(super) keys: Keys,
    pub(super) permits: u32,
    pub(super) max_wait: Duration,
    pub(super) deadline: Instant,
}

impl SharedRedisson {
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.decision_timeout
    }

    pub(super) fn read(&self, charge: &Charge) -> Result<ParsedCharge, Error> {
        let (name, permits) = (only_key(charge)?, permits(charge.units())?);
        let keys = Keys::new(name, &self.client)?;
        let own = self.deadline();
        let deadline = charge.deadline().map_or(own, |other| own.min(Instant::from_std(other)));
        let max_wait = charge.longest_wait().unwrap_or_default();
        Ok(ParsedCharge { keys, permits, max_wait, deadline })
    }

    /// Decides a charge. It waits for its turn if others of this process wait for the same limiter.
    pub(super) async fn decide(&self, charge: ParsedCharge) -> Result<Decision, Error> {
        if Handle::try_current().is_err() {
            let message = "a decision needs a tokio runtime";
            return Err(Error::new(ErrorKind::Configuration, message));
        }
        let ParsedCharge { keys, permits, max_wait, deadline } = charge;
        if permits == 0 {
            let request = PermitCall::new(&keys, "available", [""; 0]);
            let call = || self.sender.call(&request, deadline);
            let reply = self.with_default_rate(&keys, deadline, call).await?;
            return self.decision(&reply, keys.name(), None);
        }
        let attempt = if max_wait.is_zero() {
            None
        } else {
            let now = Instant::now();
            let end = now + (deadline.saturating_duration_since(now) / 2).min(max_wait);
            let wait_until = now.checked_add(max_wait);
            match self.queues.turn(keys.name(), permits, wait_until, end).await {
                CallerTurn::Ask(attempt) => Some(attempt),
                CallerTurn::Wait(pause) => return Ok(Decision::new(Outcome::Retry(pause))),
            }
        };
        let mut grant = GrantId::default();
        let call = || {
            // A refund of the first call's grant may arrive late, after the second call.
            grant = self.grants.next();
            self.sender.acquire(&keys, permits, grant, deadline)
        };
        let reply = self.with_default_rate(&keys, deadline, call).await?;
        let decision = self.decision(&reply, keys.name(), Some((permits, grant)))?;
        if let Some(attempt) = attempt {
            let [wait, remaining, _, rate, _] = reply.numbers()?;
            let rate = rate.max(0).cast_unsigned();
            match decision.outcome() {
                Outcome::Retry(wait) => attempt.refused(wait, rate),
                Outcome::Allow => {
                    let remaining = remaining.max(0).cast_unsigned();
                    attempt.admitted(remaining, until(reply.now, wait), rate);
                }
                _ => {}
            }
        }
        Ok(decision)
    }

    /// Calls the script. If the limiter has no configuration, sets the default rate
    /// and calls again.
    pub(super) async fn with_default_rate<F>(
        &self,
        keys: &Keys,
        deadline: Instant,
        mut call: impl FnMut() -> F,
    ) -> Result<ScriptReply, Error>
    where
        F: Future<Output = Result<ScriptReply, Error>>,
    {
        let reply = call().await?;
        match self.default_rate {
            Some(rate) if reply.outcome == NO_CONFIGURATION => {
                let request = PermitCall::set_if_absent(keys, rate)?;
                self.sender.call(&request, deadline).await?.configured()?;
                call().await?.configured()
            }
            _ => reply.configured(),
        }
    }

    /// Converts a reply to a decision. `granted`: the permits that were asked for, and their
    /// grant.
    pub(super) fn decision(
        &self,
        reply: &ScriptReply,
        key: &str,
        granted: Option<(u32, GrantId)>,
    ) -> Result<Decision, Error> {
        let [wait, remaining, reset, rate, interval] = reply.numbers()?;
        let outcome = match reply.outcome {
            DONE => Outcome::Allow,
            REFUSED if wait > 0 => Outcome::Retry(until(reply.now, wait)),
            EXCEEDS => Outcome::Deny { retry_after: None },
            _ => return Err(malformed_reply()),
        };
        let quota = Rate::from_reply([rate, interval, 0, 0]).quota();
        let now = Duration::from_micros(reply.now.max(0).cast_unsigned());
        let decision = Decision::new(outcome)
            .with_origin(Origin::Store)
            .with_report(remaining.max(0).cast_unsigned(), until(reply.now, reset))
            .with_instant(now, 0);
        let decision = match quota {
            Some(quota) => decision.with_limiter(Arc::clone(&self.name), quota),
            None => decision,
        };
        Ok(match granted {
            Some((permits, grant)) if outcome == Outcome::Allow => {
                let granted: NamedGrant = (key.to_owned(), grant);
                decision.with_reservation(Reservation::new(self.owner, permits.into(), granted))
            }
            _ => decision,
        })
    }

    /// Refunds permits of a reservation with `held` permits, and returns the number of refunded
    /// permits.
    pub(super) async fn refund(
        &self,
        reservation: &Reservation,
        permits: u64,
        held: u64,
    ) -> Result<u64, Error> {
        let granted =
            reservation.payload::<NamedGrant>().filter(|_| reservation.owner() == self.owner);
        let Some((name, grant)) = granted else {
            return Err(Error::new(
                ErrorKind::Request,
                "the reservation belongs to another limiter",
            ));
        };
        let keys = Keys::new(name, &self.client)?;
        let (permits, held) = (self::permits(permits)?, self::permits(held)?);
        let request = PermitCall::refund(&keys, permits, grant, held);
        let reply = self.sender.call(&request, self.deadline()).await;
        self.queues.forget_refusal(keys.name());
        let [freed] = reply?.configured()?.numbers()?;
        Ok(freed.max(0).cast_unsigned())
    }
}

/// Returns the only key of a charge.
pub(super) fn only_key(charge: &Charge) -> Result<&str, Error> {
    let refuse = |message| Err(Error::new(ErrorKind::Configuration, message));
    if !charge.parts().is_empty() {
        return refuse("the charge has several keys, but the limiter takes only one");
    }
    if charge.own_quota().is_some() {
        return refuse("a redisson limiter has a rate of its own: a charge cannot have a quota");
    }
    if (0..8).any(|index| charge.kept_free(index) > 0) {
        return refuse("a redisson limiter leaves no units free");
    }
    check_name(charge.key())?;
    Ok(charge.key())
}

/// Converts a number of units to permits.
///
/// # Errors
///
/// If they are more than a grant can have.
pub(super) fn permits(units: u64) -> Result<u32, Error> {
    let too_many = |_| Error::new(ErrorKind::Request, "more than 4,294,967,295 permits at once");
    u32::try_from(units).map_err(too_many)
}

/// The time until `millis` after the millisecond of `now`.
fn until(now: i64, millis: i64) -> Duration {
    let micros = millis.max(0).saturating_mul(1_000).saturating_sub(now % 1_000);
    Duration::from_micros(micros.max(0).cast_unsigned())
}
