//! A charge of several keys: one request that several limiters decide about.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::{Charge, Key};
use crate::core::quota::Quotas;

impl Charge {
    /// A charge of several keys of one request, such as its user and its IP address, each with a
    /// limit of its own. A part is a charge, which may state a cost and a quota.
    ///
    /// [`AllAtOnce::of_parts`] and [`AllInTurn::of_parts`] give each member its part. A limiter
    /// that takes only one key returns an error of kind
    /// [`Configuration`](crate::ErrorKind::Configuration), and charges nothing.
    ///
    /// ```
    /// use tower_sluice::algorithm::TokenBucket;
    /// use tower_sluice::limiter::AllInTurn;
    /// use tower_sluice::{Charge, Limiter, LimiterExt, Memory, Quota};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// let user = Memory::new("user", TokenBucket::new(Quota::per_hour(3)));
    /// let address = Memory::new("address", TokenBucket::new(Quota::per_hour(9)));
    /// let both = AllInTurn::of_parts([user.clone().boxed(), address.boxed()]);
    ///
    /// let charge = Charge::several([Charge::new("alice").cost(2), Charge::new("192.0.2.1")]);
    /// assert!(both.check(&charge).await?.is_admitted());
    /// // A tuple or an array says the same.
    /// assert!(both.check(&Charge::new(("alice", "192.0.2.1"))).await?.is_admitted());
    /// assert_eq!(user.peek("alice").await?.remaining(), Some(0));
    /// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
    /// ```
    ///
    /// A part without a cost takes the cost of the whole. [`AllInTurn`](crate::limiter::AllInTurn)
    /// lists what is settled. If parts state a [`max_wait`](Charge::max_wait), the whole starts with
    /// the shortest. Only parts have quotas.
    /// A part may be absent, as in `[Some(user), None]`: its member is not asked. A part may have
    /// parts itself, for a member that is a combination.
    ///
    /// [`AllAtOnce::of_parts`]: crate::redis::AllAtOnce::of_parts
    /// [`AllInTurn::of_parts`]: crate::limiter::AllInTurn::of_parts
    pub fn several<P: Into<Option<Charge>>>(parts: impl IntoIterator<Item = P>) -> Self {
        let parts: Arc<[Option<Charge>]> = parts.into_iter().map(P::into).collect();
        let max_wait: Option<Duration> =
            parts.iter().flatten().filter_map(Charge::longest_wait).min();
        Self { max_wait, ..Self::of(Key::Several(parts)) }
    }

    /// The parts of a charge of [`several`](Charge::several) keys, in order; `None` is an absent
    /// part. Empty for a charge of one key.
    ///
    /// The [`key`](Charge::key) of a charge with parts is empty. So your own limiter should return
    /// an error for such a charge if it takes only one key.
    #[must_use]
    pub fn parts(&self) -> &[Option<Charge>] {
        match &self.key {
            Key::Several(parts) => parts,
            _ => &[],
        }
    }

    /// Returns true for a charge of parts, even of no parts, and false for a charge of one key.
    pub(crate) fn has_parts(&self) -> bool {
        matches!(self.key, Key::Several(_))
    }

    /// Hashes what the parts state besides their keys.
    pub(crate) fn hash_terms_of_parts(&self, hasher: &mut impl Hasher) {
        for part in self.parts().iter().flatten() {
            (part.cost, part.units).hash(hasher);
            part.quota.as_ref().map(Quotas::as_slice).hash(hasher);
            part.keep_free.hash(hasher);
            part.hash_terms_of_parts(hasher);
        }
    }
}

/// A charge of several keys: see [`Charge::several`].
impl<P: Into<Charge>, const N: usize> From<[P; N]> for Charge {
    fn from(parts: [P; N]) -> Self {
        Self::several(parts.map(Charge::new))
    }
}

macro_rules! from_tuple {
    ($size:literal: $($part:ident $index:tt),+) => {
        /// A charge of several keys: see [`Charge::several`].
        impl<$($part: Into<Charge>),+> From<($($part,)+)> for Charge {
            fn from(parts: ($($part,)+)) -> Self {
                Self::several([$(Charge::new(parts.$index)),+])
            }
        }
    };
}

for_each_tuple!(from_tuple);

#[cfg(test)]
mod tests;
