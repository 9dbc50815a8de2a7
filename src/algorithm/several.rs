//! Several quotas of one key as one algorithm: 10 per second *and* 1,000 per day, all or nothing.
//!
//! The documentation of [`algorithm`](super) states the rules.
//!
//! The twin of `scripts/several.lua`.

use super::{
    Algorithm, AnyAlgorithm, Check, Element, InLua, Mark, QuotaAnswer, Refund, Report, Ruling,
    ScriptPart, Take, Verdict, judge, sealed::Sealed, sealed::Single, verdict::kept_of,
};
use crate::core::quota::{CostAndWait, Quota, QuotaError, Quotas};

/// The most members of a list: a script has room for the local variables of eight.
const MAX_MEMBERS: usize = 8;

impl<A: Algorithm + Single> Sealed for Vec<A> {}

/// What a limiter takes: an algorithm, or a tuple of two to eight, of which it makes a `Vec` of
/// [`AnyAlgorithm`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an algorithm",
    note = "a quota needs an algorithm that counts it: write `TokenBucket::new(quota)`",
    note = "several are a tuple: `(TokenBucket::new(second), FixedWindow::new(day))`"
)]
pub trait IntoAlgorithm {
    /// The algorithm that decides.
    type Algorithm: Algorithm;

    /// Returns the algorithm.
    fn into_algorithm(self) -> Self::Algorithm;
}

impl<A: Algorithm> IntoAlgorithm for A {
    type Algorithm = A;

    fn into_algorithm(self) -> A {
        self
    }
}

macro_rules! from_tuple {
    ($size:literal: $($member:ident $index:tt),+) => {
        impl<$($member: Into<AnyAlgorithm>),+> IntoAlgorithm for ($($member,)+) {
            type Algorithm = Vec<AnyAlgorithm>;

            fn into_algorithm(self) -> Vec<AnyAlgorithm> {
                vec![$(self.$index.into()),+]
            }
        }
    };
}

for_each_tuple!(from_tuple);

/// The rule of one of several quotas.
///
/// A charge may state a cost and a longest wait for it alone. In a script they are two more
/// arguments, which replace `cost` and `max_wait` in the member's sections.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct MemberRule<R> {
    pub(crate) rule: R,
    stated: Option<CostAndWait>,
}

impl<R> MemberRule<R> {
    /// Returns what a charge of `cost` takes here. A peek takes nothing anywhere.
    #[inline]
    fn cost(&self, cost: i64) -> i64 {
        self.stated.filter(|_| cost != 0).map_or(cost, |own| own.cost)
    }

    /// Returns a check of all members as it is for this one.
    #[inline]
    fn check<'a>(&self, check: Check<'a>, index: usize) -> Check<'a> {
        Check {
            cost: self.cost(check.cost),
            keep_free: kept_of(check.keep_free, index),
            paused: kept_of(check.paused, index),
            ..check
        }
    }

    /// Returns how long a charge may wait here that may wait for `wait`.
    #[inline]
    fn max_wait(&self, wait: i64) -> i64 {
        self.stated.map_or(wait, |own| own.max_wait.min(wait))
    }
}

fn each<'a, A: Algorithm>(
    rule: &'a [MemberRule<A::Rule>],
    state: Option<&'a Vec<Option<A::State>>>,
) -> impl Iterator<Item = (&'a MemberRule<A::Rule>, Option<&'a A::State>)> {
    let own = move |index| state.and_then(|all| all.get(index)).and_then(Option::as_ref);
    rule.iter().enumerate().map(move |(index, rule)| (rule, own(index)))
}

fn reports<'a, A: Algorithm>(
    rule: &'a [MemberRule<A::Rule>],
    state: Option<&'a Vec<Option<A::State>>>,
    now: i64,
) -> impl Iterator<Item = Report> {
    each::<A>(rule, state).map(move |(member, own)| A::report(&member.rule, own, now))
}

#[inline]
pub(super) fn joined(reports: impl IntoIterator<Item = Report>) -> Report {
    reports.into_iter().fold(Report::full(i64::MAX), |all, one| Report {
        remaining: all.remaining.min(one.remaining),
        reset_after: all.reset_after.max(one.reset_after),
    })
}

