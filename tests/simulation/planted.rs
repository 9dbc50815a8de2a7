//! Proof that the worlds find faults: all faults of a table are planted in a copy of the crate, and
//! the worlds of that copy have to fail with each of them.
//!
//! A copy of the crate is built once: each function that faults edit has all its bodies, and a
//! variable of the environment chooses one. A fault that edits more than bodies is built alone.
//!
//! `PLANTED=1 SEEDS=1000 cargo test -p tests --release --all-features --test simulation planted --
//! --nocapture` plants all of them, one after another, and says how many seeds each took.
//! `PLANTED=name,name` plants those whose names contain one of the words. `SEED` is the first seed.
//!
//! Where a world cannot hold what a fault needs, the fault names a test of the crate that fails
//! with it, and that test runs instead.
//!
//! The table stands in `planted/`, by the parts of the crate that it edits.

mod bodies;
mod cluster;
mod left_out;
mod limiters;
mod redis;
mod reverted;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bodies::{Bodies, CHOICE};
use support::repository;

/// The number of worlds that have the chance to find a fault, unless `SEEDS` says another number.
const DEFAULT_SEEDS: u64 = 200;

/// The test that holds the worlds.
const WORLDS_OF: &str = "simulation";

/// Chooses the unit tests of the crate.
const LIB: &str = "--lib";

/// Chooses the unit tests of the client.
const CLIENT: &str = "redis-once";

/// So many worlds run in one process.
const WORLDS: u64 = 50;

/// The worlds of one fault run no longer, unless `SECONDS` says another time.
const MAX_SECONDS: u64 = 120;

/// Worlds of one process that take longer, on any machine, do not end.
const MAX_TIME: Duration = Duration::from_secs(120);

/// One world that takes longer, on any machine, does not end.
const MAX_TIME_OF_ONE: Duration = Duration::from_secs(20);

/// The files that a workspace needs beside the sources, so that it can be built.
const COPIED: [&str; 11] = [
    "Cargo.toml",
    "Cargo.lock",
    "README.md",
    "SECURITY.md",
    "benches",
    "crates",
    "docs",
    "examples",
    "interop",
    "scripts",
    "tests",
];

/// A fault of the client.
struct Fault {
    name: &'static str,
    kind: Kind,
    edits: &'static [Edit],
    /// What finds it, if a world cannot hold it.
    found_by: Option<OtherTest>,
}

/// A test of the crate that is no world.
#[derive(Clone, Copy)]
struct OtherTest {
    /// The name of its binary, or [`LIB`] or [`CLIENT`].
    target: &'static str,
    name: &'static str,
}

/// The reason why a fault is in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Somebody could write it.
    Planted,
    /// The crate had it: the commit that mended it, whose mend is undone.
    Reverted(&'static str),
}

/// The edit of a file in `src`, or in the sources of the client: see [`source`].
struct Edit {
    file: &'static str,
    /// It stands in the file once.
    from: &'static str,
    to: &'static str,
}

const fn planted(name: &'static str, edits: &'static [Edit]) -> Fault {
    Fault { name, kind: Kind::Planted, edits, found_by: None }
}

const fn reverted(name: &'static str, commit: &'static str, edits: &'static [Edit]) -> Fault {
    Fault { name, kind: Kind::Reverted(commit), edits, found_by: None }
}

const fn edit(file: &'static str, from: &'static str, to: &'static str) -> Edit {
    Edit { file, from, to }
}

/// Returns the path of a file with edits. `redis-once/pool.rs` is a file of the client.
fn source(file: &str) -> PathBuf {
    match file.strip_prefix("redis-once/") {
        Some(file) => Path::new("crates/redis-once/src").join(file),
        None => Path::new("src").join(file),
    }
}

impl OtherTest {
    /// Returns whether the file of its module has a function of its name.
    fn exists(&self) -> bool {
        let mut path = match self.target {
            LIB => repository().join("src"),
            CLIENT => repository().join("crates/redis-once/src"),
            target => repository().join("tests").join(target),
        };
        let (modules, name) = self.name.rsplit_once("::").unwrap_or(("", self.name));
        path.extend(modules.split("::").filter(|module| *module != "tests"));
        let files = [path.join("main.rs"), path.join("mod.rs"), path.join("tests.rs")];
        let texts = files.into_iter().chain([path.with_extension("rs")]).map(fs::read_to_string);
        texts.flatten().any(|text| text.contains(&format!("fn {name}(")))
    }
}

