//! Policies as data: each row of a table of SQLite is a policy, each column a field.
//!
//! `cargo run --manifest-path crates/tower-sluice-policies/examples/policies_from_sqlite/Cargo.toml`

use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use tokio::task::spawn_blocking;
use tower::BoxError;
use tower_sluice_policies::{Policies, Row, Rows};

/// The rows of the table `policies`.
struct Table(Arc<Mutex<Connection>>);

impl Table {
    // A query blocks, so it runs on a thread of its own, and no request waits for it.
    async fn rows(&self) -> Result<Rows, BoxError> {
        let database = Arc::clone(&self.0);
        spawn_blocking(move || {
            let database = database.lock().map_err(|_| "a query has panicked")?;
            read(&database)
        })
        .await?
    }
}

fn read(database: &Connection) -> Result<Rows, BoxError> {
    let mut query = database.prepare("SELECT * FROM policies ORDER BY name")?;
    let columns: Vec<String> = query.column_names().into_iter().map(str::to_owned).collect();
    let mut found = query.query([])?;
    let mut rows = Rows::default();
    while let Some(row) = found.next()? {
        let mut policy = Row::new();
        for (index, column) in columns.iter().enumerate() {
            policy = match row.get_ref(index)? {
                // The column says nothing about this policy.
                ValueRef::Null => policy,
                ValueRef::Integer(number) => policy.with(column, number),
                ValueRef::Real(number) => policy.with(column, number),
                ValueRef::Text(text) => policy.with(column, str::from_utf8(text)?),
                ValueRef::Blob(_) => return Err(format!("{column} is no text").into()),
            };
        }
        rows.policy.push(policy);
    }
    Ok(rows)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let database = Connection::open_in_memory()?;
    database.execute_batch(
        r#"
        CREATE TABLE policies (
            name TEXT PRIMARY KEY, algorithm TEXT, "limit" INTEGER, period TEXT,
            cache_ratio REAL, "key" TEXT, "match" TEXT, enabled INTEGER
        );
        INSERT INTO policies VALUES
            ('api', 'token_bucket', 50, '1s', 0.5, 'header:x-api-key', '/api/{*rest}', 1),
            ('exports', 'sliding_log', 3, '1h', NULL, 'client_ip', '/export', 1),
            ('old', 'fixed_window', 9, '1m', NULL, NULL, '/v1/{*rest}', 0);
        "#,
    )?;
    let table = Table(Arc::new(Mutex::new(database)));
    let policies = Policies::builder().build(&table.rows().await?)?;
    show(&policies);

    let change = |sql: &str| table.0.lock().expect("no query panics").execute_batch(sql);
    change(r#"UPDATE policies SET "limit" = 100 WHERE name = 'api'"#)?;
    policies.load(&table.rows().await?)?;
    show(&policies);

    // A bad table changes nothing, and the error says where.
    change(r#"UPDATE policies SET period = 'soon' WHERE name = 'exports'"#)?;
    let error = policies.load(&table.rows().await?).expect_err("no period");
    println!("the policies stay as they were: {error}");
    Ok(())
}

fn show(policies: &Policies) {
    for handle in policies.policies() {
        let policy = handle.policy();
        let (limit, period) = (policy.quota().limit(), policy.quota().period());
        println!(
            "{}: {} of {limit} per {period:?}, {:?}",
            policy.name(),
            policy.algorithm(),
            handle.mode()
        );
    }
    println!();
}
