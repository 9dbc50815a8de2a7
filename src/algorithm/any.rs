//! An algorithm that is chosen at run time, such as one that a file names.

use std::time::Duration;

use super::sealed::{Sealed, Single};
use super::{
    Algorithm, Budget, Check, Concurrency, Element, FixedWindow, InLua, Mark, Refund, Report,
    Ruling, ScriptPart, SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp,
    Take, TokenBucket,
};
use crate::core::quota::{Quota, QuotaError, Quotas};

macro_rules! any_algorithm {
    ($($(#[$doc:meta])* $member:ident),+ $(,)?) => {
        /// Any algorithm of this crate, chosen at run time: by a file, an option, a table.
        ///
        /// It decides like the algorithm in it, with the same keys, scripts and states. So a
        /// limiter of `AnyAlgorithm` and one of [`TokenBucket`] share a limit if they have the same
        /// name.
        ///
        /// For several algorithms that are chosen at run time, take a `Vec` of it: all or nothing,
        /// in one call, as in
        /// `Memory::new("api", vec![TokenBucket::new(second).into(), day.into()])`. A limiter makes
        /// one of a tuple.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum AnyAlgorithm {
            $($(#[$doc])* $member($member)),+
        }

        /// The rule of one of the algorithms.
        #[derive(Clone, Debug)]
        #[doc(hidden)]
        pub enum AnyRule {
            $($member(<$member as Algorithm>::Rule)),+
        }

        /// The state of one of the algorithms. Under the rule of another one it counts as no state.
        #[derive(Clone, Debug, PartialEq)]
        #[doc(hidden)]
        pub enum AnyState {
            $($member(<$member as Algorithm>::State)),+
        }

        /// The tag in keys, and the name, of each algorithm.
        pub(crate) const TAGS: &[(&str, &str)] =
            &[$((<$member as InLua>::TAG, <$member as InLua>::NAME)),+];

        $(
            impl Sealed for $member {}
            impl Single for $member {}

            impl From<$member> for AnyAlgorithm {
                fn from(algorithm: $member) -> Self {
                    Self::$member(algorithm)
                }
            }

            impl From<<$member as Algorithm>::Rule> for AnyRule {
                fn from(rule: <$member as Algorithm>::Rule) -> Self {
                    Self::$member(rule)
                }
            }

            impl From<<$member as Algorithm>::State> for AnyState {
                fn from(state: <$member as Algorithm>::State) -> Self {
                    Self::$member(state)
                }
            }
        )+

        /// Evaluates an expression with the algorithm's type and the enum's content.
        macro_rules! dispatch {
            ($enum:ident, $value:expr, |$type:ident, $inner:ident| $result:expr) => {
                match $value {
                    $($enum::$member($inner) => {
                        type $type = $member;
                        $result
                    })+
                }
            };
        }

        /// Evaluates an expression with the type of the rule's algorithm, the rule, and the state
        /// if it belongs to that algorithm.
        macro_rules! with_own_state {
            ($rule:ident, $state:expr, |$type:ident, $own:ident| $result:expr) => {
                match $rule {
                    $(AnyRule::$member($rule) => {
                        type $type = $member;
                        let $own = match $state {
                            Some(AnyState::$member(state)) => Some(state),
                            _ => None,
                        };
                        $result
                    })+
                }
            };
        }
    };
}

any_algorithm!(
    /// A rate with a burst.
    TokenBucket,
    /// A rate with a burst, whose charges are held until they are settled.
    Budget,
    /// A number at the same time.
    Concurrency,
    /// A number per window.
    FixedWindow,
    /// Never more than a small number in any window.
    SlidingLog,
    /// Never more than a large number in any window.
    SlidingWindow,
    /// An estimate from two windows.
    SlidingCounter,
    /// A pace with a store of unused permits.
    SmoothBursty,
    /// A pace that warms up.
    SmoothWarmingUp,
);

#[cfg(all(feature = "redis", any(test, fuzzing)))]
impl AnyAlgorithm {
    /// Makes one of each algorithm, for tests of their scripts.
    pub(crate) fn one_of_each(quota: Quota) -> [Self; 9] {
        [
            TokenBucket::new(quota).into(),
            Budget::new(quota).into(),
            Concurrency::of(quota).into(),
            FixedWindow::new(quota).into(),
            SlidingLog::new(quota).into(),
            SlidingWindow::new(quota).into(),
            SlidingCounter::new(quota).into(),
            SmoothBursty::new(quota).into(),
            SmoothWarmingUp::new(quota, Duration::from_secs(1)).into(),
        ]
    }
}

impl AnyAlgorithm {
    /// Sets the longest wait that it reserves: see [`TokenBucket::horizon`].
    #[must_use]
    pub fn with_horizon(self, horizon: Duration) -> Self {
        dispatch!(AnyAlgorithm, self, |A, algorithm| A::horizon(algorithm, horizon).into())
    }

    /// Sets the longest debt: see [`TokenBucket::max_debt`]. Windows, logs, counters and limits of
    /// concurrency have no debts, and stay as they are.
    #[must_use]
    pub fn with_max_debt(self, max_debt: Duration) -> Self {
        match self {
            Self::TokenBucket(one) => one.max_debt(max_debt).into(),
            Self::Budget(one) => one.max_debt(max_debt).into(),
            Self::SmoothBursty(one) => one.max_debt(max_debt).into(),
            Self::SmoothWarmingUp(one) => one.max_debt(max_debt).into(),
            Self::Concurrency(_)
            | Self::FixedWindow(_)
            | Self::SlidingLog(_)
            | Self::SlidingWindow(_)
            | Self::SlidingCounter(_) => self,
        }
    }
}

impl Sealed for AnyAlgorithm {}
impl Single for AnyAlgorithm {}

impl Algorithm for AnyAlgorithm {
    type Rule = AnyRule;
    type State = AnyState;

    fn refills(&self, index: usize) -> bool {
        dispatch!(AnyAlgorithm, self, |A, algorithm| <A as Algorithm>::refills(algorithm, index))
    }

    fn reported(&self, index: usize, quota: Quota, now: i64) -> Quota {
        dispatch!(AnyAlgorithm, self, |A, algorithm| A::reported(algorithm, index, quota, now))
    }

    fn quota(&self) -> Quotas {
        dispatch!(AnyAlgorithm, self, |A, algorithm| A::quota(algorithm))
    }

    fn rule(&self, quota: impl Into<Quotas>) -> Result<AnyRule, QuotaError> {
        dispatch!(AnyAlgorithm, self, |A, algorithm| A::rule(algorithm, quota).map(AnyRule::from))
    }

    fn horizon(rule: &AnyRule) -> i64 {
        dispatch!(AnyRule, rule, |A, rule| <A as Algorithm>::horizon(rule))
    }

    fn hold_time(rule: &AnyRule) -> Option<i64> {
        dispatch!(AnyRule, rule, |A, rule| A::hold_time(rule))
    }

    fn max_wait(rule: &AnyRule, state: Option<&AnyState>, now: i64, cost: i64) -> i64 {
        with_own_state!(rule, state, |A, own| A::max_wait(rule, own, now, cost))
    }

    fn least_wait(rule: &AnyRule, cost: i64) -> i64 {
        dispatch!(AnyRule, rule, |A, rule| <A as Algorithm>::least_wait(rule, cost))
    }

    fn expires_at(rule: &AnyRule, state: &AnyState) -> i64 {
        with_own_state!(rule, Some(state), |A, own| {
            own.map_or(0, |state| A::expires_at(rule, state))
        })
    }

    fn clamp(rule: &AnyRule, state: &AnyState, now: i64) -> Option<AnyState> {
        with_own_state!(rule, Some(state), |A, own| {
            own.and_then(|state| A::clamp(rule, state, now)).map(AnyState::from)
        })
    }

    fn earliest_fit(rule: &AnyRule, state: Option<&AnyState>, at: i64, cost: i64) -> Option<i64> {
        with_own_state!(rule, state, |A, own| A::earliest_fit(rule, own, at, cost))
    }

    fn fit_keeping(
        rule: &AnyRule,
        state: Option<&AnyState>,
        at: i64,
        cost: i64,
        keep_free: &[i64],
    ) -> Option<i64> {
        with_own_state!(rule, state, |A, own| A::fit_keeping(rule, own, at, cost, keep_free))
    }

    fn consume(rule: &AnyRule, state: Option<AnyState>, take: Take<'_>) -> (AnyState, Mark) {
        with_own_state!(rule, state, |A, own| {
            let (next, mark) = A::consume(rule, own, take);
            (next.into(), mark)
        })
    }

    fn spend(rule: &AnyRule, state: Option<AnyState>, at: i64, cost: i64, now: i64) -> AnyState {
        with_own_state!(rule, state, |A, own| A::spend(rule, own, at, cost, now).into())
    }

    fn penalty(rule: &AnyRule, state: Option<&AnyState>, now: i64, cost: i64) -> i64 {
        with_own_state!(rule, state, |A, own| A::penalty(rule, own, now, cost))
    }

    fn grants(rule: &AnyRule) -> bool {
        dispatch!(AnyRule, rule, |A, rule| A::grants(rule))
    }

    fn give(rule: &AnyRule, state: &mut AnyState, now: i64, units: i64) {
        with_own_state!(rule, Some(state), |A, own| {
            own.into_iter().for_each(|own| A::give(rule, own, now, units));
        });
    }

    fn report(rule: &AnyRule, state: Option<&AnyState>, now: i64) -> Report {
        with_own_state!(rule, state, |A, own| A::report(rule, own, now))
    }

    fn apply_refund(
        rule: &AnyRule,
        state: &mut AnyState,
        now: i64,
        refund: &Refund<'_>,
    ) -> Option<i64> {
        with_own_state!(rule, Some(state), |A, own| A::apply_refund(rule, own?, now, refund))
    }

    /// Calls the algorithm's own `step`, so that its type is looked up once.
    fn step(rule: &AnyRule, state: &mut Option<AnyState>, now: i64, check: Check<'_>) -> Ruling {
        with_own_state!(rule, state.take(), |A, own| {
            let mut own = own;
            let answer = A::step(rule, &mut own, now, check);
            *state = own.map(AnyState::from);
            answer
        })
    }
}

impl InLua for AnyAlgorithm {
    const NAME: &'static str = "any";
    const TAG: &'static str = "";
    const SCRIPT: &'static str = "";

    fn parts(&self) -> Vec<ScriptPart> {
        dispatch!(AnyAlgorithm, self, |A, algorithm| A::parts(algorithm))
    }

    fn arguments(rule: &AnyRule, present: i64) -> Vec<i64> {
        dispatch!(AnyRule, rule, |A, rule| A::arguments(rule, present))
    }

    fn is_dated(rule: &AnyRule) -> bool {
        dispatch!(AnyRule, rule, |A, rule| A::is_dated(rule))
    }

    fn state(
        rule: &AnyRule,
        now: i64,
        check: Check<'_>,
        reply: &mut &[Element<'_>],
    ) -> Option<Option<AnyState>> {
        dispatch!(AnyRule, rule, |A, rule| {
            Some(A::state(rule, now, check, reply)?.map(AnyState::from))
        })
    }

    fn short_state(rule: &AnyRule, now: i64, number: i64) -> Option<Option<AnyState>> {
        dispatch!(AnyRule, rule, |A, rule| {
            Some(A::short_state(rule, now, number)?.map(AnyState::from))
        })
    }

    fn stored(rule: &AnyRule, text: &str) -> Option<AnyState> {
        dispatch!(AnyRule, rule, |A, rule| A::stored(rule, text).map(AnyState::from))
    }
}
