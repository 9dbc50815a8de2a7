//! What the example programs share: ports and how they bound their callers, how a program ends,
//! files that are read again when they change, the counts that Prometheus reads, and errors with
//! their causes.

pub mod causes;
pub mod log;
pub mod metrics;
pub mod open_files;
pub mod port;
pub mod reload;

use std::process::ExitCode;
use std::sync::OnceLock;

use command::Stop;

static PROGRAM: OnceLock<&str> = OnceLock::new();

/// The name of the program, with which its lines on stderr begin.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().copied().unwrap_or("program")
}

/// Runs a program on a runtime of its own until it ends. An error and its causes go to stderr.
pub fn run(name: &'static str, program: impl Future<Output = Result<(), Stop>>) -> ExitCode {
    let _ = PROGRAM.set(name);
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    let ended = runtime.block_on(program);
    // Without waiting for what blocks a thread, such as a file system that hangs.
    runtime.shutdown_background();
    command::ended(
        name,
        ended.map_err(|stop| match stop {
            Stop::Failed(error) => causes::causes(&*error).into(),
            other => other,
        }),
    )
}
