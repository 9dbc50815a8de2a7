//! The folder `scripts/assembled`: scripts as Redis gets them, with comments. After a change of a
//! script, this writes the folder again:
//!
//! ```sh
//! UPDATE=1 cargo test --lib assembled_scripts
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::assembly::commented;
use super::*;
use crate::Quota;
use crate::algorithm::{
    Budget, FixedWindow, SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp,
    TokenBucket,
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts");

/// The parts of the scripts that are shown.
fn shown() -> [Vec<ScriptPart>; 10] {
    let quota = Quota::per_second(5);
    let (bucket, window) = (TokenBucket::new(quota), FixedWindow::new(quota));
    let pair = [bucket.parts(), window.parts()].concat();
    let at_own_costs = pair.iter().map(|part| ScriptPart { own_costs: true, ..*part }).collect();
    [
        bucket.parts(),
        Budget::new(quota).parts(),
        window.parts(),
        SlidingLog::new(quota).parts(),
        SlidingWindow::new(quota).parts(),
        SlidingCounter::new(quota).parts(),
        SmoothBursty::new(quota).parts(),
        SmoothWarmingUp::new(quota, Duration::from_secs(1)).parts(),
        pair,
        at_own_costs,
    ]
}

/// The names and texts of the files in a folder.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let paths = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("read").path());
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    paths
        .filter(|path| path.is_file())
        .map(|path| (name(&path), fs::read_to_string(&path).expect("a text")))
        .collect()
}

/// Removes comments and blank lines, like `grep -vE '^ *(--|$)'`. Redis gets the rest.
fn without_comments(text: &str) -> String {
    let is_comment = |line: &&str| {
        let line = line.trim_start_matches(' ');
        line.is_empty() || line.starts_with("--")
    };
    text.split_inclusive('\n').filter(|line| !is_comment(&line.trim_end_matches('\n'))).collect()
}

#[test]
fn assembled_scripts_are_what_redis_gets() {
    let mut made = BTreeMap::new();
    for parts in shown() {
        let sent = Source::shared(&parts);
        for (kind, source) in [Kind::Checks, Kind::Complete].into_iter().zip(sent) {
            let names: Vec<_> = parts.iter().map(|part| part.name).collect();
            let costs = if parts[0].own_costs { "_at_own_costs" } else { "" };
            let end = if kind == Kind::Checks { "check" } else { "complete" };
            let name = format!("{}{costs}_{end}.lua", names.join("_and_"));
            let text = format!(
                "-- Put together from scripts/*.lua, and not to be edited: scripts/README.md.\n\
                 --\n\
                 -- Redis gets this file without its comments and blank lines, and nothing else:\n\
                 --   grep -vE '^ *(--|$)' {name}\n\
                 -- EVALSHA calls that text by its SHA-1, {}.\n\n{}",
                source.digest,
                commented(&parts, kind),
            );
            assert_eq!(without_comments(&text), source.text, "{name}");
            made.insert(name, text);
        }
    }
    for (name, text) in files(Path::new(FOLDER)) {
        let check = name.replace(".lua", "_check.lua");
        assert!(!text.contains("\n--@ state ") || made.contains_key(&check), "{check} is missing");
    }
    let folder = Path::new(FOLDER).join("assembled");
    if env::var_os("UPDATE").is_some() {
        _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        for (name, text) in &made {
            fs::write(folder.join(name), text).expect("written");
        }
    }
    let written = files(&folder);
    let mut stale: BTreeSet<_> = made.keys().chain(written.keys()).collect();
    stale.retain(|name| made.get(*name) != written.get(*name));
    assert!(
        stale.is_empty(),
        "scripts/assembled is stale: UPDATE=1 cargo test --lib assembled_scripts\n{stale:?}"
    );
}
