//! A limiter that decides but never refuses.

use super::WithSwitch;
use crate::core::{Error, Outcome};

/// A limiter that admits every charge, for every decision of its inner limiter. Made by
/// [`LimiterExt::shadow`](crate::LimiterExt::shadow). Clones share the counts.
///
/// It asks its inner limiter, which takes units as usual, and then admits at once.
///
/// | the inner limiter answers | the decision |
/// |---|---|
/// | `Allow` | the same |
/// | `Wait` | `Allow`: the slot is reserved, but the caller does not wait |
/// | `Retry`, `Deny` | `Allow`, and nothing is taken |
/// | an error of any kind | `Allow`, with [`Origin::Shadow`](crate::limiter::Origin::Shadow) |
/// | nothing, since a request has no key | the same |
///
/// [`Decision::shadowed`] has the inner limiter's answer. All other values of the decision are the
/// inner limiter's, such as [`remaining`]. The taken units can be settled as usual.
///
/// [`Decision::shadowed`]: crate::Decision::shadowed
/// [`remaining`]: crate::Decision::remaining
///
/// A `timeout` belongs inside of it, since it does not hide the time of a decision. It does not ask
/// again after `Retry`. Penalties, resets and blocks go to the inner limiter. An estimate is
/// admitted like a charge, and is not counted.
pub type Shadow<L> = WithSwitch<L>;

/// The counts of the results of charges without the shadow. A peek takes nothing and is not
/// counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShadowCounts {
    /// Admitted at once.
    pub admitted: u64,
    /// Admitted after a wait.
    pub delayed: u64,
    /// Refused, or asked to come again.
    pub refused: u64,
    /// Not decided: over HTTP a 503, or a 400 such as for a request without a key.
    pub undecided: u64,
}

impl ShadowCounts {
    pub(super) fn add(&mut self, answer: Result<Outcome, &Error>) {
        *match answer {
            Ok(Outcome::Allow) => &mut self.admitted,
            Ok(Outcome::Wait(_)) => &mut self.delayed,
            Ok(Outcome::Retry(_) | Outcome::Deny { .. }) => &mut self.refused,
            Err(_) => &mut self.undecided,
        } += 1;
    }
}

impl<L> Shadow<L> {
    /// Returns the counts of the results without the shadow, including those of its clones.
    #[must_use]
    pub fn counts(&self) -> ShadowCounts {
        self.around.shadow_counts()
    }
}
