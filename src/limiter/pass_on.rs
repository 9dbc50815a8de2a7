//! Forwards the methods that a wrapper does not change.

/// Implements these methods of `Limiter` by the same method of `self.inner`:
/// `pass_on!(check_keyless, settle);` inside of the `impl`. If the inner limiter is
/// in another field: `pass_on!(self.0, of self: check, operate);`.
macro_rules! pass_on {
    (@check $self:ident $inner:expr) => {
        fn check(&$self, charge: &crate::core::Charge) -> Self::Future {
            $inner.check(charge)
        }
    };
    (@check_owned $self:ident $inner:expr) => {
        fn check_owned(&$self, charge: crate::core::Charge) -> Self::Future {
            $inner.check_owned(charge)
        }
    };
    (@check_keyless $self:ident $inner:expr) => {
        fn check_keyless(&$self, why: &crate::core::Error) -> Option<crate::core::Decision> {
            $inner.check_keyless(why)
        }
    };
    (@settle $self:ident $inner:expr) => {
        fn settle(
            &$self,
            reservation: crate::core::reservation::Reservation,
            actual: u64,
        ) -> Result<crate::core::settlement::Settlement, crate::core::reservation::Reservation> {
            $inner.settle(reservation, actual)
        }
    };
    (@renew $self:ident $inner:expr) => {
        fn renew(
            &$self,
            reservation: &mut crate::core::reservation::Reservation,
        ) -> Option<crate::core::settlement::Renewal> {
            $inner.renew(reservation)
        }
    };
    (@keys $self:ident $inner:expr) => {
        fn keys(&$self) -> Option<usize> {
            $inner.keys()
        }
    };
    (@operate $self:ident $inner:expr) => {
        fn operate(
            &$self,
            operation: crate::limiter::Operation,
            charge: &crate::core::Charge,
        ) -> Option<Self::Future> {
            $inner.operate(operation, charge)
        }
    };
    ($inner:expr, of $self:ident: $($method:ident),+) => {
        $(pass_on!(@$method $self $inner);)+
    };
    ($($method:ident),+) => {
        $(pass_on!(@$method self self.inner);)+
    };
}
