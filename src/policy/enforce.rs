//! The decision of the policies in force about a request: all or nothing.

use std::sync::Arc;

use super::armed::{Armed, Asked};
use super::on_error::OnError;
use super::table::Selection;
use crate::decision::Origin;
use crate::limiter::combination::held_reservations::{By, Tentative};
use crate::limiter::combination::in_turn::{
    self, AtATime, AtOnce, Decided, Part, PartsDecision, Rules,
};
use crate::limiter::combination::joined_decision::joined;
use crate::limiter::{Limiter, LimiterExt};
use crate::{Decision, Error, ErrorKind, Outcome};

/// The decision about a request, and the units that were taken.
pub(super) type Answer = Result<(Decision, Tentative), Error>;

/// The decision of one policy.
pub(super) struct Verdict {
    pub(super) armed: Arc<Armed>,
    pub(super) outcome: Outcome,
    pub(super) origin: Origin,
    /// The error of its store, if the store did not decide.
    pub(super) cause: Option<Error>,
}

/// Asks the policies in force. Returns the answer, or `None` if no policy is in force, and the
/// decision of each of them.
pub(super) async fn enforce(
    selection: &Selection,
    asked: &[Asked],
) -> (Option<Answer>, Vec<Verdict>) {
    if asked.is_empty() {
        return (None, Vec::new());
    }
    let part = |(place, Asked { armed, charge }): (_, &Asked)| {
        Part::new(place, armed.limiter.clone(), charge.clone())
    };
    let parts = asked.iter().enumerate().map(part).collect();
    let (decisions, tentative) = match in_turn::decide(parts, &InForce { selection, asked }).await {
        Ok(decided) => decided,
        Err(error) => return (Some(Err(error)), Vec::new()),
    };
    let mut verdicts: Vec<_> = decisions.iter().flat_map(|one| verdicts(one, asked)).collect();
    verdicts.sort_by_key(|(place, _)| *place);
    let verdicts = verdicts.into_iter().map(|(_, verdict)| verdict).collect();
    let cause = decisions.iter().find_map(|one| one.decision.fallback_cause().cloned());
    let named = decisions.into_iter().map(|one| one.map(Decision::keeping_name)).collect();
    let answer = joined(named).ok_or_else(nobody).map(|decision| {
        let decision = match cause {
            Some(cause) if decision.fallback_cause().is_none() => {
                decision.with_fallback_cause(cause)
            }
            _ => decision,
        };
        (decision, tentative)
    });
    (Some(answer), verdicts)
}

/// Returns the decision of each policy, with its place.
fn verdicts(one: &PartsDecision, asked: &[Asked]) -> impl Iterator<Item = (usize, Verdict)> {
    let PartsDecision { parts, decision, .. } = one;
    // A decision that no policy made, such as one of `FailOpen`, is that of all.
    let is_each = parts.len() > 1 && decision.policies().len() == parts.len();
    let own = decision.policies().map(|policy| policy.outcome()).filter(move |_| is_each);
    let outcomes = own.chain(std::iter::repeat(decision.outcome()));
    parts.iter().zip(outcomes).map(|(part, outcome)| {
        let armed = Arc::clone(&asked[part.place].armed);
        let (origin, cause) = (decision.origin(), decision.fallback_cause().cloned());
        (part.place, Verdict { armed, outcome, origin, cause })
    })
}

fn nobody() -> Error {
    Error::new(ErrorKind::Configuration, "no policy takes the request")
}

/// The policies in force that take a request. The place of a part is its place among them.
struct InForce<'a> {
    selection: &'a Selection,
    asked: &'a [Asked],
}

impl InForce<'_> {
    fn armed(&self, part: &Part) -> &Armed {
        &self.asked[part.place].armed
    }

    fn each_armed(&self, parts: &[Part]) -> Vec<&Armed> {
        parts.iter().map(|part| self.armed(part)).collect()
    }

    /// Asks the local shares of policies. `None` if they are too many, or a policy has no share.
    async fn ask_shares(&self, parts: &[Part]) -> Option<(By, Result<Decision, Error>)> {
        if let [only] = parts {
            let limiter = &self.armed(only).share.as_ref()?.limiter;
            let answer = limiter.check(&only.charge).await;
            return Some((By::Alone(limiter.clone().boxed()), answer));
        }
        let shares = self.selection.table.shares_together(&self.each_armed(parts))?;
        let charges: Vec<_> = parts.iter().map(|part| &part.charge).collect();
        let answer = shares.check(&charges).ok()?.decision().await;
        Some((By::AtOnce(shares), answer))
    }
}

impl Rules for InForce<'_> {
    const PEEKS: bool = false;

    fn is_alone(&self, part: &Part) -> bool {
        !self.armed(part).gate.joins_others()
    }

    fn at_once(&self, parts: &[Part]) -> Result<Arc<dyn AtOnce>, AtATime> {
        let half = AtATime(parts.len().div_ceil(2));
        self.selection.table.together(&self.each_armed(parts)).ok_or(half)
    }

    /// Decides in place of a store that cannot, if each of the policies has a substitute for it.
    async fn stand_in(&self, parts: Vec<Part>, error: Error) -> Result<Decided, Error> {
        let on_error = |part: &Part| self.armed(part).policy.on_error();
        if !parts.iter().all(|part| on_error(part).stands_in(&error)) {
            return Err(error);
        }
        let is_local = |part: &Part| matches!(on_error(part), OnError::Local(_));
        let (local, open): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_local);
        let (mut decisions, mut tentative) = (Vec::new(), Tentative::default());
        if !local.is_empty() {
            let Some((by, answer)) = self.ask_shares(&local).await else { return Err(error) };
            let decision = answer?.with_fallback_cause(error.clone());
            let (own, taken) = PartsDecision::of(by, local, decision);
            decisions.push(own);
            tentative.extend(taken);
        }
        if !open.is_empty() {
            let decision = Decision::new(Outcome::Allow).with_origin(Origin::FailOpen);
            decisions.push(PartsDecision::untaken(open, decision.with_fallback_cause(error)));
        }
        Ok((decisions, tentative))
    }
}
