//! Faults that need no rights: foreign values, lost scripts and keys, callers that leave, deadlines
//! that pass; and a round of all operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_sluice::algorithm::{
    AnyAlgorithm, Budget, FixedWindow, InLua, SlidingCounter, SlidingWindow, SmoothBursty,
    TokenBucket,
};
use tower_sluice::{Charge, Decision, ErrorKind, Limiter, LimiterExt, Outcome, Pool, Quota, Redis};

use support::faults::{MILLION, Yearly, over};

use crate::access::{LONG, ask};
use crate::check::{Shared, ended_early, obstacle};
use crate::table::Row;

/// The name of every limiter here: each check has a prefix of its own.
const LIMITER: &str = "faults";

const HOUR: Duration = Duration::from_secs(3_600);

/// Ends a check at the first promise that is broken, or that cannot be checked.
pub(crate) enum Stop {
    Broken(String),
    NotChecked(String),
}

impl Stop {
    fn row(self, name: &str) -> Row {
        match self {
            Self::Broken(why) => ended_early(name, why),
            Self::NotChecked(why) => Row::not_checked(name, why),
        }
    }
}

impl From<tower_sluice::Error> for Stop {
    fn from(error: tower_sluice::Error) -> Self {
        match obstacle(&error) {
            Some(why) => Self::NotChecked(why),
            None => Self::Broken(format!("no decision: {error:?}")),
        }
    }
}

/// What a check has done, in numbers.
pub(crate) type Done = Result<String, Stop>;

/// Fails the check unless `holds`.
pub(crate) fn promise(holds: bool, what: impl FnOnce() -> String) -> Result<(), Stop> {
    if holds { Ok(()) } else { Err(Stop::Broken(what())) }
}

/// Runs a check under keys of its own.
pub(crate) async fn run<F>(
    proof: &Shared,
    name: &'static str,
    check: impl FnOnce(Shared, Pool) -> F,
) where
    F: Future<Output = Done> + Send + 'static,
{
    match proof.pool(name) {
        Ok(pool) => {
            let check = check(proof.clone(), pool);
            let row = async move {
                match check.await {
                    Ok(done) => Row::kept(name, done),
                    Err(stop) => stop.row(name),
                }
            };
            proof.run(name, row).await;
        }
        Err(why) => proof.add(Row::not_checked(name, why)),
    }
}

pub(crate) async fn all(proof: &Shared) {
    run(proof, "all operations", operations).await;
    run(proof, "a foreign value", foreign_values).await;
    run(proof, "a state from the future", future_states).await;
    run(proof, "an unknown script", unknown_scripts).await;
    run(proof, "a deleted key", deleted_keys).await;
    run(proof, "callers leave a call", leaving_callers).await;
    run(proof, "callers leave a queue", leaving_waiters).await;
    run(proof, "a deadline passes", passing_deadlines).await;
}

/// A limiter in the pool, whose `key` is deleted at the end.
fn limiter<A: InLua>(proof: &Shared, algorithm: A, pool: &Pool, keys: &[&str]) -> Redis<A> {
    let limiter = Redis::new(LIMITER, algorithm, pool.clone()).decision_timeout(LONG);
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    proof.cleaner.owe(limiter.clone().boxed(), keys);
    limiter
}

/// The limiter that counts what is taken, and its key.
pub(crate) fn counting(proof: &Shared, pool: &Pool) -> Yearly {
    let limiter = over(pool.clone()).decision_timeout(LONG);
    proof.cleaner.owe(limiter.clone().boxed(), vec![String::from("key")]);
    limiter
}

/// The units that are taken.
pub(crate) async fn taken(limiter: &Yearly) -> Result<u64, Stop> {
    let peek = limiter.peek("key").await?;
    Ok(MILLION - peek.remaining().unwrap_or_default())
}

/// Waits until no unit comes back any more, `wanted` at the latest, and returns those that are
/// taken.
pub(crate) async fn settled(limiter: &Yearly, wanted: u64) -> Result<u64, Stop> {
    let begun = Instant::now();
    loop {
        let taken = taken(limiter).await?;
        if taken <= wanted || begun.elapsed() > Duration::from_secs(5) {
            return Ok(taken);
        }
        sleep(Duration::from_millis(10)).await;
    }
}

fn left(decision: &Decision) -> Option<u64> {
    decision.remaining()
}

