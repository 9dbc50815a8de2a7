//! One task of a worker: it calls a limiter, and writes down the answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tower_sluice::limiter::Reservation;
use tower_sluice::{Charge, Error, Outcome};

use super::algorithms::Judged;
use super::trace::{Event, Row, nanos};
use super::was_lost;

/// A caller, the answers that it got, and when it is done.
pub struct Task {
    pub process: u16,
    pub number: u16,
    /// The number of tasks in each process.
    pub tasks: u16,
    pub limiter: Arc<dyn Judged>,
    pub dice: fastrand::Rng,
    pub end: Instant,
    pub most_calls: usize,
    pub rows: Vec<Row>,
    /// Calls begun, counted apart from the rows.
    pub calls: usize,
}

/// A reservation, and the call that made it.
#[derive(Debug)]
pub struct Held {
    reservation: Reservation,
    row: Row,
}

impl Task {
    pub fn is_done(&self) -> bool {
        self.calls >= self.most_calls || Instant::now() >= self.end
    }

    /// A key that no other task asks for.
    pub fn own_key(&self) -> u32 {
        u32::from(self.process) * u32::from(self.tasks) + u32::from(self.number)
    }

    /// Asks, and returns the answer, with the reservation if something was taken.
    pub async fn ask(&mut self, key: u32, cost: u64, patience: Duration) -> (Row, Option<Held>) {
        let charge = Charge::new(key.to_string()).cost(cost);
        let mut row = self.begin(key, cost);
        // Where nothing is reserved, the answer is a wait, after which the task asks again.
        let patience = if self.limiter.reserves() { patience } else { Duration::ZERO };
        let charge = charge.max_wait(patience);
        row.patience = micros(patience);
        let answer = self.limiter.check(&charge).await;
        row.received = nanos();
        let mut reservation = None;
        row.event = without_answer(&answer);
        if let Ok(mut decision) = told(&row, answer) {
            (row.event, row.wait) = match decision.outcome() {
                Outcome::Allow => (Event::Allowed, 0),
                Outcome::Wait(wait) => (Event::Waited, micros(wait)),
                Outcome::Deny { retry_after: Some(wait) } | Outcome::Retry(wait) => {
                    (Event::Denied, micros(wait))
                }
                Outcome::Deny { retry_after: None } => (Event::Never, 0),
                other => panic!("no algorithm answers {other:?}"),
            };
            row.place = decision.batch_position();
            row.now = micros(decision.decided_at().expect("told"));
            row.remaining = decision.remaining().expect("told").cast_signed();
            row.reset = micros(decision.reset_after().expect("told"));
            reservation = decision.take_reservation();
        }
        self.rows.push(row);
        (row, reservation.map(|reservation| Held { reservation, row }))
    }

    /// Gives a reservation back: a cancel if its slot is still ahead, else a refund.
    pub async fn refund(&mut self, held: Held) {
        let mut row = self.begin(held.row.key, held.row.cost.into());
        row.of = held.row.number;
        // By this machine's clock, from which the server's may be far.
        let due = held.row.received + held.row.wait.cast_unsigned() * 1_000;
        let answer = self.limiter.settle(held.reservation, 0).expect("its own").await;
        row.received = nanos();
        row.event = without_answer(&answer);
        if let Ok(settled) = told(&row, answer) {
            row.event = if row.sent < due { Event::Cancelled } else { Event::Refunded };
            row.units = u32::try_from(settled.given_back).expect("no more than was taken");
        }
        self.rows.push(row);
    }

    /// Settles a reservation at `actual` units or less: the call that made it cost so much.
    pub fn settle(&mut self, held: Held, actual: u64) {
        let actual = actual.min(held.row.cost.into());
        if self.limiter.settle(held.reservation, actual).is_ok() {
            let row = self.rows.iter_mut().rev().find(|row| row.number == held.row.number);
            row.expect("asked before").cost = u32::try_from(actual).expect("a small cost");
        }
    }

    fn begin(&mut self, key: u32, cost: u64) -> Row {
        self.calls += 1;
        Row {
            key,
            cost: u32::try_from(cost).expect("a small cost"),
            process: self.process,
            task: self.number,
            number: u32::try_from(self.calls).expect("a bounded number of calls"),
            event: Event::Error,
            place: 0,
            patience: 0,
            wait: 0,
            now: 0,
            remaining: 0,
            reset: 0,
            of: 0,
            units: 0,
            sent: nanos(),
            received: 0,
        }
    }
}

/// The event of a call without an answer.
fn without_answer<T>(answer: &Result<T, Error>) -> Event {
    match answer.as_ref().is_err_and(was_lost) {
        true => Event::Lost,
        false => Event::Error,
    }
}

/// Says why there is no answer, since a row has no room for words.
fn told<T>(row: &Row, answer: Result<T, Error>) -> Result<T, Error> {
    answer.inspect_err(|error| eprintln!("key {}: {error:?}", row.key))
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).expect("microseconds")
}
