//! What an admission took.

use std::any::Any;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// What an admission took. Its holder may settle it, once.
///
/// A [`Decision`](crate::Decision) that admits hands it out. [`Limiter::settle`] then says what the
/// request cost in the end: less is refunded, more is taken. Dropped, it changes nothing, and the
/// charge stays as it was decided.
///
/// It is not `Clone`, so that nothing is refunded twice. A peek yields none, and neither does
/// [`FailOpen`](crate::FailOpen): they take nothing.
///
/// # Stores of your own
///
/// A limiter that you write makes reservations with [`Reservation::new`]. The payload is whatever
/// your store needs to find the charge again.
///
/// ```
/// use tower_sluice::{Owner, Reservation};
///
/// let mine = Owner::new();
/// let reservation = Reservation::new(mine, 3, String::from("row 17"));
/// assert_eq!((reservation.owner(), reservation.cost()), (mine, 3));
///
/// let row: String = reservation.into_payload().unwrap();
/// assert_eq!(row, "row 17");
/// ```
///
/// [`Limiter::settle`]: crate::Limiter::settle
pub struct Reservation {
    owner: Owner,
    cost: u64,
    /// The key that was charged, if a deny cache has seen it: a hash, which is no secret.
    key_hash: Option<NonZeroU64>,
    payload: Box<dyn Any + Send + Sync>,
}

impl Reservation {
    /// A reservation of `cost` units by the limiter of this `owner`.
    #[must_use]
    pub fn new(owner: Owner, cost: u64, payload: impl Any + Send + Sync) -> Self {
        Self { owner, cost, key_hash: None, payload: Box::new(payload) }
    }

    /// The limiter that it belongs to.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// The units that it took.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// The payload, if it is a `T`.
    #[must_use]
    pub fn payload<T: Any>(&self) -> Option<&T> {
        self.payload.downcast_ref()
    }

    /// The payload.
    ///
    /// # Errors
    ///
    /// The reservation itself, if its payload is no `T`.
    pub fn into_payload<T: Any>(self) -> Result<T, Self> {
        match self.payload.downcast() {
            Ok(payload) => Ok(*payload),
            Err(payload) => Err(Self { payload, ..self }),
        }
    }

    /// The hash of the key that was charged. `None` if it is not known.
    pub(crate) fn key_hash(&self) -> Option<NonZeroU64> {
        self.key_hash
    }

    /// Sets the key that was charged. If two limiters charged different keys for it, neither is
    /// kept.
    pub(crate) fn set_key_hash(&mut self, hash: NonZeroU64) {
        self.key_hash = Some(hash).filter(|hash| self.key_hash.is_none_or(|other| other == *hash));
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("owner", &self.owner)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

/// Identifies the limiter of a reservation among all others of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(u64);

impl Owner {
    /// An owner that no other limiter of this process has.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "each is different, so none is the default")]
    pub fn new() -> Self {
        static OWNERS: AtomicU64 = AtomicU64::new(0);
        Self(OWNERS.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_different_keys_neither_is_kept() {
        let [one, other] = [1, 2].map(|hash| NonZeroU64::new(hash).unwrap());
        let mut reservation = Reservation::new(Owner::new(), 1, ());
        for (hash, kept) in [(one, Some(one)), (one, Some(one)), (other, None)] {
            reservation.set_key_hash(hash);
            assert_eq!(reservation.key_hash(), kept);
        }
        assert_eq!(reservation.into_payload::<u8>().unwrap_err().cost(), 1);
    }
}