impl Fault {
    /// No world can hold it, and this test of a binary finds it.
    const fn found_by(self, target: &'static str, name: &'static str) -> Self {
        Self { found_by: Some(OtherTest { target, name }), ..self }
    }

    /// No world can hold it, and this unit test finds it.
    const fn found_by_unit(self, name: &'static str) -> Self {
        self.found_by(LIB, name)
    }

    /// No world can hold it, and this unit test of the client finds it.
    const fn found_by_unit_of_client(self, name: &'static str) -> Self {
        self.found_by(CLIENT, name)
    }

    /// The files that it changes, and their new texts. The error says what does not fit.
    fn apply(&self) -> Result<BTreeMap<PathBuf, String>, String> {
        let mut texts = BTreeMap::new();
        for Edit { file, from, to } in self.edits {
            let path = source(file);
            let text = texts.entry(path.clone()).or_insert_with(|| {
                fs::read_to_string(repository().join(&path)).unwrap_or_default()
            });
            let found = text.matches(from).count();
            if found != 1 {
                return Err(format!("{}: {found} times in {file}: {from}", self.name));
            }
            *text = text.replacen(from, to, 1);
        }
        Ok(texts)
    }
}

fn faults() -> impl Iterator<Item = &'static Fault> {
    redis::FAULTS.iter().chain(cluster::FAULTS).chain(limiters::FAULTS).chain(reverted::FAULTS)
}

/// The commits whose mends are undone.
fn mends() -> BTreeSet<&'static str> {
    let mend = |fault: &'static Fault| match fault.kind {
        Kind::Planted => None,
        Kind::Reverted(commit) => Some(commit),
    };
    faults().filter_map(mend).collect()
}

#[test]
fn planted_faults_fit_the_sources() {
    let misfits: Vec<String> = faults().filter_map(|fault| fault.apply().err()).collect();
    assert!(misfits.is_empty(), "\n{}", misfits.join("\n"));
    let names: BTreeSet<&str> = faults().map(|fault| fault.name).collect();
    assert_eq!(names.len(), faults().count(), "two faults have one name");
    assert!(faults().filter(|fault| fault.kind == Kind::Planted).count() >= 25);
    let lost: Vec<_> =
        faults().filter(|fault| fault.found_by.is_some_and(|one| !one.exists())).collect();
    assert!(lost.is_empty(), "{:?}", lost.iter().map(|fault| fault.name).collect::<Vec<_>>());
    let undone = mends();
    assert!(left_out::LEFT_OUT.iter().all(|(mend, why)| !undone.contains(mend) && !why.is_empty()));
}

#[test]
fn planted_faults_are_found() {
    let Ok(wanted) = std::env::var("PLANTED") else { return };
    let is_wanted = |name: &str| wanted == "1" || wanted.split(',').any(|word| name.contains(word));
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let first: u64 = number("SEED").unwrap_or_default();
    let seeds = first..first + number("SEEDS").unwrap_or(DEFAULT_SEEDS);
    let max_time = Duration::from_secs(number("SECONDS").unwrap_or(MAX_SECONDS));
    let bodies = Bodies::of(faults());
    let copy = Copy::with(&bodies.texts());
    let built = copy.build(WORLDS_OF).unwrap_or_else(|errors| panic!("{errors}"));
    // A fault that is built alone takes its place.
    let worlds = copy.0.with_file_name("worlds");
    fs::copy(built, &worlds).expect("a copy");
    let (mut found, mut all) = (0, 0);
    let mut broken = Vec::new();
    let mut wanted: Vec<_> = faults().filter(|fault| is_wanted(fault.name)).collect();
    wanted.sort_by_key(|fault| bodies.number_of(fault) == 0);
    for fault in wanted {
        let target = fault.found_by.map_or(WORLDS_OF, |other| other.target);
        let (number, seeds) = (bodies.number_of(fault), seeds.clone());
        // A fault that is built alone is in its binary, whichever is chosen.
        let without = worlds.with_file_name("without");
        if number == 0 && target != WORLDS_OF {
            let built = Copy::with(&bodies.texts()).build(target);
            fs::copy(built.unwrap_or_else(|errors| panic!("{errors}")), &without).expect("a copy");
        }
        let binary = match (number, target) {
            (0, _) => Copy::with(&fault.apply().expect("it fits")).build(target),
            (_, WORLDS_OF) => Ok(worlds.clone()),
            _ => copy.build(target),
        };
        let outcome = match (&binary, fault.found_by) {
            (Err(errors), _) => Outcome::NotBuilt(errors.clone()),
            (Ok(binary), None) => find((binary, number), &worlds, seeds, max_time),
            (Ok(binary), Some(other)) => {
                let unplanted = match (number, target) {
                    (_, WORLDS_OF) => &worlds,
                    (0, _) => &without,
                    _ => binary,
                };
                fails((binary, number), unplanted, other.name)
            }
        };
        let name = fault.name;
        all += 1;
        match &outcome {
            Outcome::Found { seeds, check } => {
                found += 1;
                println!("planted name={name} found_after_seeds={seeds} check={check}");
            }
            Outcome::FoundBy(test) => {
                found += 1;
                println!("planted name={name} found_by={target}::{test}");
            }
            Outcome::NotFound { seeds } => {
                println!("planted name={name} found_after_seeds=never seeds={seeds}");
            }
            Outcome::NotBuilt(errors) => {
                println!("planted name={name} found_after_seeds=never built=no\n{errors}");
                broken.push(name);
            }
        }
    }
    println!("planted found={found} of={all}");
    println!("mends undone={} left_out={}", mends().len(), left_out::LEFT_OUT.len());
    assert!(broken.is_empty(), "not built: {broken:?}");
    assert_eq!(found, all, "some faults are not found");
}

