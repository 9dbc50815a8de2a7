//! All interleavings of holders that give units back, callers that take them, and a lease
//! that ends.

use std::future::{Ready, ready};

use super::super::stock::Grant;
use super::*;
use crate::core::Error;
use crate::core::reservation::Reservation;
use crate::core::sync::Mutex;
use crate::core::sync::interleavings::{each, thread};

/// The units of the lease at the start of each test.
const UNITS: u64 = 3;

/// A limiter that records the used units of each settled reservation.
struct InnerLimiter {
    owner: Owner,
    settled: Arc<Mutex<Vec<u64>>>,
}

impl Limiter for InnerLimiter {
    type Future = Ready<Result<Decision, Error>>;

    fn check(&self, charge: &Charge) -> Self::Future {
        let reservation = Reservation::new(self.owner, charge.units(), ());
        ready(Ok(Decision::admitted().with_reservation(reservation)))
    }

    fn settle(&self, _: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        self.settled.lock().unwrap().push(actual);
        Ok(Settlement::gave_back(0))
    }
}

/// Makes a key whose lease has `left` units that no holder has.
fn leased(
    left: u64,
) -> (Arc<Leases<InnerLimiter>>, Arc<Stock<InnerLimiter>>, Arc<Mutex<Vec<u64>>>) {
    let settled = Arc::new(Mutex::new(Vec::new()));
    let inner = InnerLimiter { owner: Owner::new(), settled: Arc::clone(&settled) };
    let settings = LeaseSettings {
        max_keys: 4,
        validity: LeaseSettings::MAX_VALIDITY,
        ..LeaseSettings::new(8)
    };
    let leases = Arc::new(Leases::new(Arc::new(inner), settings));
    let charge = Charge::new("key");
    // The key is new, so the charge begins it, and asks alone.
    let _ = leases.ask(&charge);
    let (hash, name) = leases.name("key");
    let now = Instant::now();
    let mut shard = leases.shard(hash);
    let key = shard.key(hash, &name).expect("begun");
    let order = Order::new(key.name.clone(), key.generation, &charge, UNITS);
    let reservation = Reservation::new(leases.inner.owner, UNITS, ());
    let answer = Decision::admitted().with_reservation(reservation);
    let inner = Arc::clone(&leases.inner);
    let stock = Arc::new(Stock::new(inner, order, now, now + settings.validity, answer));
    key.put_back(&stock, left, now);
    drop(shard);
    (leases, stock, settled)
}

/// Refunded and spent units together are at most the leased units, and there is one refund.
#[test]
fn no_unit_of_a_lease_is_both_spent_and_refunded() {
    each("lease", || {
        let (leases, stock, settled) = leased(1);
        // Two units have holders: one unit comes back while the lease ends, and one is spent.
        let holder = {
            let (leases, stock) = (Arc::clone(&leases), Arc::clone(&stock));
            thread::spawn(move || 1 - leases.put_back(&stock, 1))
        };
        let taker = {
            let leases = Arc::clone(&leases);
            thread::spawn(move || match leases.ask(&Charge::new("key")) {
                (KeyAnswer::Granted(Grant { cost, .. }), _) => cost,
                _ => 0,
            })
        };
        leases.begin_reset("key", false);
        drop(stock);
        let spent = 1 + holder.join().unwrap() + taker.join().unwrap();
        drop(leases);
        let settled = settled.lock().unwrap();
        assert!(settled.len() <= 1, "settled {settled:?}");
        let refunded: u64 = settled.iter().map(|actual| UNITS - actual).sum();
        assert!(refunded + spent <= UNITS, "{refunded} refunded, {spent} spent");
    });
}