async fn operations(proof: Shared, pool: Pool) -> Done {
    let five = Quota::new(5, HOUR);
    operate(&limiter(&proof, FixedWindow::new(five).anchored(), &pool, &["key"])).await?;
    let window = operate(&limiter(&proof, SlidingWindow::new(five), &pool, &["key"])).await?;
    let bucket = operate(&limiter(&proof, TokenBucket::new(five), &pool, &["key"])).await?;
    Ok(format!("{} operations on 3 algorithms", 2 * window + bucket))
}

/// Takes, returns, blocks and deletes one key of five units an hour. Returns how many operations
/// there were.
async fn operate<A: InLua>(limiter: &Redis<A>) -> Result<usize, Stop> {
    let mut count = 0;
    let mut is = |what: &str, decision: &Decision, units: u64| {
        count += 1;
        let told = left(decision);
        promise(told == Some(units), || format!("{what}: {told:?} are left, not {units}"))
    };
    is("a peek of a new key", &limiter.peek("key").await?, 5)?;
    let mut first = limiter.check(&Charge::new("key")).await?;
    is("a charge", &first, 4)?;
    is("a peek", &limiter.peek("key").await?, 4)?;
    let reservation = first.take_reservation().ok_or(Stop::Broken(String::from("no refund")))?;
    let back =
        limiter.refund(reservation).map_err(|_| Stop::Broken(String::from("not its own")))?;
    let back = back.await?.given_back;
    promise(back == 1, || format!("{back} units come back, not 1"))?;
    is("a refund", &limiter.peek("key").await?, 5)?;
    is("a penalty", &limiter.penalize(Charge::new("key").cost(3)).await?.0, 2)?;
    let estimate = limiter.estimate(Charge::new("key").cost(3)).await?;
    promise(!estimate.is_admitted(), || format!("3 of 2 fit: {estimate:?}"))?;
    is("an estimate", &estimate, 2)?;
    let denied = limiter.check(&Charge::new("key").cost(3)).await?;
    promise(!denied.is_admitted(), || format!("3 of 2 are admitted: {denied:?}"))?;
    is("a refusal", &denied, 2)?;
    let blocked = limiter.block("key", Duration::from_secs(20)).await?;
    promise(!blocked.is_admitted(), || format!("a block admits: {blocked:?}"))?;
    let denied = limiter.check(&Charge::new("key")).await?;
    promise(!denied.is_admitted(), || format!("a blocked key is admitted: {denied:?}"))?;
    is("the end of a block", &limiter.unblock("key").await?.0, 2)?;
    is("a reset", &limiter.reset("key").await?.0, 5)?;
    Ok(count + 3)
}

/// Writes a value under a key, for ten minutes at most.
async fn put(proof: &Shared, name: &str, key: &str, value: &str) -> Result<(), Stop> {
    let connections = proof.connections.as_ref().map_err(|why| Stop::NotChecked(why.clone()))?;
    let mut connection = connections.holding(key).map_err(Stop::NotChecked)?;
    let words = ["SET", name, value, "EX", "600"];
    ask::<()>(&mut connection, &words).await.map_err(Stop::NotChecked)
}

async fn get(proof: &Shared, name: &str, key: &str) -> Result<Option<String>, Stop> {
    let connections = proof.connections.as_ref().map_err(|why| Stop::NotChecked(why.clone()))?;
    let mut connection = connections.holding(key).map_err(Stop::NotChecked)?;
    ask(&mut connection, &["GET", name]).await.map_err(Stop::NotChecked)
}

/// The name of a key of these limiters.
fn name_of<A: InLua>(proof: &Shared, check: &str, _: &Redis<A>, key: &str) -> String {
    format!("{}:{LIMITER}:{}:{{{key}}}", proof.prefix_of(check), A::TAG)
}

