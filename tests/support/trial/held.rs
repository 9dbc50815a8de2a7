//! Charges that are held until they are settled, with a clock of the trial's own: every answer is
//! that of a model that keeps each hold by itself, and what is settled keeps to its bound.
//!
//! Some holders end without settling, some settle when it is too late, and some waiters leave. In
//! every third history some use more than they hold: the excess is owed, up to the longest debt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::runtime::Builder;
use tower_sluice::algorithm::Budget;
use tower_sluice::limiter::Reservation;
use tower_sluice::{Charge, Decision, Limiter, LimiterExt, Outcome, Pool, Quota, Redis};

use super::algorithms::pool;

const START: i128 = 1_767_225_600_000_000;
const STEPS: usize = 150;

/// The quota, the longest hold and the longest wait: times in µs.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub limit: i128,
    pub period: i128,
    pub burst: i128,
    pub hold: i128,
    pub horizon: i128,
    pub debt: i128,
}

/// The longest debt of a budget unless another one is set.
pub const YEAR: i128 = 365 * 86_400_000_000;

#[rustfmt::skip]
const TERMS: [Terms; 7] = [
    Terms { limit: 5, period: 1_000_000, burst: 5, hold: 1_000_000, horizon: 1_000_000, debt: YEAR },
    Terms { limit: 3, period: 1_000_000, burst: 10, hold: 2_500_000, horizon: 60_000_000, debt: 900_000 },
    Terms { limit: 7, period: 10, burst: 12, hold: 40, horizon: 30, debt: YEAR },
    Terms { limit: 1_000_003, period: 1_000_000, burst: 9, hold: 5, horizon: 5, debt: 7 },
    Terms { limit: 1, period: 7, burst: 1, hold: 100, horizon: 100, debt: 0 },
    Terms { limit: 3, period: 10_000_000, burst: 2, hold: 1_000_000, horizon: 500_000, debt: 60_000_000 },
    Terms { limit: 7, period: 10, burst: 12, hold: 40, horizon: 0, debt: 11 },
];

/// A charge that was admitted: its slot, and the era in which it came.
#[derive(Clone, Copy, Debug)]
struct Hold {
    number: usize,
    units: i128,
    slot: i128,
    era: i128,
}

/// A budget of single holds. Instants are in µs over the limit, so that a unit takes the period.
#[derive(Debug)]
pub struct Model {
    terms: Terms,
    full: i128,
    holds: Vec<Hold>,
    /// The units that are spent and have not refilled, as far as only the bound counts them, and
    /// since when.
    level: (i128, i128),
    is_over: bool,
}

impl Model {
    pub fn new(terms: Terms) -> Self {
        Self { terms, full: 0, holds: Vec::new(), level: (0, 0), is_over: false }
    }

    fn held(&self) -> i128 {
        self.holds.iter().map(|hold| hold.units).sum()
    }

    /// Spends units at an instant, and counts them for the bound.
    fn spend(&mut self, units: i128, at: i128) {
        let Terms { limit, period, burst, .. } = self.terms;
        self.full = self.full.max(at * limit) + units * period;
        let refilled = (at - self.level.1) * limit;
        self.level = ((self.level.0 - refilled).max(0) + units * period, at);
        self.is_over |= self.level.0 > burst * period;
    }

    /// Counts a hold as spent when its time is over, if nobody settled it in time.
    pub fn go_on(&mut self, now: i128) {
        let end = |hold: &Hold| (hold.era + 2) * self.terms.hold;
        let mut over: Vec<_> = self
            .holds
            .iter()
            .filter(|hold| end(hold) <= now)
            .map(|one| (end(one), one.units))
            .collect();
        let kept = self.holds.iter().filter(|hold| end(hold) > now).copied().collect();
        over.sort_unstable();
        self.holds = kept;
        over.into_iter().for_each(|(at, units)| self.spend(units, at));
    }

