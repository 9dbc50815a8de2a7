//! The engine, which asks the parts of a charge, one step after another, all or nothing.
//!
//! A step is one part, or several parts that one call or one lock decides about. If one part
//! refuses, the units of the others are given back. Parts that were not asked estimate how long
//! they would refuse, so that the caller comes back when all of them admit.

use std::collections::VecDeque;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use super::at_once::{AskedAtOnce, AtATime, AtOnce};
use super::held_reservations::{By, Tentative, inherits};
use super::join_all::join_all;
use crate::decision::Policy;
use crate::limiter::acquire::too_long_a_wait;
use crate::limiter::timeout::after_other_calls;
use crate::limiter::{Boxed, Limiter, Operation};
use crate::{Charge, Decision, Error, Outcome};

/// A limiter of a combination, and its charge.
pub(crate) struct Part {
    /// The place of the limiter in the combination.
    pub(crate) place: usize,
    pub(crate) limiter: Boxed,
    pub(crate) charge: Charge,
    /// The answer to a peek.
    peeked: Option<Decision>,
}

/// The decision about one part, or about several parts that were asked at once.
pub(crate) struct PartsDecision {
    pub(crate) parts: Vec<Part>,
    pub(crate) decision: Decision,
    /// The units that each part took.
    taken: Vec<u64>,
}

/// The rules in which the combinations differ.
pub(crate) trait Rules: Sync {
    /// True if the later parts are peeked at first, so that units rarely have to be given back. A
    /// part with too few units left is asked first.
    const PEEKS: bool;

    /// Returns true for a part that cannot be asked together with others. It is asked before them.
    fn is_alone(&self, part: &Part) -> bool {
        let _ = part;
        false
    }

    /// Returns the limiters that decide about all of these parts together. The parts are in the
    /// order of their places.
    ///
    /// # Errors
    ///
    /// The number of parts to ask at a time, if nothing decides about all.
    fn at_once(&self, parts: &[Part]) -> Result<Arc<dyn AtOnce>, AtATime>;

    /// Decides in place of limiters that failed. Default: returns the error.
    ///
    /// # Errors
    ///
    /// The `error` of the limiters.
    fn stand_in(
        &self,
        parts: Vec<Part>,
        error: Error,
    ) -> impl Future<Output = Result<Decided, Error>> + Send {
        drop(parts);
        ready(Err(error))
    }
}

/// Decisions, and the reservations.
pub(crate) type Decided = (Vec<PartsDecision>, Tentative);

/// The rules that ask each limiter in its own call.
pub(crate) struct EachAlone;

impl Rules for EachAlone {
    const PEEKS: bool = true;

    fn at_once(&self, _: &[Part]) -> Result<Arc<dyn AtOnce>, AtATime> {
        Err(AtATime(1))
    }
}

impl Part {
    pub(crate) fn new(place: usize, limiter: Boxed, charge: Charge) -> Self {
        Self { place, limiter, charge, peeked: None }
    }
}

impl PartsDecision {
    /// Splits the decision that `by` made about these parts from its reservation.
    pub(crate) fn of(by: By, parts: Vec<Part>, mut decision: Decision) -> (Self, Tentative) {
        let reservation = decision.take_reservation();
        let taken = match (&parts[..], &reservation) {
            (_, None) => Vec::new(),
            ([_], Some(reservation)) => vec![reservation.cost()],
            (several, Some(_)) => several.iter().map(|part| part.charge.units()).collect(),
        };
        let inherits = inherits(parts.iter().map(|part| &part.charge));
        (Self { parts, decision, taken }, Tentative::new(by, inherits, reservation))
    }

    /// Makes a decision about these parts that takes nothing.
    pub(crate) fn untaken(parts: Vec<Part>, decision: Decision) -> Self {
        Self { parts, decision, taken: Vec::new() }
    }

    /// Changes the decision.
    pub(crate) fn map(self, change: impl FnOnce(Decision) -> Decision) -> Self {
        Self { decision: change(self.decision), ..self }
    }

    /// Returns the place of the first part.
    pub(super) fn place(&self) -> usize {
        self.parts[0].place
    }

    pub(super) fn has_cost(&self) -> bool {
        self.parts.iter().any(|part| part.charge.units() > 0)
    }

    /// Returns the policies, each with the place of its part.
    pub(super) fn policies(&self) -> impl Iterator<Item = (usize, Policy)> {
        // One part may have several policies.
        let last = self.parts.len() - 1;
        let policies = self.decision.to_policies().into_iter().enumerate();
        policies.map(move |(index, policy)| (self.parts[index.min(last)].place, policy))
    }

    /// Returns true if the only part makes the caller ask again within its longest wait. No other
    /// part is asked until then.
    fn asks_again(&self) -> bool {
        let most = self.max_wait();
        matches!(self.decision.outcome(), Outcome::Retry(pause) if pause <= most && !most.is_zero())
    }

    /// Returns true if the only part reserved a longer wait than requested.
    fn waits_too_long(&self) -> bool {
        self.parts.len() == 1
            && matches!(self.decision.outcome(), Outcome::Wait(wait) if wait > self.max_wait())
    }

    /// Returns the longest wait of the first part.
    fn max_wait(&self) -> Duration {
        self.parts[0].charge.longest_wait().unwrap_or_default()
    }

    /// Returns the same decision after the parts got their units back.
    fn given_back(self) -> Self {
        let Self { parts, decision, taken } = self;
        Self { parts, decision: decision.given_back(&taken), taken: Vec::new() }
    }
}