async fn foreign_values(proof: Shared, pool: Pool) -> Done {
    let check = "a foreign value";
    let quota = Quota::new(5, HOUR);
    let keys = ["junk", "other", "fine"];
    let bucket = limiter(&proof, TokenBucket::new(quota), &pool, &keys);
    let mut count = 0;
    for text in ["nan", "--1", "1e400", "0x10", "", "hello", "9223372036854775808"] {
        let name = name_of(&proof, check, &bucket, "junk");
        put(&proof, &name, "junk", text).await?;
        for cost in [1, 0, 6] {
            let (junk, fine) = (Charge::new("junk").cost(cost), Charge::new("fine").cost(0));
            // In one call, if the server decides both.
            let (junk, fine) = tokio::join!(bucket.check(&junk), bucket.check(&fine));
            let _ = fine?;
            let is_error = junk.as_ref().is_err_and(|error| error.kind() == ErrorKind::State);
            promise(is_error, || format!("{text:?} is decided on: {junk:?}"))?;
            count += 1;
        }
        let kept = get(&proof, &name, "junk").await?;
        promise(kept.as_deref() == Some(text), || format!("{text:?} became {kept:?}"))?;
    }
    // Of another type: a log where a text should be. Without its rights it is left out.
    let name = name_of(&proof, check, &bucket, "other");
    let connections = proof.connections.as_ref().map_err(|why| Stop::NotChecked(why.clone()))?;
    let mut connection = connections.holding("other").map_err(Stop::NotChecked)?;
    let types = match ask::<i64>(&mut connection, &["ZADD", &name, "1", "x"]).await {
        Ok(_) => {
            let _ = ask::<i64>(&mut connection, &["PEXPIRE", &name, "600000"]).await;
            let answer = bucket.check(&Charge::new("other")).await;
            let is_error = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::State);
            promise(is_error, || format!("another type is decided on: {answer:?}"))?;
            String::from("one of another type")
        }
        Err(why) => format!("none of another type: {why}"),
    };
    Ok(format!("{count} charges on 7 texts are errors of kind state; {types}"))
}

async fn future_states(proof: Shared, pool: Pool) -> Done {
    let check = "a state from the future";
    let quota = Quota::per_second(5);
    let bucket = limiter(&proof, TokenBucket::new(quota), &pool, &["key"]);
    let now = bucket.check(&Charge::new("key")).await?.decided_at().unwrap_or_default();
    let year = Duration::from_secs(365 * 86_400);
    let name = name_of(&proof, check, &bucket, "key");
    put(&proof, &name, "key", &(now + year).as_micros().to_string()).await?;
    let denied = bucket.check(&Charge::new("key")).await?;
    promise(!denied.is_admitted(), || format!("it is admitted: {denied:?}"))?;
    let wait = denied.retry_after().unwrap_or(Duration::MAX);
    // The longest wait that is ever reserved, and the bucket.
    promise(wait <= Duration::from_secs(62), || format!("the key is locked for {wait:?}"))?;
    Ok(format!("a year ahead: refused for {wait:?}"))
}

async fn unknown_scripts(proof: Shared, pool: Pool) -> Done {
    let quota = Quota::new(100, HOUR);
    let any = |number: usize| -> AnyAlgorithm {
        match number {
            0 => TokenBucket::new(quota).into(),
            1 => FixedWindow::new(quota).into(),
            2 => Budget::new(quota).into(),
            3 => SlidingWindow::new(quota).into(),
            4 => SlidingCounter::new(quota).into(),
            _ => SmoothBursty::new(quota).max_burst(HOUR).into(),
        }
    };
    // So many scripts are possible that the server knows none of these.
    let count = 20;
    for number in 0..count {
        let parts: Vec<_> = (0..8).map(|_| any(fastrand::usize(..6))).collect();
        let key = format!("key-{number}");
        let several = limiter(&proof, parts, &pool, &[&key]);
        let decision = several.check(&Charge::new(key.clone())).await?;
        promise(decision.is_admitted(), || format!("it is refused: {decision:?}"))?;
        let peek = several.peek(key).await?;
        promise(peek.remaining() == Some(99), || format!("it is not counted once: {peek:?}"))?;
    }
    Ok(format!("{count} scripts of 8 random algorithms, each counted once"))
}

async fn deleted_keys(proof: Shared, pool: Pool) -> Done {
    let bucket = limiter(&proof, TokenBucket::new(Quota::new(5, HOUR)), &pool, &["key"]);
    let name = name_of(&proof, "a deleted key", &bucket, "key");
    let connections = proof.connections.as_ref().map_err(|why| Stop::NotChecked(why.clone()))?;
    let mut connection = connections.holding("key").map_err(Stop::NotChecked)?;
    for _ in 0..20 {
        let all = bucket.check(&Charge::new("key").cost(5)).await?;
        promise(all.is_admitted(), || format!("a new key is refused: {all:?}"))?;
        let more = bucket.check(&Charge::new("key")).await?;
        promise(!more.is_admitted(), || format!("6 of 5 are admitted: {more:?}"))?;
        let gone: i64 = ask(&mut connection, &["UNLINK", &name]).await.map_err(Stop::NotChecked)?;
        promise(gone == 1, || format!("no key is called {name}"))?;
        let peek = bucket.peek("key").await?;
        promise(peek.remaining() == Some(5), || format!("it is not new: {peek:?}"))?;
    }
    Ok(String::from("20 times: no error, and the key is new"))
}

