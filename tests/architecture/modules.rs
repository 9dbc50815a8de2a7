//! The rules for which module may use which module and which crate, as data, held against every
//! path in `src`. And rules for dependencies and scripts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::imports::paths;
use crate::root;

/// A module: its files, the crates that it may name, and the modules that it may use.
struct Module {
    files: &'static [&'static str],
    crates: &'static [&'static str],
    modules: &'static [&'static str],
}

/// Every module may use these, and they use each other.
const VALUES: &[&str] = &[
    "reservation",
    "charge",
    "decision",
    "error",
    "extractor",
    "mark",
    "quota",
    "refusal",
    "settlement",
    "sync",
    "waiters",
];

/// The first match holds, so a module inside another stands before it.
const MODULES: &[Module] = &[
    Module { files: &["debug_by_name", "for_each_tuple"], crates: &[], modules: &[] },
    Module { files: &["sync"], crates: &["loom"], modules: &[] },
    Module { files: VALUES, crates: &["tower::BoxError"], modules: VALUES },
    Module { files: &["digest"], crates: &["sha2", "hmac"], modules: &["digest"] },
    Module { files: &["algorithm"], crates: &[], modules: &["algorithm"] },
    Module { files: &["observe"], crates: &["metrics", "tracing", "tokio"], modules: &["observe"] },
    Module {
        files: &["limiter/redis"],
        crates: &[
            "tokio",
            "pin_project_lite",
            "fastrand",
            "futures_util",
            "redis",
            "redis_once",
            "bb8_redis",
        ],
        modules: &["algorithm", "digest", "limiter", "observe"],
    },
    Module {
        files: &["limiter/lease"],
        crates: &["tokio", "pin_project_lite", "hashbrown"],
        modules: &["digest", "limiter"],
    },
    Module {
        files: &["limiter/memory"],
        crates: &["tokio", "hashbrown"],
        modules: &["algorithm", "digest", "limiter"],
    },
    Module {
        files: &["limiter"],
        crates: &["tokio", "pin_project_lite", "fastrand", "hashbrown"],
        modules: &["algorithm", "digest", "limiter", "observe"],
    },
    Module { files: &["reject"], crates: &["tower::BoxError"], modules: &["reject"] },
    Module { files: &["settle"], crates: &[], modules: &["settle"] },
    Module {
        files: &["layer"],
        crates: &["tokio", "tower_layer"],
        modules: &["limiter", "http", "layer", "observe", "reject", "service", "settle", "shared"],
    },
    Module {
        files: &["service", "future", "shared"],
        crates: &["tokio", "tower_service", "pin_project_lite"],
        modules: &["limiter", "observe", "reject", "service", "settle", "future", "shared"],
    },
    Module {
        files: &["http/client_ip"],
        crates: &["http", "ipnet", "axum", "tonic", "fastrand"],
        modules: &["http"],
    },
    Module {
        files: &["http/count_body"],
        crates: &["http", "http_body", "bytes", "pin_project_lite"],
        modules: &["http", "settle"],
    },
    Module {
        files: &["http/drain_refused"],
        crates: &["http", "http_body", "bytes", "tokio"],
        modules: &["reject"],
    },
    Module {
        files: &["http/answer", "http/hand_out"],
        crates: &["http", "http_body"],
        modules: &["http", "settle"],
    },
    Module { files: &["http/frameworks"], crates: &["http", "axum", "tonic"], modules: &["http"] },
    Module { files: &["http/api_key"], crates: &["http"], modules: &["digest", "http"] },
    Module {
        files: &["http"],
        crates: &["http", "base64", "fastrand", "itoa", "sfv"],
        modules: &["reject", "http"],
    },
    Module { files: &["guide"], crates: &[], modules: &[] },
    // What users find by its use. Nothing inside names these.
    Module {
        files: &["crates"],
        crates: &["bb8_redis", "http_body", "ipnet", "redis", "redis_once"],
        modules: &[],
    },
    Module {
        files: &["key", "respond"],
        crates: &[],
        modules: &["http", "reject", "settle", "shared"],
    },
    Module { files: &["store"], crates: &[], modules: &["limiter"] },
    Module { files: &["testing"], crates: &[], modules: &["limiter"] },
];

/// A folder inside a module: of this crate, its files name nothing but what begins with `paths`.
struct Room {
    folder: &'static str,
    paths: &'static [&'static str],
}

/// The limiter in Redis asks `send`, and `send` asks `script`, which knows neither.
const ROOMS: &[Room] = &[
    Room {
        folder: "limiter/redis/script",
        paths: &[
            "crate::limiter::redis::script",
            "crate::limiter::configured",
            "crate::algorithm",
            "crate::quota",
            "crate::Quota",
            "crate::Error",
            "crate::ErrorKind",
        ],
    },
    Room {
        folder: "limiter/redis/send",
        paths: &[
            "crate::limiter::redis::send",
            "crate::limiter::redis::script",
            "crate::limiter::redis::decision_times",
            "crate::limiter::redis::key_names",
            "crate::limiter::redis::Pool",
            "crate::limiter::charge_numbers",
            "crate::limiter::configured",
            "crate::limiter::runtime",
            "crate::algorithm",
            "crate::observe",
            "crate::settlement",
            "crate::sync",
            "crate::Charge",
            "crate::Error",
            "crate::ErrorKind",
            // Its tests ask whole limiters.
            "crate::Limiter",
            "crate::Pool",
            "crate::Quota",
            "crate::Redis",
        ],
    },
];

/// The module behind each name in `lib.rs`, and all foreign crates.
struct Map {
    modules: BTreeMap<String, String>,
    foreign: BTreeSet<String>,
}

