//! The methods that a limiter around another one does not change.

/// Implements these methods of `Limiter` by the same method of `self.inner`:
/// `pass_on!(check_keyless, settle, can_take_more);` inside of the `impl`.
///
/// Defaults of the trait cannot: it knows no inner limiter.
macro_rules! pass_on {
    (@check) => {
        fn check(&self, charge: &crate::Charge) -> Self::Future {
            self.inner.check(charge)
        }
    };
    (@check_keyless) => {
        fn check_keyless(&self, why: &crate::Error) -> Option<crate::Decision> {
            self.inner.check_keyless(why)
        }
    };
    (@settle) => {
        fn settle(
            &self,
            reservation: crate::reservation::Reservation,
            actual: u64,
        ) -> Result<crate::settlement::Settlement, crate::reservation::Reservation> {
            self.inner.settle(reservation, actual)
        }
    };
    (@can_take_more) => {
        fn can_take_more(&self) -> bool {
            self.inner.can_take_more()
        }
    };
    (@operate) => {
        fn operate(
            &self,
            operation: crate::limiter::Operation,
            charge: &crate::Charge,
        ) -> Option<Self::Future> {
            self.inner.operate(operation, charge)
        }
    };
    ($($method:ident),+) => {
        $(pass_on!(@$method);)+
    };
}
