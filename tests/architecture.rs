//! The house: who may import whom, held as data and read from every path in `src`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[path = "support/imports.rs"]
mod imports;

use imports::paths;

/// A room: the files whose path starts so, the crates it may name, and the rooms it may enter.
struct Room {
    at: &'static [&'static str],
    crates: &'static [&'static str],
    rooms: &'static [&'static str],
}

/// Words are known by everyone, and know each other.
const WORDS: &[&str] = &["reservation", "charge", "decision", "error", "key", "quota", "refusal"];

/// The first match holds, so a room inside a room stands before it.
const HOUSE: &[Room] = &[
    Room {
        at: &["reservation", "charge", "decision", "error", "key", "quota", "refusal"],
        crates: &["tower::BoxError"],
        rooms: WORDS,
    },
    Room { at: &["algorithm"], crates: &[], rooms: &["algorithm"] },
    Room {
        at: &["limiter/redis"],
        crates: &[
            "tokio",
            "pin_project_lite",
            "fastrand",
            "redis",
            "bb8_redis",
            "rustls",
            "sha1_smol",
            "proptest",
        ],
        rooms: &["algorithm", "limiter"],
    },
    Room { at: &["limiter/digest"], crates: &["sha2"], rooms: &["limiter"] },
    Room {
        at: &["limiter"],
        crates: &["tokio", "pin_project_lite", "fastrand"],
        rooms: &["algorithm", "limiter"],
    },
    Room {
        at: &["respond", "settle"],
        crates: &["tower::BoxError"],
        rooms: &["respond", "settle"],
    },
    Room {
        at: &["redisson"],
        crates: &["redis", "tokio"],
        rooms: &["algorithm", "limiter", "future", "redisson"],
    },
    Room {
        at: &["layer", "service", "future", "shared"],
        crates: &["tokio", "tower_layer", "tower_service", "pin_project_lite"],
        rooms: &["limiter", "respond", "settle", "layer", "service", "future", "shared"],
    },
    Room {
        at: &["http"],
        crates: &["http", "fastrand"],
        rooms: &["limiter", "respond", "settle", "layer", "http", "grpc"],
    },
    Room { at: &["grpc"], crates: &["http"], rooms: &["grpc"] },
    Room { at: &["testing"], crates: &[], rooms: &["limiter"] },
];

/// What a path may lead to: the room behind each name that `lib.rs` has, and the crates that may be named at all.
struct Map {
    rooms: BTreeMap<String, String>,
    foreign: BTreeSet<String>,
}

impl Map {
    fn read() -> Self {
        let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
        let name = |line: &String| line.split(['=', ' ']).next().map(|name| name.replace('-', "_"));
        let foreign = dependencies(&manifest).iter().filter_map(name).collect();

        let front = fs::read_to_string(root().join("src/lib.rs")).expect("a front page");
        let mut rooms = BTreeMap::new();
        for (_, path) in paths("lib.rs", &front) {
            let Some((room, name)) = path.strip_prefix("crate::").and_then(|p| p.split_once("::"))
            else {
                continue;
            };
            rooms.insert(room.to_owned(), room.to_owned());
            rooms.insert(name.to_owned(), room.to_owned());
        }
        for room in HOUSE.iter().flat_map(|room| room.at) {
            let room = room.split('/').next().expect("a name").to_owned();
            rooms.insert(room.clone(), room);
        }
        Self { rooms, foreign }
    }

    /// Why `path` may not stand in `room`, if it may not.
    fn trespass(&self, room: &Room, path: &str) -> Option<String> {
        let mut names = path.split("::");
        let head = names.next().expect("a name");
        if head == "crate" {
            let name = names.next().unwrap_or("*");
            let Some(entered) = self.rooms.get(name) else {
                return Some(format!("takes {name}, which lib.rs has from no room"));
            };
            let allowed = WORDS.contains(&&**entered) || room.rooms.contains(&&**entered);
            return (!allowed).then(|| format!("enters {entered}"));
        }
        let allowed = |allowed: &&str| {
            path.strip_prefix(*allowed)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        (self.foreign.contains(head) && !room.crates.iter().any(allowed))
            .then(|| format!("names the crate {head}"))
    }

    fn trespasses(&self, file: &str, text: &str) -> Vec<String> {
        let inside = |at: &&str| {
            let rest = file.strip_prefix(*at);
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        let room = HOUSE.iter().find(|room| room.at.iter().any(inside));
        let room = room.unwrap_or_else(|| panic!("src/{file} is in no room of the house"));
        let told = |(line, path): (usize, String)| {
            self.trespass(room, &path).map(|why| format!("src/{file}:{line} {why}: {path}"))
        };
        paths(file, text).into_iter().filter_map(told).collect()
    }
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

/// The lines of `Cargo.toml` that name a dependency, of whatever kind.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]");
        } else if inside && line.contains('=') {
            found.push(line.to_owned());
        }
    }
    found
}

