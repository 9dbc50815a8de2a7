//! Redisson's limiter when the network, the server or what is stored misbehaves.

use std::time::SystemTime;

use crate::*;

use support::NOWHERE;
use support::fake;
use support::faults::{LONG, others};
use support::key_proxy::{KeyProxy, Kind};

/// The limiters of a bench, through a proxy.
async fn proxied(bench: &Bench) -> (Proxy, Redisson) {
    let proxy = Proxy::before(bench.server.port()).await;
    let redisson = Redisson::new(Pool::connect(&proxy.url()).unwrap()).client_id("A");
    let redisson = redisson.decision_timeout(LONG);
    assert!(redisson.peek("r").await.is_ok());
    (proxy, redisson)
}

/// Waits until the limiter has `count` members.
async fn until_members(bench: &mut Bench, count: i64) {
    let begun = Instant::now();
    loop {
        let members: i64 = bench.ask(&["ZCARD", "{r}:permits"]).await;
        if members == count {
            break;
        }
        assert!(begun.elapsed() < LONG, "{members} members, not {count}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_grant_whose_answer_is_lost_is_sent_again_and_taken_once() {
    let mut bench = Bench::of(10, 1_000_000).await;
    let (proxy, redisson) = proxied(&bench).await;
    proxy.set(Fault::ResetNext);
    let decision = redisson.check(&Charge::new("r").cost(3)).await.unwrap();
    assert_eq!(proxy.fault(), Fault::None, "an answer was lost");
    assert_eq!((decision.outcome(), decision.remaining()), (Outcome::Allow, Some(7)));
    let members = bench.members().await;
    assert_eq!((bench.value().await, members.len()), (Some(7), 1));
    // It was decided when it arrived first.
    assert_eq!(decision.decided_at(), Some(Duration::from_millis(members[0].1 + BASE)));
}

#[tokio::test]
async fn what_is_granted_too_late_is_given_back() {
    let mut bench = Bench::of(10, 1_000_000).await;
    let (proxy, redisson) = proxied(&bench).await;
    proxy.set(Fault::BlackHole);
    let hasty = redisson.clone().decision_timeout(Duration::from_millis(50));
    let result = message(hasty.check(&Charge::new("r"))).await;
    assert!(matches!(result.0, ErrorKind::Infrastructure | ErrorKind::Saturation), "{result:?}");
    proxy.set(Fault::None);
    // Over the one connection it comes after what it undoes, whether or not that had arrived.
    assert!(redisson.check(&Charge::new("r").cost(10)).await.is_ok());
    eventually("permits that nobody holds", async || {
        bench.value().await.is_some_and(|value| value != 9)
    })
    .await;
}

#[tokio::test]
async fn a_grant_whose_caller_has_left_is_refunded() {
    let mut bench = Bench::of(10, 1_000_000).await;
    let (proxy, redisson) = proxied(&bench).await;
    for _ in 0..20 {
        proxy.set(Fault::Hold);
        let asking = redisson.clone();
        let asking = tokio::spawn(async move { asking.check(&Charge::new("r").cost(4)).await });
        until_members(&mut bench, 1).await;
        asking.abort();
        assert!(asking.await.is_err_and(|error| error.is_cancelled()));
        proxy.set(Fault::None);
        until_members(&mut bench, 0).await;
        assert_eq!(bench.value().await, Some(10));
    }
}

/// However many were asked for when the server paused a little longer than they would wait.
#[tokio::test]
async fn a_short_break_keeps_no_permits_taken() {
    let mut bench = Bench::of(100_000, 1_000_000).await;
    let hasty = Redisson::new(bench.server.pool()).decision_timeout(Duration::from_millis(100));
    assert!(hasty.peek("r").await.is_ok());
    let _: () = bench.ask(&["CLIENT", "PAUSE", "200"]).await;
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..1_100 {
        asking.spawn(hasty.check(&Charge::new("r")));
    }
    let result = asking.join_all().await;
    let granted = result.iter().filter(|result| result.as_ref().is_ok_and(|one| one.is_admitted()));
    let granted = i64::try_from(granted.count()).unwrap();
    until_members(&mut bench, granted).await;
}

/// A part of one's permits may have gone back when the answer is lost: none of the rest is.
#[tokio::test]
async fn a_release_whose_reply_is_lost_may_be_tried_again() {
    let mut bench = Bench::of(10, 1_000_000).await;
    let (proxy, redisson) = proxied(&bench).await;
    let limiter = redisson.rate_limiter("r").unwrap();
    let mut held = limiter.try_acquire(10).await.unwrap().expect("free");
    proxy.set(Fault::Reset);
    assert_eq!(message(held.release(3)).await.0, ErrorKind::Infrastructure);
    proxy.set(Fault::None);
    assert_eq!(bench.value().await, Some(3));
    assert_eq!(held.release(3).await.unwrap(), 3, "it was made");
    assert_eq!((held.count(), bench.value().await), (7, Some(3)));
    proxy.set(Fault::Reset);
    assert_eq!(message(held.release(2)).await.0, ErrorKind::Infrastructure);
    proxy.set(Fault::None);
    assert_eq!(bench.value().await, Some(5));
    assert_eq!(held.release(5).await.unwrap(), 5, "another number is another release");
    assert_eq!((held.count(), bench.value().await), (0, Some(10)));
}

/// Another waiter goes on when the caller that asks Redis has left.
#[tokio::test]
async fn a_waiter_that_has_left_delays_no_other() {
    let bench = Bench::of(1, 50).await;
    let redisson = Redisson::new(bench.server.pool()).decision_timeout(LONG);
    let mut waiters = tokio::task::JoinSet::new();
    for number in 0..40 {
        let redisson = redisson.clone();
        waiters.spawn(async move {
            let charge = Charge::new("r").max_wait(LONG * 10);
            if number % 2 == 0 {
                let gone = Duration::from_millis(number);
                tokio::time::timeout(gone, redisson.acquire(charge)).await.is_ok_and(|r| r.is_ok())
            } else {
                redisson.acquire(charge).await.is_ok()
            }
        });
    }
    let admitted = waiters.join_all().await.into_iter().filter(|admitted| *admitted).count();
    assert!(admitted >= 20, "{admitted} of those who stayed");
}

fn reply(elements: &[&str]) -> Vec<u8> {
    format!("*{}\r\n{}", elements.len(), elements.concat()).into_bytes()
}

const NOW: &str = ":1767225600000000\r\n";
const ADMITTED: [&str; 7] =
    [":0\r\n", NOW, ":0\r\n", ":9\r\n", ":1000\r\n", ":10\r\n", ":1000\r\n"];

async fn against(replies: Vec<Vec<u8>>) -> Redisson {
    let address = fake::answering_in_turn(replies).await;
    Redisson::new(Pool::connect(&format!("redis://{address}")).unwrap()).decision_timeout(LONG)
}

// Case 39.
#[tokio::test]
async fn keys_that_are_moved_are_asked_for_again() {
    let moving = b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n".to_vec();
    for operation in ["check", "config"] {
        let result = match operation {
            "check" => reply(&ADMITTED),
            _ => reply(&[":0\r\n", NOW, ":10\r\n", ":1000\r\n", ":0\r\n", ":0\r\n"]),
        };
        let redisson = against(vec![moving.clone(), moving.clone(), moving.clone(), result]).await;
        if operation == "check" {
            assert!(redisson.check(&Charge::new("r")).await.unwrap().is_admitted());
        } else {
            assert!(redisson.rate_limiter("r").unwrap().config().await.unwrap().is_some());
        }
    }
    // A proxy passes the refusal on.
    for kind in [Kind::Twemproxy, Kind::Envoy] {
        let server = fake::answering_in_turn(vec![moving.clone(), reply(&ADMITTED)]).await;
        let proxy = KeyProxy::before(kind, &[server.port()]).await;
        let redisson = Redisson::new(Pool::connect(&proxy.url()).unwrap()).decision_timeout(LONG);
        let decision = redisson.check(&Charge::new("r")).await;
        assert!(decision.as_ref().is_ok_and(Decision::is_admitted), "{kind:?}: {decision:?}");
    }
    let never = against(vec![moving]).await.decision_timeout(Duration::from_millis(30));
    let result = message(never.check(&Charge::new("r"))).await;
    let late = matches!(result.0, ErrorKind::Infrastructure | ErrorKind::Saturation);
    assert!(late, "within its deadline: {result:?}");
}

#[tokio::test]
async fn numbers_are_read_whether_they_come_as_integers_or_as_text() {
    let text = [
        "$1\r\n0\r\n",
        NOW,
        "$1\r\n0\r\n",
        "$1\r\n9\r\n",
        ":1000\r\n",
        "$2\r\n10\r\n",
        ":1000\r\n",
    ];
    for result in [ADMITTED, text] {
        let redisson = against(vec![reply(&result)]).await;
        assert_eq!(redisson.rate_limiter("r").unwrap().available_permits().await.unwrap(), 9);
    }
}

#[tokio::test]
async fn a_malformed_reply_admits_nothing() {
    let refused =
        |wait| reply(&[":1\r\n", NOW, wait, ":0\r\n", ":1000\r\n", ":10\r\n", ":1000\r\n"]);
    for odd in [
        b"$-1\r\n".to_vec(),
        b":0\r\n".to_vec(),
        b"+OK\r\n".to_vec(),
        b"*0\r\n".to_vec(),
        reply(&ADMITTED[..6]),
        reply(&[&ADMITTED[..], &[":1\r\n"]].concat()),
        reply(&[&[":7\r\n"], &ADMITTED[1..]].concat()),
        reply(&[&[":-1\r\n"], &ADMITTED[1..]].concat()),
        reply(&[&["$3\r\nnan\r\n"], &ADMITTED[1..]].concat()),
        reply(&[&["*0\r\n"], &ADMITTED[1..]].concat()),
        refused(":0\r\n"),
        refused(":-9223372036854775808\r\n"),
    ] {
        let result = message(against(vec![odd.clone()]).await.check(&Charge::new("r"))).await;
        assert_eq!(result.0, ErrorKind::State, "{}", String::from_utf8_lossy(&odd));
    }
    // Numbers beyond all reason overflow nothing.
    for odd in [
        refused(":9223372036854775807\r\n"),
        reply(&[":0\r\n", ":-1\r\n", ":0\r\n", ":-1\r\n", ":-1\r\n", ":-1\r\n", ":-1\r\n"]),
    ] {
        let _ = against(vec![odd]).await.check(&Charge::new("r")).await;
    }
}

/// A release asks again for what is left: whatever is answered, that ends.
#[tokio::test]
async fn a_release_ends_whatever_is_answered() {
    for (freed, result) in [(":0\r\n", 0), (":-7\r\n", 0), (":9223372036854775807\r\n", 5)] {
        let redisson = against(vec![reply(&[":0\r\n", NOW, freed, ":1\r\n"])]).await;
        assert_eq!(redisson.rate_limiter("r").unwrap().release(5).await.unwrap(), result);
    }
}

// Case 52.
#[tokio::test]
async fn keys_of_another_type_are_refused_and_left_alone() {
    for wrong in ["r", "{r}:value", "{r}:permits"] {
        for kind in ["SADD", "RPUSH"] {
            let mut bench = Bench::of(10, 1_000).await;
            let _: i64 = bench.ask(&["DEL", wrong]).await;
            let _: i64 = bench.ask(&[kind, wrong, "x"]).await;
            let (state, limiter) = (ErrorKind::State, bench.limiter.clone());
            assert_eq!(message(bench.redisson.check(&Charge::new("r"))).await.0, state);
            assert_eq!(message(limiter.available_permits()).await.0, state);
            assert_eq!(message(limiter.release(1)).await.0, state);
            let five = rate(5, 1_000);
            assert_eq!(message(limiter.set_rate_keeping_state(five)).await.0, state);
            let mut keys: Vec<String> = bench.ask(&["KEYS", "*"]).await;
            keys.sort();
            let mut left = vec!["r", wrong];
            left.dedup();
            assert_eq!(keys, left);
            // Whatever it holds, it can be deleted.
            assert!(limiter.delete().await.unwrap());
            assert!(limiter.try_set_rate(five).await.unwrap());
            bench.all(&[(1, 0, Granted(4))]).await;
        }
    }
}

#[tokio::test]
async fn a_server_that_takes_no_writes_takes_no_permits() {
    let mut bench = Bench::of(10, 1_000).await;
    bench.all(&[(1, 0, Granted(9))]).await;
    let _: () = bench.ask(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let result = message(bench.redisson.check(&Charge::new("r"))).await;
    assert_eq!(result.0, ErrorKind::Capacity, "{}", result.1);
    let _: () = bench.ask(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!((bench.value().await, bench.members().await.len()), (Some(9), 1));

    let before = others(&mut bench.connection).await;
    let _: () = bench.ask(&["REPLICAOF", "127.0.0.1", &NOWHERE.to_string()]).await;
    // Each connection to the replica is given up for another, which leads there again.
    let begun = Instant::now();
    while others(&mut bench.connection).await.iter().any(|id| before.contains(id)) {
        let result = message(bench.redisson.check(&Charge::new("r"))).await;
        assert_eq!(result.0, ErrorKind::Infrastructure, "{}", result.1);
        assert!(begun.elapsed() < LONG, "it stays connected to a replica");
    }
    let _: () = bench.ask(&["REPLICAOF", "NO", "ONE"]).await;
    // The pool pauses before it connects again.
    eventually("a connection to the primary", async || bench.redisson.peek("r").await.is_ok())
        .await;
    assert_eq!((bench.value().await, bench.members().await.len()), (Some(9), 1));
    bench.all(&[(1, 0, Granted(8))]).await;
}

#[tokio::test]
async fn a_script_that_was_flushed_is_sent_again_with_its_text() {
    let mut bench = Bench::of(1_000, 1_000).await;
    for left in (980..1_000).rev() {
        let _: () = bench.ask(&["SCRIPT", "FLUSH"]).await;
        bench.all(&[(1, 0, Granted(left))]).await;
    }
}

// Case 31.
#[tokio::test]
async fn the_rights_that_are_documented_suffice() {
    let page = include_str!("../../redisson.md");
    let (server, mut connection) = Server::connected().await;
    let rights = page.split('`').filter(|text| text.starts_with('+'));
    let mut rules = redis::cmd("ACL");
    rules.arg(&["SETUSER", "app", "reset", "on", ">secret", "-@all", "~r", "~{r}:*"]);
    rules.arg(rights.flat_map(str::split_whitespace).collect::<Vec<_>>());
    rules.exec_async(&mut connection).await.unwrap();

    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    let clock = Arc::new(AtomicU64::new(0));
    let now = Arc::clone(&clock);
    let redisson = Redisson::new(Pool::connect(&url).unwrap()).decision_timeout(LONG);
    let redisson = redisson.clock(move || Duration::from_millis(1_000_000 + now.load(Relaxed)));
    let limiter = redisson.rate_limiter("r").unwrap();
    let ten = rate(10, 1_000);
    for kept in [ten, ten.keep_alive(LONG), ten] {
        limiter.delete().await.unwrap();
        assert!(limiter.try_set_rate(kept).await.unwrap());
        for _ in 0..3 {
            let mut held = limiter.try_acquire(6).await.unwrap().expect("free");
            assert!(limiter.try_acquire(6).await.unwrap().is_none());
            assert_eq!(held.release(2).await.unwrap(), 2);
            assert!(limiter.try_acquire(6).await.unwrap().is_some());
            assert_eq!(limiter.release(7).await.unwrap(), 7);
            limiter.available_permits().await.unwrap();
            clock.fetch_add(1_000, Relaxed);
        }
        assert!(limiter.update_rate_keeping_state(ten).await.unwrap());
        limiter.set_rate(rate(20, 1_000)).await.unwrap();
        limiter.config().await.unwrap();
        limiter.expire(LONG).await.unwrap();
        limiter.expire_at(SystemTime::now() + LONG).await.unwrap();
        limiter.clear_expire().await.unwrap();
        limiter.remain_time_to_live().await.unwrap();
        assert!(limiter.exists().await.unwrap());
        redisson.reset("r").await.unwrap();
    }
    // By the server's clock too.
    let timed = Redisson::new(Pool::connect(&url).unwrap()).decision_timeout(LONG);
    assert!(timed.peek("r").await.is_ok());
}
