//! Expiry collects garbage and never decides: every key lives as long as its effect,
//! and not for ever.

use std::fmt::Display;

use redis::Value;

use super::*;

use support::expires;
use support::for_each_script;
use support::script::{Call, Entry, Form, NOW, SLIDING_LOG, ask};

/// Returns the length of an era, in µs, and the eras for which a charge is held; 0 where nothing is
/// held.
fn eras<A: InLua>(_: &A) -> (i64, i64) {
    match A::NAME {
        "budget" => (60_000_000, 2),
        "concurrency" => (15_000_000, 5),
        _ => (0, 0),
    }
}

// Cases 56 and 89.
#[tokio::test]
async fn every_key_outlives_its_effect_and_none_is_kept_for_ever() {
    let (_server, mut connection) = Server::connected().await;
    for_each_script!(|algorithm| {
        let (era, eras) = eras(&algorithm);
        // More than the burst would have to be settled first.
        for charges in 1..if era > 0 { 6 } else { 20 } {
            let key = format!("{algorithm:?} {charges}");
            let keys = vec![key.as_str(); charges];
            let call = Call::new(algorithm, None, &keys).checks(charges, 1, 60_000_000);
            let (now, entries) = call.on(&mut connection).await;
            let last = entries.last().expect("an entry");
            let reset_after = last.numbers()[3];
            assert!(last.outcome() < 2, "{entries:?}");
            // A refund, and what is left to wait for after it.
            let refund = Call::new(algorithm, None, &[&key, &key]);
            let refund = refund.ask(Form::refund(1, &last.mark())).check(0, 0);
            let (later, back) = refund.on(&mut connection).await;
            let reset_after_refund = back[1].numbers()[3];
            let expiry = expires(&mut connection, &key).await;
            if format!("{algorithm:?}") == format!("{SLIDING_LOG:?}") && charges == 1 {
                assert_eq!(expiry, -2, "nothing is left of an emptied log");
                continue;
            }
            assert!(expiry * 1_000 >= later + reset_after_refund, "{key}: {expiry}");
            let held_until =
                if era > 0 && charges > 1 { now - now % era + eras * era } else { now };
            assert!(expiry * 1_000 >= held_until, "{key}: {expiry}");
            let latest = held_until + reset_after + 10_002_000;
            assert!(expiry * 1_000 <= latest, "{key}: {expiry}");
        }
        // Where the caller gives the time, the server's clock says nothing: an hour more.
        let call = Call::new(algorithm, Some(NOW), &["given"]).check(2, 0);
        let (_, entries) = call.on(&mut connection).await;
        let [0, _, _, reset_after] = entries[0].numbers() else { panic!("{entries:?}") };
        let left: i64 = ask(&mut connection, "PTTL given").await;
        let hour = 3_600_000 + reset_after / 1_000;
        let latest = hour + eras * era / 1_000 + 2;
        assert!((hour - 60_000..=latest).contains(&left), "{algorithm:?}: {left}");
        assert!(ask::<bool>(&mut connection, "DEL given").await);
    });
}

/// The promise of a step that leaves an expiry alone: no key expires before its state is old.
// Case 56.
#[tokio::test]
async fn an_expiry_that_is_left_alone_still_outlives_its_effect() {
    const SPARE: i64 = 10_000_000;
    let (_server, mut connection) = Server::connected().await;
    let mut left_alone = 0;
    // From both edges of a stretch, under quotas whose steps stay in it, touch its
    // end, or cross many.
    for limit in [1_000_000, 1_000, 50, 1] {
        for (case, offset) in [0, 1, SPARE / 2, SPARE - 2, SPARE - 1].into_iter().enumerate() {
            let key = format!("{limit} {case}");
            let (seconds, _): (i64, i64) = ask(&mut connection, "TIME").await;
            let begin = (seconds * 1_000_000 / SPARE + 2) * SPARE;
            let full = begin + offset;
            let mut set = cmd("SET");
            set.arg(&key).arg(full).arg("PXAT").arg((full + SPARE + 999) / 1_000);
            set.exec_async(&mut connection).await.unwrap();
            for step in 0..30 {
                // Changing quotas, and a clock that steps: none, all, or a part of the charges
                // bring their own.
                let quota = |limit| Quota::per_second(limit).burst(1_000_000);
                let own = quota([limit, 7, 1_000][step % 3]);
                let before = expires(&mut connection, &key).await;
                let call = Call::new(TokenBucket::new(quota(limit)), None, &[&key, &key]);
                let (_, entries) = call
                    .check(1, 60_000_000)
                    .check_under(own, 1, 60_000_000)
                    .on(&mut connection)
                    .await;
                let text: String = cmd("GET").arg(&key).query_async(&mut connection).await.unwrap();
                let expiry = expires(&mut connection, &key).await;
                let (whole, part) = text.split_once('+').unwrap_or((&text, ""));
                let old = whole.parse::<i64>().unwrap() + i64::from(!part.is_empty());
                assert!(
                    expiry * 1_000 >= old,
                    "{key}, step {step}: {text} expires at {expiry}, {entries:?}"
                );
                left_alone += u32::from(expiry == before);
            }
        }
    }
    assert!(left_alone > 100, "{left_alone}");
    assert!(calls(&mut connection, "incrby").await > 100);
}

