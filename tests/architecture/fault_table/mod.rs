//! `docs/faults.md`: every fault that the crate must survive, with the tests that show it.
//!
//! The page is put together from `cases.txt`, from the marks in the tests, such as `// Case 7.`,
//! and from the figures that tests print. A case needs a test, or a reason why there is none.
//! `cases.txt` also says what of the simulation belongs to a case: a disturbance, a promise or a
//! test of `tests/simulation/`, by its name there.
//!
//! ```sh
//! UPDATE=1 cargo test -p tests --test architecture     # writes the page anew
//! tests/architecture/fault_table/figures.sh   # runs the tests, and keeps their figures before
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

const CASES: &str = include_str!("cases.txt");
const FIGURES: &str = include_str!("figures.txt");

const BEGIN: &str = "\
# Faults

This page lists the faults that the crate must survive, case by case.
`tests/architecture/fault_table/` writes it from the marks in the tests, such as `// Case 7.`, and
from the figures that tests print: edit those. Each figure is from one run of the tests, on a
machine that did other work at the same time. [When Redis fails](guide/when-redis-fails.md) says
what a user sees.

Most tests use real servers. The column `simulated` names disturbances and promises of simulated
worlds. `CutAnswer` is a fault of a network, and `Stand` is a fault of a server. `once` is a promise
that a test checks against the servers' records. [How it is tested](how-it-is-tested.md) explains
all of them.
";

/// All Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The numbers of a mark: `Case 7.`, `Cases 7 and 8.`, `Cases 1, 2 and 4.`, `Cases 108 to 110.`
fn numbers(mark: &str) -> Vec<usize> {
    let words = mark.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
    let numbers: Vec<usize> = words.map(|word| word.parse().expect("a number")).collect();
    match numbers[..] {
        [first, last] if mark.contains(" to ") => (first..=last).collect(),
        _ => numbers,
    }
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
    name.split(['(', '<']).next()
}

/// The tests of each case, by the marks in `text`, and whether each runs with all others: a measure
/// does not, and neither does a test that is ignored.
fn marks(text: &str) -> Vec<(usize, String, bool)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let mark = line.trim_start().strip_prefix("// Case");
        let Some(mark) = mark.filter(|mark| mark.starts_with([' ', 's'])) else { continue };
        let mut cases = numbers(mark);
        // A comment that continues a sentence about cases is no mark.
        let next = &lines[at + 1..];
        let name = next.iter().take(6).find_map(|line| function(line));
        if let Some(name) = name {
            cases.dedup();
            let mut attributes = next.iter().take_while(|line| function(line).is_none());
            let is_test = attributes.clone().any(|line| line.contains("test"));
            let runs = is_test && !attributes.any(|line| line.contains("#[ignore"));
            found.extend(cases.into_iter().map(|case| (case, name.to_owned(), runs)));
        }
    }
    found
}

/// The Rust files whose tests and measures have marks.
fn all_sources() -> impl Iterator<Item = PathBuf> {
    let folders = ["src", "crates", "tests", "examples", "programs", "benches"];
    folders.into_iter().flat_map(|folder| sources(&root().join(folder)))
}

/// The tests of each case, and the cases with a test that runs with all others.
fn tests_by_case() -> (BTreeMap<usize, Vec<String>>, BTreeSet<usize>) {
    let mut tests: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut tested = BTreeSet::new();
    for path in all_sources() {
        if path.starts_with(root().join("tests/architecture")) {
            continue;
        }
        for (case, test, runs) in marks(&fs::read_to_string(&path).expect("text")) {
            tested.extend(runs.then_some(case));
            let tests = tests.entry(case).or_default();
            if !tests.contains(&test) {
                tests.push(test);
            }
        }
    }
    (tests, tested)
}

/// The variants of an enum, each in a line of its own.
fn variants<'a>(text: &'a str, name: &str) -> BTreeSet<&'a str> {
    let (_, body) = text.split_once(&format!("pub enum {name} {{\n")).expect("an enum");
    let (body, _) = body.split_once("\n}").expect("its end");
    let variant = |line: &'a str| line.trim().strip_suffix(',');
    body.lines().filter_map(variant).filter(|line| !line.starts_with("//")).collect()
}

/// All texts between a beginning and the next quotation mark.
fn quoted<'a>(text: &'a str, begin: &str) -> BTreeSet<&'a str> {
    text.split(begin).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// The names of the simulation: disturbances alone, and all that a case may name.
fn simulated() -> (BTreeSet<String>, BTreeSet<String>) {
    let folder = root().join("tests/simulation");
    let read = |file: &str| fs::read_to_string(folder.join(file)).expect("text");
    let (strikes, network) = (read("servers/strike.rs"), read("network.rs"));
    let (world, checks) = (read("world.rs"), read("checks.rs"));
    let owned = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let mut disturbances = BTreeSet::new();
    disturbances.extend(owned(variants(&strikes, "StrikeKind")));
    disturbances.extend(owned(variants(&network, "Fault")));
    disturbances.extend(owned(quoted(&world, "injected.insert(\"")));
    let mut all = disturbances.clone();
    all.extend(owned(quoted(&checks, "named(\"")));
    for path in sources(&folder) {
        let text = fs::read_to_string(&path).expect("text");
        all.extend(text.lines().filter_map(function).map(str::to_owned));
    }
    (disturbances, all)
}

