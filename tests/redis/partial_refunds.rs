//! Parts of a charge are given back alike by a script and by its Rust twin.

use tower_sluice::algorithm::{Mark, Refund, Report};

use super::*;

use support::dice::step;
use support::script::{self, Call, Form};

const SECOND: Duration = Duration::from_secs(1);
const START: u64 = 1_767_225_600_000_000;

fn micros(limit: u64, period: u64) -> Quota {
    Quota::new(limit, Duration::from_micros(period))
}

/// Parts of charges are given back, by the script itself and by its twin. Returns how many units.
async fn compare_parts<A: InLua>(
    algorithm: impl IntoAlgorithm<Algorithm = A>,
    connection: &mut MultiplexedConnection,
) -> i64 {
    let algorithm = algorithm.into_algorithm();
    let quotas = algorithm.quota();
    let rule = algorithm.rule(quotas.clone()).expect("a rule");
    let mut sum = 0;
    for history in 1..=10 * times() as u64 {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15 ^ history);
        let keys: Vec<_> =
            (0..quotas.as_slice().len()).map(|part| format!("{history} {part}")).collect();
        let mut now = START as i64;
        let mut state: Option<A::State> = None;
        let mut reservations: Vec<(i64, Mark)> = Vec::new();
        for _ in 0..60 {
            now += if dice.below(3) == 0 { step(&mut dice, &quotas) } else { 0 };
            let place = format!("{algorithm:?}, history {history}, {now}");
            let call = Call::several(algorithm.clone(), Some(now), vec![keys.clone()]);
            if dice.below(5) < 2 && !reservations.is_empty() {
                let back = dice.below(reservations.len().min(3));
                let which = reservations.len() - 1 - back;
                let (cost, mark) = reservations.remove(which);
                let units = dice.pick(&[1, 1, cost / 2, cost - 1, cost, 0, cost + 1, -2]);
                let form = Form::settle(cost - units, cost, &mark.words());
                let (_, told) = call.ask(form).on(connection).await;
                let refund = Refund { units, cost, mark: &mark };
                let given = A::refund(&rule, &mut state, now, &refund).unwrap_or(units.min(0));
                assert_eq!(told[0].numbers()[..2], [5, given], "{place}: {refund:?}");
                sum += given.max(0);
                continue;
            }
            let check = Check {
                cost: dice.pick(&[0, 1, 2, 3, 4]),
                max_wait: dice.pick(&[0, 0, 60_000_000]),
            };
            let (_, told) = call.check(check.cost, check.max_wait).on(connection).await;
            let answer = A::step(&rule, &mut state, now, check);
            let (outcome, wait) = match answer.verdict {
                Verdict::Allow => (0, 0),
                Verdict::Wait(wait) => (1, wait),
                Verdict::Deny(wait) => (2, wait),
                _ => (3, 0),
            };
            let Report { remaining, reset_after, .. } = answer.report;
            let numbers = [outcome, wait, remaining, reset_after];
            assert_eq!(told[0].numbers(), numbers, "{place}: {check:?}");
            let mark = answer.mark.unwrap_or_default();
            assert_eq!(told[0].mark(), mark.words(), "{place}: {check:?}");
            if let Verdict::Allow | Verdict::Wait(_) = answer.verdict
                && check.cost > 0
            {
                reservations.push((check.cost, mark));
            }
        }
    }
    sum
}

#[tokio::test]
async fn parts_of_a_charge_are_given_back_alike() {
    let server = Server::start();
    let connection = &mut server.connection().await;
    let (five, ten) = (Quota::per_second(5), Quota::new(10, 3 * SECOND));
    let bursty = SmoothBursty::new(five);
    let warming_up = SmoothWarmingUp::new(five, SECOND);
    let mut units = Vec::new();
    macro_rules! compare {
        ($($algorithm:expr;)+) => {$(
            script::ask::<()>(connection, "FLUSHALL").await;
            units.push(compare_parts($algorithm, connection).await);
        )+};
    }
    compare! {
        TokenBucket::new(five);
        TokenBucket::new(micros(7, 10).burst(4));
        Budget::new(five).max_hold(SECOND);
        Budget::new(micros(7, 10).burst(4));
        FixedWindow::new(five);
        FixedWindow::new(five).anchored();
        SlidingLog::new(five);
        SlidingWindow::new(five);
        SlidingCounter::new(five);
        bursty;
        bursty.wait_for_own_cost();
        warming_up;
        warming_up.wait_for_own_cost();
        (TokenBucket::new(five), FixedWindow::new(ten));
        (Budget::new(five), TokenBucket::new(ten));
        (SlidingLog::new(five), Budget::new(ten).max_hold(SECOND));
        (SlidingWindow::new(five), SlidingCounter::new(ten));
        (SlidingLog::new(five), SlidingLog::new(ten));
        (bursty, SlidingLog::new(ten));
        (warming_up, TokenBucket::new(ten));
    }
    println!("twins refunded parts={units:?}");
    assert!(units.iter().all(|units| *units > 33), "{units:?}");
}
