//! The ends of calls in the last while, and the trouble that they show: counts in slices of the
//! window.

use std::time::Duration;

use super::outcome::Outcome;
use super::settings::Settings;

const SLICES: usize = 10;

/// The trouble that the ends of calls show, and for which a circuit is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Trouble {
    /// Calls failed, and nothing was answered for a window.
    Errors,
    /// Calls failed, and others were answered. Callers can choose to fail: with keys of the part
    /// of a cluster that is away.
    SomeErrors,
    /// It is slow, or this process is busy. Load can cause both.
    Slowness,
}

/// The ends of calls, by what they say of the limiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Ends {
    answered: u64,
    failed: u64,
    slow: u64,
}

/// The ends of calls within the last window, and since the last answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Window {
    slices: [Ends; SLICES],
    /// The number of the newest slice, counted from the start.
    newest: u64,
    /// Failed and slow calls since the last answer, however long ago.
    in_a_row: Ends,
    /// Since when enough calls fail while others are answered.
    some_fail_since: Option<Duration>,
}

impl Window {
    /// Of a limiter that may have answered now: it takes a window to find out that it does not.
    pub(super) fn after_answer(now: Duration, settings: &Settings) -> Self {
        let mut window = Self::default();
        window.add(Outcome::Answered, now, settings);
        window
    }

    /// Adds the end of a call. Returns the trouble that the calls show since, if any.
    pub(super) fn add(
        &mut self,
        outcome: Outcome,
        now: Duration,
        settings: &Settings,
    ) -> Option<Trouble> {
        self.advance(now, settings.window);
        let slice = &mut self.slices[self.newest as usize % SLICES];
        match outcome {
            // It says nothing of the limiter, so it opens nothing, also once no answer is left in
            // the window.
            Outcome::Saturated | Outcome::Unknown => return None,
            Outcome::Answered => {
                slice.answered += 1;
                self.in_a_row = Ends::default();
            }
            Outcome::Failed => {
                slice.failed += 1;
                self.in_a_row.failed += 1;
            }
            Outcome::Slow => {
                slice.slow += 1;
                self.in_a_row.slow += 1;
            }
        }
        let ends = self.slices.iter().fold(Ends::default(), Ends::plus);
        let trouble = ends.trouble(settings);
        if ends.answered > 0 && trouble == Some(Trouble::SomeErrors) {
            // A store that falls silent looks the same, until its last answers have expired.
            let since = *self.some_fail_since.get_or_insert(now);
            let is_long = now.saturating_sub(since) >= settings.window;
            // An answer may well be the first of a store that is back.
            return trouble.filter(|_| is_long && outcome != Outcome::Answered);
        }
        self.some_fail_since = None;
        match (outcome, ends.answered) {
            (Outcome::Answered, _) => None,
            // Where calls are rare, failures that are older than the window count too, as long as
            // nothing was answered since.
            (_, 0) => self.in_a_row.trouble(settings),
            _ => trouble,
        }
    }

    /// Empties the slices that are over. A clock that is set back moves nothing.
    fn advance(&mut self, now: Duration, window: Duration) {
        let slice = (window.as_nanos() / SLICES as u128).max(1);
        let number = u64::try_from(now.as_nanos() / slice).unwrap_or(u64::MAX);
        let passed = number.saturating_sub(self.newest);
        for step in 1..=passed.min(SLICES as u64) {
            self.slices[(self.newest + step) as usize % SLICES] = Ends::default();
        }
        self.newest += passed;
    }
}

impl Ends {
    fn plus(self, other: &Self) -> Self {
        Self {
            answered: self.answered + other.answered,
            failed: self.failed + other.failed,
            slow: self.slow + other.slow,
        }
    }

    /// Errors alone must reach both thresholds to be called errors: what slow calls add is load.
    fn trouble(self, settings: &Settings) -> Option<Trouble> {
        let all = self.answered + self.failed + self.slow;
        let is_enough = |bad: u64| {
            let share =
                u128::from(bad) * 100 >= u128::from(settings.failure_percent) * u128::from(all);
            bad >= u64::from(settings.min_failures) && share
        };
        if is_enough(self.failed) {
            // A store that answers some calls is not away.
            let is_silent = self.answered == 0;
            return Some(if is_silent { Trouble::Errors } else { Trouble::SomeErrors });
        }
        is_enough(self.failed + self.slow).then_some(Trouble::Slowness)
    }
}
