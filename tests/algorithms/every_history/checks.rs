//! The checks of a state at an instant, which hold whatever led to it.

use tower_sluice::algorithm::{Algorithm, Check, Refund, Report, Ruling, Verdict};

use super::kinds::{HORIZON, Kind, Unwinds};

/// The longest waits that charges may have, in µs.
const MAX_WAITS: [i64; 5] = [0, 1, 2, HORIZON, HORIZON + 1];

/// A state at an instant.
pub struct Place<'a, A: Algorithm> {
    pub kind: &'a Kind<A>,
    pub state: &'a Option<A::State>,
    pub now: i64,
    /// True if a charge may be held that was not settled.
    pub has_held: bool,
}

/// Fails with what it says unless the condition holds.
/// The units that a charge leaves free.
const KEPT: [&[i64]; 3] = [&[], &[1], &[2]];

macro_rules! ensure {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(format!($($why)+));
        }
    };
}

/// The wait of a verdict. One that never fits waits longest.
fn wait_of(verdict: Verdict) -> i64 {
    match verdict {
        Verdict::Allow => 0,
        Verdict::Wait(wait) | Verdict::Deny(wait) => wait,
        _ => i64::MAX,
    }
}

fn is_admitted(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Allow | Verdict::Wait(_))
}

impl<A: Algorithm> Place<'_, A> {
    /// Checks everything.
    pub fn check(&self) -> Result<(), String> {
        for cost in 0..=self.kind.max_cost {
            // Every longer wait does the same, as is checked below.
            for max_wait in [0, HORIZON] {
                for keep_free in KEPT {
                    self.check_one(Check::new(cost, max_wait).keeping(keep_free))?;
                }
            }
        }
        for max_wait in MAX_WAITS {
            self.smaller_costs_wait_no_longer(max_wait)?;
        }
        for cost in 1..=self.kind.max_cost {
            self.longer_waits_are_never_refused(cost)?;
        }
        self.decides_like_none_when_expired()
    }

    fn rule(&self) -> &A::Rule {
        &self.kind.rule
    }

    /// Checks one charge.
    fn check_one(&self, check: Check<'_>) -> Result<(), String> {
        let (rule, now) = (self.rule(), self.now);
        let clamped = self.state.as_ref().and_then(|state| A::clamp(rule, state, now));
        let seen = clamped.as_ref().or(self.state.as_ref());
        let mut after = self.state.clone();
        let answer = A::step(rule, &mut after, now, check);
        let estimate = A::estimate(rule, self.state.as_ref(), now, check);
        ensure!(
            (estimate.verdict, &estimate.mark) == (answer.verdict, &None),
            "{check:?} is estimated as {:?} and decided as {:?}",
            estimate.verdict,
            answer.verdict
        );
        let earliest = A::fit_keeping(rule, seen, now, check.cost, check.keep_free);
        let kept = check.keep_free.first().copied().unwrap_or(0);
        let needs = check.cost + kept;
        let remaining = A::report(rule, seen, now).remaining;
        let passes = answer.verdict == Verdict::Allow;
        ensure!(passes || check.cost == 0 || needs > remaining, "{check:?} of {remaining}");
        let may_exceed = self.kind.promise.pays_later && kept == 0;
        // A peek may find permits that are stored, but take time.
        let may_exceed = may_exceed || check.cost == 0 && kept > 0;
        ensure!(!passes || needs <= remaining || may_exceed, "{check:?} of {remaining}");
        let is_changed = after != *self.state;
        match answer.verdict {
            Verdict::Allow | Verdict::Wait(_) => {
                let wait = wait_of(answer.verdict);
                ensure!(earliest == Some(now + wait), "{check:?} {answer:?} fits at {earliest:?}");
                ensure!(wait <= check.max_wait.min(HORIZON), "{check:?} waits too long: {wait}");
                ensure!(answer.mark.is_some() == (check.cost > 0), "{check:?} {answer:?}");
                ensure!(check.cost > 0 || !is_changed, "a peek wrote {after:?}");
                if check.cost > 0 {
                    let before = clamped.clone().or_else(|| self.state.clone());
                    self.leaves_no_trace(before, after, check.cost, &answer)?;
                }
                if check.cost > 0 && wait > 0 && self.kind.promise.is_exact {
                    self.fits_after(seen.cloned(), check, wait)?;
                }
            }
            Verdict::Deny(_) | Verdict::Never => {
                let writes = matches!(answer.verdict, Verdict::Deny(_)) && check.cost > 0;
                let right = if writes { seen } else { self.state.as_ref() };
                ensure!(after.as_ref() == right, "{check:?} {answer:?} wrote {after:?}");
                let wrote = writes && clamped.is_some();
                ensure!(answer.mark.is_some() == wrote, "{check:?} {answer:?}, wrote {wrote}");
                ensure!(
                    (estimate.report, &estimate.members) == (answer.report, &answer.members),
                    "{check:?} reports {answer:?} and estimates {estimate:?}"
                );
                if let Verdict::Deny(wait) = answer.verdict {
                    ensure!(wait > 0, "{check:?} {answer:?} would fit at once");
                    if self.kind.promise.is_exact {
                        // A peek writes no clamped state, though it answers for it.
                        self.fits_after(seen.cloned(), check, wait)?;
                    }
                }
            }
            other => return Err(format!("no algorithm answers {other:?}")),
        }
        Ok(())
    }

    fn smaller_costs_wait_no_longer(&self, max_wait: i64) -> Result<(), String> {
        let mut least = 0;
        for cost in 0..=self.kind.max_cost {
            let check = Check::new(cost, max_wait);
            let answer = A::estimate(self.rule(), self.state.as_ref(), self.now, check);
            let wait = wait_of(answer.verdict);
            ensure!(least <= wait, "cost {cost} waits {wait}, and a smaller one {least}");
            least = wait;
        }
        Ok(())
    }

    /// The charge is admitted at once `wait` later, and not a µs before. A charge that waits for
    /// its own permits, more of them than are stored, waits then too.
    fn fits_after(
        &self,
        state: Option<A::State>,
        check: Check<'_>,
        wait: i64,
    ) -> Result<(), String> {
        if self.has_held {
            // A hold that ends meanwhile counts as spent.
            return Ok(());
        }
        let least = A::least_wait(self.rule(), check.cost);
        let max_wait = if least > 0 { check.max_wait } else { 0 };
        let ask = |at| {
            let check = Check { max_wait, ..check };
            A::step(self.rule(), &mut state.clone(), at, check).verdict
        };
        let (before, then) = (ask(self.now + wait - 1), ask(self.now + wait));
        ensure!(is_admitted(then), "{check:?} after {wait}: {then:?}");
        ensure!(least > 0 || !is_admitted(before), "{check:?} a µs before {wait}: {before:?}");
        Ok(())
    }

    /// A charge is admitted under every wait that is long enough, at the same slot and with the
    /// same state.
    fn longer_waits_are_never_refused(&self, cost: i64) -> Result<(), String> {
        let mut shorter: Option<(Verdict, Option<A::State>)> = None;
        for max_wait in MAX_WAITS {
            let mut after = self.state.clone();
            let check = Check::new(cost, max_wait);
            let verdict = A::step(self.rule(), &mut after, self.now, check).verdict;
            if let Some((shorter, state)) = &shorter {
                ensure!(
                    (*shorter, state) == (verdict, &after),
                    "{check:?}: {verdict:?} {after:?}, with less time {shorter:?} {state:?}"
                );
            }
            if is_admitted(verdict) {
                shorter = Some((verdict, after));
            }
        }
        Ok(())
    }

    /// A charge that is refunded at once leaves the state as it was.
    fn leaves_no_trace(
        &self,
        before: Option<A::State>,
        mut after: Option<A::State>,
        cost: i64,
        answer: &Ruling,
    ) -> Result<(), String> {
        let mark = answer.mark.as_ref().expect("a charge that was taken has one");
        let refund = Refund::of_all(cost, mark);
        let given = A::settle(self.rule(), &mut after, self.now, &refund);
        ensure!(given == Some(cost), "{given:?} of {cost} given back at once, of {answer:?}");
        let promise = &self.kind.promise;
        let unwinds = match answer.verdict {
            Verdict::Allow => Unwinds::Exactly,
            _ => promise.unwinds_waits,
        };
        let is_exact = promise.to_the_bit && unwinds == Unwinds::Exactly;
        match unwinds {
            Unwinds::StayingThere => Ok(()),
            _ => self.decide_alike([&before, &after], self.now, is_exact, "after its refund"),
        }
    }

    /// From the instant of its expiry on, the state decides like no state.
    fn decides_like_none_when_expired(&self) -> Result<(), String> {
        let Some(state) = self.state else { return Ok(()) };
        let end = A::expires_at(self.rule(), state).max(self.now);
        let is_exact = self.kind.promise.to_the_bit;
        self.decide_alike([&None, self.state], end, is_exact, "when it has expired")
    }

    /// Two states decide and report alike at every instant from `from` on.
    fn decide_alike(
        &self,
        [one, other]: [&Option<A::State>; 2],
        from: i64,
        is_exact: bool,
        when: &str,
    ) -> Result<(), String> {
        if one == other {
            return Ok(());
        }
        for at in from..=from + 2 * self.kind.period + 1 {
            for cost in 0..=self.kind.max_cost {
                let ask = |state: &Option<A::State>| {
                    let check = Check::new(cost, HORIZON);
                    let answer = A::estimate(self.rule(), state.as_ref(), at, check);
                    (answer.verdict, answer.report)
                };
                let (one_answer, other_answer) = (ask(one), ask(other));
                ensure!(
                    one_answer == other_answer || !is_exact && are_near(one_answer, other_answer),
                    "cost {cost} at {at}, {when}: {one_answer:?} by {one:?}, \
                     {other_answer:?} by {other:?}"
                );
            }
        }
        Ok(())
    }
}

/// A bit of a double is a µs at most, and so is what a slot was rounded up by.
fn are_near(one: (Verdict, Report), other: (Verdict, Report)) -> bool {
    let waits = [one, other].map(|(verdict, _)| wait_of(verdict));
    waits[0].abs_diff(waits[1]) <= 1 && one.1.reset_after.abs_diff(other.1.reset_after) <= 1
}
