//! A member of a list whose charges state a cost and a longest wait of their own.
//!
//! Its rule holds both, so they are passed with the quota of a charge. In a script they are two
//! more arguments, which replace `cost` and `max_wait` in the member's sections.

use super::{
    Algorithm, Element, InLua, Mark, Refund, Report, ScriptPart, Take, sealed::Sealed,
    sealed::Single,
};
use crate::quota::{CostAndWait, Quota, QuotaError, Quotas};

/// The default cost and longest wait.
const ONE_AT_ONCE: CostAndWait = CostAndWait { cost: 1, max_wait: 0 };

/// Decides about the cost of its own rule, not about the cost that the other members get.
#[derive(Clone, Debug)]
pub(crate) struct OwnCost<A>(pub(crate) A);

/// A rule, with the cost and the longest wait of one charge.
#[derive(Clone, Debug)]
pub(crate) struct OwnCostRule<R> {
    rule: R,
    stated: CostAndWait,
}

impl<R> OwnCostRule<R> {
    /// Returns the own cost, or 0 if the whole charge is a peek.
    fn cost(&self, cost: i64) -> i64 {
        if cost == 0 { 0 } else { self.stated.cost }
    }
}

impl<A: Algorithm + Single> Sealed for OwnCost<A> {}
impl<A: Algorithm + Single> Single for OwnCost<A> {}

impl<A: Algorithm + Single> Algorithm for OwnCost<A> {
    type Rule = OwnCostRule<A::Rule>;
    type State = A::State;

    fn quota(&self) -> Quotas {
        self.0.quota()
    }

    fn refills(&self, index: usize) -> bool {
        self.0.refills(index)
    }

    fn reported(&self, index: usize, quota: Quota) -> Quota {
        self.0.reported(index, quota)
    }

    fn rule(&self, quota: impl Into<Quotas>) -> Result<Self::Rule, QuotaError> {
        let quota = quota.into();
        Ok(OwnCostRule {
            stated: quota.stated().unwrap_or(ONE_AT_ONCE),
            rule: self.0.rule(quota.one()?)?,
        })
    }

    fn horizon(rule: &Self::Rule) -> i64 {
        A::horizon(&rule.rule)
    }

    fn max_wait(rule: &Self::Rule, state: Option<&A::State>, now: i64, cost: i64) -> i64 {
        rule.stated.max_wait.min(A::max_wait(&rule.rule, state, now, rule.cost(cost)))
    }

    fn holds(rule: &Self::Rule) -> bool {
        A::holds(&rule.rule)
    }

    fn is_unsettled(rule: &Self::Rule, state: Option<&A::State>, now: i64, cost: i64) -> bool {
        A::is_unsettled(&rule.rule, state, now, rule.cost(cost))
    }

    fn least_wait(rule: &Self::Rule, cost: i64) -> i64 {
        A::least_wait(&rule.rule, rule.cost(cost))
    }

    fn expires_at(rule: &Self::Rule, state: &A::State) -> i64 {
        A::expires_at(&rule.rule, state)
    }

    fn clamp(rule: &Self::Rule, state: &A::State, now: i64) -> Option<A::State> {
        A::clamp(&rule.rule, state, now)
    }

    fn earliest_fit(
        rule: &Self::Rule,
        state: Option<&A::State>,
        at: i64,
        cost: i64,
    ) -> Option<i64> {
        A::earliest_fit(&rule.rule, state, at, rule.cost(cost))
    }

    fn consume(rule: &Self::Rule, state: Option<A::State>, take: Take) -> (A::State, Mark) {
        A::consume(&rule.rule, state, Take { cost: rule.cost(take.cost), ..take })
    }

    fn spend(rule: &Self::Rule, state: Option<A::State>, at: i64, cost: i64, now: i64) -> A::State {
        A::spend(&rule.rule, state, at, rule.cost(cost).min(A::max_unchecked_cost(&rule.rule)), now)
    }

    fn max_unchecked_cost(rule: &Self::Rule) -> i64 {
        A::max_unchecked_cost(&rule.rule)
    }

    fn report(rule: &Self::Rule, state: Option<&A::State>, now: i64) -> Report {
        A::report(&rule.rule, state, now)
    }

    /// Refunds the whole own cost, even if only a part of the charge is refunded.
    fn apply_refund(
        rule: &Self::Rule,
        state: &mut A::State,
        now: i64,
        refund: &Refund<'_>,
    ) -> Option<i64> {
        A::apply_refund(&rule.rule, state, now, &Refund::of_all(rule.stated.cost, refund.mark))
    }
}

impl<A: InLua + Single> InLua for OwnCost<A> {
    const NAME: &'static str = A::NAME;
    const TAG: &'static str = A::TAG;
    const SCRIPT: &'static str = A::SCRIPT;

    fn parts(&self) -> Vec<ScriptPart> {
        let part = |part| ScriptPart { own_costs: true, ..part };
        self.0.parts().into_iter().map(part).collect()
    }

    fn state_elements(rule: &Self::Rule) -> usize {
        A::state_elements(&rule.rule)
    }

    fn arguments(rule: &Self::Rule) -> Vec<i64> {
        let mut arguments = A::arguments(&rule.rule);
        arguments.extend([rule.stated.cost, rule.stated.max_wait]);
        arguments
    }

    fn state(
        rule: &Self::Rule,
        now: i64,
        cost: i64,
        elements: &[Element<'_>],
    ) -> Option<Option<A::State>> {
        A::state(&rule.rule, now, rule.cost(cost), elements)
    }
}