    /// Returns the instant at which a charge fits, and whether it may wait for that.
    pub fn fits(&self, now: i128, cost: i128) -> Option<(i128, bool)> {
        let Terms { limit, period, burst, .. } = self.terms;
        let (full, room) = (self.full, burst - self.held() - cost);
        let up = |time: i128| -(-time).div_euclid(limit);
        if cost > burst {
            None
        } else if room < 0 {
            Some((up(full.max(now * limit) - room * period), false))
        } else {
            Some((now.max(up(full - room * period)), true))
        }
    }

    pub fn hold(&mut self, number: usize, now: i128, slot: i128, units: i128) {
        self.holds.push(Hold { number, units, slot, era: now / self.terms.hold });
        let Terms { limit, period, burst, .. } = self.terms;
        let ahead = (self.full - slot * limit).max(0);
        self.is_over |= ahead + self.held() * period > burst * period;
    }

    /// Holds the units of a hold as if they were charged now, if they still are held.
    pub fn renew(&mut self, number: usize, now: i128) -> bool {
        let held = self.holds.iter_mut().find(|hold| hold.number == number);
        held.is_some_and(|hold| {
            hold.era = now / self.terms.hold;
            true
        })
    }

    /// Gives spent units back.
    pub fn grant(&mut self, now: i128, units: i128) {
        self.full = (self.full - units * self.terms.period).max(now * self.terms.limit);
    }

    /// Settles a hold of `units`. Returns the units that are free again, and those that were not
    /// taken.
    pub fn settle(
        &mut self,
        (number, units): (usize, i128),
        now: i128,
        used: i128,
    ) -> (i128, i128) {
        let Some(place) = self.holds.iter().position(|hold| hold.number == number) else {
            return (0, (used - units).max(0));
        };
        self.holds.remove(place);
        // All that is held besides comes first, and what it held itself always fits.
        let Terms { limit, period, burst, debt, .. } = self.terms;
        let others = self.full.max(now * limit) + self.held() * period;
        let free = ((now + debt) * limit + burst * period - others).max(0) / period;
        let spent = used.min(free.max(units));
        if spent > 0 {
            self.spend(spent, now);
        }
        ((units - used).max(0), used - spent)
    }

    /// Returns the units that remain, and the time until the key is as good as new.
    pub fn report(&self, now: i128) -> (i128, i128) {
        let Terms { limit, period, burst, .. } = self.terms;
        let free = (burst - self.held()) * period;
        let full = self.full;
        let ahead = (full - now * limit).max(0);
        let reset = full.max(now * limit) + self.held() * period;
        ((free - ahead).max(0) / period, -(-reset).div_euclid(limit) - now)
    }
}

/// Walks so many histories over the server at `url`. Returns how many settlements were made, or
/// what is wrong.
pub fn walk(url: &str, histories: u64) -> Result<usize, String> {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut settlements = 0;
        for history in 0..histories {
            settlements += walk_one(pool(url), history).await?;
        }
        Ok(settlements)
    })
}

/// Walks one history over `pool`, on one key of the limiter that [`named`] returns. Returns how
/// many settlements were made, or what is wrong.
pub async fn walk_one(pool: Pool, history: u64) -> Result<usize, String> {
    let terms = TERMS[history as usize % TERMS.len()];
    let walked = one(pool, terms, history).await;
    walked.map_err(|why| format!("{terms:?}, history {history}: {why}"))
}

/// The limiter of a history, by the server's clock.
pub fn named(pool: Pool, history: u64) -> Redis<Budget> {
    let terms = TERMS[history as usize % TERMS.len()];
    let quota = Quota::new(terms.limit as u64, micros(terms.period)).burst(terms.burst as u64);
    let budget = Budget::new(quota).max_hold(micros(terms.hold)).horizon(micros(terms.horizon));
    let budget = budget.max_debt(micros(terms.debt));
    Redis::new(format!("held-{history}"), budget, pool).decision_timeout(Duration::from_secs(30))
}

/// The key of every history.
pub const KEY: &str = "key";

fn micros(micros: i128) -> Duration {
    Duration::from_micros(micros.try_into().expect("a time"))
}

