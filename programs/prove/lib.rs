//! Proves the promises of the crate on a server of yours.
//!
//! It runs the oracle, the twins and the faults that need no rights against any server, cluster,
//! sentinels, proxy or managed service, and prints one table:
//!
//! ```sh
//! cargo run --release --example prove -- redis://127.0.0.1:6379
//! ```
//!
//! It takes the addresses that `Pool::connect` takes. The variable `REDIS_CA` names a PEM file with
//! the authority that `rediss` addresses are checked against. Default: those of the system.
//!
//! - **oracle**: four processes call each algorithm in four ways. A model judges each answer.
//!   `over` counts admissions beyond the limit, `unjustified` counts refusals without a reason.
//!   With leases, the bound of a window is wider by the time for which a leased unit may be spent.
//! - **twins**: the script on the server and the Rust code here answer alike.
//! - **faults**: foreign values, lost scripts and keys, connections that are cut, silence, delays,
//!   callers that leave, deadlines that pass.
//!
//! All its keys begin with `sluice:prove-` and a random number. It deletes them at the end, and
//! also after a failure or Ctrl-C. Without the right `SCAN` it empties them, and they expire after
//! ten minutes. It needs the rights that the page "Redis in production" lists.
//! What it cannot check is a row of the table, with the reason.
//!
//! It loads the server as much as its processes can, for two minutes: `--minutes` sets another
//! time.
//!
//! The exit code is 0 if all promises are kept, and 1 if one is broken. It is 2 if the options are
//! wrong, if there is no connection, or after Ctrl-C. It is 3 if calls had no answer, so that a
//! check proves nothing: the network is to blame, or the crate. It is 4 if the checks were not over
//! after five minutes, or could not begin since the server has no memory left, and what was checked
//! is kept.
//!
//! Before the checks it looks at what the server allows. On a replica, or where scripts may not
//! read the server's clock, it ends at once with code 2.

mod access;
mod check;
mod cleaner;
mod faults;
mod folder;
mod met;
mod network;
mod options;
mod oracle;
mod table;
mod twins;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use command::Stop;
use tokio::runtime::Runtime;

use support::trial::crew;

use access::Access;
use check::Proof;
use folder::Folder;
use options::Options;
use table::Row;

/// Runs the program.
pub fn main() -> ExitCode {
    // This process is one of the oracle's workers.
    if std::env::var_os("ORACLE_ROLE").is_some() {
        crew::work(|url| {
            Access::new(url).and_then(|access| access.patient_pool()).expect("a pool")
        });
        return ExitCode::SUCCESS;
    }
    let options = command::parse(None);
    // What a check panics with is in the table.
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = Runtime::new().expect("a runtime");
    let code = runtime.block_on(async {
        match prove(options).await {
            Ok(code) => code,
            Err(why) => command::ended("prove", Err(Stop::Asked(why))),
        }
    });
    runtime.shutdown_background();
    code
}

/// No proof takes longer, however slow the server is.
const LONGEST: Duration = Duration::from_secs(290);

async fn prove(options: Options) -> Result<ExitCode, String> {
    let access = Access::new(&options.address)?;
    let pool = access.pool()?;
    pool.ready().await.map_err(|error| access.hush(&format!("{error:#}")))?;
    let connections = access.connections().await;
    let met = met::meet(&access, &connections).await;
    println!("{}", access.hush(&met.text));

    let folder = Folder::new()?;
    let path = folder.path().to_owned();
    let proof = Arc::new(Proof::new(options, access, connections, met, path));
    let obstacle = match &proof.connections {
        Ok(connections) => connections.obstacle().await?,
        Err(_) => None,
    };
    let (mut is_whole, mut is_interrupted) = (obstacle.is_none(), false);
    tokio::select! {
        () = async { proof.add(Row::not_checked("all", obstacle.unwrap_or_default())) },
            if !is_whole => {}
        () = all(&proof), if is_whole => {}
        () = tokio::time::sleep(LONGEST) => {
            proof.add(Row::not_checked("all that follows", "five minutes are over"));
            is_whole = false;
        }
        () = interrupted() => is_interrupted = true,
    }
    crew::end_all();
    proof.bar.set_message("deletes its keys");
    let cleaned = cleaner::clean(&proof).await;
    proof.add(cleaned);
    proof.bar.finish_and_clear();
    let code = table::print(&proof, is_whole);
    if is_interrupted {
        return Err(String::from("interrupted: the table is not complete"));
    }
    Ok(code)
}

async fn all(proof: &Arc<Proof>) {
    oracle::workloads(proof).await;
    oracle::edges(proof).await;
    oracle::uses(proof).await;
    oracle::leases(proof).await;
    twins::scripts(proof).await;
    twins::budgets(proof).await;
    faults::all(proof).await;
    network::all(proof).await;
    met::time(proof).await;
}

/// Waits until somebody wants it to end.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut end = signal(SignalKind::terminate()).expect("signals");
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = end.recv() => {}
        }
    }
    #[cfg(not(unix))]
    let _ = tokio::signal::ctrl_c().await;
}
