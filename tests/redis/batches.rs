//! One by one or all in one call: each charge is answered with the state that those before it left.

use super::*;

use support::for_each_script;
use support::script::*;

/// Charges and refunds of three keys of one algorithm; and of three users with two keys that they
/// share: a later charge of a call sees what earlier ones took of either.
#[tokio::test]
async fn keys_in_any_company_are_answered_as_one_by_one() {
    let server = Server::start();
    let connection = &mut server.connection().await;
    for_each_script!(|one| {
        company(connection, &format!("{one:?}"), one, 1).await;
    });
    let per = |limit, seconds| Quota::new(limit, Duration::from_secs(seconds));
    // Two quotas of which now one is in the way, now the other.
    company(connection, "1", (TOKEN_BUCKET, SlidingLog::new(per(7, 1))), 2).await;
    let bucket = TokenBucket::new(per(5, 2).burst(8));
    let lists = company(connection, "2", (SLIDING_WINDOW, bucket), 2).await;
    company(connection, "3", (FIXED_WINDOW, SlidingCounter::new(per(9, 3))), 2).await;
    company(connection, "4", (SMOOTH_BURSTY, FixedWindow::new(per(7, 2)).anchored()), 2).await;
    assert!(lists > 20, "only {lists} charges pushed units out of the cells");
}

/// Returns how many marks held a list.
async fn company<A: InLua>(
    connection: &mut MultiplexedConnection,
    name: &str,
    limits: impl IntoAlgorithm<Algorithm = A>,
    quotas: usize,
) -> usize {
    let limits = limits.into_algorithm();
    let mut dice = fastrand::Rng::with_seed(7);
    let mut lists = 0;
    for history in 0..4 * times() {
        let names = |kind: &str, keys: &[&str; 2]| {
            let name = |place: usize| format!("{name}:{history}:{kind}:{place}:{}", keys[place]);
            (0..quotas).map(name).collect::<Vec<_>>()
        };
        let mut now = NOW;
        let mut reservations: Vec<([&str; 2], i64, Vec<String>)> = Vec::new();
        for _ in 0..8 {
            now += [0, 1, 200_000, 1_000_000, -200_000][dice.usize(..5)];
            let (mut asked, mut answers) = (Vec::new(), Vec::new());
            for _ in 0..dice.usize(1..20) {
                let keys = [["a", "b", "c"][dice.usize(..3)], ["x", "y"][dice.usize(..2)]];
                let cost = dice.i64(0..=6);
                let mut is_check = false;
                let (keys, form) = match dice.usize(..12) {
                    0 => (keys, Form::new(&[&"reset"])),
                    1 => (keys, Form::new(&[&"penalize", &(cost * 3)])),
                    2..5 if !reservations.is_empty() => {
                        let back = if dice.bool() { 1 } else { dice.usize(1..=reservations.len()) };
                        let (keys, cost, mark) = reservations.remove(reservations.len() - back);
                        (keys, Form::refund(cost, &mark))
                    }
                    _ => {
                        is_check = true;
                        let wait = [0, 250_000, 90_000_000][dice.usize(..3)];
                        (keys, Form::new(&[&cost, &wait]))
                    }
                };
                let call = Call::several(limits.clone(), Some(now), vec![names("alone", &keys)]);
                let told = call.ask(form.clone()).on(connection).await.1.remove(0);
                if is_check && cost > 0 && told.outcome() < 2 {
                    let mark = told.mark();
                    lists += usize::from(mark[3].starts_with(','));
                    reservations.push((keys, cost, mark));
                }
                answers.push(told);
                asked.push((keys, form));
            }
            let keys = asked.iter().map(|(keys, _)| names("together", keys)).collect();
            let call = Call::several(limits.clone(), Some(now), keys);
            let call = asked.iter().fold(call, |call, (_, form)| call.ask(form.clone()));
            let (_, told) = call.on(connection).await;
            assert_eq!(told, answers, "{name} {history}: {asked:?}");
        }
    }
    lists
}
