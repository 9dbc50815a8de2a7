use std::sync::Arc;

use super::*;
use crate::core::sync::interleavings::{each, thread};

/// A channel to a worker, with the memory orders of tokio's channel: a sender claims a slot
/// with `fetch_add`, and `is_empty` loads.
#[derive(Default)]
struct Channel(AtomicUsize);

impl Channel {
    fn send(&self) {
        self.0.fetch_add(1, Acquire);
    }

    fn is_empty(&self) -> bool {
        self.0.load(Acquire) == 0
    }

    fn take_all(&self) -> usize {
        self.0.swap(0, Acquire)
    }
}

#[test]
fn who_has_passed_a_request_on_finds_the_limiter_busy() {
    each("busy", || {
        let shared = Arc::new((Busy::default(), Channel::default()));
        let callers = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (busy, channel) = &*shared;
                channel.send();
                busy.set();
                // The worker never takes the request here.
                assert!(busy.is_set(), "a later charge would pass the one that waits");
            })
        });
        let (busy, channel) = &*shared;
        busy.reset_if(|| channel.is_empty());
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        busy.reset_if(|| channel.is_empty());
        assert!(busy.is_set(), "a later charge would pass those that wait");
    });
}

#[test]
fn a_worker_that_has_taken_all_is_found_idle() {
    each("idle", || {
        let shared = Arc::new((Busy::default(), Channel::default()));
        let caller = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (busy, channel) = &*shared;
                channel.send();
                busy.set();
            })
        };
        let (busy, channel) = &*shared;
        let mut taken = channel.take_all();
        busy.reset_if(|| channel.is_empty());
        caller.join().unwrap();
        taken += channel.take_all();
        busy.reset_if(|| channel.is_empty());
        assert!(taken == 1 && !busy.is_set(), "no charge is sent by its own task any more");
    });
}
