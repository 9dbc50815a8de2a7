//! Several quotas of one key as one algorithm: 10 per second *and* 1,000 per day, all or nothing.
//!
//! A tuple, and a `Vec` of algorithms that are known only at run time. The documentation of
//! [`algorithm`](super) says what they promise.
//!
//! The twin of `scripts/several.lua`.

use std::fmt::Debug;

use super::any::{AnyRule, AnyState};
use super::sealed::{Sealed, Single};
use super::{
    Algorithm, AnyAlgorithm, Check, Element, InLua, Mark, QuotaAnswer, Refund, Report, ScriptPart,
    Verdict, judge,
};
use crate::quota::{Quota, QuotaError, Quotas};

/// A script has room for the local variables of so many.
const MAX_MEMBERS: usize = 8;

/// Algorithms that decide as one: each has a rule and a state of its own.
pub trait Several: Clone + Debug + Send + Sync + 'static {
    /// What each of them is.
    type Member: Algorithm + Single;

    type Rules: AsRef<[Rule<Self>]> + Clone + Debug + Send + Sync + 'static;

    type States: AsRef<[Option<State<Self>>]>
        + AsMut<[Option<State<Self>>]>
        + Clone
        + Debug
        + PartialEq
        + Send
        + 'static;

    fn members(&self) -> impl Iterator<Item = Self::Member>;

    /// The members' rules, of a quota each.
    fn rules(&self, quotas: &Quotas) -> Result<Self::Rules, QuotaError>;

    /// No state, for each member.
    fn no_states(rules: &Self::Rules) -> Self::States;
}

type Rule<S> = <<S as Several>::Member as Algorithm>::Rule;
type State<S> = <<S as Several>::Member as Algorithm>::State;

impl<A: Algorithm + Single> Several for Vec<A> {
    type Member = A;
    type Rules = Vec<A::Rule>;
    type States = Vec<Option<A::State>>;

    fn members(&self) -> impl Iterator<Item = A> {
        self.iter().cloned()
    }

    fn rules(&self, quotas: &Quotas) -> Result<Self::Rules, QuotaError> {
        self.iter().zip(0..).map(|(one, index)| one.rule(of_member(quotas, index)?)).collect()
    }

    fn no_states(rules: &Self::Rules) -> Self::States {
        vec![None; rules.len()]
    }
}

macro_rules! tuple {
    ($count:literal: $($member:ident $index:tt),+) => {
        impl<$($member: Algorithm + Single + Into<AnyAlgorithm>),+> Several for ($($member,)+) {
            type Member = AnyAlgorithm;
            type Rules = [AnyRule; $count];
            type States = [Option<AnyState>; $count];

            fn members(&self) -> impl Iterator<Item = AnyAlgorithm> {
                [$(self.$index.clone().into()),+].into_iter()
            }

            fn rules(&self, quotas: &Quotas) -> Result<Self::Rules, QuotaError> {
                Ok([$({
                    let one: AnyAlgorithm = self.$index.clone().into();
                    one.rule(of_member(quotas, $index)?)?
                }),+])
            }

            fn no_states(_: &Self::Rules) -> Self::States {
                Default::default()
            }
        }
    };
}

tuple!(2: A 0, B 1);
tuple!(3: A 0, B 1, C 2);
tuple!(4: A 0, B 1, C 2, D 3);
tuple!(5: A 0, B 1, C 2, D 3, E 4);
tuple!(6: A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(7: A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

fn of_member(quotas: &Quotas, index: usize) -> Result<Quotas, QuotaError> {
    quotas.nth(index).ok_or(QuotaError("not as many quotas as algorithms"))
}

/// The members' rules, each with the state of its own.
fn each<'a, S: Several>(
    rules: &'a S::Rules,
    states: Option<&'a S::States>,
) -> impl Iterator<Item = (&'a Rule<S>, Option<&'a State<S>>)> {
    let states = states.map_or(&[][..], AsRef::as_ref);
    let own = move |index| states.get(index).and_then(Option::as_ref);
    rules.as_ref().iter().enumerate().map(move |(index, rule)| (rule, own(index)))
}

fn reports<'a, S: Several>(
    rules: &'a S::Rules,
    states: Option<&'a S::States>,
    now: i64,
) -> impl Iterator<Item = Report> {
    each::<S>(rules, states).map(move |(rule, state)| S::Member::report(rule, state, now))
}

/// The states after each member's, which may be none, was changed by a charge.
fn charged<S: Several>(
    rules: &S::Rules,
    states: Option<S::States>,
    cost: i64,
    change: impl Fn(&Rule<S>, Option<State<S>>, i64) -> State<S>,
) -> S::States {
    let mut states = states.unwrap_or_else(|| S::no_states(rules));
    for (rule, state) in rules.as_ref().iter().zip(states.as_mut()) {
        let cost = cost.min(S::Member::max_unchecked_cost(rule));
        *state = Some(change(rule, state.take(), cost));
    }
    states
}