/// Asks all parts. A single part is decided as outside of a combination.
pub(crate) async fn decide<R: Rules>(parts: Vec<Part>, rules: &R) -> Result<Decided, Error> {
    let is_only = parts.len() == 1;
    let mut steps = steps(parts, rules);
    let (mut decisions, mut tentative) = (Vec::new(), Tentative::default());
    let mut answered = false;
    while let Some(mut parts) = steps.pop_front() {
        let (by, asked) = match ask(&parts, rules) {
            Ok(asked) => asked,
            Err(AtATime(size)) => {
                // A slot that one call reserves would not be a slot for the others.
                parts.iter_mut().for_each(|part| part.charge.set_max_wait(Duration::ZERO));
                if R::PEEKS {
                    peek(&mut parts, &mut answered).await?;
                }
                while !parts.is_empty() {
                    let last = (parts.len() - 1) / size * size;
                    let mut step = parts.split_off(last);
                    step.sort_unstable_by_key(|part| part.place);
                    steps.push_front(step);
                }
                continue;
            }
        };
        let answer = after_others(asked.decision().await, &parts[0].charge, &mut answered);
        let (own, taken) = match answer {
            Ok(decision) => {
                let (own, taken) = PartsDecision::of(by, parts, decision);
                (vec![own], taken)
            }
            Err(error) => rules.stand_in(parts, error).await?,
        };
        tentative.extend(taken);
        if is_only {
            return Ok((own, tentative));
        }
        if own.iter().any(PartsDecision::asks_again) {
            return Ok((own, Tentative::default()));
        }
        if own.iter().any(PartsDecision::waits_too_long) {
            return Err(too_long_a_wait());
        }
        let refuses = own.iter().any(|one| !one.decision.is_admitted());
        decisions.extend(own.into_iter().map(|one| one.map(Decision::without_retry)));
        if refuses {
            drop(tentative);
            let unasked = steps.into_iter().flatten().map(estimate).collect();
            let estimates = join_all(unasked).await.into_iter().flatten();
            let decisions = decisions.into_iter().map(PartsDecision::given_back);
            return Ok((decisions.chain(estimates).collect(), Tentative::default()));
        }
    }
    Ok((decisions, tentative))
}

/// Groups the parts that are asked at once, in the order in which they are asked.
fn steps(parts: Vec<Part>, rules: &impl Rules) -> VecDeque<Vec<Part>> {
    let (alone, others): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| rules.is_alone(part));
    let alone = alone.into_iter().map(|part| vec![part]);
    alone.chain([others]).filter(|step| !step.is_empty()).collect()
}

fn ask(parts: &[Part], rules: &impl Rules) -> Result<(By, AskedAtOnce), AtATime> {
    if let [Part { limiter, charge, .. }] = parts {
        return Ok((By::Alone(limiter.clone()), AskedAtOnce::Later(limiter.check(charge))));
    }
    let several = rules.at_once(parts)?;
    let asked = several.check(&parts.iter().map(|part| &part.charge).collect::<Vec<_>>())?;
    Ok((By::AtOnce(several), asked))
}

/// Peeks at the parts after the first. A part that will refuse is moved before the others.
async fn peek(parts: &mut [Part], answered: &mut bool) -> Result<(), Error> {
    for index in 1..parts.len() {
        let part = &mut parts[index];
        let cost = part.charge.units();
        if cost == 0 || part.peeked.is_some() {
            continue;
        }
        let peek = part.charge.clone().peek();
        let peeked = after_others(part.limiter.check(&peek).await, &peek, answered)?;
        match peeked.remaining().is_some_and(|left| left < cost) {
            true => parts[..=index].rotate_right(1),
            false => part.peeked = Some(peeked),
        }
    }
    Ok(())
}

/// Estimates how long a part that was not asked would refuse. `None` if it cannot estimate.
async fn estimate(mut part: Part) -> Option<PartsDecision> {
    let decision = match part.peeked.take() {
        Some(peeked) => peeked,
        None => part.limiter.operate(Operation::Estimate, &part.charge)?.await.ok()?,
    };
    Some(PartsDecision::untaken(vec![part], decision.without_retry()))
}

/// Awaits the answer about a charge. Other parts may have answered before.
fn after_others(
    answer: Result<Decision, Error>,
    charge: &Charge,
    answered: &mut bool,
) -> Result<Decision, Error> {
    match answer {
        Err(error) if *answered => Err(after_other_calls(error, charge)),
        answer => {
            *answered = true;
            answer
        }
    }
}

/// Changes the key of each part, one after another. `None` if a limiter cannot change it.
pub(crate) fn operate(
    operation: Operation,
    mut parts: Vec<Part>,
) -> Option<impl Future<Output = Result<Vec<PartsDecision>, Error>> + Send> {
    if operation == Operation::Estimate && parts.len() > 1 {
        // Charges that are asked in turn do not wait, so estimates do not either.
        parts.iter_mut().for_each(|part| part.charge.set_max_wait(Duration::ZERO));
    }
    let answer = |part: Part| Some((part.limiter.operate(operation, &part.charge)?, part));
    let answers: Vec<_> = parts.into_iter().map(answer).collect::<Option<_>>()?;
    Some(async move {
        let (mut decisions, mut answered) = (Vec::new(), false);
        for (answer, part) in answers {
            let decision = after_others(answer.await, &part.charge, &mut answered)?;
            decisions.push(PartsDecision::untaken(vec![part], decision.without_retry()));
        }
        Ok(decisions)
    })
}
