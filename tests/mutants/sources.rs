//! Mutants of the crate: edits of a copy, each compiled and given to the tests that must fail.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::edits::{MUTANTS, Mutant};
use crate::turn;

#[test]
fn every_mutant_of_the_crate_is_killed() {
    let _turn = turn();
    let begun = Instant::now();
    let only = std::env::var("MUTANTS_ONLY").unwrap_or_default();
    let chosen = |mutant: &&Mutant| only.split(',').any(|begin| mutant.name.starts_with(begin));
    let mutants: Vec<_> = MUTANTS.iter().filter(chosen).collect();
    let copy = Copy::new();
    // Every edit finds its place, and the true source passes the very tests that must fail.
    let mut wrong: Vec<_> = mutants.iter().filter_map(|mutant| copy.misplaced(mutant)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let tests: BTreeSet<_> = mutants.iter().map(|mutant| mutant.tests).collect();
    wrong.extend(tests.into_iter().filter_map(|tests| {
        let why = copy.fails(tests, true)?;
        Some(format!("the true source fails {tests:?}: {why}"))
    }));
    let mut killed = 0;
    for Mutant { name, file, from, to, tests } in &mutants {
        let path = copy.0.join(file);
        let text = fs::read_to_string(&path).expect("a source");
        fs::write(&path, text.replace(from, to)).expect("written");
        let failed = copy.fails(*tests, false).is_some();
        fs::write(&path, text).expect("written");
        let [binary, test] = tests;
        let by = if failed { format!("{binary} {test}") } else { String::from("nobody") };
        println!("mutant name={name} killed_by={by}");
        killed += usize::from(failed);
        wrong.extend((!failed).then(|| format!("{name} survived")));
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{killed} of {} of the crate killed, in {seconds:.0} s", mutants.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A copy of the crate, gone when it is dropped.
struct Copy(PathBuf);

impl Copy {
    fn new() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        // Always the same place, so that cargo finds again what it built there.
        let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
        let _ = fs::remove_dir_all(&copy);
        for folder in ["src", "scripts", "tests", "examples", "benches", "docs", "interop"] {
            copied(&root.join(folder), &copy.join(folder));
        }
        for file in ["Cargo.toml", "Cargo.lock", "README.md"] {
            fs::copy(root.join(file), copy.join(file)).expect("a copy");
        }
        Self(copy)
    }

    /// Says so if the text that a mutant edits does not stand in its file once.
    fn misplaced(&self, mutant: &Mutant) -> Option<String> {
        let text = fs::read_to_string(self.0.join(mutant.file)).unwrap_or_default();
        let found = text.matches(mutant.from).count();
        let Mutant { name, file, from, .. } = mutant;
        (found != 1).then(|| format!("{name}: found {found} times in {file}: {from}"))
    }

    /// What the tests say if they fail; a mutant that does not compile is no mutant.
    fn fails(&self, [binary, test]: [&str; 2], must_run: bool) -> Option<String> {
        let cargo = |args: &[&str]| {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.current_dir(&self.0).arg("test").arg("--quiet").args(match binary {
                "lib" => vec!["--lib"],
                binary => vec!["--test", binary],
            });
            // One folder for what is built, for all mutants of all runs.
            let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants-target");
            cargo.env("CARGO_TARGET_DIR", target).env("CARGO_PROFILE_DEV_DEBUG", "0");
            cargo.env("CARGO_INCREMENTAL", "0").env("ORACLE_SECONDS", "1");
            cargo.env("ORACLE_ONLY", "token_bucket");
            cargo.args(args).output().expect("cargo")
        };
        let built = cargo(&["--no-run"]);
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let run = cargo(&["--", test]);
        let said = String::from_utf8_lossy(&run.stdout);
        let ran = said.contains(" passed") && !said.contains(" 0 passed");
        (!run.status.success() || must_run && !ran).then(|| said.into_owned())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copied(&path, &to);
        } else {
            fs::copy(path, to).expect("a copy");
        }
    }
}
