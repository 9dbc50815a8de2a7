//! Algorithms that a server can run, and the parts of their scripts.

use super::Algorithm;

/// An algorithm with a Lua twin, so that [`Redis`](crate::Redis) can run it. Its items are the
/// crate's own, and change without notice.
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

    /// The algorithms that it is made of: itself, or those of a tuple.
    #[doc(hidden)]
    fn parts() -> Vec<ScriptPart> {
        vec![ScriptPart { name: Self::NAME, tag: Self::TAG, script: Self::SCRIPT }]
    }

    /// The rule as the script's `rule` function reads it.
    #[doc(hidden)]
    fn arguments(rule: &Self::Rule) -> Vec<i64>;
}

/// The Lua source of one algorithm, and its names.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only Redis runs scripts"))]
pub struct ScriptPart {
    pub(crate) name: &'static str,
    pub(crate) tag: &'static str,
    pub(crate) script: &'static str,
}
