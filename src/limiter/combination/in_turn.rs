//! The engine, which asks the parts of a charge, one step after another, all or nothing.
//!
//! A step is one part, or several parts that one call or one lock decides about. If one part
//! refuses, the units of the others are given back. Parts that were not asked estimate how long
//! they would refuse, so that the caller comes back when all of them admit.

use std::collections::VecDeque;
use std::convert::identity;
use std::future::{Future, ready};
use std::mem;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::at_once::{AtATime, Together};
use super::decided::{Decided, Part, PartsDecision};
use super::held_reservations::{By, Tentative};
use super::join_all::join_all;
use crate::core::{Charge, Decision, Error, ErrorKind, Outcome};
use crate::limiter::acquire::too_long_a_wait;
use crate::limiter::operate::AllHeld;
use crate::limiter::queues::SHORTEST_PAUSE;
use crate::limiter::timeout::{after_other_calls, connected};
use crate::limiter::{Limiter, Operation};

struct Step {
    parts: Vec<Part>,
    /// The answer to a peek, or the error of an estimate after it.
    peeked: Option<Result<Decision, Error>>,
    /// The estimates of the parts that may refuse, by their peek, each with the place of its part
    /// here. `None`: the part cannot estimate.
    estimates: Vec<(usize, Option<Decision>)>,
}

/// The rules of an engine: the parts that are asked together, and the answer if a store fails.
pub trait Rules: Sync {
    /// Returns true for a part that cannot be asked together with others. It is asked before them.
    /// Default: no such part.
    fn is_alone(&self, part: &Part) -> bool {
        let _ = part;
        false
    }

    /// Returns the limiters that decide about all of these parts together, one for each part. The
    /// parts are in the order of their places. `None`: each half of them is tried, and in the end
    /// each part alone.
    fn together(&self, parts: &[Part]) -> Option<Together>;

    /// Decides in place of limiters that failed. If it admits, it decides about each of the parts:
    /// otherwise the error counts. Default: returns the error.
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

/// The rules that ask each limiter in its own call.
pub(crate) struct EachAlone;

impl Rules for EachAlone {
    fn together(&self, _: &[Part]) -> Option<Together> {
        None
    }
}

impl Step {
    /// Splits parts into steps of this size, in the order of their places.
    fn of(mut parts: Vec<Part>, size: usize) -> Vec<Self> {
        parts.sort_unstable_by_key(|part| part.place);
        let mut steps = Vec::new();
        while !parts.is_empty() {
            let rest = parts.split_off(size.min(parts.len()));
            let parts = mem::replace(&mut parts, rest);
            steps.push(Self { parts, peeked: None, estimates: Vec::new() });
        }
        steps
    }

    fn charges(&self) -> impl Iterator<Item = &Charge> {
        self.parts.iter().map(|part| &part.charge)
    }

    /// Asks about these charges, one for each part, and awaits the answer. Returns it with the
    /// limiter of the only part, or with the limiters that decided about all parts together.
    async fn ask<'a>(
        &self,
        rules: &impl Rules,
        mut charges: impl Iterator<Item = &'a Charge> + Send,
    ) -> Result<Result<(By, Decision), Error>, AtATime> {
        if let [Part { limiter, charge, .. }] = &self.parts[..] {
            let answer = limiter.check(charges.next().unwrap_or(charge)).await;
            return Ok(answer.map(|decision| (By::Alone(limiter.clone()), decision)));
        }
        let half = AtATime(self.parts.len().div_ceil(2));
        let several = rules.together(&self.parts).ok_or(half)?;
        if several.0.members() != self.parts.len() {
            let why = "the rules name another number of limiters than there are parts";
            return Ok(Err(Error::new(ErrorKind::Configuration, why)));
        }
        let charge = &self.parts[0].charge;
        let mut error_of = None;
        if let Some(connecting) = several.0.connecting(charge) {
            match connected(connecting, charge.deadline().map(Instant::from_std)).await {
                Ok(made) => error_of = Some(made),
                Err(error) => return Ok(Err(error)),
            }
        }
        let answer = several.0.check(&charges.collect::<Vec<_>>())?.await;
        let decided = answer.map(|decision| (By::AtOnce(several), decision));
        Ok(decided.map_err(|error| match error_of {
            Some(error_of) => error_of(error),
            None => error,
        }))
    }

