//! One by one or all in one call: each charge is answered with the state that those before it left.

#![cfg(feature = "redis")]

mod support;

use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};
use support::Server;
use support::script::*;

/// Charges and refunds of one key, one after another and all in one call.
#[tokio::test]
async fn many_in_one_call_are_answered_as_one_by_one() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let mut dice = fastrand::Rng::with_seed(6);
    for algorithm in ALGORITHMS {
        for history in 0..20 {
            let [alone, together] =
                ["alone", "together"].map(|kind| format!("{} {history} {kind}", algorithm.0));
            let mut now = NOW;
            let mut reservations = Vec::new();
            for _ in 0..8 {
                now += [0, 1, 100_000, 200_000, 1_000_000, -200_000][dice.usize(..6)];
                let keys = vec![together.as_str(); dice.usize(1..30)];
                let mut all = Call::new(algorithm, Some(now), &keys);
                let mut answers = Vec::new();
                for _ in &keys {
                    let one = Call::new(algorithm, Some(now), &[&alone]);
                    let (cost, patience) = (dice.i64(0..=6), [0, 250_000, 90_000_000]);
                    let patience = patience[dice.usize(..3)];
                    let refund = dice.usize(..4) == 0 && !reservations.is_empty();
                    let other = !refund && dice.usize(..10) == 0;
                    let one = if other && dice.bool() {
                        reservations.clear();
                        all = all.reset();
                        one.reset()
                    } else if other {
                        all = all.penalize(cost * 3);
                        one.penalize(cost * 3)
                    } else if refund {
                        let back = if dice.bool() { 1 } else { dice.usize(1..=reservations.len()) };
                        let (cost, left) = reservations.remove(reservations.len() - back);
                        all = all.refund(cost, left);
                        one.refund(cost, left)
                    } else {
                        all = all.check(cost, patience);
                        one.check(cost, patience)
                    };
                    let (_, mut told) = one.on(&mut connection).await;
                    match &mut told[0] {
                        Entry::Numbers([0 | 1, _, _, _, left @ ..])
                            if cost > 0 && !refund && !other =>
                        {
                            reservations.push((cost, *left));
                            answers.push((true, told.remove(0)));
                        }
                        _ => answers.push((false, told.remove(0))),
                    }
                }
                let (_, told) = all.on(&mut connection).await;
                for (together, (taken, alone)) in told.into_iter().zip(answers) {
                    let (Entry::Numbers(together), Entry::Numbers(alone)) = (&together, &alone)
                    else {
                        panic!("{together:?}, {alone:?}")
                    };
                    // What is left counts only where something was taken, for its refund.
                    let told = if taken { 8 } else { 4 };
                    assert_eq!(together[..told], alone[..told], "{} {history}", algorithm.0);
                }
            }
        }
    }
}

/// What one charge under two quotas asks: the ends of its two keys, and its words.
type Asked = ([&'static str; 2], Vec<String>, &'static str);

fn words(numbers: &[i64]) -> Vec<String> {
    numbers.iter().map(i64::to_string).collect()
}

/// Asks under two quotas at once, each charge with two keys; 13 elements answer each.
async fn several(
    connection: &mut MultiplexedConnection,
    [one, other]: [Algorithm; 2],
    now: i64,
    scope: &str,
    asked: &[Asked],
) -> Vec<Vec<String>> {
    let run = format!("return cmsgpack.unpack(run(all_of({}, {})))", one.0, other.0);
    let mut call = cmd("EVAL");
    call.arg(format!("{HEAD}{}{}{TAIL}{SEVERAL}{run}", one.1, other.1)).arg(asked.len() * 2);
    for (keys, ..) in asked {
        call.arg(format!("{scope}:1:{}", keys[0])).arg(format!("{scope}:2:{}", keys[1]));
    }
    call.arg(now).arg(one.2).arg(other.2);
    for (_, words, op) in asked {
        call.arg(1).arg((!op.is_empty()).then_some(op)).arg(words);
    }
    let reply: Vec<Value> = call.query_async(connection).await.expect("a reply");
    let text = |value: &Value| match value {
        Value::Int(number) => number.to_string(),
        Value::BulkString(list) if list.starts_with(b",") => {
            String::from_utf8_lossy(list).into_owned()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(reply.len(), 1 + 13 * asked.len());
    reply[1..].chunks(13).map(|told| told.iter().map(text).collect()).collect()
}

/// Two quotas of which now one is in the way, now the other.
const PAIRS: [[Algorithm; 2]; 4] = [
    [TOKEN_BUCKET, (SLIDING_LOG.0, SLIDING_LOG.1, &[60_000_000, 7, 1_000_000])],
    [SLIDING_WINDOW, (TOKEN_BUCKET.0, TOKEN_BUCKET.1, &[60_000_000, 400_000, 1, 8])],
    [FIXED_WINDOW, (SLIDING_COUNTER.0, SLIDING_COUNTER.1, &[60_000_000, 9, 3_000_000])],
    [SMOOTH_BURSTY, (FIXED_WINDOW.0, FIXED_WINDOW.1, &[60_000_000, 7, 2_000_000, 1])],
];

/// Three users, and two keys that they share: a later charge of a call sees what earlier ones took
/// of either.
#[tokio::test]
async fn keys_in_any_company_are_answered_as_one_by_one() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let mut dice = fastrand::Rng::with_seed(7);
    let mut lists = 0;
    for history in 0..48 {
        let pair = PAIRS[history % PAIRS.len()];
        let [alone, together] = ["alone", "together"].map(|kind| format!("{history}:{kind}"));
        let mut now = NOW;
        let mut reservations: Vec<([&str; 2], Vec<String>)> = Vec::new();
        for _ in 0..8 {
            now += [0, 1, 200_000, 1_000_000, -200_000][dice.usize(..5)];
            let mut asked: Vec<Asked> = Vec::new();
            let mut answers = Vec::new();
            for _ in 0..dice.usize(1..20) {
                let keys = [["a", "b", "c"][dice.usize(..3)], ["x", "y"][dice.usize(..2)]];
                let cost = dice.i64(0..=6);
                let one: Asked = match dice.usize(..12) {
                    0 => (keys, Vec::new(), "reset"),
                    1 => (keys, words(&[cost * 3]), "penalize"),
                    2..5 if !reservations.is_empty() => {
                        let back = if dice.bool() { 1 } else { dice.usize(1..=reservations.len()) };
                        let (keys, words) = reservations.remove(reservations.len() - back);
                        (keys, words, "refund")
                    }
                    _ => (keys, words(&[cost, [0, 250_000, 90_000_000][dice.usize(..3)]]), ""),
                };
                let told = several(&mut connection, pair, now, &alone, std::slice::from_ref(&one))
                    .await
                    .remove(0);
                let admitted = ["0", "1"].contains(&told[0].as_str());
                let taken = one.2.is_empty() && cost > 0 && admitted;
                if taken {
                    lists += usize::from(told[7].starts_with(','));
                    reservations.push((one.0, [&one.1[..1], &told[4..12]].concat()));
                }
                answers.push((taken, told));
                asked.push(one);
            }
            let all = several(&mut connection, pair, now, &together, &asked).await;
            for ((told, (taken, alone)), one) in all.iter().zip(&answers).zip(&asked) {
                assert_eq!(told[..4], alone[..4], "{history}: {one:?}");
                assert_eq!(told[12], alone[12], "{history}: {one:?}");
                assert!(!taken || told == alone, "{history}: {one:?}");
            }
        }
    }
    assert!(lists > 20, "only {lists} charges pushed units out of the cells");
}