fn reported(decision: &Decision) -> (i128, i128) {
    let reset = decision.reset_after().expect("reported").as_micros();
    (decision.remaining().expect("reported").into(), reset as i128)
}

async fn one(pool: Pool, terms: Terms, history: u64) -> Result<usize, String> {
    let clock = Arc::new(AtomicU64::new(START as u64));
    let limiter = named(pool, history).clock(crate::clock_at(&clock));
    let mut dice = fastrand::Rng::with_seed(history);
    let mut model = Model::new(terms);
    let mut taken: Vec<(Hold, Reservation)> = Vec::new();
    let (mut now, mut settlements) = (START, 0);
    let uses_more = history.is_multiple_of(3);
    let unit = (terms.period / terms.limit).max(1);
    for number in 0..STEPS {
        let to_era = terms.hold - now % terms.hold;
        let steps = [0, 0, 0, 0, 1, unit - 1, unit, unit + 1, 2 * unit, to_era - 1, to_era];
        now += match dice.u8(..12) {
            0 => to_era + terms.hold,
            _ => steps[dice.usize(..steps.len())],
        };
        clock.store(now as u64, Relaxed);
        model.go_on(now);
        if dice.u8(..2) == 0 && !taken.is_empty() {
            let (hold, reservation) = taken.swap_remove(dice.usize(..taken.len()));
            let used = match dice.u8(..4) {
                // A waiter leaves, or nothing was used.
                _ if hold.slot > now => 0,
                0 => 0,
                1 => hold.units,
                2 if uses_more => hold.units + dice.i64(1..=3 * terms.burst as i64) as i128,
                _ => dice.i64(0..=hold.units as i64).into(),
            };
            // Its holder has ended.
            if dice.u8(..12) == 0 {
                continue;
            }
            settlements += 1;
            let settled = limiter.settle(reservation, used as u64).expect("its own").await;
            let settled = settled.map_err(|error| format!("{number}: {error:?}"))?;
            let right = model.settle((hold.number, hold.units), now, used);
            if (settled.given_back.into(), settled.not_taken.into()) != right {
                return Err(format!("{number}: {settled:?}, not {right:?}: {hold:?}"));
            }
            let peek = limiter.peek(KEY).await.map_err(|error| format!("{number}: {error:?}"))?;
            if reported(&peek) != model.report(now) {
                return Err(format!(
                    "{number}: {:?}, not {:?}",
                    reported(&peek),
                    model.report(now)
                ));
            }
            continue;
        }
        let cost = [0, 1, 1, 2, terms.burst, terms.burst + 1][dice.usize(..6)];
        let patience = [0, 0, unit, terms.hold, 60_000_000][dice.usize(..5)];
        let charge = Charge::new(KEY).cost(cost as u64).max_wait(micros(patience));
        let answer = limiter.check(&charge).await;
        let mut decision = answer.map_err(|error| format!("{number}: {error:?}"))?;
        let most = patience.min(terms.horizon).min(terms.hold);
        let right = match model.fits(now, cost) {
            None => Outcome::Deny { retry_after: None },
            Some((at, _)) if at == now => Outcome::Allow,
            Some((at, true)) if cost > 0 && at - now <= most => Outcome::Wait(micros(at - now)),
            Some((at, _)) => Outcome::Deny { retry_after: Some(micros(at - now)) },
        };
        if decision.outcome() != right {
            return Err(format!("{number}: {:?}, not {right:?}", decision.outcome()));
        }
        if let Some(reservation) = decision.take_reservation() {
            let slot = model.fits(now, cost).map_or(now, |(at, _)| at);
            model.hold(number, now, slot, cost);
            taken.push((*model.holds.last().expect("held"), reservation));
        }
        if reported(&decision) != model.report(now) {
            return Err(format!(
                "{number}: {:?}, not {:?}",
                reported(&decision),
                model.report(now)
            ));
        }
    }
    // The bound is the model's too: it holds for the limiter, which answered alike.
    if model.is_over && !uses_more {
        return Err(String::from("over the bound"));
    }
    Ok(settlements)
}
