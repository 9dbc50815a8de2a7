//! The flag by which callers see that a limiter is idle.
//!
//! A caller that finds it idle sends its charge itself, past the worker's queue. So the flag must
//! stay set while a request waits there. It consists of two counts. With one `bool`, a worker that
//! resets the flag could undo what a caller has set meanwhile.

use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// A flag that is set while a charge may wait or be in flight: then the counts differ.
#[derive(Debug, Default)]
pub(super) struct Busy {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl Busy {
    pub(super) fn is_set(&self) -> bool {
        self.begun.load(Relaxed) != self.ended.load(Relaxed)
    }

    /// Sets the flag. A caller does so after it has passed a request on.
    pub(super) fn set(&self) {
        self.begun.fetch_add(1, Release);
    }

    /// Resets the flag if the worker is idle and no request has arrived. `is_idle` is called after
    /// the count is read. So it sees the requests of all callers that are in the count.
    pub(super) fn reset_if(&self, is_idle: impl FnOnce() -> bool) {
        let begun = self.begun.load(Acquire);
        if is_idle() {
            self.ended.store(begun, Relaxed);
        }
    }
}

#[cfg(all(test, interleavings))]
mod interleavings {
    use std::sync::Arc;

    use super::*;
    use crate::sync::interleavings::{each, thread};

    /// A channel to a worker, with the memory orders of tokio's: a sender claims a slot with
    /// `fetch_add`, and `is_empty` loads.
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
}