/// The result of the search for a fault.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Found {
        seeds: u64,
        check: String,
    },
    /// By another test than the worlds.
    FoundBy(&'static str),
    /// So many worlds ran.
    NotFound {
        seeds: u64,
    },
    /// The errors of the compiler.
    NotBuilt(String),
}

/// A copy of the package with changes, whose objects stay for the next time.
struct Copy(PathBuf);

impl Copy {
    fn with(changes: &BTreeMap<PathBuf, String>) -> Self {
        let folder = repository().join("target/planted/together");
        for name in COPIED.iter().chain(&["src"]) {
            copy(Path::new(name), &folder, changes);
        }
        Self(folder)
    }

    /// Builds a test, and returns its binary. The error: what the compiler says.
    fn build(&self, target: &str) -> Result<PathBuf, String> {
        // An assertion of the crate is no find of a world.
        let settings = [
            ("CARGO_TARGET_DIR", self.0.with_file_name("target").into_os_string()),
            ("CARGO_INCREMENTAL", "1".into()),
            ("CARGO_PROFILE_DEV_DEBUG", "0".into()),
            ("CARGO_PROFILE_DEV_DEBUG_ASSERTIONS", "false".into()),
            ("CARGO_PROFILE_DEV_OVERFLOW_CHECKS", "false".into()),
        ];
        // Many worlds run, and each other test once.
        let speed = u8::from(target == WORLDS_OF);
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["test", "--all-features", "--no-run"])
            .args(match target {
                LIB => vec!["-p", "tower-sluice", LIB],
                CLIENT => vec!["-p", CLIENT, "--lib"],
                target => vec!["-p", "tests", "--test", target],
            })
            .arg("--message-format=json")
            .args(["--config", &format!("profile.dev.opt-level={speed}")])
            .args(["--config", "profile.dev.package.\"*\".opt-level=1"])
            .current_dir(&self.0)
            .envs(settings)
            .output()
            .expect("cargo");
        let text = String::from_utf8_lossy(&built.stdout);
        let messages: Vec<serde_json::Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let binary = messages.iter().rev().find_map(|message| message["executable"].as_str());
        match binary {
            Some(binary) if built.status.success() => Ok(binary.into()),
            _ => {
                let errors = messages.iter().map(|message| &message["message"]);
                let errors = errors.filter(|message| message["level"] == "error");
                let errors: Vec<_> =
                    errors.filter_map(|message| message["rendered"].as_str()).collect();
                Err(errors.concat() + &String::from_utf8_lossy(&built.stderr))
            }
        }
    }
}

/// Writes a file, unless it is equal: then its time stays.
fn write(to: &Path, bytes: &[u8]) {
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return;
    }
    fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
    fs::write(to, bytes).expect("a file");
}

