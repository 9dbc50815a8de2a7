//! The lanes that calls leave by: one for each connection to a cluster, or one for a server.
//!
//! The hash slots of a lane take turns. A lane has few calls in flight at once, so what arrives
//! meanwhile shares the next call: `lane.rs` says how many requests that takes.

mod lane;

use std::collections::{HashMap, VecDeque};

use self::lane::{LaneState, Limits};

/// The number of a lane.
pub(super) type Lane = usize;

/// The lanes that have something to send, or a call in flight.
pub(super) struct Lanes {
    lanes: HashMap<Lane, LaneState>,
    /// The lanes that a call may leave by, each once.
    sendable: VecDeque<Lane>,
    /// Those of them whose next call needs no further requests: there may be many lanes.
    whole: VecDeque<Lane>,
    /// The lanes that a call has just left by.
    just_sent: Vec<Lane>,
    limits: Limits,
}

impl Lanes {
    pub(super) fn new(max_batch_size: usize) -> Self {
        let limits = Limits { batch_size: max_batch_size, in_flight: 1 };
        let (lanes, just_sent) = (HashMap::new(), Vec::new());
        let (sendable, whole) = (VecDeque::new(), VecDeque::new());
        Self { lanes, sendable, whole, just_sent, limits }
    }

    /// Sets how many calls of one lane may be sent at the same time.
    pub(super) fn set_max_in_flight(&mut self, calls: usize) {
        if self.limits.in_flight != calls {
            self.limits.in_flight = calls;
            let lanes: Vec<_> = self.lanes.keys().copied().collect();
            lanes.into_iter().for_each(|lane| self.update(lane));
        }
    }

    /// Adds a slot with so many requests that wait.
    pub(super) fn push(&mut self, lane: Lane, hash_slot: u16, requests: usize) {
        let state = self.lanes.entry(lane).or_default();
        state.slots.push_back(hash_slot);
        state.waiting += requests;
        self.update(lane);
    }

