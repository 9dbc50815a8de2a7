//! The units that a charge leaves free for others.

use std::sync::Arc;

use crate::core::quota::INEXACT;

/// Units that a charge leaves free: one number for every quota of the limiter, or one for each. See
/// [`Charge::keep_free`](crate::Charge::keep_free).
///
/// ```
/// use tower_sluice::Charge;
///
/// let charge = Charge::new("alice").keep_free(20);
/// assert_eq!((charge.kept_free(0), charge.kept_free(1)), (20, 20));
/// let charge = Charge::new("alice").keep_free((2, 200));
/// assert_eq!((charge.kept_free(0), charge.kept_free(1)), (2, 200));
/// ```
// A thin pointer, since each charge has one and few charges keep units free.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeepFree(Option<Arc<Box<[i64]>>>);

impl KeepFree {
    /// The numbers: empty if no unit is kept free, one for all quotas, or one for each.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[i64] {
        self.0.as_deref().map_or(&[], |units| units)
    }

    /// The units that stay free of the quota at `index`.
    #[inline]
    pub(crate) fn of(&self, index: usize) -> u64 {
        let units = match self.as_slice() {
            [one] => Some(one),
            each => each.get(index),
        };
        units.copied().unwrap_or(0).cast_unsigned()
    }

    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if a charge that leaves `self` free fits no earlier than one that leaves
    /// `other` free, if nothing else differs.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let count = self.as_slice().len().max(other.as_slice().len());
        (0..count).all(|index| self.of(index) >= other.of(index))
    }
}

impl From<&[u64]> for KeepFree {
    fn from(units: &[u64]) -> Self {
        let is_any = units.iter().any(|units| *units > 0);
        let exact = |units: &u64| (*units).min(INEXACT).cast_signed();
        Self(is_any.then(|| Arc::new(units.iter().map(exact).collect())))
    }
}

impl From<&[i64]> for KeepFree {
    fn from(units: &[i64]) -> Self {
        Self((!units.is_empty()).then(|| Arc::new(units.into())))
    }
}

impl From<u64> for KeepFree {
    fn from(units: u64) -> Self {
        [units].as_slice().into()
    }
}

impl<const N: usize> From<[u64; N]> for KeepFree {
    fn from(units: [u64; N]) -> Self {
        units.as_slice().into()
    }
}

macro_rules! from_tuple {
    ($size:literal: $($member:ident $index:tt),+) => {
        impl From<($(from_tuple!(@ $member),)+)> for KeepFree {
            fn from(units: ($(from_tuple!(@ $member),)+)) -> Self {
                [$(units.$index),+].into()
            }
        }
    };
    (@ $member:ident) => { u64 };
}

for_each_tuple!(from_tuple);
