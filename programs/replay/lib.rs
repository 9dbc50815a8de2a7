//! Shows what a policy would have done to last night's traffic.
//!
//! Reads charges as JSON lines from standard input, decides each at its own time, in memory or in
//! Redis, and writes one JSON line for each to standard output and a summary to standard error:
//!
//! ```sh
//! cargo run --release --example replay -- \
//!     --algorithm token_bucket --limit 10 --period 1s < traffic.jsonl
//! ```
//!
//! ```json
//! {"t":1767225600000000,"key":"alice","cost":1}
//! {"t":1767225600000000,"key":"alice","cost":5,"max_wait":500000}
//! {"t":1767225600100000,"key":"bob","limit":100,"period":60000000}
//! {"t":1767225600100000,"key":"bob","op":"peek"}
//! {"t":1767225600200000,"op":"refund","of":2}
//! {"t":1767225600300000,"op":"settle","of":1,"used":1}
//! ```
//!
//! `t`, `max_wait` and `period` are in microseconds. The default cost is 1. The defaults of
//! `max_wait`, `limit`, `period` and `burst` are the options', but a line with a `limit` and no
//! `burst` has that limit as its burst. `of` is the line, counted from 1, whose charge is refunded.
//! `keep_free` is the number of units that must be left after the charge; `remaining` counts them.
//! `"op":"penalize"` takes the cost whether or not it fits, `"op":"grant"` gives as many units back
//! that any line took, and `"op":"reset"` forgets the key. `"op":"block"` and `"op":"pause"` with a
//! `time` refuse charges, or let them wait, until it is over; `"op":"unblock"` ends both.
//!
//! `"op":"settle"` says how many units the charge `of` a line used in the end. Under `budget` and
//! `concurrency` a charge is held until a line settles it, or its `--max-hold` is over.
//! `"op":"renew"` holds it as if it was charged then. `renewed` is false if it was no longer held.
//!
//! `concurrency` has no `--period`: `--algorithm concurrency --limit 10 --max-hold 60s`.
//!
//! Under `redisson` a key is the name of a limiter, and times are truncated to milliseconds.
//! `"op":"release"` releases permits, whichever line took them, and `"op":"available"` returns how
//! many are left.
//!
//! ```json
//! {"line":1,"verdict":"allow","wait_us":0,"remaining":9,"reset_after_us":100000}
//! {"line":2,"verdict":"deny","retry_after_us":200000,"remaining":0,"reset_after_us":1000000}
//! {"line":5,"verdict":"done","refunded":5,"remaining":9,"reset_after_us":100000}
//! {"line":6,"given_back":0,"remaining":10,"reset_after_us":0}
//! {"line":7,"renewed":true,"remaining":9,"reset_after_us":75000000}
//! ```
//!
//! `--redis` takes what `Pool::connect` takes: `redis://...`, `redis-cluster://...`,
//! `redis-sentinel://...`, and with TLS `rediss...`. The variable `REDIS_CA` names a PEM file with
//! the authority that `rediss` addresses are checked against. Default: those of the system.
//!
//! Verdicts are `allow`, `wait`, `deny`, `never` (it can never fit), `error` (the quota or the key
//! of the line is invalid) and `done`. All charges stay in memory until the end, since any later
//! line may refund one.

mod options;
mod redisson;
mod replay;
mod summary;
mod traffic;

use std::process::ExitCode;

/// Runs the program.
#[tokio::main(flavor = "current_thread")]
pub async fn main() -> ExitCode {
    command::ended("replay", replay::run(&command::parse(None)).await)
}