#[diagnostic::do_not_recommend]
impl<S: Several> Sealed for S {}

#[diagnostic::do_not_recommend]
impl<S: Several> Algorithm for S {
    type Rule = S::Rules;
    type State = S::States;

    fn quota(&self) -> Quotas {
        let all: Vec<Quota> =
            self.members().flat_map(|one| one.quota().as_slice().to_vec()).collect();
        all.as_slice().into()
    }

    fn rule(&self, quota: impl Into<Quotas>) -> Result<S::Rules, QuotaError> {
        let quotas = quota.into();
        match self.members().count() {
            0 => Err(QuotaError("no algorithm")),
            count if count > MAX_MEMBERS => Err(QuotaError("more than eight algorithms")),
            count if count == quotas.as_slice().len() => self.rules(&quotas),
            _ => Err(QuotaError("not as many quotas as algorithms")),
        }
    }

    fn horizon(rules: &S::Rules) -> i64 {
        rules.as_ref().iter().map(S::Member::horizon).fold(i64::MAX, i64::min)
    }

    /// That of the member which needs the longest wait: the others fit sooner, or wait in line
    /// behind what was reserved for it. Of members that need equally long, the one that allows
    /// most.
    fn max_wait(rules: &S::Rules, states: Option<&S::States>, now: i64, cost: i64) -> i64 {
        let needs_and_allows = |(rule, one)| {
            let instant = S::Member::earliest_fit(rule, one, now, cost);
            (instant, S::Member::max_wait(rule, one, now, cost))
        };
        let longest = each::<S>(rules, states).map(needs_and_allows).max();
        longest.map_or(0, |(_, allowed)| allowed.min(<S as Algorithm>::horizon(rules)))
    }

    fn holds(rules: &S::Rules) -> bool {
        rules.as_ref().iter().any(S::Member::holds)
    }

    fn is_unsettled(rules: &S::Rules, states: Option<&S::States>, now: i64, cost: i64) -> bool {
        each::<S>(rules, states).any(|(rule, one)| S::Member::is_unsettled(rule, one, now, cost))
    }

    /// The longest that one of them waits where nothing was taken before.
    fn least_wait(rules: &S::Rules, cost: i64) -> i64 {
        rules.as_ref().iter().map(|rule| S::Member::least_wait(rule, cost)).fold(0, i64::max)
    }

    fn expires_at(rules: &S::Rules, states: &S::States) -> i64 {
        let expires_at =
            |(rule, state): (_, Option<_>)| state.map_or(0, |one| S::Member::expires_at(rule, one));
        each::<S>(rules, Some(states)).map(expires_at).fold(0, i64::max)
    }

    fn clamp(rules: &S::Rules, states: &S::States, now: i64) -> Option<S::States> {
        let mut next = None;
        for (index, (rule, state)) in each::<S>(rules, Some(states)).enumerate() {
            if let Some(clamped) = state.and_then(|state| S::Member::clamp(rule, state, now)) {
                next.get_or_insert_with(|| states.clone()).as_mut()[index] = Some(clamped);
            }
        }
        next
    }

    /// A charge that fits at an instant fits at every later one, so the latest of all is the
    /// earliest for all.
    fn earliest_fit(
        rules: &S::Rules,
        states: Option<&S::States>,
        at: i64,
        cost: i64,
    ) -> Option<i64> {
        each::<S>(rules, states).try_fold(at, |latest, (rule, state)| {
            Some(latest.max(S::Member::earliest_fit(rule, state, at, cost)?))
        })
    }

    fn consume(
        rules: &S::Rules,
        states: Option<S::States>,
        at: i64,
        cost: i64,
        now: i64,
    ) -> S::States {
        // One alone is asked as it is outside of a list.
        let consume = match rules.as_ref() {
            [_] => S::Member::consume,
            _ => S::Member::consume_with_others,
        };
        charged::<S>(rules, states, cost, |rule, own, cost| consume(rule, own, at, cost, now))
    }

    fn spend(
        rules: &S::Rules,
        states: Option<S::States>,
        at: i64,
        cost: i64,
        now: i64,
    ) -> S::States {
        let spend = |rule: &_, own, cost| S::Member::spend(rule, own, at, cost, now);
        charged::<S>(rules, states, cost, spend)
    }

    fn max_unchecked_cost(rules: &S::Rules) -> i64 {
        rules.as_ref().iter().map(S::Member::max_unchecked_cost).fold(0, i64::max)
    }

