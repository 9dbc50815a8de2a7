//! All interleavings of callers whose charges are refused and refunded.

use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::super::Limiter;
use crate::core::reservation::{Owner, Reservation};
use crate::core::settlement::Settlement;
use crate::core::sync::Mutex;
use crate::core::sync::interleavings::{each, thread};
use crate::core::{Charge, Decision, Error};
use crate::limiter::DenyCache;
use crate::limiter::LimiterExt;

/// A limiter of one unit, which answers at once.
#[derive(Clone)]
struct OneUnit {
    owner: Owner,
    free: Arc<Mutex<u64>>,
}

impl Limiter for OneUnit {
    type Future = Ready<Result<Decision, Error>>;

    fn check(&self, charge: &Charge) -> Self::Future {
        let mut free = self.free.lock().unwrap();
        if *free < charge.units() {
            return ready(Ok(Decision::denied(Duration::from_secs(60))));
        }
        *free -= charge.units();
        let reservation = Reservation::new(self.owner, charge.units(), ());
        ready(Ok(Decision::admitted().with_reservation(reservation)))
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        let units = reservation.cost() - actual;
        *self.free.lock().unwrap() += units;
        Ok(Settlement::gave_back(units))
    }
}

fn check(limiter: &DenyCache<OneUnit>) -> Decision {
    let answer = pin!(limiter.check(&Charge::new("key")));
    match answer.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => decision.expect("a decision"),
        Poll::Pending => unreachable!("it answers at once"),
    }
}

/// While a charge is refunded, other callers ask. After that, the unit is free for the next
/// caller.
#[test]
fn no_refusal_outlives_the_refund_that_makes_it_wrong() {
    each("deny_cache", || {
        let free = Arc::new(Mutex::new(1));
        let limiter = OneUnit { owner: Owner::new(), free }.deny_cache();
        let reservation = check(&limiter).take_reservation().expect("the only unit");
        let askers = [(); 2].map(|()| {
            let limiter = limiter.clone();
            thread::spawn(move || check(&limiter).take_reservation())
        });
        assert!(limiter.settle(reservation, 0).is_ok());
        let taken = askers.map(|asker| asker.join().unwrap());
        for reservation in taken.into_iter().flatten() {
            assert!(limiter.settle(reservation, 0).is_ok());
        }
        assert!(check(&limiter).is_admitted(), "the unit is free, and a refusal is repeated");
    });
}