// Case 55.
#[tokio::test]
async fn a_lost_expiry_comes_back_with_the_next_full_write() {
    let (_server, mut connection) = Server::connected().await;
    let hour = Quota::new(1, Duration::from_secs(10)).burst(5);
    let hour = TokenBucket::new(hour).horizon(Duration::from_secs(3_600));
    let call = |keys| Call::new(hour, None, keys);
    call(&["k"]).check(1, 0).on(&mut connection).await;
    assert!(ask::<bool>(&mut connection, "PERSIST k").await);
    // Ten seconds a unit: every charge crosses a multiple of what is kept to spare.
    call(&["k"]).check(1, 0).on(&mut connection).await;
    assert!(ask::<i64>(&mut connection, "PTTL k").await > 0);
}

/// A block keeps the state as long as the key would have lasted without it: a year, if it had no
/// end. A debt may last longer. Beyond 2^51 µs a sum would not be exact.
// Case 55.
#[tokio::test]
async fn a_block_cuts_no_life_and_gives_one_without_end_a_year() {
    const YEAR: i64 = 365 * 86_400_000;
    const MOST: i64 = (1 << 51) / 1_000 + 1;
    let (_server, mut connection) = Server::connected().await;
    for_each_script!(|algorithm| {
        for now in [None, Some(NOW)] {
            for (last, lasts) in [
                ("PERSIST k".to_owned(), YEAR),
                (format!("PEXPIRE k {}", 2 * YEAR), 2 * YEAR),
                (format!("PEXPIRE k {}", 100 * YEAR), MOST),
            ] {
                ask::<Value>(&mut connection, "DEL k").await;
                let call =
                    |form: &[&dyn Display]| Call::new(algorithm, now, &["k"]).ask(Form::new(form));
                call(&[&1, &0]).on(&mut connection).await;
                for operation in [&[&"block" as &dyn Display, &60_000_000][..], &[&"unblock"]] {
                    ask::<Value>(&mut connection, &last).await;
                    call(operation).on(&mut connection).await;
                    let left: i64 = ask(&mut connection, "PTTL k").await;
                    assert!(
                        (lasts - 60_000..=lasts + 1).contains(&left),
                        "{algorithm:?} {now:?}: {left} of {lasts}"
                    );
                }
            }
        }
    });
}

/// Without the right to ask how long a key lasts, a block fails, and harms no charge beside it.
// Case 31.
#[tokio::test]
async fn a_block_without_its_right_fails_alone() {
    let server = Server::start();
    let mut admin = server.connection().await;
    let rules = "ACL SETUSER app on >secret ~* +@all -pttl";
    ask::<Value>(&mut admin, rules).await;
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    for_each_script!(|algorithm| {
        ask::<Value>(&mut admin, "FLUSHALL").await;
        let call = Call::new(algorithm, Some(NOW), &["a", "b", "c"]);
        let (_, entries) = call
            .check(1, 0)
            .ask(Form::new(&[&"block", &1_000]))
            .check(1, 0)
            .on(&mut connection)
            .await;
        assert_eq!([&entries[0], &entries[2]].map(Entry::outcome), [0, 0], "{entries:?}");
        let Entry::Failed(why) = &entries[1] else { panic!("{algorithm:?}: {entries:?}") };
        // Redis 6.2 writes no code: "The user executing the script can't run this command".
        assert!(["ERR", "NOPERM", "The"].contains(&why.as_str()), "{why}");
        let held: [bool; 3] = [
            ask(&mut admin, "EXISTS a").await,
            ask(&mut admin, "EXISTS b").await,
            ask(&mut admin, "EXISTS c").await,
        ];
        assert_eq!(held, [true, false, true], "{algorithm:?}");
    });
}
