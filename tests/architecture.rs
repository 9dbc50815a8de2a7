//! The house: who may import whom, held as data and read from every path in `src`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A room: the files whose path starts so, the crates it may name, and the rooms it may enter.
struct Room {
    at: &'static [&'static str],
    crates: &'static [&'static str],
    rooms: &'static [&'static str],
}

/// Words are known by everyone, and know each other.
const WORDS: &[&str] = &["charge", "decision", "error", "key", "quota", "refusal"];

/// The first match holds, so a room inside a room stands before it.
const HOUSE: &[Room] = &[
    Room {
        at: &["charge", "decision", "error", "key", "quota", "refusal"],
        crates: &["tower::BoxError"],
        rooms: WORDS,
    },
    Room { at: &["algorithm"], crates: &[], rooms: &["algorithm"] },
    Room {
        at: &["limiter/redis"],
        crates: &["tokio", "redis", "bb8_redis", "sha1_smol", "sha2", "proptest"],
        rooms: &["algorithm", "limiter"],
    },
    Room {
        at: &["limiter"],
        crates: &["tokio", "pin_project_lite"],
        rooms: &["algorithm", "limiter"],
    },
    Room { at: &["respond"], crates: &["tower::BoxError"], rooms: &[] },
    Room {
        at: &["layer", "service", "future"],
        crates: &["tokio", "tower_layer", "tower_service", "pin_project_lite"],
        rooms: &["limiter", "respond", "layer", "service", "future"],
    },
    Room {
        at: &["http"],
        crates: &["http", "fastrand"],
        rooms: &["limiter", "respond", "layer", "http", "grpc"],
    },
    Room { at: &["grpc"], crates: &["http"], rooms: &["grpc"] },
    Room { at: &["testing"], crates: &[], rooms: &["limiter"] },
];

/// The room of each name that `lib.rs` re-exports.
const EXPORTS: &[(&str, &[&str])] = &[
    ("limiter", &["Limiter", "LimiterExt", "Memory", "Redis", "Pool", "Allow", "Deny", "Boxed"]),
    ("respond", &["Respond", "Raise"]),
    ("layer", &["RateLimitLayer"]),
    ("service", &["RateLimit"]),
    ("future", &["ResponseFuture"]),
    ("http", &["HttpResponse", "ByHead", "Head", "by_head"]),
];

/// The code of a file: without comments, and without the tests at its end but for their imports.
fn code(text: &str) -> Vec<(usize, &str)> {
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//")).collect()
}

/// The paths that one line of code names and that lead out of its file: `crate::...`, or a foreign crate.
fn paths(line: &str) -> Vec<String> {
    let start = line.trim_start();
    let mut found = Vec::new();
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    for (at, _) in line.match_indices("::") {
        let before = &line[..at];
        let head = before.rsplit(|character| !is_name(character)).next().unwrap_or_default();
        let path_before = before.strip_suffix(head).unwrap_or_default();
        if head.is_empty() || path_before.ends_with("::") || path_before.ends_with('"') {
            continue;
        }
        let rest = line[at + 2..].trim_end_matches(';');
        let rest = rest.split(|character| !is_name(character) && character != ':').next();
        found.push(format!("{head}::{}", rest.unwrap_or_default().trim_end_matches(':')));
    }
    if let Some(list) = start.strip_prefix("use crate::{") {
        let names = list.split(|character: char| !is_name(character) && character != ':');
        found.extend(names.filter(|name| !name.is_empty()).map(|name| format!("crate::{name}")));
    }
    found
}

/// Why `path` may not stand in the room, if it may not.
fn trespass(room: &Room, path: &str, foreign: &BTreeSet<String>) -> Option<String> {
    let (head, rest) = path.split_once("::")?;
    let first = rest.split("::").next().unwrap_or_default();
    if head == "crate" {
        let mut exports = EXPORTS.iter();
        let export = exports.find(|(_, names)| names.contains(&first)).map(|(room, _)| *room);
        let lower = first.chars().next().is_some_and(char::is_lowercase);
        let entered = export.or(lower.then_some(first))?;
        let allowed = WORDS.contains(&entered) || room.rooms.contains(&entered);
        return (!allowed).then(|| format!("enters {entered}"));
    }
    if !foreign.contains(head) {
        return None;
    }
    let allowed = room.crates.iter().any(|allowed| path == *allowed || head == *allowed);
    (!allowed).then(|| format!("names the crate {path}"))
}

