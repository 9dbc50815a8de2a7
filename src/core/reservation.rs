//! Reservations: records of the units that admissions took.

use std::any::Any;
use std::fmt;
use std::mem;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::core::charge::Key;
use crate::core::mark::Mark;
use crate::core::quota::Quotas;
use crate::core::waiters::{RenewedMark, Turn};

/// The record of the units that an admission took. Its holder may settle it, once.
///
/// It comes from a [`Decision`](crate::Decision) that admits. [`Limiter::settle`] states what the
/// request cost in the end: unused units are refunded, and missing units are taken. If the
/// reservation is dropped, the charge stays as it was decided. The held units of a
/// [`Budget`](crate::algorithm::Budget) then count as spent when their time is over.
///
/// A limiter of your own makes reservations with [`Reservation::new`]: see [limiters of your
/// own][own].
///
/// [own]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/limiters_of_your_own/
///
/// [`Limiter::settle`]: crate::Limiter::settle
pub struct Reservation {
    owner: OwnerAndHold,
    cost: u64,
    /// A hash of the charged key, which is not secret, if a deny cache has seen it. Or [`SEVERAL`],
    /// if caches have seen different keys.
    pub(crate) charged: Option<NonZeroU64>,
    payload: Payload,
}

/// An owner, and whether its units are held, in eight bytes. With eight more, a reservation would
/// be so large that clippy warns those who return it as an error.
#[derive(Clone, Copy)]
struct OwnerAndHold(u64);

impl OwnerAndHold {
    const HELD: u64 = 1 << 63;

    fn new(owner: Owner, is_held: bool) -> Self {
        Self(owner.0 | if is_held { Self::HELD } else { 0 })
    }

    fn owner(self) -> Owner {
        Owner(self.0 & !Self::HELD)
    }

    fn is_held(self) -> bool {
        self.0 & Self::HELD != 0
    }
}

enum Payload {
    /// The payload of this crate's limiters. Not boxed, since they make one for each decision.
    Reserved(ReservedUnits),
    /// The payload of a reserved wait, whose slot and mark may change.
    InLine(Box<(ReservedUnits, Arc<dyn Turn>)>),
    Other(Box<dyn Any + Send + Sync>),
}

/// The key, quota and mark that a limiter with an algorithm needs to settle a charge.
pub(crate) struct ReservedUnits {
    /// The name of the key in the limiter's store.
    pub(crate) key: Key,
    /// The quota that the charge stated. `None`: the limiter's own.
    pub(crate) quota: Option<Quotas>,
    pub(crate) mark: Mark,
}

impl Reservation {
    /// A reservation of `cost` units by the limiter with this `owner`.
    #[must_use]
    pub fn new(owner: Owner, cost: u64, payload: impl Any + Send + Sync) -> Self {
        let payload = Payload::Other(Box::new(payload));
        Self { owner: OwnerAndHold::new(owner, false), cost, charged: None, payload }
    }

    /// Marks the units as held: the store waits for their settlement, even if all were used.
    /// Default: they are spent.
    ///
    /// A layer settles such a charge with its full cost unless `settle` returns another cost.
    ///
    /// ```
    /// use tower_sluice::limiter::{Owner, Reservation};
    ///
    /// let reservation = Reservation::new(Owner::new(), 3, "row 17").held();
    /// assert!(reservation.is_held());
    /// ```
    #[must_use]
    pub fn held(self) -> Self {
        self.with_held(true)
    }