impl Map {
    fn read() -> Self {
        let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
        let name = |line: &String| line.split(['=', ' ']).next().map(|name| name.replace('-', "_"));
        let foreign = dependencies(&manifest).iter().filter_map(name).collect();

        let front = fs::read_to_string(root().join("src/lib.rs")).expect("a front page");
        let mut modules = BTreeMap::new();
        for (_, path) in paths("lib.rs", &front) {
            let Some((module, name)) =
                path.strip_prefix("crate::").and_then(|p| p.split_once("::"))
            else {
                continue;
            };
            modules.insert(module.to_owned(), module.to_owned());
            modules.insert(name.to_owned(), module.to_owned());
        }
        for module in MODULES.iter().flat_map(|module| module.files) {
            let module = module.split('/').next().expect("a name").to_owned();
            modules.insert(module.clone(), module);
        }
        Self { modules, foreign }
    }

    /// Returns why `path` may not stand in `module`, if it may not.
    fn violation(&self, module: &Module, path: &str) -> Option<String> {
        let mut names = path.split("::");
        let head = names.next().expect("a name");
        if head == "crate" {
            let name = names.next().unwrap_or("*");
            let Some(used) = self.modules.get(name) else {
                return Some(format!("uses {name}, which lib.rs has from no module"));
            };
            let allowed = VALUES.contains(&&**used) || module.modules.contains(&&**used);
            return (!allowed).then(|| format!("uses {used}"));
        }
        (self.foreign.contains(head) && !begins_with_one(path, module.crates))
            .then(|| format!("names the crate {head}"))
    }

    fn violations(&self, file: &str, text: &str) -> Vec<String> {
        let inside = |begin: &&str| {
            let rest = file.strip_prefix(*begin);
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        let module = MODULES.iter().find(|module| module.files.iter().any(inside));
        let module = module.unwrap_or_else(|| panic!("src/{file} is in no module of MODULES"));
        let room = ROOMS.iter().find(|room| inside(&room.folder));
        let line = |(line, path): (usize, String)| {
            let leaves = |room: &Room| room.violation(&path);
            let why = self.violation(module, &path).or_else(|| room.and_then(leaves))?;
            Some(format!("src/{file}:{line} {why}: {path}"))
        };
        paths(file, text).into_iter().filter_map(line).collect()
    }
}

impl Room {
    /// Returns why `path` may not stand in one of its files, if it may not.
    fn violation(&self, path: &str) -> Option<String> {
        let leaves = begins_with_one(path, &["crate"]) && !begins_with_one(path, self.paths);
        leaves.then(|| format!("leaves the room {}", self.folder))
    }
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
    let (source, map) = (root().join("src"), Map::read());
    let mut found = Vec::new();
    let mut count = 0;
    for path in files(&source) {
        let file = path.strip_prefix(&source).expect("inside").to_str().expect("a name");
        if file != "lib.rs" {
            let text = fs::read_to_string(&path).expect("text");
            count += paths(file, &text).len();
            found.extend(map.violations(file, &text));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(count > 100, "only {count} paths were read");
}

#[test]
fn a_planted_violation_is_found_with_its_line() {
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
        ("http/responder.rs", "let layer = super::super::layer::RateLimitLayer;"),
        ("respond.rs", "use tower::ServiceExt;"),
        ("error.rs", "use tower;"),
        ("http/head.rs", "let quote = '\"'; use redis::Value; let other = '\"';"),
        ("limiter/redis/script/reply.rs", "use super::super::send::Config;"),
        ("limiter/redis/script/mod.rs", "fn cost(charge: &crate::Charge) {}"),
        ("limiter/memory.rs", "use redis_once::Pool;"),
        ("limiter/redis/script/mod.rs", "use super::send::Config;"),
        ("limiter/redis/send/worker.rs", "use super::super::future::RedisFuture;"),
    ];
    for (file, text) in planted {
        let found = map.violations(file, &format!("use std::fmt;\n\n{text}\n"));
        assert_eq!(found.len(), 1, "{file}: {text}: {found:?}");
        let line = if text.contains("Limiter,\n") { 5 } else { 3 };
        assert!(found[0].starts_with(&format!("src/{file}:{line} ")), "{text}: {found:?}");
    }
}

#[test]
fn allowed_imports_and_mere_texts_pass() {
    let map = Map::read();
    let innocent = [
        ("error.rs", "use tower::BoxError;"),
        ("error.rs", "/// [`x`](crate::limiter::Limiter)"),
        ("error.rs", "//! use redis::Value;"),
        ("error.rs", "let x = 1; // as redis::Value"),
        ("error.rs", "/* use redis::Value;\n*/ let text = \"redis::\\\"Value\";"),
        ("error.rs", "let text = r#\"a \" redis::Value\"#;"),
        ("error.rs", "fn f<'a>(a: &'a str) -> impl Sized + use<'a> { a }"),
        ("limiter/redis/script/mod.rs", "mod tests { use super::*; use crate::algorithm::Check; }"),
        ("limiter/redis/send/call.rs", "use super::super::Pool; use super::batch::Call;"),
        ("limiter/redis/limiter.rs", "use super::send::Config; let value = redis::Value::Nil;"),
        ("limiter/mod.rs", "pub use self::redis::{Pool, Redis};"),
        (
            "limiter/redis/key_names.rs",
            "mod tests { use super::*; use super::super::ConfiguredAlgorithm; }",
        ),
        ("service.rs", "use crate::{Charge, Limiter, Refusal};"),
        ("algorithm/mod.rs", "let outcome = Outcome::Allow;"),
    ];
    for (file, text) in innocent {
        let found = map.violations(file, text);
        assert!(found.is_empty(), "{file}: {text}: {found:?}");
    }
}

/// The name of files with tests.
const SHARED_NAMES: &[&str] = &["tests"];

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
