//! A limiter that returns given decisions and records its charges, for unit tests without Redis.
//!
//! `Scripted::new().allow().deny(Duration::from_secs(3))` admits a charge, and refuses the next.
//! [Limiters of your own][own] has a test with it.
//!
//! [own]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/limiters_of_your_own/

use std::collections::VecDeque;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use crate::core::reservation::{Owner, Reservation};
use crate::core::settlement::Settlement;
use crate::core::sync::{Mutex, MutexGuard, lock};
use crate::core::{Charge, Decision, Error, ErrorKind, Outcome};
use crate::limiter::Limiter;
use crate::limiter::Operation;

/// Returns decisions in the order in which they were given. Clones share the decisions and the
/// records.
///
/// An admission, at once or after a wait, carries a reservation of the charge's cost, so that a
/// refund can be tested. A peek has no reservation. After the last decision, every further charge
/// returns an error of [`ErrorKind::State`].
#[derive(Clone)]
#[must_use]
pub struct Scripted {
    play: Arc<Mutex<Play>>,
    owner: Owner,
}

#[derive(Default)]
struct Play {
    answers: VecDeque<ScriptedAnswer>,
    charges: Vec<Charge>,
    settlements: Vec<(usize, u64)>,
    operations: Vec<(Operation, Charge)>,
}

/// An answer to a charge.
type ScriptedAnswer = Box<dyn FnOnce(&Charge) -> Result<Decision, Error> + Send>;

impl Scripted {
    /// A limiter without decisions.
    pub fn new() -> Self {
        Self { play: Arc::default(), owner: Owner::new() }
    }

    /// Adds a decision that admits.
    pub fn allow(self) -> Self {
        self.decide(Outcome::Allow)
    }

    /// Adds a decision that reserves a slot after `wait`. If `wait` is longer than the charge's
    /// [`max_wait`](Charge::max_wait), which is 0 by default, it denies the charge, as other
    /// limiters do. `wait` is then the time to come back.
    pub fn wait(self, wait: Duration) -> Self {
        self.answer(move |charge| {
            let is_allowed = wait <= charge.longest_wait().unwrap_or_default();
            let denial = Outcome::Deny { retry_after: Some(wait) };
            Ok(if is_allowed { Outcome::Wait(wait) } else { denial }.into())
        })
    }

    /// Adds a decision that reserves nothing: the caller asks again after `pause`.
    pub fn retry(self, pause: Duration) -> Self {
        self.decide(Outcome::Retry(pause))
    }

    /// Adds a decision that denies a charge, which would be admitted after `retry_after`.
    pub fn deny(self, retry_after: Duration) -> Self {
        self.decide(Outcome::Deny { retry_after: Some(retry_after) })
    }

    /// Adds a decision that denies a charge that can never fit.
    pub fn never(self) -> Self {
        self.decide(Outcome::Deny { retry_after: None })
    }

    /// Adds an error of this kind in place of a decision.
    pub fn fail(self, kind: ErrorKind) -> Self {
        self.answer(move |_| Err(Error::new(kind, "as scripted")))
    }

    /// Adds a decision of your own, for any charge.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::{Decision, testing::Scripted};
    ///
    /// let limiter = Scripted::new()
    ///     .decide(Decision::admitted().with_remaining(0))
    ///     .decide(Decision::denied(Duration::from_secs(3)).with_remaining(0));
    /// assert_eq!(limiter.left(), 2);
    /// ```
    pub fn decide(self, decision: impl Into<Decision>) -> Self {
        let decision = decision.into();
        self.answer(move |_| Ok(decision))
    }

    /// The charges so far.
    #[must_use]
    pub fn charges(&self) -> Vec<Charge> {
        self.play().charges.clone()
    }

    /// The settlements so far, refunds included: the number of the charge, counted from 0, and its
    /// final cost, which is 0 for a refund.
    #[must_use]
    pub fn settlements(&self) -> Vec<(usize, u64)> {
        self.play().settlements.clone()
    }

    /// The numbers, counted from 0, of the charges that were fully refunded so far. They are in
    /// [`settlements`](Scripted::settlements) too.
    #[must_use]
    pub fn refunds(&self) -> Vec<usize> {
        let refunds = self.settlements().into_iter().filter(|(_, actual)| *actual == 0);
        refunds.map(|(charge, _)| charge).collect()
    }

    /// The operations so far. They succeed at once, and use no decision.
    #[must_use]
    pub fn operations(&self) -> Vec<(Operation, Charge)> {
        self.play().operations.clone()
    }

    /// Returns the number of decisions that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.play().answers.len()
    }

    fn answer(
        self,
        answer: impl FnOnce(&Charge) -> Result<Decision, Error> + Send + 'static,
    ) -> Self {
        self.play().answers.push_back(Box::new(answer));
        self
    }

    fn play(&self) -> MutexGuard<'_, Play> {
        lock(&self.play)
    }
}

debug_by_name!([] Scripted: owner);

impl Default for Scripted {
    fn default() -> Self {
        Self::new()
    }
}

impl Limiter for Scripted {
    type Future = Ready<Result<Decision, Error>>;

    fn check(&self, charge: &Charge) -> Self::Future {
        let mut play = self.play();
        let number = play.charges.len();
        play.charges.push(charge.clone());
        let over = || Err(Error::new(ErrorKind::State, "no answer is left"));
        let answer = play.answers.pop_front().map_or_else(over, |answer| answer(charge));
        ready(answer.map(|decision| {
            if !decision.is_admitted() || charge.units() == 0 {
                return decision;
            }
            decision.with_reservation(Reservation::new(self.owner, charge.units(), number))
        }))
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        self.play().operations.push((operation, charge.clone()));
        Some(ready(Ok(Decision::new(Outcome::Allow))))
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        if reservation.owner() != self.owner {
            return Err(reservation);
        }
        let cost = reservation.cost();
        let number = reservation.into_payload()?;
        self.play().settlements.push((number, actual));
        Ok(Settlement::gave_back(cost.saturating_sub(actual)))
    }
}
