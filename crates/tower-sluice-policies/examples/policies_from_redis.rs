//! Policies as data: each field of a Redis hash is the name of a policy, its value the row in JSON.
//! The hash is read once a second: change it while the example runs, and the new table is in force
//! about a second later.
//!
//! `REDIS_URL=redis://127.0.0.1:6379 cargo run --example policies_from_redis`,
//! which waits for the first table; then
//!
//! ```sh
//! redis-cli hset policies api '{"limit": 3, "period": "10s", "key": "header:x-user"}'
//! curl -i -H 'x-user: alice' 127.0.0.1:3000
//! redis-cli hset policies api '{"limit": 3, "period": "0s"}'      # refused, and the old one stays
//! redis-cli del policies                                          # so is this
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tower::BoxError;
use tower_sluice::Pool;
use tower_sluice::crates::redis;
use tower_sluice_policies::{Policies, Row, Rows};

/// The pause between two reads of the hash.
const PAUSE: Duration = Duration::from_secs(1);

/// The rows of a Redis hash.
struct Hash {
    client: redis::Client,
    key: &'static str,
}

impl Hash {
    async fn rows(&self) -> Result<Rows, BoxError> {
        let mut connection = self.client.get_multiplexed_async_connection().await?;
        let fields: BTreeMap<String, String> =
            redis::cmd("HGETALL").arg(self.key).query_async(&mut connection).await?;
        // Redis has no empty hashes: this one was deleted, or not written yet. No rows would turn
        // all limits off, and nobody would know.
        if fields.is_empty() {
            return Err(format!("there is no hash {}", self.key).into());
        }
        let mut rows = Rows::default();
        for (name, json) in fields {
            let row: Row = serde_json::from_str(&json).map_err(|why| format!("{name}: {why}"))?;
            rows.policy.push(row.with("name", name));
        }
        Ok(rows)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let policies = Policies::builder().redis(Pool::connect(&url)?).build(&Rows::none())?;
    let hash = Hash { client: redis::Client::open(url)?, key: "policies" };

    // A table without rows limits nobody, so nothing is served before the first one is read.
    let mut said = String::new();
    while !read(&hash, &policies, &mut said).await {
        tokio::time::sleep(PAUSE).await;
    }
    let table = policies.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(PAUSE).await;
            read(&hash, &table, &mut said).await;
        }
    });

    let limit = policies.layer();
    let app = Router::new().route("/", get(async || "hello\n")).layer(limit);
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

/// Reads the table, and returns whether it is in force: a bad one changes nothing, and one that is
/// loaded again keeps what was taken. `said` holds the last line, so that none is written twice.
async fn read(hash: &Hash, policies: &Policies, said: &mut String) -> bool {
    let rows = hash.rows().await;
    let result = rows.and_then(|rows| policies.load(&rows).map_err(BoxError::from));
    let line = match &result {
        Ok(()) => format!("{} policies", policies.policies().len()),
        Err(error) => format!("the policies stay as they were: {error}"),
    };
    if *said != line {
        eprintln!("{line}");
        *said = line;
    }
    result.is_ok()
}