    /// Peeks at all parts, or at fewer at a time if no call can decide about all.
    fn peek<'a>(
        self,
        rules: &'a impl Rules,
    ) -> Pin<Box<dyn Future<Output = Vec<Self>> + Send + 'a>> {
        Box::pin(async move {
            let charges: Vec<_> = self.charges().map(|charge| charge.clone().peek()).collect();
            match self.ask(rules, charges.iter()).await {
                Ok(peeked) => vec![self.seen(peeked.map(|(_, peeked)| peeked)).await],
                Err(AtATime(size)) => peek_each(Self::of(self.parts, size), rules).await,
            }
        })
    }

    /// Takes the answer to a peek, and asks for the estimates of parts that may refuse. A part that
    /// has too few units left may still admit: a shadow does, and so does a smooth limiter that
    /// owes nothing. An estimate that fails is a peek that fails.
    async fn seen(mut self, mut peeked: Result<Decision, Error>) -> Self {
        let doubtful = peeked.as_ref().map(|peeked| self.doubtful(peeked)).unwrap_or_default();
        let estimate = |index: usize| {
            let Part { limiter, charge, .. } = &self.parts[index];
            let estimate = limiter.operate(Operation::Estimate, charge);
            async move { Some(estimate?.await) }
        };
        let estimates = join_all(doubtful.iter().map(|index| estimate(*index)).collect()).await;
        let each = doubtful.into_iter().zip(estimates);
        let known = each.map(|(index, own)| Ok((index, own.transpose()?)));
        match known.collect() {
            Ok(estimates) => self.estimates = estimates,
            // The peek was answered.
            Err(error) => peeked = Err(after_other_calls(error, &self.parts[0].charge)),
        }
        self.peeked = Some(peeked);
        self
    }

    /// Returns the places of the parts that may refuse, by the answer to a peek.
    fn doubtful(&self, peeked: &Decision) -> Vec<usize> {
        // The answer to a peek says already if the units that stay free are not there.
        let is_doubtful = |outcome: Outcome, left: Option<u64>, part: &Part| {
            let needs = part.charge.units().saturating_add(part.charge.kept_free(0));
            !outcome.is_admitted() || left.is_some_and(|left| left < needs)
        };
        if let [part] = &self.parts[..] {
            let is_doubtful = is_doubtful(peeked.outcome(), peeked.remaining(), part);
            return Vec::from_iter(is_doubtful.then_some(0));
        }
        let each = peeked.policies().zip(&self.parts).enumerate();
        let doubtful =
            each.filter(|(_, (one, part))| is_doubtful(one.outcome(), one.remaining(), part));
        doubtful.map(|(index, _)| index).collect()
    }

    /// Returns true if a part will refuse, or may refuse and cannot estimate.
    fn will_refuse(&self) -> bool {
        self.estimates.iter().any(|(_, one)| one.as_ref().is_none_or(|one| !one.is_admitted()))
    }

    /// Returns true if no slot of the parts is ever reserved: all their limits are of concurrency.
    fn only_holds(&self) -> bool {
        let Some(Ok(peeked)) = &self.peeked else { return false };
        peeked.is_at_once() && peeked.policies().all(|one| one.quota().period().is_zero())
    }

    fn may_wait(&mut self, waits: &[(usize, Option<Duration>)]) {
        for Part { place, charge, .. } in &mut self.parts {
            let own = waits.iter().find(|(of, _)| of == place);
            charge.max_wait = own.and_then(|(_, wait)| *wait);
        }
    }

    fn foresees_refusal(&self) -> bool {
        self.estimates.iter().any(|(_, one)| one.as_ref().is_some_and(|one| !one.is_admitted()))
    }

    fn refusals(self) -> Vec<PartsDecision> {
        let mut parts: Vec<_> = self.parts.into_iter().map(Some).collect();
        let refuses = |(index, estimate): (usize, Option<Decision>)| {
            let decision = estimate.filter(|one| !one.is_admitted())?.without_retry();
            Some(PartsDecision::untaken(vec![parts[index].take()?], decision))
        };
        self.estimates.into_iter().filter_map(refuses).collect()
    }

    fn has_cost(&self) -> bool {
        self.charges().any(|charge| charge.units() > 0)
    }

    /// Estimates how long the parts that were not asked would refuse. Leaves out a part that cannot
    /// estimate, and a step that failed.
    async fn estimate(mut self) -> Vec<PartsDecision> {
        match self.peeked.take() {
            Some(Err(_)) => return Vec::new(),
            Some(Ok(peeked)) if self.estimates.is_empty() => {
                return vec![PartsDecision::untaken(self.parts, peeked.without_retry())];
            }
            _ => {}
        }
        let mut known = self.estimates.into_iter().peekable();
        let each = self.parts.into_iter().enumerate().map(|(index, part)| {
            let known = known.next_if(|(of, _)| *of == index);
            async move {
                let decision = match known {
                    Some((_, known)) => known?,
                    None => part.limiter.operate(Operation::Estimate, &part.charge)?.await.ok()?,
                };
                Some(PartsDecision::untaken(vec![part], decision.without_retry()))
            }
        });
        join_all(each.collect()).await.into_iter().flatten().collect()
    }
}

