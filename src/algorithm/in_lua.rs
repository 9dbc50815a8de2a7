//! Algorithms that a server can run, and the parts of their scripts.

use super::{Algorithm, INEXACT};

/// An algorithm with a Lua twin, so that [`Redis`](crate::Redis) can run it. Its items are the
/// crate's own, and change without notice.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an algorithm that Redis can run",
    note = "a quota needs an algorithm that counts it: write `TokenBucket::new(quota)`",
    note = "several are a tuple or a `Vec`: `(TokenBucket::new(second), FixedWindow::new(day))`"
)]
pub trait InLua: Algorithm {
    /// The name of its script's file and table.
    #[doc(hidden)]
    const NAME: &'static str;
    /// The tag in its keys, between the name of the limiter and the key of the charge: kind and
    /// format version.
    #[doc(hidden)]
    const TAG: &'static str;
    /// Its Lua twin, which defines a table of this algorithm's name.
    #[doc(hidden)]
    const SCRIPT: &'static str;

    /// The algorithms that it is made of: itself, or those of a tuple or a list.
    #[doc(hidden)]
    fn parts(&self) -> Vec<ScriptPart> {
        vec![ScriptPart {
            name: Self::NAME,
            tag: Self::TAG,
            script: Self::SCRIPT,
            own_costs: false,
        }]
    }

    /// Returns the number of elements of a script's reply that hold the state of a key.
    #[doc(hidden)]
    fn state_elements(rule: &Self::Rule) -> usize;

    /// The rule as the script's arguments.
    #[doc(hidden)]
    fn arguments(rule: &Self::Rule) -> Vec<i64>;

    /// The state that a script decided a charge of `cost` on, as the `reply` section of its file
    /// lists it; `Some(None)` if there was none. `None` if it cannot be one.
    ///
    /// A state that is too large for a reply is cut down to what this decision needs.
    fn state(
        rule: &Self::Rule,
        now: i64,
        cost: i64,
        elements: &[Element<'_>],
    ) -> Option<Option<Self::State>>;
}

/// An element of a script's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'a> {
    /// An integer from -2^53 to 2^53. No state has negative ones.
    Number(i64),
    /// A text.
    Text(&'a [u8]),
}

/// Reads a state of integers, of which the first is sent as one more than it is: 0 stands for no
/// state.
pub(super) fn state_of<S, const N: usize>(
    elements: &[Element<'_>],
    state: impl FnOnce([i64; N]) -> Option<S>,
) -> Option<Option<S>> {
    let elements: [Element<'_>; N] = elements.try_into().ok()?;
    let mut numbers = [0; N];
    for (number, element) in numbers.iter_mut().zip(elements) {
        let Element::Number(sent @ 0..) = element else { return None };
        *number = sent;
    }
    if numbers[0] == 0 {
        return Some(None);
    }
    numbers[0] -= 1;
    state(numbers).map(Some)
}

/// The Lua source of one algorithm, and its names.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScriptPart {
    pub(crate) name: &'static str,
    pub(crate) tag: &'static str,
    pub(crate) script: &'static str,
    /// True if its charges state a cost and a longest wait of their own, as two more arguments.
    pub(crate) own_costs: bool,
}

/// The units that a text lists: `,5,0,1`.
pub(crate) fn listed(text: &[u8]) -> Option<Box<[i64]>> {
    let units = str::from_utf8(text).ok()?.strip_prefix(',')?.split(',');
    let exact = |units: &str| units.parse().ok().filter(|units| (0..=INEXACT).contains(units));
    units.map(exact).collect()
}
