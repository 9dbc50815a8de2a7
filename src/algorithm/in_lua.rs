//! Algorithms that Redis can run, and the parts of their scripts.

use super::common::Unit;
use super::{Algorithm, Check, INEXACT};

/// An algorithm with a Lua twin, so that [`Redis`](crate::Redis) can run it. Its items are internal
/// to the crate, and change without notice.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an algorithm that Redis can run",
    note = "a quota needs an algorithm that counts it: write `TokenBucket::new(quota)`",
    note = "several are a tuple: `(TokenBucket::new(second), FixedWindow::new(day))`",
    note = "a limiter of a tuple has the type of a `Vec<AnyAlgorithm>`"
)]
pub trait InLua: Algorithm {
    /// The name of its script: that of its file, without the ending.
    #[doc(hidden)]
    const NAME: &'static str;
    /// The tag in its keys, between the name of the limiter and the key of the charge. It states
    /// kind and format version.
    #[doc(hidden)]
    const TAG: &'static str;
    /// Its Lua twin: the sections of its file, which `scripts/README.md` describes.
    #[doc(hidden)]
    const SCRIPT: &'static str;

    /// The algorithms in it: itself, or the members of a tuple or a list.
    #[doc(hidden)]
    fn parts(&self) -> Vec<ScriptPart> {
        vec![ScriptPart::of::<Self>()]
    }

    /// Returns the rule as the script's arguments. `present` is now by the clock of this process:
    /// a calendar sends the edges of the windows around it.
    #[doc(hidden)]
    fn arguments(rule: &Self::Rule, present: i64) -> Vec<i64>;

    /// Returns true if the arguments depend on the present.
    #[doc(hidden)]
    fn is_dated(rule: &Self::Rule) -> bool {
        let _ = rule;
        false
    }

    /// Reads the state from which a script decided `check`, as the `reply` section of
    /// its file lists it, and moves `reply` behind it. `Some(None)`: there was no state. `None`:
    /// the elements are not a state.
    ///
    /// A state that is too large for a reply is reduced to the parts that this decision needs.
    fn state(
        rule: &Self::Rule,
        now: i64,
        check: Check<'_>,
        reply: &mut &[Element<'_>],
    ) -> Option<Option<Self::State>>;

    /// Reads the state that a short answer tells as one number, as the section `short` of its file
    /// says. `Some(None)`: there was no state. `None`: it has no short answers.
    #[doc(hidden)]
    fn short_state(rule: &Self::Rule, now: i64, number: i64) -> Option<Option<Self::State>> {
        let _ = (rule, now, number);
        None
    }

    /// Reads the state in a text that a script wrote: the twin of the section `read`. `None`: no
    /// script writes this text. A log and a list of algorithms have no such text.
    #[doc(hidden)]
    fn stored(rule: &Self::Rule, text: &str) -> Option<Self::State> {
        let _ = (rule, text);
        None
    }
}

/// An element of a script's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'a> {
    /// An integer from -2^53 to 2^53. A state has no negative ones.
    Number(i64),
    /// A text.
    Text(&'a [u8]),
}

/// Reads a state of integers. The first is sent plus one: 0 stands for no state.
pub(super) fn state_of<S, const N: usize>(
    reply: &mut &[Element<'_>],
    state: impl FnOnce([i64; N]) -> Option<S>,
) -> Option<Option<S>> {
    let (elements, rest) = reply.split_first_chunk::<N>()?;
    *reply = rest;
    let mut numbers = [0; N];
    for (number, element) in numbers.iter_mut().zip(elements) {
        let Element::Number(sent @ 0..) = *element else { return None };
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
    /// True if each of its charges states a cost and a longest wait, as two more arguments.
    pub(crate) own_costs: bool,
}

impl ScriptPart {
    pub(super) fn of<A: InLua>() -> Self {
        Self { name: A::NAME, tag: A::TAG, script: A::SCRIPT, own_costs: false }
    }

    /// Returns true if its script may answer a check with one number: the state on which the check
    /// was decided, or -1 minus it if the units were taken. `false` stands before any other answer.
    #[doc(hidden)]
    #[must_use]
    pub fn has_short_answers(&self) -> bool {
        self.script.contains("\n--@ short\n")
    }

    /// Returns the number of elements of a reply that hold the state of a key: those that the
    /// heading `reply` of the script lists.
    #[doc(hidden)]
    #[must_use]
    pub fn state_elements(&self) -> usize {
        let (_, reply) = self.script.split_once("\n--@ reply ").unwrap_or_default();
        reply.lines().next().map_or(0, |list| list.split(',').count())
    }
}

/// Parses a number as the scripts write it: the twin of `integer` in `head.lua`.
pub(crate) fn integer(digits: &str) -> Option<i64> {
    let is_written = digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|number| is_written && *number < INEXACT)
}

/// Parses `N` numbers with colons between them.
pub(super) fn integers<const N: usize>(text: &str) -> Option<[i64; N]> {
    let numbers: Option<Vec<_>> = text.split(':').map(integer).collect();
    numbers?.try_into().ok()
}

/// An instant in whole µs, and a rest over a denominator.
pub(super) struct StoredInstant {
    pub(super) full: i64,
    pub(super) part: i64,
    pub(super) denominator: i64,
    pub(super) owes: bool,
}

/// Reads when a bucket is full again: a number with or without a fraction and a sign.
pub(super) fn stored_instant(text: &str) -> Option<StoredInstant> {
    let (digits, owes) = text.strip_prefix('-').map_or((text, false), |digits| (digits, true));
    let (whole, fraction) = digits.split_once('+').unwrap_or((digits, "0/1"));
    let (over, under) = fraction.split_once('/')?;
    let (full, part, denominator) = (integer(whole)?, integer(over)?, integer(under)?);
    let is_written = if whole == digits { part == 0 } else { 0 < part && part < denominator };
    is_written.then_some(StoredInstant { full, part, denominator, owes })
}

/// Reads the end of a smooth limiter's text: the instant, the rate, and the last now.
pub(super) fn stored_pace(text: &str) -> Option<(i64, Unit, i64)> {
    let (next, rest) = text.split_once(':')?;
    let (rate, last) = rest.split_once(':')?;
    let (denominator, numerator) = rate.split_once('/')?;
    let unit = Unit::sent(integer(numerator)?, integer(denominator)?)?;
    Some((integer(next)?, unit, integer(last)?))
}

/// Reads the units that a text lists, such as `,5,0,1`.
pub(crate) fn listed(text: &[u8]) -> Option<Box<[i64]>> {
    let units = str::from_utf8(text).ok()?.strip_prefix(',')?.split(',');
    let exact = |units: &str| units.parse().ok().filter(|units| (0..=INEXACT).contains(units));
    units.map(exact).collect()
}