impl<A: Algorithm + Single> Algorithm for Vec<A> {
    type Rule = Vec<MemberRule<A::Rule>>;
    type State = Vec<Option<A::State>>;

    fn quota(&self) -> Quotas {
        let all: Vec<Quota> = self.iter().flat_map(|one| one.quota().as_slice().to_vec()).collect();
        all.as_slice().into()
    }

    fn rule(&self, quota: impl Into<Quotas>) -> Result<Self::Rule, QuotaError> {
        let quotas = quota.into();
        match self.len() {
            0 => return Err(QuotaError("no algorithm")),
            1..=MAX_MEMBERS => {}
            _ => return Err(QuotaError("more than eight algorithms")),
        }
        if quotas.as_slice().len() != self.len() {
            return Err(QuotaError("the numbers of quotas and algorithms differ"));
        }
        let members = self.iter().zip(quotas.as_slice()).enumerate();
        members
            .map(|(index, (one, quota))| {
                Ok(MemberRule { rule: one.rule(*quota)?, stated: quotas.stated(index) })
            })
            .collect()
    }

    fn horizon(rule: &Self::Rule) -> i64 {
        rule.iter().map(|member| A::horizon(&member.rule)).fold(i64::MAX, i64::min)
    }

    /// Returns the longest wait of the member that needs the longest wait. The other members fit
    /// sooner, or wait behind what was reserved for that member. If members need equally long
    /// waits, the one that allows the longest counts. 0 while others must be settled first at a
    /// member.
    fn max_wait_of(
        rule: &Self::Rule,
        state: Option<&Self::State>,
        now: i64,
        check: Check<'_>,
    ) -> i64 {
        let needs_and_allows = |(index, (member, own)): (_, (&MemberRule<A::Rule>, _))| {
            let (rule, check) = (&member.rule, member.check(check, index));
            let longest = A::max_wait_of(rule, own, now, check);
            let fits = A::fit_keeping(rule, own, now, check.cost, check.keep_free);
            let needs = (longest == 0, fits.map(|instant| instant.max(check.pause_end())));
            (needs, member.max_wait(longest))
        };
        let longest = each::<A>(rule, state).enumerate().map(needs_and_allows).max();
        longest.map_or(0, |(_, allowed)| allowed.min(Self::horizon(rule)))
    }

    fn hold_time(rule: &Self::Rule) -> Option<i64> {
        rule.iter().filter_map(|member| A::hold_time(&member.rule)).min()
    }

    fn least_wait(rule: &Self::Rule, cost: i64) -> i64 {
        let least = |member: &MemberRule<_>| A::least_wait(&member.rule, member.cost(cost));
        rule.iter().map(least).fold(0, i64::max)
    }

    fn expires_at(rule: &Self::Rule, state: &Self::State) -> i64 {
        let members = each::<A>(rule, Some(state));
        let expires_at = members.map(|(member, own)| Some(A::expires_at(&member.rule, own?)));
        expires_at.flatten().fold(0, i64::max)
    }

    fn clamp(rule: &Self::Rule, state: &Self::State, now: i64) -> Option<Self::State> {
        let mut next: Option<Self::State> = None;
        for (index, (member, own)) in each::<A>(rule, Some(state)).enumerate() {
            if let Some(clamped) = own.and_then(|own| A::clamp(&member.rule, own, now)) {
                next.get_or_insert_with(|| state.clone())[index] = Some(clamped);
            }
        }
        next
    }

    /// A charge that fits a quota at an instant fits it at every later one, so the latest of all is
    /// the earliest for all.
    fn fit_keeping(
        rule: &Self::Rule,
        state: Option<&Self::State>,
        at: i64,
        cost: i64,
        keep_free: &[i64],
    ) -> Option<i64> {
        let fit = |(index, (member, own)): (_, (&MemberRule<_>, _))| {
            let (cost, kept) = (member.cost(cost), kept_of(keep_free, index));
            A::fit_keeping(&member.rule, own, at, cost, kept)
        };
        let mut fits = each::<A>(rule, state).enumerate().map(fit);
        fits.try_fold(at, |latest, one| Some(latest.max(one?)))
    }

    fn earliest_fit(
        rule: &Self::Rule,
        state: Option<&Self::State>,
        at: i64,
        cost: i64,
    ) -> Option<i64> {
        Self::fit_keeping(rule, state, at, cost, &[])
    }

