//! The charges of a combination's members, from a closure or from the parts of a charge.

use crate::core::{Charge, Error, ErrorKind};

/// Makes the charges of `N` members from one charge: a closure that returns `[Charge; N]`, or
/// [`Parts`].
///
/// [`AllAtOnce`](crate::redis::AllAtOnce) and [`AllInTurn`](crate::limiter::AllInTurn) have a
/// constructor for each of the two.
pub trait MemberCharges<const N: usize> {
    /// The number of keys that each charge must have, if that is known.
    #[doc(hidden)]
    const KEYS: Option<usize> = None;

    /// Returns the charge of each member, in order. `None`: the member is not asked.
    ///
    /// # Errors
    ///
    /// If the charge does not fit these members. Then no member is asked.
    fn member_charges(&self, charge: &Charge) -> Result<[Option<Charge>; N], Error>;
}

impl<const N: usize, F> MemberCharges<N> for F
where
    F: Fn(&Charge) -> [Charge; N],
{
    fn member_charges(&self, charge: &Charge) -> Result<[Option<Charge>; N], Error> {
        Ok(self(charge).map(Some))
    }
}

/// Gives each member of a combination its part of a charge of [`several`](Charge::several) keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts;

impl<const N: usize> MemberCharges<N> for Parts {
    const KEYS: Option<usize> = Some(N);

    fn member_charges(&self, charge: &Charge) -> Result<[Option<Charge>; N], Error> {
        let wrong = |message| Err(Error::new(ErrorKind::Configuration, message));
        if charge.own_quota().is_some() {
            return wrong("a quota belongs to a part of the charge, not to the whole".to_owned());
        }
        match <&[Option<Charge>; N]>::try_from(charge.parts()) {
            Ok(parts) => Ok(parts.clone()),
            Err(_) if !charge.has_parts() => {
                wrong(format!("the charge has one key, but the members need {N}"))
            }
            Err(_) => {
                let parts = charge.parts().len();
                wrong(format!("the charge has {parts} parts, but the members need {N}"))
            }
        }
    }
}