async fn leaving_callers(proof: Shared, pool: Pool) -> Done {
    let limiter = counting(&proof, &pool);
    let _ = limiter.peek("key").await?;
    let (mut decided, mut left) = (0, 0);
    let longest = (2 * proof.met.round_trip).as_micros() as u64 + 200;
    for _ in 0..20 {
        let mut calls = JoinSet::new();
        for _ in 0..25 {
            let (limiter, patience) = (limiter.clone(), fastrand::u64(..longest));
            calls.spawn(async move {
                let charge = Charge::new("key");
                let call = limiter.check(&charge);
                let patience = sleep(Duration::from_micros(patience));
                tokio::select! {
                    answer = call => Some(answer),
                    () = patience => None,
                }
            });
        }
        for answer in calls.join_all().await {
            match answer {
                Some(answer) => decided += u64::from(answer?.is_admitted()),
                None => left += 1,
            }
        }
    }
    let taken = settled(&limiter, decided).await?;
    promise(taken == decided, || {
        format!("{taken} units are taken, {decided} were admitted, and {left} callers left")
    })?;
    Ok(format!("{left} of 500 callers left, and their units came back"))
}

async fn leaving_waiters(proof: Shared, pool: Pool) -> Done {
    // One unit in ten seconds, so that a slot is far away.
    let bucket = TokenBucket::new(Quota::new(1, Duration::from_secs(10)));
    let limiter = limiter(&proof, bucket, &pool, &["key"]);
    let _ = limiter.check(&Charge::new("key")).await?;
    let mut waiters = JoinSet::new();
    let decided = Arc::new(AtomicUsize::new(0));
    for _ in 0..5 {
        let decided = Arc::clone(&decided);
        let limiter = limiter.clone().inspect(move |_, _| _ = decided.fetch_add(1, Relaxed));
        waiters.spawn(async move { limiter.acquire("key").await.map(drop) });
    }
    let queue = |wait: Option<Duration>| wait.unwrap_or_default().as_secs_f64();
    let begun = Instant::now();
    // All know their slot. The slot of a waiter that leaves without an answer may come back after
    // those of the waiters before it, and a bucket takes back only the newest.
    while decided.load(Relaxed) < 5 {
        promise(begun.elapsed() < Duration::from_secs(9), || {
            String::from("the waiters got no slots")
        })?;
        sleep(Duration::from_millis(5)).await;
    }
    drop(waiters);
    let begun = Instant::now();
    loop {
        let wait = queue(limiter.estimate("key").await?.retry_after());
        if wait <= 10.0 {
            return Ok(String::from("5 waiters left, and their slots are free again"));
        }
        promise(begun.elapsed() < Duration::from_secs(5), || {
            format!("the next charge waits for {wait} s, although all waiters have left")
        })?;
        sleep(Duration::from_millis(5)).await;
    }
}

async fn passing_deadlines(proof: Shared, pool: Pool) -> Done {
    let patient = counting(&proof, &pool);
    let _ = patient.peek("key").await?;
    let hasty = patient.clone().decision_timeout(Duration::from_micros(1));
    let (mut admitted, mut errors) = (0, 0);
    let mut longest = Duration::ZERO;
    for _ in 0..100 {
        let begun = Instant::now();
        match hasty.check(&Charge::new("key")).await {
            Ok(decision) => {
                promise(decision.outcome() == Outcome::Allow, || format!("{decision:?}"))?;
                admitted += 1;
            }
            Err(error) => {
                promise(crate::access::is_of_network(error.kind()), || format!("{error:#}"))?;
                errors += 1;
            }
        }
        longest = longest.max(begun.elapsed());
    }
    promise(longest < Duration::from_secs(2), || format!("an answer came after {longest:?}"))?;
    let taken = settled(&patient, admitted).await?;
    promise(taken >= admitted && taken <= admitted + errors, || {
        format!("{taken} units are taken, and {admitted} were admitted")
    })?;
    let back = admitted + errors - taken;
    Ok(format!(
        "{errors} of 100 missed 1 us, each within {} ms; {back} came back",
        longest.as_millis().max(1)
    ))
}