/// Asks all parts, all or nothing: if one refuses, no part keeps its units. A single part is
/// decided as without this engine.
///
/// It asks parts together as the [`Rules`] say, and reserves a wait only if one call decides about
/// all. Otherwise it asks in turn, in the order of the places, after a peek at each part. If a part
/// refuses, those that were not asked estimate how long they would refuse, so that the caller comes
/// back when all of them admit. It asks again if only units that others hold are missing.
///
/// # Errors
///
/// The error of the first limiter that fails, unless the rules have a stand-in.
pub async fn decide<R: Rules>(parts: Vec<Part>, rules: &R) -> Result<Decided, Error> {
    let is_only = parts.len() == 1;
    let mut steps = steps(parts, rules);
    let mut decided = Decided::default();
    let mut answered = false;
    // The place of each part that is asked in turn, and its longest wait.
    let mut waits = Vec::new();
    while let Some(mut step) = steps.pop_front() {
        let (holds, foreseen) = (step.only_holds(), step.will_refuse());
        if holds && foreseen && decided.decisions.is_empty() {
            step.may_wait(&waits);
        }
        let answer = match step.peeked.take_if(|peeked| peeked.is_err()) {
            Some(Err(error)) => Err(error),
            _ => match step.ask(rules, step.charges()).await {
                Ok(answer) => after_others(answer, &step.parts[0].charge, &mut answered),
                Err(AtATime(size)) => {
                    // A slot that one call reserves would not be a slot for the others.
                    waits.extend(step.parts.iter_mut().map(|Part { place, charge, .. }| {
                        (*place, charge.max_wait.replace(Duration::ZERO))
                    }));
                    let split = peek(Step::of(step.parts, size), rules, &mut answered).await;
                    split.into_iter().rev().for_each(|step| steps.push_front(step));
                    continue;
                }
            },
        };
        let own = match answer {
            Ok((by, mut decision)) => {
                if holds && !foreseen {
                    // Another charge may have taken the units since the peek.
                    step.may_wait(&waits);
                    let wait = step.parts[0].charge.longest_wait().unwrap_or_default();
                    if !wait.is_zero() {
                        let asks_again = decision.into_retry(wait, SHORTEST_PAUSE);
                        decision = asks_again.unwrap_or_else(identity);
                    }
                }
                let (own, taken) = PartsDecision::of(by, step.parts, decision);
                Decided { decisions: vec![own], taken }
            }
            // The others used up the time.
            Err(error) if error.kind() == ErrorKind::Saturation && step.foresees_refusal() => {
                Decided { decisions: step.refusals(), taken: Tentative::default() }
            }
            Err(error) => {
                let asked = step.parts.len();
                let own = rules.stand_in(step.parts, error.clone()).await?;
                // A refusal may leave out parts that were not asked.
                if own.outcome().is_admitted() && own.each().count() != asked {
                    return Err(error);
                }
                own
            }
        };
        if is_only {
            return Ok(own);
        }
        if own.decisions.iter().any(PartsDecision::asks_again) {
            return Ok(own.given_back());
        }
        if own.decisions.iter().any(PartsDecision::waits_too_long) {
            return Err(too_long_a_wait());
        }
        let refuses = own.decisions.iter().any(|one| !one.decision.is_admitted());
        decided.extend(own.map(Decision::without_retry));
        if refuses {
            decided = decided.given_back();
            let unasked = steps.into_iter().map(Step::estimate).collect();
            decided.decisions.extend(join_all(unasked).await.into_iter().flatten());
            return Ok(decided);
        }
    }
    Ok(decided)
}

