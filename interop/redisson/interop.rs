//! Redisson in a Java process, and this crate, on one Redis: each sees what the other does.
//!
//! `run.sh` builds the Java side (`src/main/java/Interop.java`) and runs this; each question
//! to it is one line.

mod hammer;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::time::{Instant, sleep};
use tower_sluice::Pool;
use tower_sluice_redisson::{RRateLimiter, Rate, Redisson};

use support::Server;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Redisson in a Java process, which is killed when this is dropped.
struct Java {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Java {
    fn start(url: &str) -> Self {
        let classpath = std::env::var("INTEROP_CLASSPATH")
            .expect("INTEROP_CLASSPATH: run interop/redisson/run.sh, which sets it");
        let mut child = Command::new("java")
            .args(["-cp", &classpath, "Interop", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("java");
        // A Java process that hangs is killed. The test then fails, since it reads no line.
        let id = child.id().to_string();
        std::thread::spawn(move || {
            std::thread::sleep(hammer::seconds() + Duration::from_secs(300));
            let _ = Command::new("kill").args(["-9", &id]).status();
        });
        let to = child.stdin.take().expect("a pipe");
        let from = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut java = Self { child, to, from };
        println!("interop {}", java.line());
        java
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("a line");
        assert!(!line.is_empty(), "the Java side ended");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, question: &str) -> String {
        writeln!(self.to, "{question}").expect("a Java side that listens");
        self.line()
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both sides of one Redis.
struct Both {
    java: Java,
    redisson: Redisson,
    limiter: RRateLimiter,
    connection: MultiplexedConnection,
    server: Server,
}

impl Both {
    async fn start() -> Self {
        let server = Server::with(&[]);
        let java = Java::start(&server.url());
        let pool = Pool::connect(&server.url()).expect("an address");
        let redisson = Redisson::new(pool).decision_timeout(Duration::from_secs(20));
        let limiter = redisson.rate_limiter("interop").expect("a name");
        let connection = server.connection().await;
        Self { java, redisson, limiter, connection, server }
    }

    /// Changes both sides to another limiter.
    fn name(&mut self, name: &str) {
        assert_eq!(self.java.ask(&format!("name {name}")), "ok");
        self.limiter = self.redisson.rate_limiter(name).expect("a name");
    }

    fn java(&mut self, question: &str, answer: &str) {
        assert_eq!(self.java.ask(question), answer, "{question}");
    }

    async fn takes(&self, permits: u64) -> bool {
        self.limiter.try_acquire(permits).await.expect("an answer").is_some()
    }

    async fn available(&self) -> u64 {
        self.limiter.available_permits().await.expect("permits")
    }

    async fn time_to_live(&mut self, key: &str) -> i64 {
        cmd("PTTL").arg(key).query_async(&mut self.connection).await.expect("a time")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_limiter_for_java_and_rust() {
    let mut both = Both::start().await;
    configurations_are_read_by_the_other(&mut both).await;
    permits_are_missing_for_the_other(&mut both).await;
    permits_come_back_for_both(&mut both).await;
    rates_are_changed_under_the_other(&mut both).await;
    keys_live_as_either_says(&mut both).await;
    clients_are_alone(&mut both).await;
    either_deletes(&mut both).await;
    names_with_braces_are_the_same(&mut both).await;
    both_wait_for_each_other(&mut both).await;
    hammer::both_hammer_one_limiter(both).await;
}

async fn configurations_are_read_by_the_other(both: &mut Both) {
    both.name("configured");
    assert_eq!(both.limiter.config().await.unwrap(), None);
    both.java("getConfig", "OVERALL 0 0");
    both.java("trySetRate OVERALL 10 60000", "true");
    let rate = Rate::overall(10, MINUTE);
    assert_eq!(both.limiter.config().await.unwrap(), Some(rate));
    assert!(!both.limiter.try_set_rate(Rate::overall(5, SECOND)).await.unwrap());
    both.java("getConfig", "OVERALL 10 60000");

    let rate = Rate::per_client(7, Duration::from_millis(1_234)).keep_alive(MINUTE);
    both.limiter.set_rate(rate).await.unwrap();
    both.java("getConfig", "PER_CLIENT 7 1234");
    both.java("trySetRate OVERALL 1 1000", "false");
    both.java("setRate PER_CLIENT 8 1000 5000 false", "ok");
    let rate = Rate::per_client(8, SECOND).keep_alive(Duration::from_secs(5));
    assert_eq!(both.limiter.config().await.unwrap(), Some(rate));
    assert!(both.limiter.update_rate(Rate::overall(3, MINUTE)).await.unwrap());
    both.java("getConfig", "OVERALL 3 60000");
    both.java("updateRate OVERALL 4 60000 0 false", "true");
    assert_eq!(both.limiter.config().await.unwrap(), Some(Rate::overall(4, MINUTE)));
}

async fn permits_are_missing_for_the_other(both: &mut Both) {
    both.name("permits");
    both.java("trySetRate OVERALL 10 60000", "true");
    both.java("availablePermits", "10");
    assert!(both.takes(4).await);
    both.java("availablePermits", "6");
    both.java("tryAcquire 7", "false");
    both.java("tryAcquire 6", "true");
    assert_eq!(both.available().await, 0);
    assert!(!both.takes(1).await);
    both.java("tryAcquire 1", "false");
    let answer = both.java.ask("tryAcquire 11");
    assert!(answer.contains("Requested permits amount cannot exceed defined rate"), "{answer}");

    // Permits that one side took expire for the other side.
    both.name("expiring");
    both.java("trySetRate OVERALL 10 300", "true");
    for _ in 0..3 {
        both.java("tryAcquire 4", "true");
        assert!(both.takes(6).await);
        sleep(Duration::from_millis(310)).await;
        both.java("availablePermits", "10");
        assert!(both.takes(3).await);
        both.java("tryAcquire 7", "true");
        sleep(Duration::from_millis(310)).await;
        assert_eq!(both.available().await, 10);
    }
}

async fn permits_come_back_for_both(both: &mut Both) {
    both.name("released");
    both.java("trySetRate OVERALL 10 60000", "true");
    both.java("tryAcquire 4", "true");
    let mut held = both.limiter.try_acquire(6).await.unwrap().expect("permits");
    both.java("release 4", "ok");
    assert_eq!(both.available().await, 4);
    assert!(both.takes(4).await);
    both.java("availablePermits", "0");
    assert_eq!((held.release(2).await.unwrap(), held.count()), (2, 4));
    both.java("availablePermits", "2");
    both.java("tryAcquire 2", "true");
    assert_eq!(both.limiter.release(10).await.unwrap(), 10);
    both.java("availablePermits", "10");
    both.java("tryAcquire 10", "true");
}

async fn rates_are_changed_under_the_other(both: &mut Both) {
    both.name("changed");
    both.java("trySetRate OVERALL 10 60000", "true");
    both.java("tryAcquire 4", "true");
    assert!(both.takes(4).await);
    // The new rate is below the permits in use: Java accepts a value below 0.
    assert!(both.limiter.update_rate_keeping_state(Rate::overall(5, MINUTE)).await.unwrap());
    both.java("tryAcquire 1", "false");
    assert!(!both.takes(1).await);
    both.java("updateRate OVERALL 20 60000 0 true", "true");
    assert_eq!(both.available().await, 12);
    assert!(both.takes(12).await);
    both.java("tryAcquire 1", "false");
    both.java("setRate OVERALL 20 60000 0 false", "ok");
    assert!(both.takes(20).await);
    both.limiter.set_rate(Rate::overall(20, MINUTE)).await.unwrap();
    both.java("tryAcquire 20", "true");
}

async fn keys_live_as_either_says(both: &mut Both) {
    both.name("alive");
    let kept = Rate::overall(10, SECOND).keep_alive(Duration::from_secs(50));
    assert!(both.limiter.try_set_rate(kept).await.unwrap());
    both.java("tryAcquire 10", "true");
    for key in ["alive", "{alive}:value", "{alive}:permits"] {
        assert!((40_000..=50_000).contains(&both.time_to_live(key).await), "{key}");
    }
    both.java("expire 20000", "true");
    let rest = both.limiter.remain_time_to_live().await.unwrap().expect("an end");
    assert!(rest <= Duration::from_secs(20));
    both.takes(1).await;
    assert!(both.time_to_live("alive").await > 20_000, "used, so kept alive");
    both.java("updateRate OVERALL 10 1000 30000 true", "true");
    assert!(both.limiter.try_acquire_for(1, MINUTE).await.unwrap().is_some());
    for key in ["alive", "{alive}:value", "{alive}:permits"] {
        assert!((20_000..=30_000).contains(&both.time_to_live(key).await), "{key}");
    }
    assert!(both.limiter.update_rate_keeping_state(Rate::overall(10, SECOND)).await.unwrap());
    both.java("remainTimeToLive", "-1");
    assert!(both.limiter.expire(MINUTE).await.unwrap());
    both.java("clearExpire", "true");
    assert_eq!(both.limiter.remain_time_to_live().await.unwrap(), None);
}

async fn clients_are_alone(both: &mut Both) {
    both.name("clients");
    both.java("trySetRate PER_CLIENT 3 60000", "true");
    both.java("tryAcquire 3", "true");
    both.java("tryAcquire 1", "false");
    assert!(both.takes(3).await);
    assert!(!both.takes(1).await);
    // Under Java's own id, this crate is the same client.
    let keys: Vec<String> =
        cmd("KEYS").arg("{clients}:value:*").query_async(&mut both.connection).await.unwrap();
    assert_eq!(keys.len(), 2);
    for key in keys {
        let id = key.trim_start_matches("{clients}:value:").to_owned();
        let same = both.redisson.clone().client_id(id).rate_limiter("clients").unwrap();
        assert!(same.try_acquire(1).await.unwrap().is_none());
    }
}

async fn either_deletes(both: &mut Both) {
    for java_deletes in [true, false] {
        both.name("deleted");
        both.java("trySetRate OVERALL 10 60000", "true");
        both.java("tryAcquire 5", "true");
        assert!(both.takes(5).await);
        if java_deletes {
            both.java("delete", "true");
            assert!(!both.limiter.exists().await.unwrap());
            assert!(!both.limiter.delete().await.unwrap());
        } else {
            assert!(both.limiter.delete().await.unwrap());
            both.java("isExists", "false");
            both.java("delete", "false");
        }
        let answer = both.java.ask("tryAcquire 1");
        assert!(answer.contains("RateLimiter is not initialized"), "{answer}");
        let error = both.limiter.try_acquire(1).await.unwrap_err();
        assert_eq!(error.to_string(), "RateLimiter is not initialized");
        let names = ["deleted", "{deleted}:value", "{deleted}:permits"];
        let left: i64 = cmd("EXISTS").arg(&names).query_async(&mut both.connection).await.unwrap();
        assert_eq!(left, 0);
    }
}

async fn names_with_braces_are_the_same(both: &mut Both) {
    for name in ["a{tag}b", "{tag}", "with:colon", "größe"] {
        both.name(name);
        both.java("trySetRate OVERALL 10 60000", "true");
        both.java("tryAcquire 4", "true");
        assert!(both.takes(6).await, "{name}");
        both.java("availablePermits", "0");
    }
}

/// Every waiter gets its permits, and the rate holds.
async fn both_wait_for_each_other(both: &mut Both) {
    both.name("waiting");
    both.java("trySetRate OVERALL 1 300", "true");
    assert!(both.takes(1).await);
    both.java("tryAcquire 1 50", "false");
    both.java("tryAcquire 1 20000", "true");
    assert!(both.limiter.try_acquire_for(1, Duration::from_millis(20)).await.unwrap().is_none());
    let begun = Instant::now();
    assert!(both.limiter.try_acquire_for(1, MINUTE).await.unwrap().is_some());
    assert!(begun.elapsed() < Duration::from_secs(20));
    both.java("acquire 1", "ok");
}
