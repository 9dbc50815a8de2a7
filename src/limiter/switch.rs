//! A switch that turns a limiter off and on while it is used.

use std::fmt;
use std::sync::Arc;

use super::wrapped::{Around, Begin, Wrapped};
use super::{Operation, ShadowCounts};
use crate::core::decision::Origin;
use crate::core::sync::atomic::AtomicU8;
use crate::core::sync::atomic::Ordering::Relaxed;
use crate::core::sync::{Mutex, lock};
use crate::core::{Charge, Decision, Error, Outcome};

/// Turns limiters off, into a shadow, and on again, while they are used. It is cheap to clone:
/// clones are the same switch.
///
/// Write `limiter.switch(&switch)`, and later `switch.set(SwitchMode::Off)`.
///
/// | mode | a charge | the inner limiter |
/// |---|---|---|
/// | [`On`](SwitchMode::On) | is decided | is asked |
/// | [`Shadow`](SwitchMode::Shadow) | is admitted | is asked, as in a [`Shadow`](crate::limiter::Shadow) |
/// | [`Off`](SwitchMode::Off) | is admitted, with [`Origin::Off`] | is not asked, and nothing is taken |
///
/// In the mode `Shadow`, [`Decision::shadowed`] returns the result without the shadow, even for an
/// estimate. A request without a key is refused in the mode `On` only.
///
/// A change applies at once, to all clones of all limiters with this switch, in this process. A
/// request that waits for its slot keeps it. Taken units can be settled in every mode. In the
/// mode `Off`, an estimate and a penalty change nothing; every other operation, such as a block,
/// goes to the inner limiter.
#[derive(Clone, Default)]
pub struct Switch {
    shared: Arc<SwitchState>,
}

/// The mode of limiters with a [`Switch`]. Of two modes, the more permissive one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SwitchMode {
    /// The limiters decide.
    On = 0,
    /// The limiters decide, but admit every charge.
    Shadow = 1,
    /// The limiters admit every charge, and do not ask their inner limiters.
    Off = 2,
}

#[derive(Default)]
struct SwitchState {
    mode: AtomicU8,
    counts: Mutex<ShadowCounts>,
}

impl Switch {
    /// A switch that is on.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the mode of limiters with this switch, from now on.
    pub fn set(&self, mode: SwitchMode) {
        self.shared.mode.store(mode as u8, Relaxed);
    }

    /// Returns the mode of limiters with this switch.
    #[must_use]
    #[inline]
    pub fn mode(&self) -> SwitchMode {
        match self.shared.mode.load(Relaxed) {
            0 => SwitchMode::On,
            1 => SwitchMode::Shadow,
            _ => SwitchMode::Off,
        }
    }

    /// Returns the counts, since the switch was made, of the results that charges in the mode
    /// `Shadow` would have had. Peeks do not count.
    #[must_use]
    pub fn shadow_counts(&self) -> ShadowCounts {
        *lock(&self.shared.counts)
    }

    /// Returns true if this switch has other clones.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    /// Counts the result of a charge in a shadow, for limiters of your own that check the mode
    /// themselves.
    pub fn count(&self, shadowed: Result<Outcome, &Error>) {
        lock(&self.shared.counts).add(shadowed);
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switch")
            .field("mode", &self.mode())
            .field("shadow_counts", &self.shadow_counts())
            .finish()
    }
}

/// A limiter with a [`Switch`]. Made by [`LimiterExt::switch`](crate::LimiterExt::switch).
pub type WithSwitch<L> = Wrapped<L, Switch>;

impl Around for Switch {
    /// The switch in the mode `Shadow`. `None` for what takes nothing, and is not counted: an
    /// estimate, and a peek, with which `AllInTurn` asks its members before it charges them.
    type Open = Option<Self>;

    fn open(&self, charge: &Charge) -> Begin<Self::Open> {
        match self.mode() {
            SwitchMode::On => Begin::Unseen,
            SwitchMode::Shadow => Begin::Seen(Some(self.clone()).filter(|_| charge.units() > 0)),
            SwitchMode::Off => Begin::Answered(off()),
        }
    }

    fn open_operation(&self, operation: Operation, _: &Charge) -> Begin<Self::Open> {
        match (self.mode(), operation) {
            (SwitchMode::Off, Operation::Estimate | Operation::Penalize) => Begin::Answered(off()),
            // An estimate says what a charge would get.
            (SwitchMode::Shadow, Operation::Estimate) => Begin::Seen(None),
            _ => Begin::Unseen,
        }
    }

    fn close(switch: Self::Open, answer: Result<Decision, Error>) -> Result<Decision, Error> {
        if let Some(switch) = switch {
            switch.count(answer.as_ref().map(Decision::outcome));
        }
        Ok(Decision::in_shadow(answer))
    }

    fn keyless(&self, why: &Error, ask: impl FnOnce() -> Option<Decision>) -> Option<Decision> {
        match self.mode() {
            SwitchMode::On => ask(),
            SwitchMode::Shadow => {
                Self::close(Some(self.clone()), ask().ok_or_else(|| why.clone())).ok()
            }
            SwitchMode::Off => Some(off()),
        }
    }
}

/// Makes the decision of a switch that is off.
fn off() -> Decision {
    Decision::new(Outcome::Allow).with_origin(Origin::Off)
}

#[cfg(all(test, interleavings))]
mod interleavings;
