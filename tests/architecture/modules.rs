//! The rules for which room of `src` may use which room and which crate, as data, held against
//! every path. Cargo holds the walls between crates. And rules for dependencies and scripts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::imports::paths;
use crate::root;

/// A room: a folder or a file of `src`, the rooms below it, and the crates that it may name.
struct Room {
    name: &'static str,
    uses: &'static [&'static str],
    crates: &'static [&'static str],
}

/// The rooms of the crate. The first match holds, so a room inside another stands before it, and
/// may use parts of the outer one.
const ROOMS: &[Room] = &[
    Room { name: "core", uses: &[], crates: &["hmac", "loom", "sha2", "tower::BoxError"] },
    Room { name: "algorithm", uses: &["core"], crates: &["jiff"] },
    Room { name: "observe", uses: &["core"], crates: &["metrics", "tokio", "tracing"] },
    Room {
        name: "limiter",
        uses: &["algorithm", "core", "observe"],
        crates: &["fastrand", "hashbrown", "pin_project_lite", "tokio"],
    },
    // The limiter in Redis asks `send`, and `send` asks `script`, which knows neither.
    Room {
        name: "redis/script",
        uses: &["algorithm", "core", "limiter::charge_numbers", "limiter::configured"],
        crates: &["fastrand", "redis", "redis_once", "smallvec"],
    },
    Room {
        name: "redis/send",
        uses: &[
            "algorithm",
            "core",
            "limiter",
            "observe",
            "redis::Pool",
            "redis::decision_times",
            "redis::key_names",
            "redis::script",
            // Its tests ask whole limiters.
            "redis::Redis",
        ],
        crates: &[
            "fastrand",
            "futures_util",
            "pin_project_lite",
            "redis",
            "redis_once",
            "smallvec",
            "tokio",
        ],
    },
    Room {
        name: "redis",
        uses: &["algorithm", "core", "limiter", "observe"],
        crates: &["bb8_redis", "fastrand", "pin_project_lite", "redis", "redis_once", "tokio"],
    },
    Room {
        name: "http",
        // A responder is a `Respond`, and a counted body settles.
        uses: &["core", "tower::reject", "tower::settle"],
        crates: &[
            "axum",
            "base64",
            "bytes",
            "fastrand",
            "http",
            "http_body",
            "httpdate",
            "ipnet",
            "itoa",
            "pin_project_lite",
            "sfv",
            "tokio",
            "tonic",
            "tower::retry",
        ],
    },
    Room {
        name: "tower",
        uses: &["core", "http", "limiter", "observe", "redis::RedisFuture"],
        crates: &["pin_project_lite", "tokio", "tower::BoxError", "tower_layer", "tower_service"],
    },
    Room { name: "store", uses: &["limiter"], crates: &[] },
    Room { name: "testing", uses: &["core", "limiter"], crates: &[] },
    Room {
        name: "crates",
        uses: &[],
        crates: &["bb8_redis", "http_body", "ipnet", "redis", "redis_once"],
    },
];

/// Reads the foreign crates that the manifest names.
fn foreign() -> BTreeSet<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    let name = |line: &String| line.split(['=', ' ']).next().map(|name| name.replace('-', "_"));
    dependencies(&manifest).iter().filter_map(name).collect()
}

