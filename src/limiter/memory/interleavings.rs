//! Tests of all interleavings of charges of one key, and of keys in several shards.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::one_lock::OneLock;
use super::*;
use crate::algorithm::{AnyAlgorithm, TokenBucket};
use crate::core::sync::interleavings::{each, thread};
use crate::core::{Decision, Quota};

/// Makes a limiter of two a day, with a stopped clock and one shard, since a key's shard is random.
fn two_a_day() -> Memory<AnyAlgorithm> {
    let quota = Quota::per_day(2);
    Memory::new("api", AnyAlgorithm::from(TokenBucket::new(quota)))
        .max_keys(4)
        .clock(|| Duration::from_secs(1 << 30))
}

fn check(limiter: &Memory<AnyAlgorithm>) -> Decision {
    let answer = pin!(limiter.check(&Charge::new("key")));
    match answer.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => decision.expect("a decision"),
        Poll::Pending => unreachable!("a memory decides at once"),
    }
}

#[test]
fn as_many_are_admitted_as_there_are_units() {
    each("memory", || {
        let limiter = two_a_day();
        let others = [(); 2].map(|()| {
            let limiter = limiter.clone();
            thread::spawn(move || {
                let mut first = check(&limiter);
                if let Some(reservation) = first.take_reservation() {
                    assert!(limiter.settle(reservation, 0).is_ok());
                }
                usize::from(check(&limiter).is_admitted())
            })
        });
        let own = usize::from(check(&limiter).is_admitted());
        let admitted: usize = others.map(|other| other.join().unwrap()).iter().sum();
        assert!(own + admitted <= 2, "{own} and {admitted}");
    });
}

/// Two charges lock the same two shards, each in its own order. loom finds a deadlock.
#[test]
fn charges_of_the_same_keys_in_another_order_wait_for_no_lock_for_ever() {
    each("memory_together", || {
        let (one, other) = (two_a_day(), two_a_day());
        let both = OneLock::new(&[&one, &other]);
        let turned = OneLock::new(&[&other, &one]);
        let ask = |limiter: &OneLock| {
            let charge = Charge::new("key");
            usize::from(limiter.decide(&[&charge, &charge]).expect("a decision").is_admitted())
        };
        let thread = thread::spawn(move || ask(&turned) + ask(&turned));
        let admitted = ask(&both) + thread.join().unwrap();
        assert_eq!(admitted, 2);
        assert!(!check(&one).is_admitted() && !check(&other).is_admitted());
    });
}
