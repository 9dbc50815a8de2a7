//! The states of a breaker: which calls may ask, and what the end of a call changes.
//!
//! It is pure: the time, counted from the start of the breaker, and each pause are arguments. The
//! tests below try every order of three callers.

use std::time::Duration;

use super::{BreakerState, Settings};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CircuitChange {
    Opened(Trouble),
    /// A probe failed, or the circuit is now open for another reason.
    StaysOpen(Trouble),
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Permit {
    period: u64,
    probe: Option<u32>,
}

impl Permit {
    /// A permit of a call that begins while the circuit is closed.
    pub(super) fn of_closed(period: u64) -> Self {
        Self { period, probe: None }
    }

    pub(super) fn is_probe(self) -> bool {
        self.probe.is_some()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Circuit {
    state: State,
    /// The number of the state, from 1. A call that began in another state changes nothing.
    period: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "a breaker has one, and moves it when it changes")]
enum State {
    Closed(Window),
    Open {
        trouble: Trouble,
        /// The earliest instant of the next probe. While a probe is in flight, the instant at which
        /// that probe is given up.
        next_probe: Duration,
        probe: Option<u32>,
        probes: u32,
        /// The number of probes in a row that failed with an error.
        failed_probes: u32,
    },
}

impl Circuit {
    pub(super) fn new() -> Self {
        Self { state: State::Closed(Window::default()), period: 1 }
    }

    pub(super) fn closed_period(&self) -> Option<u64> {
        matches!(self.state, State::Closed(_)).then_some(self.period)
    }

    pub(super) fn state(&self, now: Duration) -> BreakerState {
        match self.state {
            State::Closed(_) => BreakerState::Closed,
            State::Open { probe: None, next_probe, .. } if now < next_probe => BreakerState::Open,
            State::Open { .. } => BreakerState::HalfOpen,
        }
    }

    pub(super) fn refuses(&self, now: Duration) -> bool {
        matches!(self.state, State::Open { next_probe, .. } if now < next_probe)
    }

    /// Lets a caller ask, unless the circuit is open. Then one caller at a time may ask, as the
    /// probe.
    pub(super) fn admit(&mut self, now: Duration, settings: &Settings) -> Option<Permit> {
        match &mut self.state {
            State::Closed(_) => Some(Permit::of_closed(self.period)),
            State::Open { next_probe, .. } if now < *next_probe => None,
            State::Open { next_probe, probe, probes, .. } => {
                *next_probe = now + settings.probe_lost_after();
                *probes = probes.wrapping_add(1);
                *probe = Some(*probes);
                Some(Permit { period: self.period, probe: *probe })
            }
        }
    }

    /// Records the end of a call. If the call failed, the next probe begins after `pause`.
    #[inline]
    pub(super) fn end(
        &mut self,
        permit: Permit,
        outcome: Ending,
        now: Duration,
        pause: Duration,
        settings: &Settings,
    ) -> Option<CircuitChange> {
        if permit.period != self.period {
            return None;
        }
        match (&mut self.state, outcome) {
            (State::Closed(window), outcome) => {
                let trouble = window.add(outcome, now, settings)?;
                self.enter(State::Open {
                    trouble,
                    next_probe: now + pause,
                    probe: None,
                    probes: 0,
                    failed_probes: 0,
                });
                Some(CircuitChange::Opened(trouble))
            }
            // An answer counts even after its probe was given up.
            (State::Open { .. }, Ending::Answered) => {
                self.enter(State::Closed(Window::after_answer(now, settings)));
                Some(CircuitChange::Closed)
            }
            (State::Open { trouble, probe, next_probe, failed_probes, .. }, outcome) => {
                if *probe == permit.probe {
                    // After a probe that does not count, the next caller is the probe at once.
                    // Otherwise invalid requests, load, or callers that hang up could keep the
                    // circuit open.
                    let says_nothing = matches!(outcome, Ending::Saturated | Ending::Unknown);
                    *next_probe = if says_nothing { now } else { now + pause };
                    *probe = None;
                } else if outcome == Ending::Failed {
                    // This probe was given up: another one shows the state of the limiter.
                    return None;
                }
                match outcome {
                    // Load alone can cause both. So from now on the error must not fail open, even
                    // if the probe was given up.
                    Ending::Slow | Ending::Saturated => {
                        (*trouble, *failed_probes) = (Trouble::Slowness, 0);
                    }
                    Ending::Failed => {
                        *failed_probes = failed_probes.saturating_add(1);
                        // Some callers can make each probe fail. So it closes for a window and
                        // makes all calls. Only if none of them is answered, it opens because of
                        // errors.
                        if *trouble != Trouble::Errors && *failed_probes >= settings.min_failures {
                            self.enter(State::Closed(Window::after_answer(now, settings)));
                            return Some(CircuitChange::Closed);
                        }
                    }
                    Ending::Answered | Ending::Unknown => return None,
                }
                Some(CircuitChange::StaysOpen(*trouble))
            }
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.period += 1;
    }
}

const SLICES: usize = 10;

/// The problem that the ends of calls show, and the reason why a circuit is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Trouble {
    /// Calls failed, and no call was answered for a window.
    Errors,
    /// Some calls failed, and others were answered. Callers can cause that with keys of the part of
    /// a cluster that is away.
    SomeErrors,
    /// The limiter is slow, or this process is busy. Load can cause both.
    Slowness,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Ends {
    answered: u64,
    failed: u64,
    slow: u64,
}

/// The counts of ended calls within the last window, and since the last answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Window {
    slices: [Ends; SLICES],
    /// The number of the newest slice, counted from the start of the breaker.
    newest: u64,
    /// Failed and slow calls since the last answer, over any time.
    in_a_row: Ends,
    /// The instant since which enough calls fail while others are answered.
    some_fail_since: Option<Duration>,
}

impl Window {
    /// Makes a window for a limiter that may have answered now: it takes a window to learn that it
    /// does not.
    pub(super) fn after_answer(now: Duration, settings: &Settings) -> Self {
        let mut window = Self::default();
        window.add(Ending::Answered, now, settings);
        window
    }

    /// Adds the end of a call. Returns the problem that the calls now show, if any.
    pub(super) fn add(
        &mut self,
        outcome: Ending,
        now: Duration,
        settings: &Settings,
    ) -> Option<Trouble> {
        self.advance(now, settings.window);
        let slice = &mut self.slices[self.newest as usize % SLICES];
        match outcome {
            // It does not show the state of the limiter, so it does not open the circuit, even if
            // no answer is left in the window.
            Ending::Saturated | Ending::Unknown => return None,
            Ending::Answered => {
                slice.answered += 1;
                self.in_a_row = Ends::default();
            }
            Ending::Failed => {
                slice.failed += 1;
                self.in_a_row.failed += 1;
            }
            Ending::Slow => {
                slice.slow += 1;
                self.in_a_row.slow += 1;
            }
        }
        let ends = self.slices.iter().fold(Ends::default(), Ends::plus);
        let trouble = ends.trouble(settings);
        if ends.answered > 0 && trouble == Some(Trouble::SomeErrors) {
            // A store that has become silent looks the same until its last answers have expired.
            let since = *self.some_fail_since.get_or_insert(now);
            let is_long = now.saturating_sub(since) >= settings.window;
            // This answer may be the first of a store that is back.
            return trouble.filter(|_| is_long && outcome != Ending::Answered);
        }
        self.some_fail_since = None;
        match (outcome, ends.answered) {
            (Ending::Answered, _) => None,
            // If calls are rare, failures that are older than the window count too, unless a call
            // was answered since.
            (_, 0) => self.in_a_row.trouble(settings),
            _ => trouble,
        }
    }

    /// Empties the slices that have ended. A clock that is set back has no effect.
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

    /// Returns the problem of these counts. It is `Errors` only if errors alone reach both
    /// thresholds, since slow calls may be load.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    /// The limiter decided, or its store answered.
    Answered,
    /// The call failed as if the store were away.
    Failed,
    /// The call took too long, in a process that is not busy.
    Slow,
    /// This process has more to send than it can, or is too busy to read the answer. That does not
    /// show the state of the limiter.
    Saturated,
    /// The end does not show the state of the limiter.
    Unknown,
}

#[cfg(test)]
mod model;

/// Tries every order in which three callers begin and end, beside a model that keeps the whole
/// history.
#[cfg(test)]
mod tests;