/// Copies a file or a folder of the package, with changes.
fn copy(path: &Path, to: &Path, changes: &BTreeMap<PathBuf, String>) {
    if path.file_name().is_some_and(|name| name == "target" || name == ".git") {
        return;
    }
    let (from, to_path) = (repository().join(path), to.join(path));
    if !from.is_dir() {
        let changed = changes.get(path).map(|text| text.clone().into_bytes());
        return write(&to_path, &changed.unwrap_or_else(|| fs::read(&from).expect("a file")));
    }
    fs::create_dir_all(&to_path).expect("a folder");
    let names = |folder: &Path| -> BTreeSet<_> {
        let entries = fs::read_dir(folder).expect("a folder");
        entries.map(|entry| entry.expect("an entry").file_name()).collect()
    };
    let there = names(&from);
    for name in names(&to_path).difference(&there) {
        let gone = to_path.join(name);
        let removed = if gone.is_dir() { fs::remove_dir_all(gone) } else { fs::remove_file(gone) };
        removed.expect("removed");
    }
    for name in there {
        copy(&path.join(name), to, changes);
    }
}

/// Lets worlds run until one fails that does not fail so without the fault.
fn find(
    planted: (&Path, usize),
    unplanted: &Path,
    seeds: Range<u64>,
    max_time: Duration,
) -> Outcome {
    let (begun, mut next) = (Instant::now(), seeds.start);
    while next < seeds.end && begun.elapsed() < max_time {
        let count = WORLDS.min(seeds.end - next);
        let found = match run(planted, next, count, MAX_TIME) {
            Some(found) => found,
            // One of them does not end.
            None => (next..next + count).find_map(|seed| {
                let hang = (seed, "hang".to_owned());
                run(planted, seed, 1, MAX_TIME_OF_ONE).unwrap_or(Some(hang))
            }),
        };
        let Some((seed, check)) = found else {
            next += count;
            continue;
        };
        next = seed + 1;
        let without = run((unplanted, 0), seed, 1, MAX_TIME_OF_ONE);
        let is_new = !matches!(without, Some(Some((_, other))) if other == check);
        if is_new {
            return Outcome::Found { seeds: next - seeds.start, check };
        }
    }
    Outcome::NotFound { seeds: next - seeds.start }
}

/// Runs a test without a fault and with it.
fn fails((binary, fault): (&Path, usize), unplanted: &Path, test: &'static str) -> Outcome {
    let run = |binary: &Path, fault: usize| {
        let mut run = Command::new(binary);
        run.args([test, "--exact"]).env_remove("PLANTED").env(CHOICE, fault.to_string());
        run.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("a test").success()
    };
    // A name that no test has fails neither with the fault nor without it.
    if !run(unplanted, 0) || run(binary, fault) {
        return Outcome::NotFound { seeds: 0 };
    }
    Outcome::FoundBy(test)
}

/// Runs worlds until one fails: returns its seed and the check that failed. `None`: they do not
/// end.
fn run(
    (binary, fault): (&Path, usize),
    seed: u64,
    seeds: u64,
    within: Duration,
) -> Option<Option<(u64, String)>> {
    let output = tempfile(binary);
    let mut child = Command::new(binary)
        .args(["worlds_keep_every_promise", "--exact", "--nocapture"])
        .env_remove("PLANTED")
        .env(CHOICE, fault.to_string())
        .env("SEED", seed.to_string())
        .env("SEEDS", seeds.to_string())
        .env("STOP", "1")
        .stdout(fs::File::create(&output).expect("a file"))
        .stderr(Stdio::null())
        .spawn()
        .expect("the worlds");
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if begun.elapsed() > within {
            child.kill().expect("it runs");
            child.wait().expect("a child");
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let output = fs::read_to_string(output).expect("an output");
    // Several worlds run at a time: the first seed counts.
    let violations = output.lines().filter_map(|line| {
        let (seed, why) = line.strip_prefix("violation seed=")?.split_once(' ')?;
        let (check, _) = why.split_once(':').unwrap_or((why, ""));
        Some((seed.parse().ok()?, check.replace(' ', "_")))
    });
    let violation = violations.min();
    // A process that aborts says nothing of its world.
    Some(violation.or_else(|| (!status.success()).then(|| (seed, "abort".to_owned()))))
}

/// The file for what a binary prints.
fn tempfile(binary: &Path) -> PathBuf {
    binary.with_extension("output")
}
