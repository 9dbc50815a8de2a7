//! Random histories: every decision is that of the limiter without a cache. Time is paused.

use tower_sluice::algorithm::Quotas;

use super::SECOND;
use crate::*;

use support::dice::{step, times};

const START: Duration = Duration::from_secs(1_767_225_600);
const KEYS: [&str; 3] = ["a", "b", "c"];

/// The same limiter twice, the second one behind a cache.
struct Twins<A: Algorithm> {
    bare: Memory<A>,
    cached: tower_sluice::limiter::DenyCache<Memory<A>>,
    quotas: Quotas,
    /// The reservations that both have made and not settled yet.
    reservations: Vec<[Reservation; 2]>,
    repeated: usize,
    asked: usize,
}

impl<A: Algorithm> Twins<A> {
    fn new(algorithm: A) -> Self {
        let begun = Instant::now();
        let memory =
            |algorithm: A| Memory::new("twin", algorithm).clock(move || START + begun.elapsed());
        let quotas = algorithm.quota();
        let (bare, cached) = (memory(algorithm.clone()), memory(algorithm).deny_cache());
        let cached = cached.max_age(Duration::MAX);
        Self { bare, cached, quotas, reservations: Vec::new(), repeated: 0, asked: 0 }
    }

    async fn check(&mut self, charge: &Charge) -> [Decision; 2] {
        let mut answers =
            [self.bare.check(charge).await.unwrap(), self.cached.check(charge).await.unwrap()];
        let taken = answers.each_mut().map(Decision::take_reservation);
        assert_eq!(taken[0].is_some(), taken[1].is_some());
        if let [Some(bare), Some(cached)] = taken {
            self.reservations.push([bare, cached]);
        }
        match answers[1].origin() {
            Origin::Cache => self.repeated += 1,
            _ => self.asked += 1,
        }
        answers
    }

    /// Settles, penalizes or resets.
    async fn change(&mut self, dice: &mut Dice) {
        let charge = Charge::new(dice.pick(&KEYS)).cost(dice.pick(&[1, 2]));
        match dice.below(6) {
            0 => {
                self.bare.reset(charge.clone()).await.unwrap();
                self.cached.reset(charge).await.unwrap();
            }
            1 => {
                self.bare.penalize(charge.clone()).await.unwrap();
                self.cached.penalize(charge).await.unwrap();
            }
            _ if self.reservations.is_empty() => {}
            _ => {
                // Mostly the newest: most algorithms refund no other.
                let last = self.reservations.len() - 1;
                let any = dice.below(last + 1);
                let index = dice.pick(&[last, last, any]);
                let [bare, cached] = self.reservations.swap_remove(index);
                let cost = bare.cost();
                let actual = dice.pick(&[0, 0, cost / 2, cost, cost + 1]);
                assert!(self.bare.settle(bare, actual).is_ok());
                assert!(self.cached.settle(cached, actual).is_ok());
            }
        }
    }
}

/// Plays histories. `costs` are those of a key: with a single one every answer is exact.
async fn play<A: Algorithm>(
    algorithm: impl IntoAlgorithm<Algorithm = A>,
    costs: &[u64],
    is_exact: bool,
) {
    let algorithm = algorithm.into_algorithm();
    let name = format!("{algorithm:?}");
    let (mut repeated, mut asked) = (0, 0);
    for history in 1..=8 * times() as u64 {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15 ^ history);
        let mut twins = Twins::new(algorithm.clone());
        let costs = if is_exact { vec![dice.pick(costs)] } else { costs.to_vec() };
        for number in 0..300 {
            match dice.below(24) {
                0 => twins.change(&mut dice).await,
                1 | 2 => {
                    let micros = step(&mut dice, &twins.quotas) / dice.pick(&[1, 1, 2, 7]);
                    advance(Duration::from_micros(micros.cast_unsigned())).await;
                }
                _ => {
                    let max_wait = dice.pick(&[0, 0, 0, 50_000, 200_000, 5_000_000]);
                    let charge = Charge::new(dice.pick(&KEYS)).cost(dice.pick(&costs));
                    let charge = charge.max_wait(Duration::from_micros(max_wait));
                    let [bare, cached] = twins.check(&charge).await;
                    let at = format!("{name}, history {history}, {number}: {bare:?}, {cached:?}");
                    if is_exact {
                        assert_eq!(bare.outcome(), cached.outcome(), "{at}");
                        assert_eq!(bare.reset_after(), cached.reset_after(), "{at}");
                        assert_eq!(bare.quota(), cached.quota(), "{at}");
                    } else {
                        is_same_or_earlier(&bare, &cached, &at);
                    }
                }
            }
        }
        (repeated, asked) = (repeated + twins.repeated, asked + twins.asked);
    }
    println!("histories algorithm={name} repeated={repeated} asked={asked}");
    assert!(repeated > 200 && asked > 200, "{name}: {repeated} repeated, {asked} asked");
}

/// A repeated refusal of a smaller cost says when that cost fits.
fn is_same_or_earlier(bare: &Decision, cached: &Decision, at: &str) {
    if cached.origin() != Origin::Cache {
        return assert_eq!(bare.outcome(), cached.outcome(), "{at}");
    }
    let Outcome::Deny { retry_after } = bare.outcome() else { panic!("{at}") };
    let sooner = cached.retry_after().expect("a time to come back");
    assert!(retry_after.is_none_or(|retry_after| sooner <= retry_after), "{at}");
}

/// Plays them with one cost for each history, and with several.
async fn play_both(algorithm: impl IntoAlgorithm) {
    let algorithm = algorithm.into_algorithm();
    play(algorithm.clone(), &[1, 1, 2, 3], true).await;
    play(algorithm, &[1, 1, 2, 3, 5, 9], false).await;
}

const QUOTA: Quota = Quota::per_second(5);

#[tokio::test(start_paused = true)]
async fn every_algorithm_decides_as_without_a_cache() {
    play_both(TokenBucket::new(QUOTA)).await;
    play_both(TokenBucket::new(Quota::new(3, SECOND).burst(7))).await;
    play_both(FixedWindow::new(QUOTA)).await;
    play_both(FixedWindow::new(QUOTA).anchored()).await;
    play_both(SlidingLog::new(QUOTA)).await;
    play_both(SlidingWindow::new(QUOTA)).await;
    play_both(SlidingCounter::new(QUOTA)).await;
    play_both(SmoothBursty::new(QUOTA)).await;
    play_both(SmoothWarmingUp::new(QUOTA, SECOND)).await;
    play_both((TokenBucket::new(QUOTA), FixedWindow::new(Quota::per_minute(20)))).await;
}

/// Held units do not refill, so a time to come back does not come nearer while they are held.
#[tokio::test(start_paused = true)]
async fn what_is_held_is_refused_as_without_a_cache() {
    play(Budget::new(QUOTA), &[1, 1, 2, 3, 5, 9], false).await;
    play(Budget::new(QUOTA).max_hold(SECOND), &[1, 1, 2, 3, 5, 9], false).await;
    play(Budget::new(Quota::new(3, SECOND).burst(7)).max_hold(SECOND), &[1, 2], false).await;
}

/// A charge that waits for its own cost never fits at once, so its time does not come nearer.
#[tokio::test(start_paused = true)]
async fn what_waits_for_its_own_cost_is_refused_as_without_a_cache() {
    play(SmoothBursty::new(QUOTA).wait_for_own_cost(), &[1, 1, 2, 3, 5, 9], false).await;
    play(SmoothWarmingUp::new(QUOTA, SECOND).wait_for_own_cost(), &[1, 2, 3, 5], false).await;
}
