//! A model of the circuit, which decides from its whole history.

use super::{CircuitChange, Ending, Trouble};

/// The number of ends that is enough to open.
pub(super) const MIN_FAILURES: usize = 2;

/// The window in ticks. A slice is one tick.
pub(super) const WINDOW: u32 = 10;

/// The state in the model, with all events in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Model {
    Closed(Vec<(u32, Ending)>),
    Open {
        first: Trouble,
        /// The outcomes of the probes that count, in order.
        probes: Vec<Ending>,
        /// The tick at which the last failure ended.
        failed: Option<u32>,
    },
}

/// Returns the problem that the last end of a closed circuit shows.
pub(super) fn trouble(ends: &[(u32, Ending)]) -> Option<Trouble> {
    let (now, last) = *ends.last()?;
    match (last, trouble_at(ends)) {
        // An answer opens nothing.
        (Ending::Answered | Ending::Saturated | Ending::Unknown, _) => None,
        (_, Some(Trouble::SomeErrors)) => {
            // Every end since then that counts showed the same problem.
            let telling =
                |len: &usize| !matches!(ends[len - 1].1, Ending::Saturated | Ending::Unknown);
            let held = (1..=ends.len())
                .rev()
                .filter(telling)
                .take_while(|len| trouble_at(&ends[..*len]) == Some(Trouble::SomeErrors));
            let since = held.last().map_or(now, |len| ends[len - 1].0);
            (now - since >= WINDOW).then_some(Trouble::SomeErrors)
        }
        (_, trouble) => trouble,
    }
}

/// Returns the problem that the ends show at the time of the last one. The ends are those of the
/// window, or all since the last answer.
fn trouble_at(ends: &[(u32, Ending)]) -> Option<Trouble> {
    let now = ends.last()?.0;
    let recent: Vec<Ending> =
        ends.iter().filter(|(at, _)| at + WINDOW > now).map(|(_, outcome)| *outcome).collect();
    let since_answer: Vec<Ending> = ends
        .iter()
        .rev()
        .map(|(_, outcome)| *outcome)
        .take_while(|outcome| *outcome != Ending::Answered)
        .collect();
    let is_silent = !recent.contains(&Ending::Answered);
    let ends = if is_silent { since_answer } else { recent };
    let count = |outcome: Ending| ends.iter().filter(|end| **end == outcome).count();
    let (failed, slow) = (count(Ending::Failed), count(Ending::Slow));
    let all = count(Ending::Answered) + failed + slow;
    if failed >= MIN_FAILURES && 2 * failed >= all {
        return Some(if is_silent { Trouble::Errors } else { Trouble::SomeErrors });
    }
    (failed + slow >= MIN_FAILURES && 2 * (failed + slow) >= all).then_some(Trouble::Slowness)
}

/// Returns the change after these probes. It is `Slowness` from the first probe on that load can
/// cause. It closes after as many errors in a row as it takes to open, unless errors opened it and
/// no load came since.
pub(super) fn change_of_probes(first: Trouble, probes: &[Ending]) -> CircuitChange {
    let errors = probes.iter().rev().take_while(|end| **end == Ending::Failed).count();
    match first {
        _ if probes.len() > errors && errors < MIN_FAILURES => {
            CircuitChange::StaysOpen(Trouble::Slowness)
        }
        Trouble::Errors if probes.len() == errors => CircuitChange::StaysOpen(Trouble::Errors),
        _ if errors < MIN_FAILURES => CircuitChange::StaysOpen(first),
        _ => CircuitChange::Closed,
    }
}