    fn report(rules: &S::Rules, states: Option<&S::States>, now: i64) -> Report {
        Report::of_all(reports::<S>(rules, states, now))
    }

    fn refills(&self, index: usize) -> bool {
        self.members().nth(index).is_some_and(|one| one.refills(0))
    }

    fn reported(&self, index: usize, quota: Quota) -> Quota {
        self.members().nth(index).map_or(quota, |one| one.reported(0, quota))
    }

    /// Nothing for one alone, whose answer is the whole.
    fn judge_each(
        rules: &S::Rules,
        states: Option<&S::States>,
        now: i64,
        check: Check,
    ) -> Box<[QuotaAnswer]> {
        if rules.as_ref().len() == 1 {
            return Box::default();
        }
        // No member waits longer than all of them do.
        let max_wait = check.max_wait.min(<S as Algorithm>::horizon(rules));
        let most = Check { max_wait, ..check };
        // None reserves a wait while others are unsettled.
        let is_unsettled = Self::is_unsettled(rules, states, now, check.cost);
        let alone = |(rule, one)| match judge::<S::Member>(rule, one, now, most).0 {
            Verdict::Wait(wait) if is_unsettled => Verdict::Deny(wait),
            verdict => verdict,
        };
        let alone = each::<S>(rules, states).map(alone);
        let mut members: Box<[_]> = alone.map(QuotaAnswer::unreported).collect();
        // Of a charge that waits, a member may wait longer than it would alone.
        let refuses = |one: &QuotaAnswer| matches!(one.verdict, Verdict::Deny(_));
        if members.iter().any(refuses)
            && let Verdict::Wait(_) = judge::<S>(rules, states, now, check).0
        {
            for member in &mut members {
                if let Verdict::Deny(wait) = member.verdict {
                    member.verdict = Verdict::Wait(wait);
                }
            }
        }
        members
    }

    fn report_each(
        rules: &S::Rules,
        states: Option<&S::States>,
        now: i64,
        members: &mut [QuotaAnswer],
    ) {
        for (member, report) in members.iter_mut().zip(reports::<S>(rules, states, now)) {
            member.report = report;
        }
    }

    /// Each member settles what it took. Returns the most that one of them refunded; `None` if none
    /// gave anything.
    fn apply_refund(
        rules: &S::Rules,
        states: &mut S::States,
        now: i64,
        refund: &Refund<'_>,
    ) -> Option<i64> {
        let members = rules.as_ref().iter().zip(states.as_mut()).enumerate();
        let given = members.map(|(index, (rule, state))| {
            let mark = refund.mark.of(index);
            S::Member::settle(rule, state, now, &Refund { mark: &mark, ..*refund })
        });
        given.fold(None, Option::max)
    }

    /// A member that does not hold takes more even if its key has no state.
    fn settle(
        rules: &S::Rules,
        states: &mut Option<S::States>,
        now: i64,
        refund: &Refund<'_>,
    ) -> Option<i64> {
        if refund.units >= 0 {
            return Self::refund(rules, states, now, refund);
        }
        if !Self::holds(rules) {
            return Self::penalize(rules, states, now, -refund.units).mark.map(|_| 0);
        }
        let is_new = states.is_none();
        states.get_or_insert_with(|| S::no_states(rules));
        let settled = Self::refund(rules, states, now, refund);
        if is_new && settled.is_none() {
            *states = None;
        }
        settled
    }

    fn mark(states: &S::States) -> Mark {
        let mark = |state: &Option<_>| state.as_ref().map(S::Member::mark).unwrap_or_default();
        states.as_ref().iter().map(mark).collect::<Vec<_>>().into()
    }
}

#[diagnostic::do_not_recommend]
impl<S: Several<Member: InLua>> InLua for S {
    const NAME: &'static str = "several";
    const TAG: &'static str = "";
    const SCRIPT: &'static str = "";

    fn parts(&self) -> Vec<ScriptPart> {
        self.members().flat_map(|one| one.parts()).collect()
    }

    fn state_elements(rules: &S::Rules) -> usize {
        rules.as_ref().iter().map(S::Member::state_elements).sum()
    }

    fn arguments(rules: &S::Rules) -> Vec<i64> {
        rules.as_ref().iter().flat_map(S::Member::arguments).collect()
    }

    fn state(
        rules: &S::Rules,
        now: i64,
        cost: i64,
        elements: &[Element<'_>],
    ) -> Option<Option<S::States>> {
        let (mut rest, mut states) = (elements, S::no_states(rules));
        for (rule, state) in rules.as_ref().iter().zip(states.as_mut()) {
            let (own, others) = rest.split_at_checked(S::Member::state_elements(rule))?;
            (rest, *state) = (others, S::Member::state(rule, now, cost, own)?);
        }
        rest.is_empty().then_some(Some(states))
    }
}
