//! A lock that one holder has at a time. `cargo run -p redis-once --example lock` runs it, with
//! Redis at `redis://127.0.0.1`, or at the address in `REDIS_URL`.
//!
//! If nobody knows whether the lock was taken, it is freed by its token: a lock that another holder
//! has stays. A holder that dies loses it after ten seconds.

use std::time::Duration;

use redis_once::redis::{Value, cmd};
use redis_once::{Error, Failure, Pool, Script};
use tokio::time::Instant;

const FREE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end";

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(200)
}

/// Takes the lock, and returns true if it was free.
async fn take(pool: &Pool, free: &Script, key: &str, token: &str) -> Result<bool, Failure> {
    let mut command = cmd("SET");
    command.arg(key).arg(token).arg("NX").arg("PX").arg(10_000);
    match pool.send(command, key, soon()).await {
        Ok(reply) => Ok(reply == Value::Okay),
        Err(failure) => {
            if failure.may_have_run() {
                // Best effort: what is not freed ends by itself.
                let _ = pool.run(free, &[key], token, soon()).await;
            }
            Err(failure)
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".into());
    let (pool, free) = (Pool::connect(&url)?, Script::new(FREE));
    pool.ready().await?;
    let token = std::process::id().to_string();
    if !take(&pool, &free, "lock:report", &token).await? {
        println!("another process writes the report");
        return Ok(());
    }
    println!("this process writes the report");
    pool.run(&free, &["lock:report"], &token, soon()).await?;
    Ok(())
}
