//! Several quotas of one key as one algorithm: 10 per second *and* 1,000 per day, all or nothing.
//!
//! The documentation of [`algorithm`](super) states the rules for tuples.
//!
//! The twin of `scripts/several.lua`.

use super::{
    Algorithm, Check, Element, InLua, Mark, QuotaAnswer, Refund, Report, ScriptPart, combined,
    judge, sealed::Sealed, sealed::Single,
};
use crate::quota::{Quota, QuotaError, Quotas};

/// The report of each member.
macro_rules! reports {
    ($rule:ident, $state:ident, $now:ident: $($member:ident $index:tt),+) => {
        [$({
            let state = $state.and_then(|state| state.$index.as_ref());
            $member::report(&$rule.$index, state, $now)
        }),+]
    };
}

macro_rules! tuple {
    ($size:literal: $($member:ident $index:tt),+) => {
        impl<$($member: Algorithm + Single),+> Sealed for ($($member,)+) {}

        impl<$($member: Algorithm + Single),+> Algorithm for ($($member,)+) {
            type Rule = ($($member::Rule,)+);
            type State = ($(Option<$member::State>,)+);

            fn quota(&self) -> Quotas {
                let all: Vec<Quota> =
                    [$(self.$index.quota()),+].iter().flat_map(|one| one.as_slice().to_vec()).collect();
                all.as_slice().into()
            }

            fn rule(&self, quota: impl Into<Quotas>) -> Result<Self::Rule, QuotaError> {
                let quotas = quota.into();
                let quotas = quotas.as_slice();
                if quotas.len() != [$($index),+].len() {
                    return Err(QuotaError("the numbers of quotas and algorithms differ"));
                }
                Ok(($(self.$index.rule(quotas[$index])?,)+))
            }

            fn horizon(rule: &Self::Rule) -> i64 {
                [$($member::horizon(&rule.$index)),+].into_iter().fold(i64::MAX, i64::min)
            }

            fn holds(rule: &Self::Rule) -> bool {
                [$($member::holds(&rule.$index)),+].contains(&true)
            }

            fn is_unsettled(
                rule: &Self::Rule,
                state: Option<&Self::State>,
                now: i64,
                cost: i64,
            ) -> bool {
                [$({
                    let one = state.and_then(|state| state.$index.as_ref());
                    $member::is_unsettled(&rule.$index, one, now, cost)
                }),+].contains(&true)
            }

            fn least_wait(rule: &Self::Rule, cost: i64) -> i64 {
                combined::least_wait([$($member::least_wait(&rule.$index, cost)),+])
            }

            fn expires_at(rule: &Self::Rule, state: &Self::State) -> i64 {
                let expires_at = [$(state.$index.as_ref().map_or(0, |one| $member::expires_at(&rule.$index, one))),+];
                expires_at.into_iter().fold(0, i64::max)
            }

            fn clamp(rule: &Self::Rule, state: &Self::State, now: i64) -> Option<Self::State> {
                let clamped = ($(
                    state.$index.as_ref().and_then(|one| $member::clamp(&rule.$index, one, now)),
                )+);
                let any = [$(clamped.$index.is_some()),+].contains(&true);
                any.then(|| ($(clamped.$index.or_else(|| state.$index.clone()),)+))
            }

            fn earliest_fit(
                rule: &Self::Rule,
                state: Option<&Self::State>,
                at: i64,
                cost: i64,
            ) -> Option<i64> {
                combined::earliest_fit(at, [$(
                    $member::earliest_fit(
                        &rule.$index,
                        state.and_then(|state| state.$index.as_ref()),
                        at,
                        cost,
                    )
                ),+])
            }

            fn consume(
                rule: &Self::Rule,
                state: Option<Self::State>,
                at: i64,
                cost: i64,
                now: i64,
                _: bool,
            ) -> (Self::State, Mark) {
                let state = state.unwrap_or_default();
                let taken = ($({
                    let cost = cost.min($member::max_unchecked_cost(&rule.$index));
                    $member::consume(&rule.$index, state.$index, at, cost, now, true)
                },)+);
                let mark = vec![$(taken.$index.1),+].into();
                (($(Some(taken.$index.0),)+), mark)
            }

            fn spend(
                rule: &Self::Rule,
                state: Option<Self::State>,
                at: i64,
                cost: i64,
                now: i64,
            ) -> Self::State {
                let state = state.unwrap_or_default();
                ($({
                    let cost = cost.min($member::max_unchecked_cost(&rule.$index));
                    Some($member::spend(&rule.$index, state.$index, at, cost, now))
                },)+)
            }

            fn max_unchecked_cost(rule: &Self::Rule) -> i64 {
                [$($member::max_unchecked_cost(&rule.$index)),+].into_iter().fold(0, i64::max)
            }

            fn report(rule: &Self::Rule, state: Option<&Self::State>, now: i64) -> Report {
                combined::report(reports!(rule, state, now: $($member $index),+))
            }

            fn refills(&self, index: usize) -> bool {
                [$(self.$index.refills(0)),+].get(index).copied().unwrap_or_default()
            }

            fn reported(&self, index: usize, quota: Quota) -> Quota {
                $(if index == $index {
                    return self.$index.reported(0, quota);
                })+
                quota
            }

            fn judge_each(
                rule: &Self::Rule,
                state: Option<&Self::State>,
                now: i64,
                check: Check,
            ) -> Box<[QuotaAnswer]> {
                // No member waits longer than the whole tuple may.
                let max_wait = check.max_wait.min(Self::horizon(rule));
                let check = Check { max_wait, ..check };
                let is_unsettled = Self::is_unsettled(rule, state, now, check.cost);
                Box::new([$({
                    let one = state.and_then(|state| state.$index.as_ref());
                    let verdict = judge::<$member>(&rule.$index, one, now, check).0;
                    QuotaAnswer::unreported(combined::beside(is_unsettled, verdict))
                }),+])
            }

            fn report_each(
                rule: &Self::Rule,
                state: Option<&Self::State>,
                now: i64,
                members: &mut [QuotaAnswer],
            ) {
                let reports = reports!(rule, state, now: $($member $index),+);
                for (member, report) in members.iter_mut().zip(reports) {
                    member.report = report;
                }
            }

            /// Settles what each member took. Returns the most units that one of them refunded.
            fn apply_refund(
                rule: &Self::Rule,
                state: &mut Self::State,
                now: i64,
                refund: &Refund<'_>,
            ) -> Option<i64> {
                combined::refunded([$(
                    {
                        let mark = refund.mark.of($index);
                        let refund = Refund { mark: &mark, ..*refund };
                        $member::settle(&rule.$index, &mut state.$index, now, &refund)
                    }
                ),+])
            }

            fn settle(
                rule: &Self::Rule,
                state: &mut Option<Self::State>,
                now: i64,
                refund: &Refund<'_>,
            ) -> Option<i64> {
                combined::settle::<Self>(rule, state, now, refund)
            }
        }

        impl<$($member: InLua + Single),+> InLua for ($($member,)+) {
            const NAME: &'static str = "several";
            const TAG: &'static str = "";
            const SCRIPT: &'static str = "";

            fn parts(&self) -> Vec<ScriptPart> {
                [$(self.$index.parts()),+].concat()
            }

            fn state_elements(rule: &Self::Rule) -> usize {
                0 $(+ $member::state_elements(&rule.$index))+
            }

            fn arguments(rule: &Self::Rule) -> Vec<i64> {
                [$($member::arguments(&rule.$index)),+].concat()
            }

            fn state(
                rule: &Self::Rule,
                now: i64,
                cost: i64,
                elements: &[Element<'_>],
            ) -> Option<Option<Self::State>> {
                let mut rest = elements;
                let states = ($({
                    let (own, others) = rest.split_at_checked($member::state_elements(&rule.$index))?;
                    rest = others;
                    $member::state(&rule.$index, now, cost, own)?
                },)+);
                rest.is_empty().then_some(Some(states))
            }
        }
    };
}

for_each_tuple!(tuple);