fn steps(parts: Vec<Part>, rules: &impl Rules) -> VecDeque<Step> {
    let (alone, others): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| rules.is_alone(part));
    let all = others.len();
    Step::of(alone, 1).into_iter().chain(Step::of(others, all)).collect()
}

/// Peeks at all steps, at the same time: otherwise callers at their own limit take units of a
/// shared bucket. A step that will refuse then comes first, and next a step whose limiters fail.
async fn peek(steps: Vec<Step>, rules: &impl Rules, answered: &mut bool) -> Vec<Step> {
    if !steps.iter().any(Step::has_cost) {
        return steps;
    }
    let mut seen = peek_each(steps, rules).await;
    let fails = |step: &Step| matches!(step.peeked, Some(Err(_)));
    // All of them had the same time: one that fails says nothing of another.
    let others_answered = *answered || !seen.iter().all(fails);
    *answered = true;
    for Step { parts, peeked, .. } in &mut seen {
        let own = peeked
            .take()
            .map(|peeked| after_others(peeked, &parts[0].charge, &mut others_answered.clone()));
        *peeked = own;
    }
    // A charge waits for units that others hold only if nothing else refuses.
    seen.sort_by_key(|step| {
        let refuses = step.will_refuse();
        (!refuses, refuses && step.only_holds(), !fails(step))
    });
    seen
}

async fn peek_each(steps: Vec<Step>, rules: &impl Rules) -> Vec<Step> {
    let peeks = steps.into_iter().map(|step| step.peek(rules)).collect();
    join_all(peeks).await.into_iter().flatten().collect()
}

/// Awaits the answer about a charge. Other parts may have answered before.
fn after_others<T>(
    answer: Result<T, Error>,
    charge: &Charge,
    answered: &mut bool,
) -> Result<T, Error> {
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
) -> Option<impl Future<Output = Result<Decided, Error>> + Send> {
    if operation == Operation::Estimate && parts.len() > 1 {
        // Charges that are asked in turn do not wait, so estimates do not either.
        parts.iter_mut().for_each(|part| part.charge.max_wait = Some(Duration::ZERO));
    }
    let answer = |part: Part| Some((part.limiter.operate(operation, &part.charge)?, part));
    let answers: Vec<_> = parts.into_iter().map(answer).collect::<Option<_>>()?;
    Some(async move {
        let (mut decided, mut answered) = (Decided::default(), false);
        let count = answers.len();
        for (answer, part) in answers {
            let answer = match answer.await {
                // Beside others, which get units, it is looked at alone.
                Err(error) if count > 1 && AllHeld::is_source_of(&error) => {
                    part.limiter.check(&part.charge.clone().peek()).await
                }
                answer => answer,
            };
            let decision = after_others(answer, &part.charge, &mut answered)?;
            let own = PartsDecision::untaken(vec![part], decision.without_retry());
            decided.decisions.push(own);
        }
        Ok(decided)
    })
}
