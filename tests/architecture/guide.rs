//! The guide: each page is in the book and in rustdoc, is short, and links to what is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

const MAX_PAGE_LINES: usize = 300;
const MAX_README_LINES: usize = 150;

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The pages below `docs/guide`, without the table of contents, and without the links to files of
/// other folders.
fn pages() -> BTreeSet<String> {
    let entries = fs::read_dir(root().join("docs/guide")).expect("a folder");
    let entries = entries.map(|entry| entry.expect("an entry"));
    let files = entries.filter(|entry| entry.file_type().expect("a type").is_file());
    let names = files.map(|file| file.file_name().into_string().expect("UTF-8"));
    names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect()
}

/// The name that a heading has in a link.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
    heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

/// The references that a page defines, such as `[keys]: keys.md`, without the brackets.
fn definitions(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = page.lines().filter_map(|line| line.strip_prefix('['));
    let definitions = lines.filter_map(|line| line.split_once("]: "));
    definitions.filter(|(_, target)| !target.starts_with("http"))
}

#[test]
fn each_page_is_in_the_book_in_rustdoc_and_in_the_list_of_links() {
    let [book, rustdoc, links] =
        ["SUMMARY.md", "lib.rs", "links.txt"].map(|name| read(format!("docs/guide/{name}")));
    for page in pages() {
        let module = page.trim_end_matches(".md").replace('-', "_");
        assert!(book.contains(&format!("]({page})")), "SUMMARY.md lacks {page}");
        assert!(rustdoc.contains(&format!("\"{page}\"")), "docs/guide/lib.rs lacks {page}");
        assert!(links.contains(&format!("crate::{module}\n")), "links.txt lacks {page}");
        // Without one of these, rustdoc takes the page's own definition, which leads nowhere there.
        let text = read(format!("docs/guide/{page}"));
        for (label, target) in definitions(&text).filter(|(_, target)| target.contains(".md")) {
            let begin = format!("\n[{label}]: ");
            assert!(links.contains(&begin), "{page}: [{label}]: {target}");
        }
    }
}

/// All files below a folder that rustdoc or a reader sees.
fn texts(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let is_text = path.extension().is_some_and(|kind| kind == "rs" || kind == "md");
        match path.is_dir() {
            true if path.ends_with("target") || path.ends_with("tests") => {}
            true => found.extend(texts(&path)),
            false => found.extend(is_text.then_some(path)),
        }
    }
    found
}

/// The guide is a package of its own: cargo does not know if a page is there.
#[test]
fn each_link_into_the_guide_leads_to_a_page_and_to_a_heading() {
    const GUIDE: &str = "https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/";
    let mut files = vec![root().join("README.md")];
    files.extend(["src", "crates", "programs"].iter().flat_map(|name| texts(&root().join(name))));
    let mut links = 0;
    for file in files {
        let text = fs::read_to_string(&file).expect("text");
        for (at, _) in text.match_indices(GUIDE) {
            let rest = text[at + GUIDE.len()..].split([')', '"', '>']).next().expect("a path");
            let rest = rest.split_whitespace().next().expect("a path");
            let (page, heading) = rest.split_once('/').expect("a page and a slash");
            let found = root().join(format!("docs/guide/{}.md", page.replace('_', "-")));
            let text = fs::read_to_string(&found);
            let text = text.unwrap_or_else(|error| panic!("{}: {rest}: {error}", file.display()));
            if let Some(heading) = heading.strip_prefix('#') {
                let mut headings = text.lines().filter_map(|line| line.strip_prefix("## "));
                assert!(headings.any(|one| anchor(one) == heading), "{}: {rest}", file.display());
            }
            links += 1;
        }
    }
    assert!(links > 20, "only {links} links were read");
}

#[test]
fn no_page_is_long() {
    for page in pages() {
        let lines = read(format!("docs/guide/{page}")).lines().count();
        assert!(lines <= MAX_PAGE_LINES, "{page} has {lines} lines");
    }
    assert!(read("README.md").lines().count() <= MAX_README_LINES);
}

#[test]
fn each_link_of_a_page_leads_to_a_file_and_to_a_heading() {
    let mut files: Vec<PathBuf> =
        pages().iter().map(|page| Path::new("docs/guide").join(page)).collect();
    files.extend(["README.md", "SECURITY.md", "docs/how-it-is-tested.md"].map(PathBuf::from));
    for file in files {
        let page = read(&file);
        let folder = file.parent().expect("a folder");
        for (_, target) in definitions(&page) {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let found = root().join(folder).join(path);
            assert!(found.exists(), "{}: {target}", file.display());
            if !heading.is_empty() {
                let text = read(found);
                let mut headings = text.lines().filter_map(|line| line.strip_prefix("## "));
                assert!(headings.any(|one| anchor(one) == heading), "{}: {target}", file.display());
            }
        }
        // A reference without a definition stands as it is in the book.
        let prose: String = page.split("```").step_by(2).collect();
        for (at, _) in prose.match_indices("][") {
            let label = prose[at + 2..].split(']').next().unwrap_or_default();
            let is_defined = page.contains(&format!("\n[{label}]: "));
            assert!(is_defined, "{} has no link called {label}", file.display());
        }
    }
}

#[test]
fn no_page_for_users_names_a_test() {
    for page in pages() {
        let text = read(format!("docs/guide/{page}"));
        let names = text.split('`').filter(|name| name.matches('_').count() >= 4);
        let mut names =
            names.filter(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
        let known = |name: &str| name.starts_with("rate_limit_");
        assert_eq!(names.find(|name| !known(name)), None, "{page}");
    }
}
