//! Tests of all interleavings of holders that give units back, callers that take them, and a lease
//! that ends; and of the sweeper that stops while a key comes.

use std::future::{Ready, ready};

use tokio::time::Instant;

use super::answer::{Asked, Grant};
use super::leases::{Leases, Unspent};
use super::one_task::OneTask;
use super::order::Order;
use super::settings::Settings;
use super::stock::Stock;
use super::*;
use crate::Owner;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::interleavings::{each, thread};

/// The units of the lease that all tests begin with.
const UNITS: u64 = 3;

/// A limiter that records the used units of each reservation that is settled.
struct Inner {
    owner: Owner,
    settled: Arc<Mutex<Vec<u64>>>,
}

impl Limiter for Inner {
    type Future = Ready<Result<Decision, Error>>;

    fn check(&self, charge: &Charge) -> Self::Future {
        let reservation = Reservation::new(self.owner, charge.get_cost(), ());
        ready(Ok(Decision::admitted().with_reservation(reservation)))
    }

    fn settle(&self, _: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        self.settled.lock().unwrap().push(actual);
        Ok(Settlement::gave_back(0))
    }
}

/// A key whose lease has `left` units that no holder has.
fn leased(left: u64) -> (Arc<Leases<Inner>>, Arc<Stock<Inner>>, Arc<Mutex<Vec<u64>>>) {
    let settled = Arc::new(Mutex::new(Vec::new()));
    let inner = Inner { owner: Owner::new(), settled: Arc::clone(&settled) };
    let settings = Settings { max_keys: 4, validity: Settings::MAX_VALIDITY, ..Settings::new(8) };
    let leases = Arc::new(Leases::new(Arc::new(inner), settings));
    let charge = Charge::new("key");
    // The key is not known yet, so the charge begins it, and asks alone.
    let _ = leases.ask(&charge);
    let (hash, name) = leases.name("key");
    let now = Instant::now();
    let mut shard = leases.shard(hash);
    let key = shard.key(hash, &name).expect("begun");
    let order = Order::new(key.name.clone(), key.generation, &charge, UNITS);
    let reservation = Reservation::new(leases.inner.owner, UNITS, ());
    let answer = Decision::admitted().with_reservation(reservation);
    let inner = Arc::clone(&leases.inner);
    let stock = Arc::new(Stock::new(inner, &order, now, now + settings.validity, answer));
    key.put_back(&stock, left, now);
    drop(shard);
    (leases, stock, settled)
}

/// The units that were refunded and those that were spent are together no more than were leased,
/// and they are refunded once.
#[test]
fn no_unit_of_a_lease_is_both_spent_and_refunded() {
    each("lease", || {
        let (leases, stock, settled) = leased(1);
        // Two units are out: one comes back while the lease ends, and one is spent.
        let holder = {
            let (leases, stock) = (Arc::clone(&leases), Arc::clone(&stock));
            thread::spawn(move || 1 - leases.put_back(&stock, 1))
        };
        let taker = {
            let leases = Arc::clone(&leases);
            thread::spawn(move || match leases.ask(&Charge::new("key")) {
                Asked::Granted(Grant { cost, .. }, _) => cost,
                _ => 0,
            })
        };
        leases.begin_reset("key", Unspent::IsReturned);
        drop(stock);
        let spent = 1 + holder.join().unwrap() + taker.join().unwrap();
        drop(leases);
        let settled = settled.lock().unwrap();
        assert!(settled.len() <= 1, "settled {settled:?}");
        let refunded: u64 = settled.iter().map(|actual| UNITS - actual).sum();
        assert!(refunded + spent <= UNITS, "{refunded} refunded, {spent} spent");
    });
}

/// A key that comes while the sweeper stops either starts a task, or is seen by the one that runs.
#[test]
fn a_key_always_has_a_sweeper_and_only_one() {
    each("sweeper", || {
        let shared = Arc::new((OneTask::default(), Mutex::new(0), AtomicUsize::new(1)));
        assert!(shared.0.claim());
        let comers = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (task, keys, running) = &*shared;
                *keys.lock().unwrap() += 1;
                if task.claim() {
                    assert_eq!(running.fetch_add(1, Relaxed), 0, "two sweep");
                }
            })
        });
        let (task, keys, running) = &*shared;
        // As the sweeper does when it finds nothing to sweep.
        running.fetch_sub(1, Relaxed);
        task.release();
        if *keys.lock().unwrap() > 0 && task.claim() {
            assert_eq!(running.fetch_add(1, Relaxed), 0, "two sweep");
        }
        comers.into_iter().for_each(|comer| comer.join().unwrap());
        assert_eq!(running.load(Relaxed), 1, "nobody sweeps the keys");
    });
}
