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

/// The pages below `docs/guide`, without the table of contents.
fn pages() -> BTreeSet<String> {
    let entries = fs::read_dir(root().join("docs/guide")).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    let names = names.map(|name| name.expect("UTF-8"));
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
fn each_page_is_in_the_book_in_rustdoc_and_in_both_lists_of_links() {
    let (book, rustdoc) = (read("docs/guide/SUMMARY.md"), read("src/guide.rs"));
    let links = ["links-rustdoc.txt", "links-docs-rs.txt"].map(|name| format!("docs/guide/{name}"));
    let links = links.map(read);
    for page in pages() {
        let module = page.trim_end_matches(".md").replace('-', "_");
        assert!(book.contains(&format!("]({page})")), "SUMMARY.md lacks {page}");
        assert!(rustdoc.contains(&format!("\"{page}\"")), "src/guide.rs lacks {page}");
        let path = format!("crate::guide::{module}\n");
        assert!(links[0].contains(&path), "links-rustdoc.txt lacks {page}");
        let path = format!("/guide/{module}/index.html\n");
        assert!(links[1].contains(&path), "links-docs-rs.txt lacks {page}");
        // Without one of these, rustdoc takes the page's own definition, which leads nowhere there.
        let text = read(format!("docs/guide/{page}"));
        for (label, target) in definitions(&text).filter(|(_, target)| target.contains(".md")) {
            let begin = format!("\n[{label}]: ");
            assert!(links.iter().all(|list| list.contains(&begin)), "{page}: [{label}]: {target}");
        }
    }
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
