//! Real servers of a test's own on free loopback ports, servers that say what a test wants, and the
//! network between. No limiter is needed for them, so the tests of `redis-once` build none.

pub mod cluster;
pub mod fake;
pub mod files;
pub mod key_proxy;
pub mod process;
pub mod proxy;
pub mod sentinel;
mod server;
pub mod stats;
pub mod tls;
pub mod trouble;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

pub use server::{
    ADMIN, NOWHERE, Server, documented_rights, expires, free_port, program, program_for,
};

/// Longer than anything takes that is not promised to be quick, on a busy machine too.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `happened`, and fails with `what` if it never does.
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asks again until `holds`, and fails with `what` if it never does. Other tasks run meanwhile.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the repository")
}

/// Where tests put their files: a folder beside what cargo builds.
pub fn scratch() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    let folder = program.ancestors().nth(3).expect("where cargo builds").join("tmp");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Runs the test of this path alone, in a process whose state no other test shares, and returns
/// what it wrote once it has passed. None in that process: there the test goes on.
pub fn in_its_own_process(test: &str) -> Option<Output> {
    alone(test, &mut Command::new(std::env::current_exe().expect("this binary")))
}

/// The same, in a process that may open so many files.
pub fn in_a_process_with_files(files: u16, test: &str) -> Option<Output> {
    let own = std::env::current_exe().expect("this binary");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("ulimit -n {files}; exec \"$0\" \"$@\"")).arg(own);
    alone(test, &mut shell)
}

fn alone(test: &str, own: &mut Command) -> Option<Output> {
    const ALONE: &str = "TOWER_SLUICE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return None;
    }
    let child = own.args(["--exact", test]).env(ALONE, "1").output();
    let child = child.expect("a process");
    let [wrote, said] = [&child.stdout, &child.stderr].map(|text| String::from_utf8_lossy(text));
    let has_passed = child.status.success() && wrote.contains(" 1 passed");
    assert!(has_passed, "{test}: {}\n{wrote}{said}", child.status);
    Some(child)
}
