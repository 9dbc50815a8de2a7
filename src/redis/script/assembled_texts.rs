//! The scripts as Redis runs them, with comments, and their digests in `scripts/digests.txt`:
//!
//! ```sh
//! SCRIPTS=target/scripts cargo test --lib assembled_scripts # writes the scripts into a folder
//! UPDATE=1 cargo test --lib assembled_scripts # writes the digests, after a change of a script
//! ```

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::PathBuf;

use super::assembly::commented;
use super::*;
use crate::algorithm::{AnyAlgorithm, CALENDAR, FixedWindow, TokenBucket};
use crate::core::Quota;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts");

/// Each algorithm, and a pair: of equal costs, and of own costs.
fn shown() -> Vec<Vec<ScriptPart>> {
    let quota = Quota::per_second(5);
    let pair = [TokenBucket::new(quota).parts(), FixedWindow::new(quota).parts()].concat();
    let at_own_costs = pair.iter().map(|part| ScriptPart { own_costs: true, ..*part }).collect();
    let each = AnyAlgorithm::one_of_each(quota).map(|algorithm| algorithm.parts());
    each.into_iter().chain([vec![CALENDAR], pair, at_own_costs]).collect()
}

/// Removes comments and blank lines, like `grep -vE '^ *(--|$)'`. Redis gets the rest.
fn without_comments(text: &str) -> String {
    let is_comment = |line: &&str| {
        let line = line.trim_start_matches(' ');
        line.is_empty() || line.starts_with("--")
    };
    text.split_inclusive('\n').filter(|line| !is_comment(&line.trim_end_matches('\n'))).collect()
}

/// The scripts by the names of their files: the text with comments, and the digest of what is sent.
fn scripts() -> BTreeMap<String, (String, String)> {
    let mut made = BTreeMap::new();
    for parts in shown() {
        let names: Vec<_> = parts.iter().map(|part| part.name).collect();
        let costs = if parts[0].own_costs { "_at_own_costs" } else { "" };
        let Scripts { checks, complete } = Scripts::of(&parts);
        let kinds = [(Kind::Checks, "check", checks), (Kind::Complete, "complete", complete)];
        for (kind, end, script) in kinds {
            let name = format!("{}{costs}_{end}.lua", names.join("_and_"));
            let text = format!(
                "-- Redis gets this file without its comments and blank lines. EVALSHA calls that\n\
                 -- text by its SHA-1, {}:\n\
                 --   grep -vE '^ *(--|$)' {name} | sha1sum\n\n{}",
                script.digest(),
                commented(&parts, kind),
            );
            assert_eq!(without_comments(&text), script.text(), "{name}");
            made.insert(name, (text, script.digest().to_owned()));
        }
    }
    made
}

#[test]
fn assembled_scripts_are_what_redis_gets() {
    let made = scripts();
    for entry in fs::read_dir(FOLDER).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|end| end == "lua") {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let is_algorithm = fs::read_to_string(&path).expect("a text").contains("\n--@ state ");
            let is_shown = made.contains_key(&format!("{name}_check.lua"));
            assert!(!is_algorithm || is_shown, "{name}: add it to AnyAlgorithm::one_of_each");
        }
    }
    if let Some(folder) = env::var_os("SCRIPTS").map(PathBuf::from) {
        fs::create_dir_all(&folder).expect("a folder");
        for (name, (text, _)) in &made {
            fs::write(folder.join(name), text).expect("written");
        }
    }
    let lines: String =
        made.iter().map(|(name, (_, digest))| format!("{digest}  {name}\n")).collect();
    let path = format!("{FOLDER}/digests.txt");
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, &lines).expect("written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, lines, "scripts/digests.txt is stale: see {}", file!());
}