#[test]
fn every_import_points_the_right_way() {
    let (source, map) = (root().join("src"), Map::read());
    let mut found = Vec::new();
    let mut count = 0;
    for path in files(&source) {
        let file = path.strip_prefix(&source).expect("inside").to_str().expect("a name");
        if file != "lib.rs" {
            let text = fs::read_to_string(&path).expect("text");
            count += paths(file, &text).len();
            found.extend(map.trespasses(file, &text));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(count > 100, "only {count} paths were read");
}

#[test]
fn a_planted_trespass_is_found_with_its_line() {
    let map = Map::read();
    let planted = [
        ("quota.rs", "use tokio::time::Instant;"),
        ("quota.rs", "use crate::limiter::Limiter;"),
        ("quota.rs", "use crate::Timeout;"),
        ("quota.rs", "use crate::*;"),
        ("quota.rs", "use crate as all;"),
        ("quota.rs", "use redis;"),
        ("quota.rs", "use ::redis::Value;"),
        ("quota.rs", "use {std::fmt, redis::Value};"),
        ("quota.rs", "extern crate redis;"),
        ("quota.rs", "pub(crate) use redis::{self as client};"),
        ("algorithm/token_bucket.rs", "use crate::{Limiter, Quota};"),
        (
            "algorithm/token_bucket.rs",
            "use crate::{\n    Quota, limiter::{\n        Limiter,\n    },\n};",
        ),
        ("algorithm/mod.rs", "use super::limiter::Limiter;"),
        ("algorithm/token_bucket.rs", "use super::super::Limiter;"),
        ("limiter/memory.rs", "let value = redis::Value::Nil;"),
        ("limiter/memory.rs", "let value: Vec<redis::Value> = Vec::new();"),
        ("limiter/memory.rs", "mod tests { use super::super::super::layer::Shared; }"),
        ("service.rs", "use crate::http::HttpResponder;"),
        ("service.rs", "use crate::HttpResponder;"),
        ("layer.rs", "let edge = super::http::by_head;"),
        ("respond.rs", "use tower::ServiceExt;"),
        ("error.rs", "use tower;"),
        ("http/head.rs", "let quote = '\"'; use redis::Value; let other = '\"';"),
    ];
    for (file, text) in planted {
        let found = map.trespasses(file, &format!("use std::fmt;\n\n{text}\n"));
        assert_eq!(found.len(), 1, "{file}: {text}: {found:?}");
        let line = if text.contains("Limiter,\n") { 5 } else { 3 };
        assert!(found[0].starts_with(&format!("src/{file}:{line} ")), "{text}: {found:?}");
    }
}

#[test]
fn what_is_allowed_or_no_import_is_no_trespass() {
    let map = Map::read();
    let innocent = [
        ("error.rs", "use tower::BoxError;"),
        ("error.rs", "/// [`x`](crate::limiter::Limiter)"),
        ("error.rs", "//! use redis::Value;"),
        ("error.rs", "let x = 1; // as redis::Value"),
        ("error.rs", "/* use redis::Value;\n*/ let text = \"redis::\\\"Value\";"),
        ("error.rs", "let text = r#\"a \" redis::Value\"#;"),
        ("error.rs", "fn f<'a>(a: &'a str) -> impl Sized + use<'a> { a }"),
        ("limiter/redis/pool.rs", "let value = redis::Value::Nil;"),
        ("limiter/mod.rs", "pub use self::redis::{Pool, Redis};"),
        ("limiter/redis/key.rs", "mod tests { use super::*; use super::super::NamedAlgorithm; }"),
        ("service.rs", "use crate::{Charge, KeyExtractor, Limiter, Respond};"),
        ("algorithm/mod.rs", "let outcome = Outcome::Allow;"),
    ];
    for (file, text) in innocent {
        let found = map.trespasses(file, text);
        assert!(found.is_empty(), "{file}: {text}: {found:?}");
    }
}

#[test]
fn every_dependency_says_why() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    for line in dependencies(&manifest) {
        assert!(line.contains(" # "), "no reason beside: {line}");
    }
}

#[test]
fn every_algorithm_is_told_twice() {
    let parts = ["head", "tail", "redisson_settings"];
    for path in files(&root().join("scripts")) {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        if path.extension().is_some_and(|extension| extension == "lua") && !parts.contains(&name) {
            let twin = match name {
                "redisson" => root().join("src/redisson/permit_log.rs"),
                _ => root().join("src/algorithm").join(format!("{name}.rs")),
            };
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
