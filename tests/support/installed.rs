//! A program as somebody meets it who has just installed it.

use std::path::Path;
use std::process::{Command, Stdio};

use super::files::Files;

/// The exit code of a program without variables, and what it wrote to stdout and stderr.
pub fn run(program: impl AsRef<Path>, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(program.as_ref());
    let output = command.env_clear().args(words).stdin(Stdio::null()).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("a text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Fails unless a program has a manual with these words, a version, completions with its options,
/// and 2 as the code of a wrong option.
pub fn assert_explained(program: impl AsRef<Path>, words: &[&str]) {
    let program = program.as_ref();
    let name = program.file_name().expect("a name").to_str().expect("a text");
    let printed = |words: &[&str]| {
        let (code, out, err) = run(program, words);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{name} {words:?}: {out}");
        out
    };
    let manual = printed(&["--help"]);
    let usual = ["Usage: ", "--version", "--completions", "Examples:", "Exit codes:"];
    for word in usual.iter().chain(words) {
        assert!(manual.contains(word), "{name} --help has no {word}: {manual}");
    }
    assert!(printed(&["--version"]).starts_with(&format!("{name} ")));
    for shell in ["bash", "zsh", "fish"] {
        assert!(printed(&["--completions", shell]).contains("completions"), "{name}: {shell}");
    }
    let (code, out, err) = run(program, &["--no-such-option"]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{name}: {err}");
}

/// Fails if systemd finds fault with a unit that starts this program. Passes without systemd.
pub fn assert_unit(unit: &Path, program: &str) {
    let name = unit.file_name().expect("a name").to_str().expect("a text");
    let text = std::fs::read_to_string(unit).expect("a unit");
    let installed = format!("/usr/local/bin/{}", name.strip_suffix(".service").expect("a service"));
    assert!(text.contains(&installed), "{name} does not start {installed}");
    let folder = Files::new();
    let here = folder.write(name, &text.replace(&installed, program));
    let verified = Command::new("systemd-analyze").args(["verify", &here]).output();
    let Ok(verified) = verified else { return eprintln!("{name} is not verified: no systemd") };
    let faults = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && !faults.contains(name), "{faults}");
}