    fn consume(
        rule: &Self::Rule,
        state: Option<Self::State>,
        take: Take<'_>,
    ) -> (Self::State, Mark) {
        let mut states = state.unwrap_or_else(|| Vec::with_capacity(rule.len()));
        states.resize(rule.len(), None);
        // A single member decides as it does outside of a list.
        let take = Take { has_others: take.has_others || rule.len() > 1, ..take };
        let mut marks = Vec::with_capacity(rule.len());
        for (index, (member, state)) in rule.iter().zip(&mut states).enumerate() {
            let keep_free = kept_of(take.keep_free, index);
            let take = Take { cost: member.cost(take.cost), keep_free, ..take };
            let (next, mark) = A::consume(&member.rule, state.take(), take);
            *state = Some(next);
            marks.push(mark);
        }
        (states, marks.into())
    }

    fn penalty(_: &Self::Rule, _: Option<&Self::State>, _: i64, cost: i64) -> i64 {
        cost
    }

    fn grants(rule: &Self::Rule) -> bool {
        rule.iter().any(|member| A::grants(&member.rule))
    }

    /// Each member gets the units, but for one that can be given none.
    fn give(rule: &Self::Rule, state: &mut Self::State, now: i64, units: i64) {
        for (member, own) in rule.iter().zip(state) {
            if let Some(own) = own {
                A::give(&member.rule, own, now, member.cost(units));
            }
        }
    }

    /// Each member takes what it may owe itself, so that a debt to one delays no other.
    fn penalize(rule: &Self::Rule, state: &mut Option<Self::State>, now: i64, cost: i64) -> Ruling {
        let mut states = state.take().unwrap_or_default();
        states.resize(rule.len(), None);
        let (mut not_taken, mut mark) = (0, None);
        for (member, own) in rule.iter().zip(&mut states) {
            let answer = A::penalize(&member.rule, own, now, member.cost(cost));
            (not_taken, mark) = (answer.not_taken.max(not_taken), answer.mark.or(mark));
        }
        *state = states.iter().any(Option::is_some).then_some(states);
        Ruling { mark, not_taken, ..Self::estimate(rule, state.as_ref(), now, Check::PEEK) }
    }

    fn report(rule: &Self::Rule, state: Option<&Self::State>, now: i64) -> Report {
        joined(reports::<A>(rule, state, now))
    }

    fn refills(&self, index: usize) -> bool {
        self.get(index).is_some_and(|one| one.refills(0))
    }

    fn reported(&self, index: usize, quota: Quota, now: i64) -> Quota {
        self.get(index).map_or(quota, |one| one.reported(0, quota, now))
    }

    /// Returns nothing for a single member, whose answer is the whole answer.
    fn judge_each(
        rule: &Self::Rule,
        state: Option<&Self::State>,
        now: i64,
        check: Check<'_>,
    ) -> Box<[QuotaAnswer]> {
        if rule.len() == 1 {
            return Box::default();
        }
        // No member waits longer than the whole list may.
        let max_wait = check.max_wait.min(Self::horizon(rule));
        let check = Check { max_wait, ..check };
        let is_unsettled = each::<A>(rule, state).enumerate().any(|(index, (member, own))| {
            A::max_wait_of(&member.rule, own, now, member.check(check, index)) == 0
        });
        let alone = each::<A>(rule, state).enumerate().map(|(index, (member, own))| {
            let check = member.check(check, index);
            match judge::<A>(&member.rule, own, now, check).0 {
                // A quota reserves no wait while others are unsettled.
                Verdict::Wait(wait) if is_unsettled || wait > member.max_wait(wait) => {
                    Verdict::Deny(wait)
                }
                verdict => verdict,
            }
        });
        let mut members: Box<[_]> =
            alone.map(|verdict| QuotaAnswer { verdict, report: Report::full(0) }).collect();
        // In a charge that waits, a member may wait longer than it would alone.
        let refuses = |one: &QuotaAnswer| matches!(one.verdict, Verdict::Deny(_));
        if members.iter().any(refuses)
            && let Verdict::Wait(_) = judge::<Self>(rule, state, now, check).0
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
        rule: &Self::Rule,
        state: Option<&Self::State>,
        now: i64,
        members: &mut [QuotaAnswer],
    ) {
        for (member, report) in members.iter_mut().zip(reports::<A>(rule, state, now)) {
            member.report = report;
        }
    }

