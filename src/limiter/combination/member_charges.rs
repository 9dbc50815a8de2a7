//! The charges of a combination's members: what a closure makes of a charge, or its parts.

use crate::{Charge, Error, ErrorKind};

/// Says what each of `N` limiters is asked about a charge: a closure from it to `[Charge; N]`, or
/// [`Parts`].
///
/// [`AllAtOnce`](crate::limiter::AllAtOnce) and [`AllInTurn`](crate::limiter::AllInTurn) have a
/// constructor for each.
pub trait MemberCharges<const N: usize> {
    /// The charge of each member, in order. One that is `None` is not asked.
    ///
    /// # Errors
    ///
    /// If the charge is none for these members. Nothing is then asked.
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
    fn member_charges(&self, charge: &Charge) -> Result<[Option<Charge>; N], Error> {
        let wrong = |message| Err(Error::new(ErrorKind::Configuration, message));
        if charge.own_quota().is_some() {
            return wrong("a quota belongs to a part of the charge, not to the whole".to_owned());
        }
        match <&[Option<Charge>; N]>::try_from(charge.parts()) {
            Ok(parts) => Ok(parts.clone()),
            Err(_) if !charge.has_parts() => {
                wrong(format!("the charge has one key, and there are limiters for {N}"))
            }
            Err(_) => {
                let parts = charge.parts().len();
                wrong(format!("the charge has {parts} parts, and there are limiters for {N}"))
            }
        }
    }
}