    /// Adds a request to a slot that waits.
    pub(super) fn grow(&mut self, lane: Lane) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.waiting += 1;
        }
    }

    /// Records that a request has come.
    pub(super) fn arrived(&mut self, lane: Lane) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.has_just_sent = false;
        }
        self.update(lane);
    }

    /// Lets another call of each lane be sent.
    pub(super) fn allow_next(&mut self) {
        for lane in std::mem::take(&mut self.just_sent) {
            self.arrived(lane);
        }
    }

    /// The lane whose turn it is, and its next slot. `only_whole`: only if the call needs no
    /// further requests.
    pub(super) fn next(&mut self, only_whole: bool) -> Option<(Lane, u16)> {
        loop {
            let listed = if only_whole { &mut self.whole } else { &mut self.sendable };
            let lane = listed.front().copied()?;
            let state = self.lanes.entry(lane).or_default();
            if state.may_send(&self.limits) && (!only_whole || state.has_whole_batch(&self.limits))
            {
                return state.slots.front().map(|hash_slot| (lane, *hash_slot));
            }
            listed.pop_front();
            let mark = if only_whole { &mut state.is_whole } else { &mut state.is_sendable };
            *mark = false;
            self.forget_idle(lane);
        }
    }

    /// The most requests in the next call of a lane.
    pub(super) fn max_size(&self, lane: Lane) -> usize {
        let state = self.lanes.get(&lane);
        state.map_or(self.limits.batch_size, |state| state.max_size(&self.limits))
    }

    /// Removes the next slot of a lane.
    pub(super) fn pop(&mut self, lane: Lane) -> Option<u16> {
        self.lanes.get_mut(&lane)?.slots.pop_front()
    }

    /// Records that so many requests of a lane wait no more.
    pub(super) fn shrink(&mut self, lane: Lane, requests: usize) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.waiting -= requests;
        }
    }

    /// Removes all slots of a lane.
    pub(super) fn take_slots(&mut self, lane: Lane) -> VecDeque<u16> {
        let Some(state) = self.lanes.get_mut(&lane) else { return VecDeque::new() };
        state.waiting = 0;
        std::mem::take(&mut state.slots)
    }

    /// Records that a call of so many requests is sent.
    pub(super) fn call_begins(&mut self, lane: Lane, requests: usize) {
        let state = self.lanes.entry(lane).or_default();
        state.calls_in_flight += 1;
        state.requests_in_flight += requests;
        state.has_just_sent = true;
        self.just_sent.push(lane);
        self.update(lane);
    }

    pub(super) fn call_ended(&mut self, lane: Lane, requests: usize) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.calls_in_flight -= 1;
            state.requests_in_flight -= requests;
        }
        self.update(lane);
    }

    pub(super) fn set_connecting(&mut self, lane: Lane, is_connecting: bool) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.is_connecting = is_connecting;
        }
        self.update(lane);
    }

    fn update(&mut self, lane: Lane) {
        let Some(state) = self.lanes.get_mut(&lane) else { return };
        if state.may_send(&self.limits) {
            if !std::mem::replace(&mut state.is_sendable, true) {
                self.sendable.push_back(lane);
            }
            if state.has_whole_batch(&self.limits) && !std::mem::replace(&mut state.is_whole, true)
            {
                self.whole.push_back(lane);
            }
        }
        self.forget_idle(lane);
    }

    fn forget_idle(&mut self, lane: Lane) {
        if self.lanes.get(&lane).is_some_and(LaneState::is_idle) {
            self.lanes.remove(&lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library's client of a cluster has as many lanes as hash slots.
    #[test]
    fn small_batches_are_not_looked_at_for_whole_ones() {
        let mut lanes = Lanes::new(64);
        lanes.set_max_in_flight(2);
        for hash_slot in 0..16_384 {
            let requests = if hash_slot == 9_999 { 30 } else { 1 };
            lanes.push(Lane::from(hash_slot), hash_slot, requests);
        }
        assert_eq!((lanes.whole.len(), lanes.sendable.len()), (1, 16_384));
        assert_eq!(lanes.next(true), Some((9_999, 9_999)));
        assert_eq!(lanes.pop(9_999), Some(9_999));
        assert_eq!(lanes.next(true), None);
        assert_eq!(lanes.next(false), Some((0, 0)));
    }

    #[test]
    fn a_lane_is_kept_while_it_has_something_to_do() {
        let mut lanes = Lanes::new(64);
        lanes.set_max_in_flight(2);
        let known = |lanes: &Lanes| lanes.lanes.len();
        for requests in [1, 30] {
            lanes.push(3, 7, requests);
            assert_eq!((known(&lanes), lanes.next(false)), (1, Some((3, 7))));
            lanes.pop(3);
            lanes.shrink(3, requests);
            lanes.call_begins(3, requests);
            // It is listed no more, and its call runs.
            assert_eq!((lanes.next(false), lanes.next(true)), (None, None));
            assert_eq!(known(&lanes), 1);
            lanes.call_ended(3, requests);
            assert_eq!(known(&lanes), 0);
        }
        for is_listed_as_whole in [false, true] {
            lanes.push(3, 7, 30);
            lanes.pop(3);
            lanes.shrink(3, 30);
            assert_eq!(lanes.next(is_listed_as_whole), None);
            assert_eq!(known(&lanes), 1, "listed elsewhere");
            assert_eq!(lanes.next(!is_listed_as_whole), None);
            assert_eq!(known(&lanes), 0);
        }
        lanes.push(3, 7, 1);
        lanes.set_connecting(3, true);
        lanes.pop(3);
        lanes.shrink(3, 1);
        assert_eq!((lanes.next(false), known(&lanes)), (None, 1));
        lanes.set_connecting(3, false);
        assert_eq!(known(&lanes), 0);
    }
}