    /// Settles what each member took. Returns the most units that one of them gave back, or that it
    /// could not take, below 0. A member with a cost of its own gets all of it back, even if only a
    /// part of the charge is refunded.
    fn apply_refund(
        rule: &Self::Rule,
        state: &mut Self::State,
        now: i64,
        refund: &Refund<'_>,
    ) -> Option<i64> {
        state.resize(rule.len(), None);
        let members = rule.iter().zip(state).enumerate();
        let settled = members.map(|(index, (member, state))| {
            let mark = refund.mark.of(index);
            let refund = match member.stated {
                Some(own) => Refund::of_all(own.cost, &mark),
                None => Refund { mark: &mark, ..*refund },
            };
            A::settle(&member.rule, state, now, &refund)
        });
        let settled: Vec<_> = settled.collect();
        let units = settled.iter().map(|one| one.unwrap_or(refund.units.min(0)));
        let most = if refund.units < 0 { units.min() } else { units.max() };
        most.filter(|_| settled.iter().any(Option::is_some))
    }

    /// Renews what each member holds. True if all of them still held their units.
    fn renew(
        rule: &Self::Rule,
        state: &mut Option<Self::State>,
        now: i64,
        cost: i64,
        mark: &Mark,
    ) -> (Mark, bool) {
        let (mut all, mut any) = (state.is_some(), false);
        let clamped = state.as_ref().and_then(|state| Self::clamp(rule, state, now));
        let mut states = clamped.unwrap_or_else(|| state.take().unwrap_or_default());
        states.resize(rule.len(), None);
        let members = rule.iter().zip(&mut states).enumerate();
        let marks = members.map(|(index, (member, own))| {
            let mark = mark.of(index);
            if !A::holds(&member.rule) {
                return mark;
            }
            let (mark, is_held) = A::renew(&member.rule, own, now, member.cost(cost), &mark);
            (all, any) = (all && is_held, any || is_held);
            mark
        });
        let marks: Vec<_> = marks.collect();
        // A renewal of one member writes the clamped states of all.
        if any || state.is_none() {
            *state = states.iter().any(Option::is_some).then_some(states);
        }
        (marks.into(), all)
    }

    /// Settles each member on its own. A member that does not hold units takes more even if its key
    /// has no state.
    fn settle(
        rule: &Self::Rule,
        state: &mut Option<Self::State>,
        now: i64,
        refund: &Refund<'_>,
    ) -> Option<i64> {
        if refund.units >= 0 {
            return Self::refund(rule, state, now, refund);
        }
        if !Self::holds(rule) {
            return Some(-Self::penalize(rule, state, now, -refund.units).not_taken);
        }
        let is_new = state.is_none();
        state.get_or_insert_default();
        let settled = Self::refund(rule, state, now, refund);
        if is_new && settled.is_none() {
            *state = None;
        }
        settled
    }
}

impl<A: InLua + Single> InLua for Vec<A> {
    const NAME: &'static str = "several";
    const TAG: &'static str = "";
    const SCRIPT: &'static str = "";

    fn parts(&self) -> Vec<ScriptPart> {
        self.iter().flat_map(InLua::parts).collect()
    }

    fn arguments(rule: &Self::Rule, present: i64) -> Vec<i64> {
        let mut arguments = Vec::new();
        for member in rule {
            arguments.extend(A::arguments(&member.rule, present));
            arguments.extend(member.stated.iter().flat_map(|own| [own.cost, own.max_wait]));
        }
        arguments
    }

    fn is_dated(rule: &Self::Rule) -> bool {
        rule.iter().any(|member| A::is_dated(&member.rule))
    }

    fn state(
        rule: &Self::Rule,
        now: i64,
        check: Check<'_>,
        reply: &mut &[Element<'_>],
    ) -> Option<Option<Self::State>> {
        let own = |(index, member): (_, &MemberRule<_>)| {
            A::state(&member.rule, now, member.check(check, index), reply)
        };
        rule.iter().enumerate().map(own).collect::<Option<_>>().map(Some)
    }
}
