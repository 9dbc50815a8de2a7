//! Members whose keys are in different slots: they are asked in turn, and all or nothing holds.

use support::dice::Dice;
use tower_sluice::algorithm::{AnyAlgorithm, InLua};

use super::*;

/// Callers at one instant of the clock.
const CALLERS: usize = 48;
const INSTANTS: usize = 40;
/// The period of each member's quota, in microseconds.
const PERIOD: u64 = 1_000_000;
const LIMITS: [u64; 2] = [40, 25];

/// What the callers at one instant got.
#[derive(Default)]
struct Sums {
    admitted: u64,
    refunded: u64,
    refused: usize,
    hung_up: usize,
}

/// The clock stands still while callers ask, refund and hang up. So each member has one right
/// number of units at an instant, however the calls of the two slots overlap. `pass` says what a
/// member of a limit has after the clock went from an instant to a later one. `is_exact`: every
/// refund comes back, so that in the end each member has what was not admitted.
async fn ask_in_two_slots<A: InLua>(
    new: impl Fn(Quota) -> A,
    is_exact: bool,
    pass: impl Fn(u64, u64, u64, u64) -> u64,
) where
    AnyAlgorithm: From<A>,
{
    let cluster = Cluster::start().await;
    let pool = pool(&cluster);
    let clock = Arc::new(AtomicU64::new(1_700_000_000_000_000));
    let [user, team] = [("user", LIMITS[0]), ("team", LIMITS[1])].map(|(name, limit)| {
        Redis::new(name, new(Quota::new(limit, Duration::from_micros(PERIOD))), pool.clone())
            .decision_timeout(LONG)
            .clock(support::clock_at(&clock))
    });
    let [own, common] =
        [cluster.share(0), cluster.share(2)].map(|slots| keys_in(slots).next().expect("a key"));
    let shared = common.clone();
    let both = AllAtOnce::new((user.clone(), team.clone()), move |charge: &Charge| {
        [charge.clone(), Charge::new(shared.as_str())]
    });
    let mut has = LIMITS;
    let (mut dice, mut sum) = (Dice(0x5eed), Sums::default());
    for instant in 0..INSTANTS {
        let mut asking = JoinSet::new();
        for caller in 0..CALLERS {
            let charge = Charge::new(own.as_str()).cost(1 + dice.below(4) as u64);
            let (hangs_up, refunds) = (dice.below(6) == 0, dice.below(4) == 0);
            // Some begin while others are between their two calls.
            let turns = dice.below(caller + 1);
            let both = both.clone();
            asking.spawn(async move {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                let patience = if hangs_up { Duration::from_micros(300) } else { LONG };
                let Ok(decision) = timeout(patience, both.check(&charge)).await else {
                    return Sums { hung_up: 1, ..Sums::default() };
                };
                let mut decision = decision.expect("a decision");
                match decision.take_reservation().filter(|_| refunds) {
                    _ if !decision.is_admitted() => Sums { refused: 1, ..Sums::default() },
                    None => Sums { admitted: charge.units(), ..Sums::default() },
                    Some(reservation) => {
                        both.refund(reservation).expect("its own").await.expect("a refund");
                        Sums { refunded: charge.units(), ..Sums::default() }
                    }
                }
            });
        }
        let mut admitted = 0;
        while let Some(got) = asking.join_next().await {
            let got = got.expect("a caller");
            admitted += got.admitted;
            sum.refunded += got.refunded;
            sum.refused += got.refused;
            sum.hung_up += got.hung_up;
        }
        sum.admitted += admitted;
        assert!(admitted <= has[0].min(has[1]), "instant {instant}: {admitted} of {has:?}");
        has = has.map(|units| units - admitted);
        let left = async || {
            let peeks = (user.peek(own.as_str()).await, team.peek(common.as_str()).await);
            [peeks.0, peeks.1].map(|peek| peek.expect("a decision").remaining().expect("known"))
        };
        let left_now = left().await;
        assert!(left_now[0] <= has[0] && left_now[1] <= has[1], "{left_now:?}, not {has:?}");
        if is_exact {
            // Units of callers that hung up, and of refused ones, come back a moment later.
            let what = format!("instant {instant}: {has:?} are left");
            eventually(&what, async || left().await == has).await;
        }
        let before = clock.load(Relaxed);
        let after = before + dice.pick(&[0, 1, 39_999, 40_000, 250_000, 700_000]);
        clock.store(after, Relaxed);
        for (units, limit) in has.iter_mut().zip(LIMITS) {
            *units = pass(*units, limit, before, after);
        }
    }
    let Sums { admitted, refunded, refused, hung_up } = sum;
    println!("admitted={admitted} refunded={refunded} refused={refused} hung_up={hung_up}");
    assert!(admitted > 100 && refused > 300 && hung_up > 30);
}

// Case 113.
#[tokio::test]
async fn windows_in_two_slots_admit_what_both_have_and_every_other_unit_comes_back() {
    let pass = |units, limit, before: u64, after: u64| match after / PERIOD == before / PERIOD {
        true => units,
        false => limit,
    };
    ask_in_two_slots(FixedWindow::new, true, pass).await;
}

/// A bucket may keep the units of a refund, and never has more than was not admitted.
// Case 113.
#[tokio::test]
async fn buckets_in_two_slots_admit_no_more_than_both_have() {
    // A unit that has come in part is counted as a whole one: a bound from above.
    let pass = |units: u64, limit: u64, before: u64, after: u64| {
        (units + (limit * (after - before)).div_ceil(PERIOD)).min(limit)
    };
    ask_in_two_slots(TokenBucket::new, false, pass).await;
}
