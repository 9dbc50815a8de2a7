//! Commands that are refused inside the scripts, which a real server runs.
//!
//! Before each script stands a table in place of `redis`, which answers one command in the words of
//! the matrix. So the command is refused where the script calls it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::net::TcpStream;
use tower_sluice::algorithm::{SlidingLog, TokenBucket};
use tower_sluice::{
    Charge, Decision, Error, ErrorKind, FailOpen, Limiter, LimiterExt, Memory, Pool, Quota, Redis,
};
use tower_sluice_redisson::{Rate, Redisson};

use super::answers::{Answer, worded};

use support::fake::command;

/// Longer than any call takes on a busy machine.
const PATIENT: Duration = Duration::from_secs(30);

/// What comes of a command that is refused inside the scripts.
pub struct Outcome {
    /// The errors of calls that use every command of a decision.
    pub errors: Vec<Error>,
    /// For each of them: true if `FailOpen` admits, and if a fallback in the process decides.
    pub fallbacks: Vec<(bool, bool)>,
    /// The error of `Pool::ready`.
    pub ready: Option<Error>,
}

/// Calls limiters on the server at `port`.
pub async fn outcome(port: u16, refused: &str, answer: Answer) -> Outcome {
    let prelude: Arc<str> = prelude(refused, answer).into();
    let dial = move |_: String, _: u16| {
        let prelude = Arc::clone(&prelude);
        async move {
            let server = TcpStream::connect(("127.0.0.1", port)).await?;
            let (own, other) = duplex(64 * 1024);
            tokio::spawn(relay(other, server, prelude));
            Ok::<_, io::Error>(own)
        }
    };
    let builder = Pool::builder("redis://h").expect("an address").dial(dial).size(1);
    let pool = builder.connect_timeout(PATIENT).build().expect("a pool");
    let mut ready = pool.ready().await.err();
    while ready.as_ref().is_some_and(|error| error.kind() == ErrorKind::Saturation) {
        ready = pool.ready().await.err();
    }
    // Its second state is so near to the first one that it is changed in place.
    let bucket = TokenBucket::new(Quota::per_second(1_000).burst(100_000));
    let log = |limit| SlidingLog::new(Quota::per_hour(limit));
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = |kind: &str| format!("{kind}-{}", NUMBER.fetch_add(1, Relaxed));
    let bucket = Redis::new(name("bucket"), bucket, pool.clone()).decision_timeout(PATIENT);
    // The third charge finds one that is out of the window, and one that is not.
    let calls = AtomicU64::new(500_000);
    let own_clock = move || Duration::from_secs(2_000 * calls.fetch_add(1, Relaxed));
    let logs = [
        Redis::new(name("log"), log(3), pool.clone()).decision_timeout(PATIENT),
        Redis::new(name("own"), log(3), pool.clone()).decision_timeout(PATIENT).clock(own_clock),
    ];
    let mut outcomes = vec![
        bucket.peek("absent").await.map(drop),
        bucket.check(&Charge::new("key")).await.map(drop),
        bucket.check(&Charge::new("key")).await.map(drop),
        bucket.check(&Charge::new("key")).await.map(drop),
        bucket.block("key", Duration::from_secs(9)).await.map(drop),
        bucket.unblock("key").await.map(drop),
        bucket.reset("key").await.map(drop),
    ];
    for log in &logs {
        for cost in [1, 1, 1, 2] {
            outcomes.push(log.check(&Charge::new("key").cost(cost)).await.map(drop));
        }
        outcomes.push(log.reset("key").await.map(drop));
    }
    let redisson = Redisson::new(pool).decision_timeout(PATIENT);
    outcomes.extend(outcomes_of_redisson(port, &redisson, &name("redisson")).await);
    let errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    let mut fallbacks = Vec::new();
    for error in errors.clone() {
        let failing = move |_: &Charge| std::future::ready(Err::<Decision, _>(error.clone()));
        let local = Memory::new("local", TokenBucket::new(Quota::per_second(1)));
        let (open, local) = (failing.clone().or_else(FailOpen), failing.or_else(local));
        let charge = Charge::new("key");
        fallbacks.push((open.check(&charge).await.is_ok(), local.check(&charge).await.is_ok()));
    }
    Outcome { errors, fallbacks, ready }
}

/// Returns the outcomes of calls of Redisson's limiter. It is configured without the script, which
/// the server must not know by its digest.
async fn outcomes_of_redisson(
    port: u16,
    redisson: &Redisson,
    name: &str,
) -> Vec<Result<(), Error>> {
    let client = redis::Client::open(("127.0.0.1", port)).expect("an address");
    let mut server = client.get_multiplexed_async_connection().await.expect("a connection");
    let mut configure = redis::cmd("HSET");
    configure.arg(name).arg(&["rate", "3", "interval", "1000000", "type", "0"]);
    configure.exec_async(&mut server).await.expect("configured");
    let rate = Rate::overall(3, Duration::from_secs(1_000));
    let limiter = redisson.rate_limiter(name).expect("a name");
    let new = redisson.rate_limiter(&format!("{name}-new")).expect("a name");
    vec![
        limiter.try_acquire(2).await.map(drop),
        limiter.try_acquire(2).await.map(drop),
        limiter.release(1).await.map(drop),
        limiter.expire(PATIENT).await.map(drop),
        limiter.remain_time_to_live().await.map(drop),
        limiter.set_rate_keeping_state(rate).await.map(drop),
        limiter.update_rate(rate).await.map(drop),
        redisson.reset(name).await.map(drop),
        new.try_set_rate(rate).await.map(drop),
    ]
}

/// Returns the beginning of a script in which a command is refused.
fn prelude(refused: &str, answer: Answer) -> String {
    let words = match answer {
        Answer::Words(words) => worded(words, refused),
        _ => String::new(),
    };
    let reply = if answer == Answer::WrongType { "7" } else { "{err = WORDS}" };
    // Redis 6.2 raises a text, and later servers a table.
    format!(
        "local WORDS, REAL = [[{words}]], redis\n\
         local redis = setmetatable({{}}, {{__index = REAL}})\n\
         redis.pcall = function(name, ...)\n\
           if name == '{refused}' then return {reply} end\n\
           return REAL.pcall(name, ...)\n\
         end\n\
         redis.call = function(name, ...)\n\
           if name ~= '{refused}' then return REAL.call(name, ...) end\n\
           if WORDS == '' then return {reply} end\n\
           if REAL.REDIS_VERSION_NUM then error({{err = WORDS}}) end\n\
           error('@user_script: 1: -' .. WORDS, 0)\n\
         end\n"
    )
}

/// Passes commands on to the server, each script with the prelude, and the replies back.
async fn relay(client: DuplexStream, server: TcpStream, prelude: Arc<str>) -> Option<()> {
    let (mut replies, mut commands) = server.into_split();
    let (client, mut answers) = tokio::io::split(client);
    tokio::spawn(async move { tokio::io::copy(&mut replies, &mut answers).await });
    let mut client = BufReader::new(client);
    loop {
        let mut words = command(&mut client).await?;
        if words[0] == b"EVAL" {
            words[1] = [prelude.as_bytes(), &words[1]].concat();
        }
        let mut sent = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            sent.extend(format!("${}\r\n", word.len()).bytes());
            sent.extend(word);
            sent.extend(b"\r\n");
        }
        commands.write_all(&sent).await.ok()?;
    }
}
