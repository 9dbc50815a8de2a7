//! Mutants of the crate: edits of a copy, each compiled and given to the tests that must fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::turn;

/// An edit of one file, and the tests that must notice: a test binary and a part of their names.
struct Mutant {
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    tests: [&'static str; 2],
}

const MUTANTS: [Mutant; 10] = [
    Mutant {
        name: "clocks_of_clients",
        file: "src/limiter/redis/mod.rs",
        from: "            clock: None,\n",
        to: "            clock: Some(Arc::new(|| {\n                let skew = Duration::from_millis(u64::from(std::process::id() % 2) * 200);\n                std::time::UNIX_EPOCH.elapsed().unwrap_or_default() + skew\n            })),\n",
        tests: ["oracle", "nothing_goes_over"],
    },
    Mutant {
        name: "ready_before_it_is_admitted",
        file: "src/service.rs",
        from: "        Poll::Ready(Ok(()))\n",
        to: "        self.inner.poll_ready(_cx).map_err(Into::into)\n",
        tests: ["layer", "readiness"],
    },
    Mutant {
        name: "dropped_waiter_keeps_its_slot",
        file: "src/limiter/acquire.rs",
        from: "                limiter.refund(booking);\n",
        to: "                drop(booking);\n",
        tests: ["layer", "refunded_once"],
    },
    Mutant {
        name: "second_wait_taken_for_a_grant",
        file: "src/limiter/acquire.rs",
        from: "                        outcome => {\n                            this.state.set(State::Done);",
        to: "                        outcome => {\n                            let outcome = match outcome {\n                                Outcome::Again(_) if this.asked.as_ref().is_some_and(|a| a.again) => Outcome::Allow,\n                                outcome => outcome,\n                            };\n                            this.state.set(State::Done);",
        tests: ["redisson_waiting", "patience_ends"],
    },
    Mutant {
        name: "redisson_late_grant_kept",
        file: "src/limiter/redis/redisson/call.rs",
        from: "        if !self.is_needed {\n",
        to: "        if true {\n",
        tests: ["redisson_faults", "given_back"],
    },
    Mutant {
        name: "late_answer_kept",
        file: "src/limiter/redis/flight.rs",
        from: "                    dispatcher.undo(unheard);\n",
        to: "                    drop(unheard);\n",
        tests: ["fault_replies", "late_answer"],
    },
    Mutant {
        name: "open_under_load",
        file: "src/limiter/or_else.rs",
        from: "        class == Class::Infrastructure\n",
        to: "        matches!(class, Class::Infrastructure | Class::Saturation)\n",
        tests: ["limiters", "opens_the_gate"],
    },
    Mutant {
        name: "keys_as_they_come",
        file: "src/limiter/redis/key.rs",
        from: "text.bytes().all(harmless)",
        to: "text.bytes().all(|byte| harmless(byte) || byte == b'}')",
        tests: ["lib", "limiter::redis::key"],
    },
    Mutant {
        name: "refunds_in_the_order_they_come",
        file: "src/limiter/redis/lane.rs",
        from: "        self.rank().cmp(&other.rank())\n",
        to: "        other.0.number.cmp(&self.0.number)\n",
        tests: ["oracle", "storms_of_refunds"],
    },
    Mutant {
        name: "live_keys_forgotten",
        file: "src/limiter/memory/shard.rs",
        from: ".filter(|old| *old > now)",
        to: ".filter(|old| *old > now + 1_000_000_000)",
        tests: ["limiters", "memory"],
    },
];

#[test]
fn every_mutant_of_the_crate_is_killed() {
    let _turn = turn();
    let copy = Copy::new();
    let mut survivors = Vec::new();
    for mutant in &MUTANTS {
        let path = copy.0.join(mutant.file);
        let text = fs::read_to_string(&path).expect("a source");
        assert_eq!(text.matches(mutant.from).count(), 1, "{}: {}", mutant.name, mutant.from);
        // The true source passes the very tests that must fail.
        assert!(copy.passes(mutant.tests, true), "{}: the true source fails", mutant.name);
        fs::write(&path, text.replace(mutant.from, mutant.to)).expect("written");
        let survived = copy.passes(mutant.tests, false);
        fs::write(&path, text).expect("written");
        let [binary, test] = mutant.tests;
        let by = if survived { String::from("nobody") } else { format!("{binary} {test}") };
        println!("mutant name={} killed_by={by}", mutant.name);
        survivors.extend(survived.then_some(mutant.name));
    }
    println!("{} of {} killed", MUTANTS.len() - survivors.len(), MUTANTS.len());
    assert!(survivors.is_empty(), "{survivors:?} survived");
}

/// A copy of the crate, gone when it is dropped.
struct Copy(PathBuf);

impl Copy {
    fn new() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let copy =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutants-{}", std::process::id()));
        for folder in ["src", "scripts", "tests", "examples", "benches", "docs", "interop"] {
            copied(&root.join(folder), &copy.join(folder));
        }
        for file in ["Cargo.toml", "Cargo.lock", "README.md"] {
            fs::copy(root.join(file), copy.join(file)).expect("a copy");
        }
        Self(copy)
    }

    /// Whether the tests pass; a mutant that does not compile is no mutant.
    fn passes(&self, [binary, test]: [&str; 2], must_run: bool) -> bool {
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
        assert!(!must_run || said.contains(" passed") && !said.contains(" 0 passed"), "{said}");
        run.status.success()
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
