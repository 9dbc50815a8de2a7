//! A job that runs at most once, whatever happens. `cargo run -p redis-once --example job order-7`
//! runs it, with Redis at `redis://127.0.0.1`, or at the address in `REDIS_URL`.
//!
//! The mark of a job is set before it runs. If nobody knows whether the mark was set, the job does
//! not run: the next attempt finds the mark, or sets it.

use std::time::Duration;

use redis_once::redis::{Value, cmd};
use redis_once::{Error, Failure, Pool};
use tokio::time::Instant;

/// Returns true if this process may run the job.
async fn claim(pool: &Pool, job: &str) -> Result<bool, Failure> {
    let key = format!("job:{job}");
    let mut command = cmd("SET");
    command.arg(&key).arg("claimed").arg("NX").arg("EX").arg(86_400);
    let deadline = Instant::now() + Duration::from_millis(200);
    Ok(pool.send(command, &key, deadline).await? == Value::Okay)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".into());
    let job = std::env::args().nth(1).unwrap_or_else(|| "order-7".into());
    let pool = Pool::connect(&url)?;
    match claim(&pool, &job).await {
        Ok(true) => println!("{job} runs now"),
        Ok(false) => println!("{job} has run, or runs elsewhere"),
        Err(failure) if failure.may_have_run() => {
            println!("nobody knows who runs {job}: an operator looks at its mark ({failure:#})");
        }
        Err(failure) => println!("{job} was not begun, and may be tried again ({failure:#})"),
    }
    Ok(())
}
