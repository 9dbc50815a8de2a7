//! The answers of the members, as one decision.

use std::array;
use std::cmp::Ordering;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::decision::make_distinct;
use crate::limiter::{Boxed, Limiter, Operation};
use crate::{Charge, Decision, Error, ErrorKind, Outcome};

/// A member that is asked.
pub(super) struct Member {
    /// Its place among all members.
    pub(super) index: usize,
    pub(super) charge: Charge,
    /// Its last answer.
    pub(super) answer: Option<Decision>,
    /// The units that it took.
    pub(super) taken: u64,
}

impl Member {
    /// The members with a charge, in order.
    pub(super) fn of_charges<const N: usize>(charges: [Option<Charge>; N]) -> Vec<Self> {
        let member = |(index, charge): (_, Option<_>)| {
            Some(Self { index, charge: charge?, answer: None, taken: 0 })
        };
        (0..).zip(charges).filter_map(member).collect()
    }

    fn has_cost(&self) -> bool {
        self.charge.get_cost() > 0
    }

    fn refuses(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| !answer.is_admitted())
    }
}

/// The number of policies that each member has: one, until it shows more. So a policy keeps its
/// place where members before it are not asked.
pub(super) struct PolicyCounts<const N: usize>([AtomicUsize; N]);

impl<const N: usize> PolicyCounts<N> {
    /// The answer of the member at `index`, with the places that its policies have among all.
    pub(super) fn placed(&self, index: usize, answer: Decision) -> Decision {
        self.0[index].fetch_max(answer.policy_count(), Relaxed);
        answer.behind(self.0[..index].iter().map(|count| count.load(Relaxed)).sum())
    }
}

impl<const N: usize> Default for PolicyCounts<N> {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicUsize::new(1)))
    }
}

/// The refusal of members of which one has refused. What others took will be refunded, and counts
/// as left.
///
/// Members that nobody has asked say how long they would refuse, so that the caller comes back when
/// all of them admit. One that cannot say is left out.
pub(super) async fn refused<const N: usize>(
    limiters: &[Boxed],
    mut members: Vec<Member>,
    policies: &PolicyCounts<N>,
) -> Result<Decision, Error> {
    for Member { index, charge, answer, taken } in &mut members {
        *answer = answer.take().map(|answer| answer.later(Duration::ZERO, *taken));
        if answer.is_none()
            && charge.get_cost() > 0
            && let Some(estimate) = limiters[*index].operate(Operation::Estimate, charge)
        {
            *answer = estimate.await.ok().map(Decision::without_retry);
        }
    }
    joined(members, policies)
}

/// The tightest decision, with the policies of all. A member that takes nothing of a charge has no
/// part in it, unless it refuses (its key may be blocked), or nobody takes anything.
pub(super) fn joined<const N: usize>(
    mut members: Vec<Member>,
    counts: &PolicyCounts<N>,
) -> Result<Decision, Error> {
    if members.iter().any(Member::has_cost) {
        members.retain(|member| member.has_cost() || member.refuses());
    }
    members.sort_unstable_by_key(|member| member.index);
    let placed = |member: Member| Some(counts.placed(member.index, member.answer?));
    let answers: Vec<Decision> = members.into_iter().filter_map(placed).collect();
    let mut policies: Vec<_> = answers.iter().flat_map(Decision::to_policies).collect();
    let Some(mut tightest) = answers.into_iter().min_by(compare_tightness) else {
        return Err(Error::new(ErrorKind::Configuration, "there is no limiter to ask"));
    };
    if policies.len() != tightest.policies().len() {
        let mut names: Vec<_> = policies.iter_mut().map(|policy| &mut policy.name).collect();
        make_distinct(&mut names);
        tightest.set_policies(policies.into());
    }
    Ok(tightest)
}

/// `Less` is tighter: what refuses longest, then what passes only in shadow, since that tells most,
/// then the one whose policy is tighter.
pub(super) fn compare_tightness(one: &Decision, other: &Decision) -> Ordering {
    let refuses = |decision: &Decision| match decision.outcome() {
        Outcome::Deny { retry_after } => Some(retry_after.unwrap_or(Duration::MAX)),
        _ => None,
    };
    let passes =
        |decision: &Decision| matches!(decision.shadowed(), None | Some(Ok(Outcome::Allow)));
    let left = |decision: &Decision| decision.remaining().unwrap_or(u64::MAX);
    let by_policy = || match (one.tightest(), other.tightest()) {
        (Some(one), Some(other)) => one.compare_tightness(&other),
        _ => left(one).cmp(&left(other)),
    };
    let by_refusal = refuses(other).cmp(&refuses(one));
    by_refusal.then_with(|| passes(one).cmp(&passes(other))).then_with(by_policy)
}
