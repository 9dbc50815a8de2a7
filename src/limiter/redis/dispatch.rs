//! Many charges in one call: what waits at the same moment leaves together.
//!
//! A charge that finds its limiter idle is sent at once, by its own task. One that comes while others are under way
//! waits in a queue, and a flight takes as many as a batch holds: no timer delays anybody, and the busier the
//! limiter, the larger its batches. Flights are tasks that live while there is somebody to carry.
//!
//! On a plain server there is one queue. A cluster runs a script on keys of one hash slot only, so there each slot
//! has a queue and flights of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::asking::Asking;
use super::flight::{self, Flight};
use super::key;
use super::lane::{Answer, Lane, Waiting, Word};
use super::pool::Pool;
use super::reply::Told;
use super::request::{Op, Request};
use super::script::Script;
use super::source::SharedConnection;
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
    /// What the names of a charge's keys begin with: one for each quota.
    pub(super) scopes: Vec<String>,
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
    wire: Mutex<Option<Arc<dyn SharedConnection>>>,
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

impl Lanes {
    fn forget_idle(&mut self, slot: u16) {
        if self.by_slot.get(&slot).is_some_and(Lane::is_idle) {
            self.by_slot.remove(&slot);
        }
    }
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
    pub(super) fn wire(&self) -> Option<Arc<dyn SharedConnection>> {
        lock(&self.wire).as_ref().filter(|wire| wire.is_alive()).cloned()
    }

    pub(super) fn keep(&self, wire: &Arc<dyn SharedConnection>) {
        *lock(&self.wire) = Some(Arc::clone(wire));
    }

    /// Asks about one charge.
    pub(super) fn ask(self: &Arc<Self>, request: Request, deadline: Instant) -> Asking {
        Asking::new(Arc::clone(self), request, deadline)
    }

    /// Takes a charge in. One that is alone is under way once its flight is polled, all others are at once.
    ///
    /// # Errors
    ///
    /// If too many wait already.
    pub(super) fn submit(
        self: &Arc<Self>,
        request: Request,
        deadline: Instant,
    ) -> Result<(Ticket, Option<Flight>), Error> {
        let answered = self.route.pool.answered();
        let (asker, word) = oneshot::channel();
        let (number, slot, lone) = self.enter(request, deadline, Some(asker))?;
        Ok((Ticket { word, slot, number, answered }, lone))
    }

    /// Gives back what was decided for nobody. Best effort: without a runtime the units are lost, which errs on the
    /// safe side.
    pub(super) fn undo(self: &Arc<Self>, answer: Answer) {
        if let Answer { mut request, told: Told::Decided { verdict, left, .. }, .. } = answer
            && let Op::Check { cost: cost @ 1.., .. } = request.op
            && let Verdict::Allow | Verdict::Wait(_) = verdict
        {
            request.op = Op::Refund { cost, left };
            self.send_off(request);
        }
    }

    /// Sends what nobody waits for.
    pub(super) fn send_off(self: &Arc<Self>, request: Request) {
        if let Ok(runtime) = Handle::try_current()
            && let Ok((_, _, Some(lone))) = self.enter(request, Instant::now() + UNASKED, None)
        {
            runtime.spawn(lone);
        }
    }

    /// Why a charge was not decided by its deadline.
    pub(super) fn too_late(&self, ticket: &Ticket) -> Error {
        let lanes = lock(&self.lanes);
        let lane = lanes.by_slot.get(&ticket.slot);
        let unsent = lane.is_some_and(|lane| lane.holds_up(ticket.number));
        drop(lanes);
        if unsent && self.route.pool.answered() > ticket.answered {
            return Error::new(Class::Saturation, "more is asked than the connections carry");
        }
        self.route.pool.no_reply()
    }

    fn enter(
        self: &Arc<Self>,
        request: Request,
        deadline: Instant,
        asker: Option<oneshot::Sender<Word>>,
    ) -> Result<(u64, u16, Option<Flight>), Error> {
        let slot = if self.route.pool.is_clustered() { key::slot(&request.key) } else { 0 };
        let mut lanes = lock(&self.lanes);
        let Lanes { by_slot, next, waiting } = &mut *lanes;
        let number = *next;
        *next += 1;
        let lane = by_slot.entry(slot).or_default();
        let charge = Waiting { request, deadline, number, asker };
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
        lane.push(charge);
        *waiting += 1;
        if lane.flights < self.route.flights * self.route.pool.size() {
            lane.flights += 1;
            drop(lanes);
            tokio::spawn(flight::in_batches(self.seat(slot, false)));
        }
        Ok((number, slot, None))
    }

    fn seat(self: &Arc<Self>, slot: u16, lone: bool) -> Seat {
        Seat { dispatcher: Arc::clone(self), slot, lone, refunding: false, left: false }
    }
}

/// A flight's right to send for its lane. Given back when dropped, however the flight ended.
pub(super) struct Seat {
    pub(super) dispatcher: Arc<Dispatcher>,
    slot: u16,
    lone: bool,
    /// Whether its last batch had refunds on board.
    refunding: bool,
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
            lane.refunding &= !self.refunding;
            let most = self.dispatcher.route.batch;
            batch.reserve(lane.len().min(most));
            while batch.len() < most
                && let Some(charge) = lane.pop()
            {
                *waiting -= 1;
                if charge.is_wanted() {
                    batch.push(charge);
                }
            }
            // Refunds stand in front.
            let first = batch.first().map(|first| &first.request.op);
            self.refunding = matches!(first, Some(Op::Refund { .. }));
            lane.refunding |= self.refunding;
            if batch.is_empty() {
                lane.flights -= 1;
                self.left = true;
                lanes.forget_idle(self.slot);
            }
        }
        batch
    }

    /// Tells those that have waited since before `number` why they are not sent.
    pub(super) fn fail(&self, number: u64, error: &Error) {
        let mut lanes = lock(&self.dispatcher.lanes);
        let Lanes { by_slot, waiting, .. } = &mut *lanes;
        let Some(lane) = by_slot.get_mut(&self.slot) else { return };
        let gone = lane.take_before(number);
        *waiting -= gone.len();
        drop(lanes);
        gone.into_iter().for_each(|charge| charge.fail(error.clone()));
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
        lane.refunding &= !self.refunding;
        // A flight ends early only with its runtime; then those who are left ask again, from theirs.
        if lane.flights == 0 {
            let gone = lane.take_before(u64::MAX);
            *waiting -= gone.len();
            gone.into_iter().for_each(Waiting::hand_back);
        }
        lanes.forget_idle(self.slot);
    }
}

/// Nothing panics while one of these is locked, so a poisoned lock protects a whole state all the same.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