fn trespasses(file: &str, text: &str, foreign: &BTreeSet<String>) -> Vec<String> {
    let inside = |at: &&&str| {
        let rest = file.strip_prefix(**at);
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    let room = HOUSE.iter().find(|room| room.at.iter().any(|at| inside(&at)));
    let room = room.unwrap_or_else(|| panic!("{file} is in no room of the house"));
    let mut found = Vec::new();
    for (number, line) in code(text) {
        for path in paths(line) {
            if let Some(why) = trespass(room, &path, foreign) {
                found.push(format!("src/{file}:{number} {why}: {}", line.trim()));
            }
        }
    }
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Lines of a table of `Cargo.toml` that name a dependency.
fn dependencies(manifest: &str, table: &str) -> Vec<String> {
    let lines = manifest.lines().skip_while(|line| *line != format!("[{table}]")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    lines.filter(|line| line.contains('=')).map(str::to_owned).collect()
}

fn foreign() -> BTreeSet<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    let lines = ["dependencies", "dev-dependencies"].map(|table| dependencies(&manifest, table));
    let name = |line: &String| line.split(['=', ' ']).next().map(|name| name.replace('-', "_"));
    lines.iter().flatten().filter_map(name).collect()
}

#[test]
fn every_import_points_the_right_way() {
    let (source, foreign) = (root().join("src"), foreign());
    assert!(foreign.contains("bb8_redis") && foreign.contains("tower_test"));
    let mut found = Vec::new();
    for path in files(&source) {
        let file = path.strip_prefix(&source).expect("inside").to_str().expect("a name");
        if file != "lib.rs" {
            found.extend(trespasses(file, &fs::read_to_string(&path).expect("text"), &foreign));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_planted_trespass_is_found() {
    let foreign = foreign();
    let found = |file: &str, text: &str| trespasses(file, text, &foreign).len();
    assert_eq!(found("quota.rs", "use std::fmt;\n"), 0);
    assert_eq!(found("quota.rs", "use tokio::time::Instant;\n"), 1);
    assert_eq!(found("quota.rs", "use crate::limiter::Limiter;\n"), 1);
    assert_eq!(found("algorithm/token_bucket.rs", "use crate::{Limiter, Quota};\n"), 1);
    assert_eq!(found("limiter/memory.rs", "    let value = redis::Value::Nil;\n"), 1);
    assert_eq!(found("limiter/redis/pool.rs", "    let value = redis::Value::Nil;\n"), 0);
    assert_eq!(found("service.rs", "use crate::http::HttpResponse;\n"), 1);
    assert_eq!(found("respond.rs", "use tower::ServiceExt;\n"), 1);
    assert_eq!(found("error.rs", "/// [`x`](crate::limiter::Limiter)\n"), 0);
}

#[test]
fn every_dependency_says_why() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    for line in dependencies(&manifest, "dependencies") {
        assert!(line.contains(" # "), "no reason beside: {line}");
    }
}

#[test]
fn every_algorithm_is_told_twice() {
    let parts = ["head", "tail"];
    for path in files(&root().join("scripts")) {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        if path.extension().is_some_and(|extension| extension == "lua") && !parts.contains(&name) {
            let twin = root().join("src/algorithm").join(format!("{name}.rs"));
            assert!(twin.is_file(), "{name}.lua has no twin");
        }
    }
}

#[test]
fn no_file_has_grown_a_second_idea() {
    for folder in ["src", "scripts"] {
        for path in files(&root().join(folder)) {
            let lines = fs::read_to_string(&path).expect("text").lines().count();
            assert!(lines <= 400, "{} has {lines} lines", path.display());
        }
    }
}
