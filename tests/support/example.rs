//! An example as a user runs it: built like the test, and beside it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;

use super::repository;

/// Builds the example called `name`, and returns its path.
pub fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let folder = test.ancestors().nth(2).expect("where cargo builds").to_owned();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--example", name]).current_dir(repository());
    // With other packages or features it would be compiled anew, and the crate with it: these are
    // those of `tests/run.sh`.
    cargo.arg("--workspace");
    for other in ["envoy-ratelimit", "gateway", "serving"] {
        cargo.args(["--exclude", other]);
    }
    cargo.args(cfg!(feature = "rustls").then_some("--all-features"));
    cargo.args(folder.ends_with("release").then_some("--release"));
    assert!(cargo.status().expect("cargo").success(), "the example does not build");
    folder.join("examples").join(name)
}

/// Runs a program with an input.
pub fn fed(command: &mut Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut to_child = child.stdin.take().expect("its input");
    let input = input.to_owned();
    // A program that stops at a line reads no further, so what follows may not be written.
    let writer = thread::spawn(move || _ = to_child.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("its output");
    writer.join().expect("written");
    output
}