/// Returns the paths of a file that its room may not use.
fn violations(foreign: &BTreeSet<String>, file: &str, text: &str) -> Vec<String> {
    let is_inside = |room: &&Room| {
        let rest = file.strip_prefix(room.name);
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    let room = ROOMS.iter().find(is_inside);
    let room = room.unwrap_or_else(|| panic!("src/{file} is in no room of ROOMS"));
    let own = room.name.replace('/', "::");
    let is_allowed = |path: &str| match path.strip_prefix("crate::") {
        // Code names a thing by where it is, so that arrows between rooms are seen.
        Some(inner) => begins_with_one(inner, &[&own]) || begins_with_one(inner, room.uses),
        None if path == "crate" => false,
        None => {
            let head = path.split("::").next().expect("a name");
            !foreign.contains(head) || begins_with_one(path, room.crates)
        }
    };
    let wrong = paths(file, text).into_iter().filter(|(_, path)| !is_allowed(path));
    wrong
        .map(|(line, path)| format!("src/{file}:{line} {} may not use {path}", room.name))
        .collect()
}

/// Returns whether `path` is one of `begins`, or stands inside one.
fn begins_with_one(path: &str, begins: &[&str]) -> bool {
    let is_begin = |begin: &&str| {
        path.strip_prefix(*begin).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    begins.iter().any(is_begin)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            // What is built there is no file of ours.
            true if path.ends_with("target") => {}
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
fn every_import_is_allowed() {
    let (source, foreign) = (root().join("src"), foreign());
    let mut found = Vec::new();
    let mut count = 0;
    for path in files(&source) {
        let file = path.strip_prefix(&source).expect("inside").to_str().expect("a name");
        if file != "lib.rs" {
            let text = fs::read_to_string(&path).expect("text");
            count += paths(file, &text).len();
            found.extend(violations(&foreign, file, &text));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(count > 100, "only {count} paths were read");
}

#[test]
fn a_violation_is_found_with_its_line_and_mere_text_is_none() {
    let foreign = foreign();
    for (line, file, text) in [
        (3, "core/quota.rs", "use tokio::time::Instant;"),
        (3, "core/quota.rs", "use crate::Quota;"),
        (3, "core/quota.rs", "use crate as all;"),
        (3, "core/quota.rs", "use {std::fmt, redis::Value};"),
        (3, "core/quota.rs", "extern crate redis;"),
        (3, "core/error.rs", "use tower;"),
        (
            5,
            "algorithm/mod.rs",
            "use crate::{\n    core::Quota, limiter::{\n        Limiter,\n    },\n};",
        ),
        (3, "algorithm/token_bucket.rs", "use super::super::limiter::Limiter;"),
        (3, "limiter/memory.rs", "let value: Vec<redis::Value> = Vec::new();"),
        (3, "limiter/memory.rs", "mod tests { use super::super::super::tower::RateLimitLayer; }"),
        (3, "http/head.rs", "let quote = '\"'; use redis::Value; let other = '\"';"),
        (3, "redis/script/reply.rs", "use super::super::send::Config;"),
        (0, "core/error.rs", "use tower::BoxError;"),
        (0, "core/error.rs", "/// [`x`](crate::limiter::Limiter)"),
        (0, "core/error.rs", "/* use redis::Value;\n*/ let text = \"redis::\\\"Value\";"),
        (0, "core/error.rs", "let text = r#\"a \" redis::Value\"#;"),
        (0, "core/error.rs", "fn f<'a>(a: &'a str) -> impl Sized + use<'a> { a }"),
        (0, "redis/script/mod.rs", "mod tests { use super::*; use crate::algorithm::Check; }"),
        (0, "redis/send/call.rs", "use super::super::Pool; use super::batch::Call;"),
    ] {
        let found = violations(&foreign, file, &format!("use std::fmt;\n\n{text}\n"));
        assert_eq!(found.len(), usize::from(line > 0), "{file}: {text}: {found:?}");
        let begin = format!("src/{file}:{line} ");
        assert!(found.iter().all(|one| one.starts_with(&begin)), "{text}: {found:?}");
    }
}

/// The names of files with tests.
const SHARED_NAMES: &[&str] = &["tests", "interleavings"];

#[test]
fn a_name_of_a_file_says_which() {
    for folder in ["src", "crates/redis-once/src", "crates/tower-sluice-redisson/src"] {
        let mut of_name: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for path in files(&root().join(folder)) {
            let name = path.file_stem().expect("a name").to_str().expect("UTF-8").to_owned();
            of_name.entry(name).or_default().push(path);
        }
        of_name.retain(|name, files| files.len() > 1 && name != "mod");
        of_name.retain(|name, _| !SHARED_NAMES.contains(&&**name));
        assert!(of_name.is_empty(), "several files have one name: {of_name:#?}");
    }
}

#[test]
fn every_dependency_says_why() {
    let crates = [
        "crates/redis-once/Cargo.toml",
        "crates/tower-sluice-policies/Cargo.toml",
        "crates/tower-sluice-redisson/Cargo.toml",
    ];
    for file in ["Cargo.toml"].into_iter().chain(crates) {
        let manifest = fs::read_to_string(root().join(file)).expect("a manifest");
        for line in dependencies(&manifest) {
            assert!(line.contains(" # "), "no reason beside, in {file}: {line}");
        }
    }
}

#[test]
fn every_algorithm_is_implemented_twice() {
    for path in files(&root().join("scripts")) {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        let text = fs::read_to_string(&path).expect("text");
        let twin = root().join("src/algorithm").join(format!("{name}.rs"));
        // All other files are templates, and no part of the arithmetic.
        let is_algorithm = text.contains("\n--@ state ");
        assert!(!is_algorithm || twin.is_file(), "{name}.lua has no twin");
    }
}
