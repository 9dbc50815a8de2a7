//! Storms of refunds: thousands of callers hang up at once, at the head of a queue, in its
//! middle or at its tail.
//!
//! Whatever comes back, the bound must hold for what is kept and for all that is reserved
//! afterwards; and of what the spec lets a reservation give back, nearly all must come.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tower_sluice::limiter::Reservation;
use tower_sluice::{Charge, Outcome, Quota};

use crate::{crew, turn};
use support::Server;
use support::trial::algorithms::{Algorithm, Judged, Site, chosen, pool};
use support::trial::model::{Grant, Mark, Model};

const START: u64 = 1_767_225_600_000_000;

/// One key at one instant, and every reservation that still stands.
struct Queue {
    limiter: Arc<dyn Judged>,
    model: Box<dyn Model>,
    held: Vec<Held>,
}

struct Held {
    grant: Grant,
    mark: Mark,
    reservation: Reservation,
}

impl Queue {
    fn new(algorithm: &Algorithm, server: &Server, quota: Quota) -> Self {
        let clock = Some(Arc::new(AtomicU64::new(START)));
        let limiter = (algorithm.limiter)(quota, Site { clock, ..Site::new(pool(&server.url())) });
        Self { limiter, model: (algorithm.model)(quota), held: Vec::new() }
    }

    /// Reserves one unit. Returns whether there was a slot for it.
    async fn reserve(&mut self) -> bool {
        let now = i128::from(START);
        let charge = Charge::new("queue").max_wait(Duration::from_secs(60));
        let mut decision = self.limiter.check(&charge).await.expect("a decision");
        let wait = match decision.outcome() {
            Outcome::Allow => Duration::ZERO,
            Outcome::Wait(wait) => wait,
            _ => return false,
        };
        let at = now + i128::try_from(wait.as_micros()).expect("a wait");
        let mark = self.model.take(now, at, 1);
        let reservation = decision.take_reservation().expect("reserved");
        self.held.push(Held { grant: (at, 1), mark, reservation });
        true
    }

    /// Gives all waits back, the latest first.
    async fn unwind(&mut self) {
        let now = i128::from(START);
        while let Some(Held { mark, reservation, .. }) = self.held.pop_if(|held| held.grant.0 > now)
        {
            let units = self.model.returnable(now, 1, mark);
            self.model.put_back(mark, units);
            let settled = self.limiter.settle(reservation, 0).expect("its own").await;
            assert_eq!(i128::from(settled.expect("an answer").given_back), units);
        }
    }

    /// Refunds a number of reservations at once; returns the units that may come back
    /// and those that did.
    async fn storm(&mut self, from: usize, count: usize) -> (i128, i128) {
        let now = i128::from(START);
        let gone: Vec<_> = self.held.drain(from..from + count).collect();
        let mut most = 0;
        for Held { mark, .. } in gone.iter().rev() {
            let units = self.model.returnable(now, 1, *mark);
            self.model.put_back(*mark, units);
            most += units;
        }
        let mut refunds = JoinSet::new();
        for Held { reservation, .. } in gone {
            refunds.spawn(self.limiter.settle(reservation, 0).expect("its own"));
        }
        let answers = refunds.join_all().await;
        let back =
            answers.into_iter().map(|one| i128::from(one.expect("an answer").given_back)).sum();
        (most, back)
    }

    fn excess(&self) -> usize {
        let mut grants: Vec<_> = self.held.iter().map(|held| held.grant).collect();
        grants.sort_unstable();
        self.model.excess(&grants)
    }
}

#[test]
fn storms_of_refunds_break_no_bound_and_lose_nothing_that_may_come_back() {
    let _turn = turn();
    let cancels: usize = crew::number("ORACLE_CANCELS", 50);
    let reservations = 3 * cancels;
    // All of it is reserved within a third of the horizon.
    let quota = Quota::new(reservations as u64, Duration::from_secs(20));
    for algorithm in chosen().filter(|algorithm| algorithm.reserves) {
        for (place, from) in [("head", 0), ("middle", cancels), ("tail", 2 * cancels)] {
            let server = Server::with(&[]);
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut queue = Queue::new(algorithm, &server, quota);
                // Charges that are admitted at once are no part of the queue.
                while queue.held.last().is_none_or(|last| last.grant.0 == i128::from(START)) {
                    assert!(queue.reserve().await, "{}", algorithm.name);
                }
                let begin = queue.held.len() - 1;
                while queue.held.len() < begin + reservations {
                    assert!(queue.reserve().await, "{}", algorithm.name);
                }
                let (most, back) = queue.storm(begin + from, cancels).await;
                while queue.held.len() < begin + 2 * reservations && queue.reserve().await {}
                println!(
                    "oracle algorithm={} storm={place} cancels={cancels} refundable={most} \
                     returned={back} over={}",
                    algorithm.name,
                    queue.excess()
                );
                assert_eq!(queue.excess(), 0, "{} {place}", algorithm.name);
                assert!(back <= most && back * 100 >= most * 99, "{} {place}", algorithm.name);
            });
        }
    }
}

/// Then each slot is the model's: a waiter of several quotas leaves nothing behind.
#[test]
fn after_waiters_hang_up_one_by_one_every_slot_is_the_models() {
    let _turn = turn();
    let quota = Quota::new(45, Duration::from_secs(1));
    for algorithm in chosen().filter(|algorithm| algorithm.reserves) {
        let server = Server::with(&[]);
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut queue = Queue::new(algorithm, &server, (algorithm.quota)(quota, 5));
            for waiters in [50, 1, 200] {
                while queue.held.len() < waiters {
                    let due = queue.model.earliest(i128::from(START), 1);
                    assert!(queue.reserve().await, "{}", algorithm.name);
                    let told = queue.held.last().map(|held| held.grant.0);
                    assert_eq!(told, due, "{}", algorithm.name);
                }
                queue.unwind().await;
            }
        });
    }
}
