//! Connections to real servers: those of an address, of a cluster, behind sentinels and over TLS.

mod addresses;
mod connections;
#[cfg(feature = "bb8")]
mod cut_replies;
mod nameless;
mod rotation;
mod sentinel;
#[cfg(feature = "rustls")]
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis_once::{Error, ErrorKind, Pool, Script};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use servers::cluster::Cluster;
use servers::proxy::{Fault, Proxy};
use servers::trouble::{D, LONG, SLACK, cut, figure, in_time, others, run};
use servers::{NOWHERE, Server, eventually, fake, stats};

/// Counters on a server: each call adds one, and is sent once. It is a script, which replicas do
/// not get from their primary. The rights that limiters need suffice.
#[derive(Clone, Debug)]
struct Counter {
    pool: Pool,
    script: Script,
    deadline: Duration,
}

fn over(pool: Pool) -> Counter {
    let script = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    Counter { pool, script, deadline: D }
}

fn counter_at(url: &str) -> Counter {
    over(Pool::connect(url).expect("an address"))
}

impl Counter {
    /// The same with another time for a call.
    fn within(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Returns the count, this call included.
    fn add(&self) -> impl Future<Output = Result<u64, Error>> + Send + use<> {
        self.add_to("key")
    }

    fn add_to(&self, key: &str) -> impl Future<Output = Result<u64, Error>> + Send + use<> {
        let (counter, key) = (self.clone(), format!("sluice:{{{key}}}"));
        async move {
            let Self { pool, script, deadline } = counter;
            let answer = pool.run(&script, &[&key], 1, Instant::now() + deadline).await?;
            Ok(redis::from_redis_value(answer).expect("a number"))
        }
    }
}

/// The error that calls end with. A machine so busy that timers fire late causes saturation at
/// times: then it calls again.
async fn trouble(counter: &Counter) -> Error {
    let begun = Instant::now();
    loop {
        let error = counter.add().await.expect_err("no answer");
        if error.kind() != ErrorKind::Saturation || begun.elapsed() > LONG {
            return error;
        }
    }
}

/// Calls until the answer is an error of `kind`. Each must come in time.
async fn until(counter: &Counter, kind: ErrorKind) {
    let begun = Instant::now();
    loop {
        match in_time(D + SLACK, counter.add()).await {
            Err(error) if error.kind() == kind => return,
            other => assert!(begun.elapsed() < LONG, "{other:?}"),
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// Calls until there is an answer, whatever the errors before.
async fn until_well(counter: &Counter) -> Duration {
    let begun = Instant::now();
    while let Err(error) = counter.add().await {
        assert!(begun.elapsed() < LONG, "{error:?}");
        sleep(Duration::from_millis(1)).await;
    }
    begun.elapsed()
}

/// An error with all its causes, in one line.
fn chain(error: &Error) -> String {
    format!("{error:#}")
}
