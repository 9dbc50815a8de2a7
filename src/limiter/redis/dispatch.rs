//! Many charges in one call: what waits at the same moment leaves together.
//!
//! A charge that finds its limiter idle is sent at once, by its own task. One that comes while others are under way
//! waits in a queue, and a flight takes as many as a batch holds: no timer delays anybody, and the busier the
//! limiter, the larger its batches. Flights are tasks that live while there is somebody to carry.
//!
//! On a plain server there is one queue. A cluster runs a script on keys of one hash slot only, so there each slot
//! has a queue and flights of its own.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::asking::Asking;
use super::flight::{self, Flight};
use super::key;
use super::pool::Pool;
use super::reply::Told;
use super::script::{Line, Op, Script};
use super::source::Wire;
use crate::algorithm::Verdict;
use crate::limiter::terms::Clock;
use crate::{Class, Error};

/// How long what nobody waits for may take.
const UNASKED: Duration = Duration::from_millis(500);

/// Where charges go, and in what company.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) pool: Pool,
    pub(super) script: Script,
    /// The limiter's own rule, as the script reads it.
    pub(super) rule: Vec<i64>,
    pub(super) clock: Option<Clock>,
    /// The most charges in one call.
    pub(super) batch: usize,
    /// The calls under way at once, for each connection.
    pub(super) flights: usize,
    /// The most charges that wait to be sent.
    pub(super) backlog: usize,
}

/// Sends the charges of one limiter.
pub(super) struct Dispatcher {
    pub(super) route: Route,
    lanes: Mutex<Lanes>,
    /// What the last lone charge went over, to be used again without asking the pool.
    wire: Mutex<Option<Arc<dyn Wire>>>,
}

/// The queues, by hash slot.
#[derive(Default)]
struct Lanes {
    by_slot: HashMap<u16, Lane>,
    /// The number of the next charge.
    next: u64,
    /// The charges in all queues.
    waiting: usize,
}

#[derive(Default)]
struct Lane {
    queue: VecDeque<Waiting>,
    /// Whether a charge is on its way that found the lane idle.
    lone: bool,
    flights: usize,
}

impl Lane {
    fn is_idle(&self) -> bool {
        !self.lone && self.flights == 0 && self.queue.is_empty()
    }

    /// Drops those at the front that nobody asks for any more, and tells how many they were.
    fn forget_gone(&mut self) -> usize {
        let before = self.queue.len();
        while self.queue.front().is_some_and(|first| !first.is_wanted()) {
            self.queue.pop_front();
        }
        before - self.queue.len()
    }
}

impl Lanes {
    fn forget_idle(&mut self, slot: u16) {
        if self.by_slot.get(&slot).is_some_and(Lane::is_idle) {
            self.by_slot.remove(&slot);
        }
    }
}

/// A charge that is to be sent.
pub(super) struct Waiting {
    pub(super) line: Line,
    pub(super) deadline: Instant,
    number: u64,
    /// Nobody listens to what is undone behind the back.
    asker: Option<oneshot::Sender<Word>>,
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
        let answer = Answer { line: self.line, told, now, place };
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
    fn hand_back(self) {
        if let Some(asker) = self.asker {
            let _ = asker.send(Word::Unsent(self.line));
        }
    }
}

/// What an asker hears.
#[derive(Debug)]
pub(super) enum Word {
    Told(Result<Answer, Error>),
    /// It was not sent, and who would have sent it is gone: ask again.
    Unsent(Line),
}

/// What was decided of a charge.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) line: Line,
    pub(super) told: Told,
    pub(super) now: i64,
    /// Its place in its batch.
    pub(super) place: u16,
}

/// What an asker holds.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) word: oneshot::Receiver<Word>,
    slot: u16,
    number: u64,
    /// How many calls the pool had seen answered.
    answered: u64,
}

impl Dispatcher {
    pub(super) fn new(route: Route) -> Arc<Self> {
        Arc::new(Self { route, lanes: Mutex::default(), wire: Mutex::default() })
    }

    /// A connection that is known to be alive.
    pub(super) fn wire(&self) -> Option<Arc<dyn Wire>> {
        lock(&self.wire).as_ref().filter(|wire| wire.is_alive()).cloned()
    }

    pub(super) fn keep(&self, wire: &Arc<dyn Wire>) {
        *lock(&self.wire) = Some(Arc::clone(wire));
    }

    /// Asks about one charge.
    pub(super) fn ask(self: &Arc<Self>, line: Line, deadline: Instant) -> Asking {
        Asking::new(Arc::clone(self), line, deadline)
    }

    /// Takes a charge in. One that is alone is under way once its flight is polled, all others are at once.
    ///
    /// # Errors
    ///
    /// If too many wait already.
    pub(super) fn submit(
        self: &Arc<Self>,
        line: Line,
        deadline: Instant,
    ) -> Result<(Ticket, Option<Flight>), Error> {
        let answered = self.route.pool.answered();
        let (asker, word) = oneshot::channel();
        let (number, slot, lone) = self.enter(line, deadline, Some(asker))?;
        Ok((Ticket { word, slot, number, answered }, lone))
    }

