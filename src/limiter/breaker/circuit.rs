//! The bookkeeping of a breaker: who may ask, and what the end of a call changes.
//!
//! It is pure: the time is an argument, counted from the start of the breaker, and so is each
//! pause. `tests.rs` tries every order of three callers.

use std::time::Duration;

use super::outcome::Outcome;
use super::settings::Settings;
use super::state::BreakerState;
use super::window::{Trouble, Window};

/// The change that the end of a call made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Opened(Trouble),
    /// A probe failed, or the circuit is open for another reason now.
    StaysOpen(Trouble),
    Closed,
}

/// The right to ask, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Permit {
    period: u64,
    /// The number of the probe.
    probe: Option<u32>,
}

impl Permit {
    /// Of a call that begins while the circuit is closed.
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
    /// The number of the state, from 1. A call that began in another one changes nothing.
    period: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "a breaker has one, and moves it when it changes")]
enum State {
    Closed(Window),
    Open {
        trouble: Trouble,
        /// The instant from which on the next probe may begin. While one is under way, the instant
        /// at which that one is given up.
        next_probe: Duration,
        /// The number of the probe that is under way.
        probe: Option<u32>,
        probes: u32,
        /// Probes in a row that failed with an error.
        failed_probes: u32,
    },
}

impl Circuit {
    pub(super) fn new() -> Self {
        Self { state: State::Closed(Window::default()), period: 1 }
    }

    /// The number of the state, if it is closed.
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

    /// Returns true if a caller would be refused now.
    pub(super) fn refuses(&self, now: Duration) -> bool {
        matches!(self.state, State::Open { next_probe, .. } if now < next_probe)
    }

    /// Lets a caller ask, unless the circuit is open. Then one caller at a time is the probe.
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

    /// A call has ended. If it failed, the next probe begins after `pause`.
    #[inline]
    pub(super) fn end(
        &mut self,
        permit: Permit,
        outcome: Outcome,
        now: Duration,
        pause: Duration,
        settings: &Settings,
    ) -> Option<Change> {
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
                Some(Change::Opened(trouble))
            }
            // An answer counts also if it comes after its probe was given up.
            (State::Open { .. }, Outcome::Answered) => {
                self.enter(State::Closed(Window::after_answer(now, settings)));
                Some(Change::Closed)
            }
            (State::Open { trouble, probe, next_probe, failed_probes, .. }, outcome) => {
                if *probe == permit.probe {
                    // After a probe that says nothing the next caller is one, at once: else
                    // requests, load, or callers that hang up could keep the circuit open.
                    let says_nothing = matches!(outcome, Outcome::Saturated | Outcome::Unknown);
                    *next_probe = if says_nothing { now } else { now + pause };
                    *probe = None;
                } else if outcome == Outcome::Failed {
                    // It was given up: another one says how the limiter is now.
                    return None;
                }
                match outcome {
                    // Load alone can cause both: this opens no gate from now on, also if the
                    // probe was given up.
                    Outcome::Slow | Outcome::Saturated => {
                        (*trouble, *failed_probes) = (Trouble::Slowness, 0);
                    }
                    Outcome::Failed => {
                        *failed_probes = failed_probes.saturating_add(1);
                        // Some callers can make each probe fail. So it listens to all callers for
                        // a window, and only if nobody is answered there, errors open it.
                        if *trouble != Trouble::Errors && *failed_probes >= settings.min_failures {
                            self.enter(State::Closed(Window::after_answer(now, settings)));
                            return Some(Change::Closed);
                        }
                    }
                    Outcome::Answered | Outcome::Unknown => return None,
                }
                Some(Change::StaysOpen(*trouble))
            }
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.period += 1;
    }
}

#[cfg(test)]
mod tests;