    /// Returns true if the units are held until they are settled, as a
    /// [`Budget`](crate::algorithm::Budget) holds them.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.owner.is_held()
    }

    #[must_use]
    pub(crate) fn with_held(self, is_held: bool) -> Self {
        Self { owner: OwnerAndHold::new(self.owner(), is_held), ..self }
    }

    #[inline]
    pub(crate) fn of_reserved(
        owner: Owner,
        cost: u64,
        reserved: ReservedUnits,
        is_held: bool,
    ) -> Self {
        let payload = Payload::Reserved(reserved);
        Self { owner: OwnerAndHold::new(owner, is_held), cost, charged: None, payload }
    }

    pub(crate) fn into_reserved(self) -> Result<ReservedUnits, Self> {
        match self.payload {
            Payload::Reserved(reserved) => Ok(reserved),
            Payload::InLine(in_line) => {
                let (reserved, turn) = *in_line;
                Ok(ReservedUnits { mark: turn.mark().unwrap_or(reserved.mark), ..reserved })
            }
            payload @ Payload::Other(_) => Err(Self { payload, ..self }),
        }
    }

    /// A copy of the units of a reservation that is renewed, and their mark, which a renewal sets.
    pub(crate) fn renewing(&mut self) -> Option<(ReservedUnits, Arc<RenewedMark>)> {
        let mark = Arc::new(RenewedMark::new(self.mark()?));
        let payload = mem::replace(&mut self.payload, Payload::Other(Box::new(())));
        let reserved = match payload {
            Payload::Reserved(reserved) => reserved,
            Payload::InLine(in_line) => in_line.0,
            Payload::Other(_) => return None,
        };
        let key = Key::Owned(reserved.key.as_str().to_owned());
        let copy = ReservedUnits { key, quota: reserved.quota.clone(), mark: mark.get() };
        self.payload = Payload::InLine(Box::new((reserved, Arc::clone(&mark) as Arc<dyn Turn>)));
        Some((copy, mark))
    }

    /// The mark that settles it. `None` if it belongs to another store.
    fn mark(&self) -> Option<Mark> {
        match &self.payload {
            Payload::Reserved(reserved) => Some(reserved.mark.clone()),
            Payload::InLine(in_line) => in_line.1.mark().or_else(|| Some(in_line.0.mark.clone())),
            Payload::Other(_) => None,
        }
    }

    pub(crate) fn in_line(self, turn: Arc<dyn Turn>) -> Self {
        match self.payload {
            Payload::Reserved(reserved) => {
                Self { payload: Payload::InLine(Box::new((reserved, turn))), ..self }
            }
            payload => Self { payload, ..self },
        }
    }

    pub(crate) fn turn(&self) -> Option<&dyn Turn> {
        match &self.payload {
            Payload::InLine(in_line) => Some(&*in_line.1),
            _ => None,
        }
    }

    pub(crate) fn reserved(&self) -> Option<&ReservedUnits> {
        match &self.payload {
            Payload::Reserved(reserved) => Some(reserved),
            _ => None,
        }
    }

    /// The owner: the limiter that it belongs to.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.owner.owner()
    }

    /// The units that it took.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// The payload, if it is a `T`.
    #[must_use]
    pub fn payload<T: Any>(&self) -> Option<&T> {
        match &self.payload {
            Payload::Other(payload) => payload.downcast_ref(),
            _ => None,
        }
    }

    /// The payload, to change it, if it is a `T`.
    pub fn payload_mut<T: Any>(&mut self) -> Option<&mut T> {
        match &mut self.payload {
            Payload::Other(payload) => payload.downcast_mut(),
            _ => None,
        }
    }

    /// The payload.
    ///
    /// # Errors
    ///
    /// The reservation itself, if its payload is not a `T`.
    pub fn into_payload<T: Any>(self) -> Result<T, Self> {
        let payload = match self.payload {
            Payload::Other(payload) => payload.downcast().map_err(Payload::Other),
            payload => Err(payload),
        };
        match payload {
            Ok(payload) => Ok(*payload),
            Err(payload) => Err(Self { payload, ..self }),
        }
    }

    pub(crate) fn add_charged(&mut self, key: NonZeroU64) {
        let is_same = self.charged.is_none_or(|other| other == key);
        self.charged = Some(if is_same { key } else { SEVERAL });
    }

    /// Sets the charged keys to those of the reservation that this one replaces.
    pub(crate) fn with_charged(self, charged: Option<NonZeroU64>) -> Self {
        Self { charged, ..self }
    }
}

/// Stands for several keys. A key with this hash counts as several, which is safe.
pub(crate) const SEVERAL: NonZeroU64 = NonZeroU64::MAX;

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("owner", &self.owner())
            .field("cost", &self.cost)
            .field("is_held", &self.is_held())
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
mod tests;