    /// Gives back what was decided for nobody. Best effort: without a runtime the units are lost, which errs on the
    /// safe side.
    pub(super) fn undo(self: &Arc<Self>, answer: Answer) {
        if let Answer { mut line, told: Told::Decided { verdict, left, .. }, .. } = answer
            && let Op::Check { cost: cost @ 1.., .. } = line.op
            && let Verdict::Allow | Verdict::Wait(_) = verdict
        {
            line.op = Op::Refund { cost, left };
            self.send_off(line);
        }
    }

    /// Sends what nobody waits for.
    pub(super) fn send_off(self: &Arc<Self>, line: Line) {
        if let Ok(runtime) = Handle::try_current()
            && let Ok((_, _, Some(lone))) = self.enter(line, Instant::now() + UNASKED, None)
        {
            runtime.spawn(lone);
        }
    }

    /// Why a charge was not decided by its deadline.
    pub(super) fn too_late(&self, ticket: &Ticket) -> Error {
        let unsent = lock(&self.lanes).by_slot.get(&ticket.slot).is_some_and(|lane| {
            lane.queue.front().is_some_and(|first| first.number <= ticket.number)
        });
        if unsent && self.route.pool.answered() > ticket.answered {
            return Error::new(Class::Saturation, "more is asked than the connections carry");
        }
        self.route.pool.silence()
    }

    fn enter(
        self: &Arc<Self>,
        line: Line,
        deadline: Instant,
        asker: Option<oneshot::Sender<Word>>,
    ) -> Result<(u64, u16, Option<Flight>), Error> {
        let slot = if self.route.pool.is_clustered() { key::slot(&line.key) } else { 0 };
        let mut lanes = lock(&self.lanes);
        let Lanes { by_slot, next, waiting } = &mut *lanes;
        let number = *next;
        *next += 1;
        let lane = by_slot.entry(slot).or_default();
        let charge = Waiting { line, deadline, number, asker };
        if lane.is_idle() {
            lane.lone = true;
            drop(lanes);
            return Ok((number, slot, Some(flight::alone(self.seat(slot, true), charge))));
        }
        if *waiting >= self.route.backlog {
            *waiting -= lane.forget_gone();
        }
        if *waiting >= self.route.backlog {
            return Err(Error::new(Class::Saturation, "too many charges wait to be sent"));
        }
        lane.queue.push_back(charge);
        *waiting += 1;
        if lane.flights < self.route.flights * self.route.pool.width() {
            lane.flights += 1;
            drop(lanes);
            tokio::spawn(flight::in_batches(self.seat(slot, false)));
        }
        Ok((number, slot, None))
    }

    fn seat(self: &Arc<Self>, slot: u16, lone: bool) -> Seat {
        Seat { dispatcher: Arc::clone(self), slot, lone, left: false }
    }
}

/// A flight's right to send for its lane. Given back when dropped, however the flight ended.
pub(super) struct Seat {
    pub(super) dispatcher: Arc<Dispatcher>,
    slot: u16,
    lone: bool,
    left: bool,
}

impl Seat {
    /// The number that the next charge will have.
    pub(super) fn next(&self) -> u64 {
        lock(&self.dispatcher.lanes).next
    }

    /// Takes a batch on board. With none to take, the right to send is given back.
    pub(super) fn board(&mut self) -> Vec<Waiting> {
        let mut lanes = lock(&self.dispatcher.lanes);
        let Lanes { by_slot, waiting, .. } = &mut *lanes;
        let mut batch = Vec::new();
        if let Some(lane) = by_slot.get_mut(&self.slot) {
            batch.reserve(lane.queue.len().min(self.dispatcher.route.batch));
            while batch.len() < self.dispatcher.route.batch
                && let Some(charge) = lane.queue.pop_front()
            {
                *waiting -= 1;
                if charge.is_wanted() {
                    batch.push(charge);
                }
            }
            if batch.is_empty() {
                lane.flights -= 1;
                self.left = true;
                lanes.forget_idle(self.slot);
            }
        }
        drop(lanes);
        // A refund acts on the state that its booking left, so the last one unwinds first, and before others book.
        if batch.iter().any(|charge| matches!(charge.line.op, Op::Refund { .. })) {
            batch.sort_by_key(|charge| match charge.line.op {
                Op::Refund { left, .. } => (false, Reverse(left)),
                Op::Check { .. } => (true, Reverse([0; 4])),
            });
        }
        batch
    }

    /// Tells those that have waited since before `number` why they are not sent.
    pub(super) fn fail(&self, number: u64, error: &Error) {
        let mut lanes = lock(&self.dispatcher.lanes);
        let Lanes { by_slot, waiting, .. } = &mut *lanes;
        let Some(lane) = by_slot.get_mut(&self.slot) else { return };
        while lane.queue.front().is_some_and(|first| first.number < number) {
            *waiting -= 1;
            if let Some(charge) = lane.queue.pop_front() {
                charge.fail(error.clone());
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let mut lanes = lock(&self.dispatcher.lanes);
        let Lanes { by_slot, waiting, .. } = &mut *lanes;
        let Some(lane) = by_slot.get_mut(&self.slot) else { return };
        match self.lone {
            true => lane.lone = false,
            false => lane.flights -= 1,
        }
        // A flight ends early only with its runtime; then those who are left ask again, from theirs.
        if lane.flights == 0 {
            *waiting -= lane.queue.len();
            lane.queue.drain(..).for_each(Waiting::hand_back);
        }
        lanes.forget_idle(self.slot);
    }
}

/// Nothing panics while one of these is locked, so a poisoned lock protects a whole state all the same.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
