//! Four ways to call a limiter, each of which finds what the others miss, and one for leases.
//!
//! Saturation alone is not enough: a key that expires a millisecond early passes it. Only a caller
//! that comes back right at the edge notices.

use std::sync::Arc;
use std::time::Duration;

use tower_sluice::Quota;

use super::algorithms::{Judged, leased};
use super::task::Task;
use super::trace::{Event, Row, nanos};

/// Keys that all tasks share under saturation.
const SHARED: u32 = 4;

/// Tasks of a process that probe edges: more would be late for them.
const PROBES: u16 = 4;

/// Tasks of a process that own keys of mixed use: with more, each asks too seldom to be refused.
const OWNERS: u16 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// All tasks ask without pause, costs 1 to 3.
    Saturating,
    /// One task to a key comes back within 2 ms of each wait, reset and end of a key's life.
    Sparse,
    /// On and off, with exponential gaps.
    Bursty,
    /// Every cost from 0 to one too many, with refunds and cancels; one task to a key, since a
    /// refund is answered without the instant that would order it among others.
    Mixed,
    /// All tasks share a few busy keys, on and off, with leases. Some of the units come back.
    Leased,
}

impl Workload {
    /// Those without leases.
    pub const ALL: [Self; 4] = [Self::Saturating, Self::Sparse, Self::Bursty, Self::Mixed];

    pub fn name(self) -> &'static str {
        match self {
            Self::Saturating => "saturating",
            Self::Sparse => "sparse",
            Self::Bursty => "bursty",
            Self::Mixed => "mixed",
            Self::Leased => "leased",
        }
    }

    pub fn called(name: &str) -> Self {
        let all = Self::ALL.into_iter().chain([Self::Leased]);
        all.into_iter().find(|workload| workload.name() == name).expect("a known workload")
    }

    /// Returns the limiter that is called, over a limiter in Redis.
    pub fn limiter(self, inner: Arc<dyn Judged>) -> Arc<dyn Judged> {
        match self {
            Self::Leased => leased(inner),
            _ => inner,
        }
    }

    /// Returns the quota of the limiter, with a burst for those that know bursts. A unit takes a
    /// fraction of a microsecond in all but the sparse one, whose edges fall on the milliseconds of
    /// expiry.
    pub fn quota(self, with_burst: fn(Quota, u64) -> Quota) -> Quota {
        let (limit, millis, burst) = match self {
            Self::Saturating => (210, 500, 120),
            Self::Sparse => (20, 100, 20),
            Self::Bursty => (63, 200, 30),
            Self::Mixed => (9, 20, 8),
            Self::Leased => (1_000, 200, 500),
        };
        with_burst(Quota::new(limit, Duration::from_millis(millis)), burst)
    }

    pub async fn run(self, task: &mut Task, capacity: u64) {
        match self {
            Self::Saturating => saturating(task).await,
            Self::Sparse if task.number < PROBES => sparse(task, capacity).await,
            Self::Bursty => bursty(task).await,
            Self::Mixed if task.number < OWNERS => mixed(task, capacity).await,
            Self::Leased => busy(task).await,
            Self::Sparse | Self::Mixed => {}
        }
    }
}

async fn saturating(task: &mut Task) {
    while !task.is_done() {
        let (key, cost) = (task.dice.u32(..SHARED), task.dice.u64(1..=3));
        // Half of the keys are reserved ahead, half admit now or not at all.
        let patience = Duration::from_millis(if key % 2 == 0 { 0 } else { 200 });
        task.ask(key, cost, patience).await;
    }
}

async fn sparse(task: &mut Task, capacity: u64) {
    let key = task.own_key();
    while !task.is_done() {
        let cost = task.dice.u64(1..=capacity);
        let patience = Duration::from_millis(task.dice.u64(..3) * 5);
        let (mut told, _) = task.ask(key, cost, patience).await;
        while told.event == Event::Denied && !task.is_done() {
            arrive(task, &told, told.now + told.wait).await;
            told = task.ask(key, cost, Duration::ZERO).await.0;
        }
        match task.dice.u8(..6) {
            0 => arrive(task, &told, told.now + told.reset).await,
            1 => arrive(task, &told, end_of_life(&told)).await,
            _ => continue,
        }
        task.ask(key, capacity, Duration::ZERO).await;
    }
}

/// A millisecond after it is as good as new, from when on its key might expire.
fn end_of_life(told: &Row) -> i64 {
    (told.now + told.reset + 999) / 1_000 * 1_000 + 1_000
}

/// Sleeps until some instant within 2 ms of `at`, by the server's clock. It is 0 after a call
/// without an answer.
async fn arrive(task: &mut Task, told: &Row, at: i64) {
    // The server's clock may be far from this machine's. The call was decided between these two.
    let decided = told.sent / 2 + told.received / 2;
    let from_then = (at - told.now + task.dice.i64(-2_000..=2_000)).max(0).cast_unsigned() * 1_000;
    let at = decided + from_then;
    tokio::time::sleep(Duration::from_nanos(at.saturating_sub(nanos()))).await;
}

async fn bursty(task: &mut Task) {
    // Two tasks of each process for a key: with more, they would never pause together.
    let key = u32::from(task.number / 2);
    while !task.is_done() {
        for _ in 0..task.dice.u8(1..=20) {
            let (cost, patience) = (task.dice.u64(1..=3), [0, 0, 20, 500][task.dice.usize(..4)]);
            task.ask(key, cost, Duration::from_millis(patience)).await;
        }
        let gap = -0.4 * (1.0 - task.dice.f64()).ln();
        tokio::time::sleep(Duration::from_secs_f64(gap)).await;
    }
}

async fn mixed(task: &mut Task, capacity: u64) {
    let key = task.own_key();
    let mut reservations = Vec::new();
    while !task.is_done() {
        match task.dice.u8(..8) {
            // The newest reservation is the one that a bucket can give back.
            0 if !reservations.is_empty() => {
                task.refund(reservations.remove(reservations.len() - 1)).await
            }
            1 if !reservations.is_empty() => {
                let any = task.dice.usize(..reservations.len());
                task.refund(reservations.swap_remove(any)).await;
            }
            2 => tokio::time::sleep(Duration::from_millis(task.dice.u64(1..30))).await,
            _ => {
                let most = [1, capacity + 1][task.dice.usize(..2)];
                let cost = task.dice.u64(0..=most);
                let patience = [0, 3, 20, 100][task.dice.usize(..4)];
                let (_, held) = task.ask(key, cost, Duration::from_millis(patience)).await;
                reservations.extend(held);
            }
        }
        // What is not given back soon stays taken.
        if reservations.len() > 8 {
            reservations.remove(0);
        }
    }
}

async fn busy(task: &mut Task) {
    let mut held = Vec::new();
    while !task.is_done() {
        let key = task.dice.u32(..SHARED);
        for _ in 0..task.dice.u16(1..=100) {
            let cost = [1, 1, 1, 1, 1, 2, 3][task.dice.usize(..7)];
            let patience = Duration::from_millis([0, 0, 0, 0, 5][task.dice.usize(..5)]);
            let (told, reservation) = task.ask(key, cost, patience).await;
            if told.event == Event::Denied {
                break;
            }
            held.extend(reservation.filter(|_| task.dice.u8(..4) == 0));
            if held.len() > 16 {
                let one = held.swap_remove(task.dice.usize(..held.len()));
                let actual = task.dice.u64(..=cost);
                task.settle(one, actual);
            }
        }
        tokio::time::sleep(Duration::from_micros(task.dice.u64(..10_000))).await;
    }
}
