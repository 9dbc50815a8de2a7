//! What the example programs share: how they end, files that are read again when they change, the
//! counts that Prometheus reads, and errors with their causes.

pub mod causes;
pub mod metrics;
pub mod reload;

use std::error::Error;
use std::process::ExitCode;

/// Runs a program on a runtime of its own until it ends. An error and its causes go to stderr.
pub fn run(
    name: &str,
    program: impl Future<Output = Result<(), Box<dyn Error + Send + Sync>>>,
) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    let ended = runtime.block_on(program);
    // Without waiting for what blocks a thread, such as a file system that hangs.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {}", causes::causes(&*error));
            ExitCode::FAILURE
        }
    }
}
