//! Who waits to be sent: the charges of one hash slot, first come, first served.
//!
//! What is to be given back goes first, the latest booking before all: a refund acts on the state that its booking
//! left, so bookings unwind in the order opposite to that in which they were made, and before others are made on them.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::reply::Told;
use super::request::{Op, Request};
use crate::Error;
use crate::algorithm::Left;

/// The charges of one hash slot that wait, and who is under way for it.
#[derive(Default)]
pub(super) struct Lane {
    queue: VecDeque<Waiting>,
    refunds: BinaryHeap<Refund>,
    /// Whether refunds are on their way, which others must not overtake.
    pub(super) refunding: bool,
    /// Whether a charge is on its way that found the lane idle.
    pub(super) lone: bool,
    /// The flights that carry its batches.
    pub(super) flights: usize,
}

impl Lane {
    pub(super) fn is_idle(&self) -> bool {
        !self.lone && self.flights == 0 && self.len() == 0
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.refunds.len()
    }

    pub(super) fn push(&mut self, charge: Waiting) {
        match charge.request.op {
            Op::Refund { .. } => self.refunds.push(Refund(charge)),
            _ => self.queue.push_back(charge),
        }
    }

    /// The next to be sent.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let refund = if self.refunding { None } else { self.refunds.pop() };
        refund.map(|Refund(charge)| charge).or_else(|| self.queue.pop_front())
    }

    /// Whether somebody waits who came no later than `number`.
    pub(super) fn holds_up(&self, number: u64) -> bool {
        let latest = self.refunds.peek().map(|Refund(latest)| latest);
        self.queue.front().into_iter().chain(latest).any(|first| first.number <= number)
    }

    /// Drops those at the front that nobody asks for any more, and tells how many they were.
    pub(super) fn forget_gone(&mut self) -> usize {
        let before = self.queue.len();
        while self.queue.front().is_some_and(|first| !first.is_wanted()) {
            self.queue.pop_front();
        }
        before - self.queue.len()
    }

    /// Lets those go who have waited since before `number`.
    pub(super) fn take_before(&mut self, number: u64) -> Vec<Waiting> {
        let late = self.queue.partition_point(|charge| charge.number < number);
        let mut taken: Vec<_> = self.queue.drain(..late).collect();
        let (gone, stay): (Vec<_>, Vec<_>) =
            self.refunds.drain().partition(|Refund(charge)| charge.number < number);
        self.refunds.extend(stay);
        taken.extend(gone.into_iter().map(|Refund(charge)| charge));
        taken
    }
}

/// A charge that is to be sent.
pub(super) struct Waiting {
    pub(super) request: Request,
    pub(super) deadline: Instant,
    pub(super) number: u64,
    /// Nobody listens to what is undone behind the back.
    pub(super) asker: Option<oneshot::Sender<Word>>,
}

impl Waiting {
    /// Whether somebody still wants to know.
    pub(super) fn is_wanted(&self) -> bool {
        self.asker.as_ref().is_none_or(|asker| !asker.is_closed())
    }

    /// Tells the asker why there is no decision.
    pub(super) fn fail(self, error: Error) {
        if let Some(asker) = self.asker {
            let _ = asker.send(Word::Told(Err(error)));
        }
    }

    /// Tells the asker what was decided, or hands it back if nobody listens.
    pub(super) fn answer(self, now: i64, place: usize, told: Told) -> Option<Answer> {
        let place = u16::try_from(place).unwrap_or(u16::MAX);
        let answer = Answer { request: self.request, told, now, place };
        match self.asker?.send(Word::Told(Ok(answer))) {
            Err(Word::Told(Ok(answer))) => Some(answer),
            _ => None,
        }
    }

    /// Tells the asker why there is no answer yet, and keeps what is needed to undo one that comes late.
    pub(super) fn dismiss(mut self, error: &Error) -> Waiting {
        let (deaf, _) = oneshot::channel();
        let asker = self.asker.replace(deaf);
        if let Some(asker) = asker {
            let _ = asker.send(Word::Told(Err(error.clone())));
        }
        self
    }

    /// Hands an unsent charge back to its asker.
    pub(super) fn hand_back(self) {
        if let Some(asker) = self.asker {
            let _ = asker.send(Word::Unsent(self.request));
        }
    }
}

/// What is to be given back, the latest booking first: what a booking leaves grows from one to the next.
struct Refund(Waiting);

impl Refund {
    fn rank(&self) -> (Option<&Left>, u64) {
        let left = match &self.0.request.op {
            Op::Refund { left, .. } => Some(left),
            _ => None,
        };
        (left, self.0.number)
    }
}

impl Ord for Refund {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Refund {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Refund {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Refund {}

/// What an asker hears.
#[derive(Debug)]
pub(super) enum Word {
    Told(Result<Answer, Error>),
    /// It was not sent, and who would have sent it is gone: ask again.
    Unsent(Request),
}

/// What was decided of a charge.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) request: Request,
    pub(super) told: Told,
    pub(super) now: i64,
    /// Its place in its batch.
    pub(super) place: u16,
}
