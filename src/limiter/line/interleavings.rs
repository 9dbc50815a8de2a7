//! All interleavings of waiters that leave, charges that take their slots, and a reset of
//! the key.

use std::pin::pin;
use std::task::{Context, Poll};

use super::super::{Limiter, Operation};
use super::*;
use crate::algorithm::TokenBucket;
use crate::core::sync::interleavings::{each, thread};
use crate::core::{Charge, Error, Outcome, Quota};
use crate::limiter::Memory;

fn poll(answer: impl Future<Output = Result<Decision, Error>>) -> Decision {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => decision.expect("a decision"),
        Poll::Pending => unreachable!("a memory decides at once"),
    }
}

/// A store that takes nothing back, as if others had charged the key since.
struct Full;

impl SettleUnits for Full {
    fn settle_units(&self, _: &ReservedUnits, _: u64, _: u64) -> Settlement {
        Settlement::gave_back(0)
    }
}

fn id() -> LineId {
    let (quota, keep_free) = (Quota::per_hour(1).into(), KeepFree::default());
    LineId { key: "key".into(), quota, cost: 1, keep_free }
}

/// Makes a request that waits for a slot in an hour.
fn waiting(lines: &Arc<Lines>, number: i64) -> Arc<Place> {
    let wait = Duration::from_secs(3_600);
    let decision = Decision::new(Outcome::Wait(wait));
    let slot = Slot::new(&decision, wait, Mark::from([number, 0, 0, 0]), lines.known());
    let place = Place::new(lines, id(), slot, Arc::new(Full));
    place.add();
    place
}

fn take(lines: &Lines) -> usize {
    let wait = Duration::from_secs(7_200);
    usize::from(lines.have_spares() && lines.take(&id(), wait).is_some())
}

/// The count of spare slots, which callers read without the lock, equals that of the lines.
#[test]
fn every_slot_that_is_left_is_counted_and_taken_once() {
    each("line", || {
        let lines = Arc::new(Lines::default());
        let (one, other) = (waiting(&lines, 1), waiting(&lines, 2));
        let leaver = thread::spawn(move || drop(one.leave()));
        let taker = {
            let lines = Arc::clone(&lines);
            thread::spawn(move || take(&lines))
        };
        drop(other.leave());
        leaver.join().unwrap();
        let taken = taker.join().unwrap();
        assert_eq!(lines.spares.load(Relaxed), 2 - taken);
        assert_eq!(taken + take(&lines) + take(&lines), 2);
        assert_eq!(take(&lines), 0);
        drop(other);
        lines.assert_nobody_waits();
    });
}

/// After a reset, no earlier slot is spare, whenever its waiter left.
#[test]
fn a_reset_leaves_no_slot_of_before() {
    each("line_reset", || {
        let lines = Arc::new(Lines::default());
        let place = waiting(&lines, 1);
        let leaver = thread::spawn(move || drop(place.leave()));
        lines.forget("key", true);
        leaver.join().unwrap();
        assert_eq!(take(&lines), 0, "a slot of before the reset is given to a charge");
        lines.assert_nobody_waits();
    });
}

/// If a key is reset while a charge waits and leaves, the key is free, and the next charge gets
/// no earlier slot.
#[test]
fn a_reset_frees_the_key_whenever_a_waiter_comes_and_leaves() {
    each("line_memory_reset", || {
        let day = Duration::from_secs(86_400);
        let bucket = TokenBucket::new(Quota::per_hour(1)).horizon(day);
        let limiter = Memory::new("api", bucket).max_keys(4);
        let charge = || Charge::new("key").max_wait(Duration::from_secs(7_200));
        assert!(poll(limiter.check(&charge())).is_admitted());
        let waiter = {
            let limiter = limiter.clone();
            thread::spawn(move || {
                let mut decision = poll(limiter.check(&charge()));
                let waited = decision.waited() > Duration::ZERO;
                let waiting = decision.take_waiters().map(crate::core::waiters::Waiter::new);
                if let Some(reservation) = decision.take_reservation() {
                    drop(limiter.settle(reservation, 0));
                }
                drop(waiting);
                waited
            })
        };
        poll(limiter.operate(Operation::Reset, &charge()).expect("a memory resets"));
        waiter.join().unwrap();
        let next = poll(limiter.check(&charge()));
        assert_eq!(next.waited(), Duration::ZERO, "a slot of before the reset was given");
    });
}