/// Returns the lines that tests printed, such as `fault case=7 open_after_ms=900`.
fn figures_by_case() -> BTreeMap<usize, Vec<&'static str>> {
    let mut figures: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for line in FIGURES.lines().filter_map(|line| line.strip_prefix("fault case=")) {
        let (case, figure) = line.split_once(' ').expect("a figure");
        figures.entry(case.parse().expect("a number")).or_default().push(figure);
    }
    figures
}

/// The page, and what is wrong with it.
fn page() -> (String, Vec<String>) {
    let ((mut tests, tested), mut figures) = (tests_by_case(), figures_by_case());
    let (mut page, mut wrong) = (String::from(BEGIN), Vec::new());
    let (mut unnamed, known) = simulated();
    for line in CASES.lines() {
        if let Some(group) = line.strip_prefix("# ") {
            let head =
                "| case | what happens | simulated | tests | figures |\n|---|---|---|---|---|";
            writeln!(page, "\n## {group}\n\n{head}").expect("a text");
            continue;
        }
        let mut fields = line.split(" | ");
        let (case, sentence) = (fields.next(), fields.next().expect("a sentence"));
        let case: usize = case.and_then(|case| case.parse().ok()).expect("a number");
        let mut rest = fields.next();
        let names = rest.and_then(|field| field.strip_prefix("simulated: "));
        if names.is_some() {
            rest = fields.next();
        }
        let names: Vec<_> = names.into_iter().flat_map(|names| names.split(", ")).collect();
        for name in &names {
            if !known.contains(*name) {
                wrong.push(format!("case {case} names {name}, which is not simulated"));
            }
            // A case without a test on real servers does not show that they behave like that.
            if tests.contains_key(&case) {
                unnamed.remove(*name);
            }
        }
        let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let shown = match (tests.remove(&case), rest) {
            (Some(tests), reason) => {
                if !tested.contains(&case) {
                    wrong.push(format!("case {case} has no test that runs with all others"));
                }
                if reason.is_some() {
                    wrong.push(format!("case {case} has tests and a reason why it has none"));
                }
                tests.iter().map(|test| format!("`{test}`")).collect::<Vec<_>>().join(", ")
            }
            (None, Some(reason)) => format!("none: {reason}"),
            (None, None) => {
                wrong.push(format!("case {case} has neither a test nor a reason"));
                continue;
            }
        };
        let figures = figures.remove(&case).unwrap_or_default().join("; ");
        writeln!(page, "| {case} | {sentence} | {names} | {shown} | {figures} |").expect("a text");
    }
    wrong.extend(tests.keys().map(|case| format!("a test is marked with case {case}")));
    wrong.extend(figures.keys().map(|case| format!("a figure is of case {case}")));
    wrong.extend(unnamed.iter().map(|name| format!("{name} is simulated, and no test is real")));
    (page, wrong)
}

#[test]
fn every_case_has_a_test_or_a_reason_and_the_page_says_which() {
    let (page, wrong) = page();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let path = root().join("docs/faults.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &page).expect("written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let stale: Vec<_> = page.lines().filter(|line| !written.contains(line)).collect();
    assert!(
        page == written,
        "docs/faults.md is stale: UPDATE=1 cargo test -p tests --test architecture\n{}",
        stale.join("\n")
    );
}

#[test]
fn every_test_that_a_page_names_exists() {
    let mut functions = BTreeSet::new();
    for path in all_sources() {
        let text = fs::read_to_string(&path).expect("text");
        functions.extend(text.lines().filter_map(function).map(str::to_owned));
    }
    let mut missing = Vec::new();
    for page in ["SECURITY.md", "docs/faults.md", "docs/how-it-is-tested.md"] {
        let text = fs::read_to_string(root().join(page)).expect("a page");
        // Names of tests are sentences; those of the crate are shorter.
        let names = text.split('`').filter(|name| name.matches('_').count() >= 3);
        let names =
            names.filter(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
        missing.extend(
            names.filter(|name| !functions.contains(*name)).map(|name| format!("{page}: {name}")),
        );
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn every_check_of_a_world_is_on_the_page_that_explains_them() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("text");
    let (checks, page) = (read("tests/simulation/checks.rs"), read("docs/how-it-is-tested.md"));
    let names = quoted(&checks, "named(\"");
    let lacks = |name: &&&str| !page.contains(&format!("\n| `{name}` | "));
    assert_eq!(names.iter().filter(lacks).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn marks_are_read_as_they_are_written() {
    let text = "// Cases 1, 2 and 4.\n#[test]\nfn a() {}\n    // Case 7.\n    #[tokio::test]\n    \
                async fn b() {}\n// Cases 108 to 109.\n#[test]\n#[ignore = \"long\"]\nfn c() {}\n\
                // Case 5.\nfn d() {}\n// Cases end here.\n";
    let expected = [
        (1, "a", true),
        (2, "a", true),
        (4, "a", true),
        (7, "b", true),
        (108, "c", false),
        (109, "c", false),
        (5, "d", false),
    ];
    let expected = expected.map(|(case, name, runs)| (case, name.to_owned(), runs));
    assert_eq!(marks(text), expected);
}
