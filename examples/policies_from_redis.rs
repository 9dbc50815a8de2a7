//! Policies as data: each field of a Redis hash is the name of a policy, its value the row in JSON.
//! Change the hash while the example runs, and the next request is under the new table.
//!
//! `REDIS_URL=redis://127.0.0.1:6379 cargo run --features policies --example policies_from_redis`,
//! then
//!
//! ```sh
//! redis-cli hset policies api '{"limit": 3, "period": "10s", "key": "header:x-user"}'
//! curl -i -H 'x-user: alice' 127.0.0.1:3000
//! redis-cli hset policies api '{"limit": 0, "period": "10s"}'     # refused, and the old one stays
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tower::BoxError;
use tower_sluice::policy::{Policies, Row, Rows, Source};
use tower_sluice::{Pool, RateLimitLayer, redis};

/// How often the hash is read.
const PAUSE: Duration = Duration::from_secs(1);

/// The rows of a Redis hash.
struct Hash {
    client: redis::Client,
    key: &'static str,
}

impl Source for Hash {
    async fn rows(&self) -> Result<Rows, BoxError> {
        let mut connection = self.client.get_multiplexed_async_connection().await?;
        let fields: BTreeMap<String, String> =
            redis::cmd("HGETALL").arg(self.key).query_async(&mut connection).await?;
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
    let policies = Policies::builder().redis(Pool::connect(&url)?).build(&Rows::default())?;

    let hash = Hash { client: redis::Client::open(url)?, key: "policies" };
    let table = policies.clone();
    tokio::spawn(async move {
        let mut before = None;
        loop {
            // The same rows need no new table, and the same error no second line.
            let now = hash.rows().await.map_err(|error| error.to_string());
            if before.as_ref() != Some(&now) {
                match now.clone().and_then(|rows| table.load(&rows).map_err(|why| why.to_string()))
                {
                    Ok(()) => println!("{} policies", table.policies().len()),
                    Err(error) => eprintln!("the policies stay as they were: {error}"),
                }
                before = Some(now);
            }
            tokio::time::sleep(PAUSE).await;
        }
    });

    let limit = RateLimitLayer::new(policies.clone(), policies);
    let app = Router::new().route("/", get(async || "hello\n")).layer(limit);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
