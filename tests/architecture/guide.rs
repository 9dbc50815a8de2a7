//! The guide: each page is in the book and in rustdoc, is short, begins with its reason, and is found
//! by the words that people type. All links of all documents lead to what is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};

use crate::root;

const MAX_PAGES: usize = 22;
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

/// The text of a page without its blocks of code.
fn prose(page: &str) -> String {
    page.split("```").step_by(2).collect()
}

/// The sections of a page: the name of each heading in a link, the heading, and what follows it.
fn sections(page: &str) -> Vec<(String, String, String)> {
    let mut sections = Vec::<(String, String, String)>::new();
    for line in prose(page).lines() {
        let heading = line.trim_start_matches('#');
        match sections.last_mut() {
            _ if heading.len() < line.len() && heading.starts_with(' ') => {
                sections.push((anchor(heading), heading.to_owned(), String::new()));
            }
            Some((_, _, text)) => *text += &format!("{line}\n"),
            None => {}
        }
    }
    sections
}

fn has_heading(page: &str, name: &str) -> bool {
    sections(page).iter().any(|(anchor, ..)| anchor == name)
}

/// The references that a page defines, such as `[keys]: keys.md`, without the brackets.
fn definitions(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = page.lines().filter_map(|line| line.strip_prefix('['));
    let definitions = lines.filter_map(|line| line.split_once("]: "));
    definitions.filter(|(_, target)| !target.starts_with("http"))
}

/// The first paragraph of a section, or nothing if a table, a list or code comes first.
fn first_paragraph(section: &str) -> &str {
    let first = section.trim_start().split("\n\n").next().unwrap_or_default();
    let is_other = ["|", "- ", "1. ", "!["].iter().any(|begin| first.starts_with(begin));
    if is_other { "" } else { first }
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
                assert!(has_heading(&text, heading), "{}: {rest}", file.display());
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

/// The documents of the repository, those of fetched programs left out.
fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let (path, kind) = (entry.path(), entry.file_type().expect("a type"));
        let name = entry.file_name().into_string().expect("UTF-8");
        match kind.is_dir() {
            true if name.starts_with('.') || name == "target" || name == "node_modules" => {}
            true => documents(&path, found),
            false => found.extend((kind.is_file() && name.ends_with(".md")).then_some(path)),
        }
    }
}

/// The targets of the links of a document: those of its references, and those in its text.
fn targets(page: &str) -> Vec<String> {
    let text = prose(page);
    // A pair of brackets in code is no link.
    let text: String = text.split('`').step_by(2).collect();
    let inline = text.match_indices("](").map(|(at, begin)| &text[at + begin.len()..]);
    let inline = inline.filter_map(|rest| rest.split(')').next());
    let all = inline.chain(definitions(page).map(|(_, target)| target));
    let is_elsewhere = |target: &&str| target.starts_with("http") || target.contains("::");
    all.filter(|target| !is_elsewhere(target)).map(str::to_owned).collect()
}

#[test]
fn each_link_of_a_document_leads_to_a_file_and_to_a_heading() {
    let mut files = Vec::new();
    documents(root(), &mut files);
    let mut links = 0;
    for file in files {
        let page = read(&file);
        for target in targets(&page) {
            let (path, heading) = target.split_once('#').unwrap_or((&target, ""));
            let found = match path.is_empty() {
                true => file.clone(),
                false => file.parent().expect("a folder").join(path),
            };
            assert!(found.exists(), "{}: {target}", file.display());
            let leads = heading.is_empty() || has_heading(&read(found), heading);
            assert!(leads, "{}: {target}", file.display());
            links += 1;
        }
        // A reference without a definition stands as it is in the book.
        let prose = prose(&page);
        for (at, _) in prose.match_indices("][") {
            let label = prose[at + 2..].split(']').next().unwrap_or_default();
            let is_defined = page.contains(&format!("\n[{label}]: "));
            assert!(is_defined, "{} has no link called {label}", file.display());
        }
    }
    assert!(links > 100, "only {links} links were read");
}

/// mdBook has the pages of its table and what `build.sh` copies. rustdoc has no files of its own, so
/// the picture is in the link, which `UPDATE=1` writes.
#[test]
fn each_link_of_a_page_leads_somewhere_in_the_book_and_in_rustdoc() {
    let [book, rustdoc, links, build] = ["SUMMARY.md", "lib.rs", "links.txt", "build.sh"]
        .map(|name| read(format!("docs/guide/{name}")));
    for page in pages() {
        let text = read(format!("docs/guide/{page}"));
        for (label, target) in definitions(&text) {
            let path = target.split('#').next().unwrap_or_default();
            let Some(picture) = path.strip_prefix("../").filter(|path| path.ends_with(".svg"))
            else {
                assert!(book.contains(&format!("]({path})")), "{page}: {target}");
                continue;
            };
            let url = picture.replace(".svg", ".url");
            assert!(build.contains(&format!("../{picture} ")), "build.sh does not copy {picture}");
            assert!(rustdoc.contains(&format!("\"{page}\", \"{url}\"")), "lib.rs lacks {url}");
            let data = BASE64_STANDARD.encode(read(format!("docs/{picture}")));
            let link = format!("[{label}]: data:image/svg+xml;base64,{data}\n");
            if std::env::var_os("UPDATE").is_some() {
                fs::write(root().join(format!("docs/{url}")), &link).expect("written");
            }
            let is_same = read(format!("docs/{url}")) == link;
            assert!(is_same, "docs/{url}: UPDATE=1 cargo test -p tests --test architecture");
        }
    }
    for line in links.lines() {
        let (_, target) = line.split_once("]: crate::").unwrap_or_default();
        if let Some((page, heading)) = target.split_once('#') {
            let text = read(format!("docs/guide/{}.md", page.replace('_', "-")));
            assert!(has_heading(&text, heading), "links.txt: {line}");
        }
    }
}

/// A reader who comes from a search must see at once if the page is the right one.
#[test]
fn each_page_begins_with_one_paragraph_that_says_why() {
    for page in pages() {
        let text = read(format!("docs/guide/{page}"));
        let sections = sections(&text);
        let (_, title, begin) = sections.first().expect("a title");
        let first = first_paragraph(begin);
        assert!(text.starts_with(&format!("#{title}\n")), "{page} has no title");
        assert!(!first.is_empty(), "{page} begins with no sentence");
    }
    assert!(pages().len() <= MAX_PAGES);
}

/// mdBook's search ranks headings first, and finds words by their beginning.
#[test]
fn each_word_that_people_type_leads_to_a_heading_that_has_it() {
    let split = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.map(str::to_lowercase).filter(|word| !word.is_empty()).collect()
    };
    let list = read("docs/search-words.txt");
    let lines = list.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let (mut typed, mut lost) = (BTreeSet::new(), Vec::new());
    for line in lines {
        let (words, target) = line.split_once(": ").unwrap_or_else(|| panic!("{line}"));
        let (page, heading) = target.trim().split_once('#').unwrap_or_else(|| panic!("{line}"));
        let sections = sections(&read(format!("docs/guide/{page}")));
        let section = sections.iter().find(|(anchor, ..)| anchor == heading);
        let (_, title, text) = section.unwrap_or_else(|| panic!("no such heading: {line}"));
        let found = split(&format!("{title} {}", first_paragraph(text)));
        let has = |word: &str| found.iter().any(|one| one.starts_with(word));
        let missing: Vec<_> = split(words).into_iter().filter(|word| !has(word)).collect();
        lost.extend((!missing.is_empty()).then(|| format!("{line} lacks {missing:?}")));
        assert!(typed.insert(words.to_lowercase()), "{words} is listed twice");
    }
    assert!(lost.is_empty(), "neither heading nor first paragraph has it:\n{}", lost.join("\n"));
    assert!(typed.len() >= 40, "only {} words are listed", typed.len());
}

/// A block of Rust that is marked as text is not compiled.
#[test]
fn each_list_of_header_styles_is_whole() {
    let code = read("src/http/headers.rs");
    let names = code.split_once("const NAMES").expect("names").1;
    let names = names.split("];").next().unwrap_or_default().lines().filter_map(|line| {
        line.trim().strip_prefix("(\"")?.strip_suffix("),")?.split_once("\", HeaderStyle::")
    });
    for (name, variant) in names {
        for (path, word) in [
            ("src/http/headers.rs", format!("`{name}`")),
            ("docs/guide/what-callers-see.md", format!("{variant}`")),
            ("programs/gateway/README.md", format!("`{name}`")),
            ("programs/gateway/src/settings.rs", name.to_owned()),
            ("programs/gateway/tests/limits.rs", format!("\"{name}\"")),
            ("tests/layer/headers.rs", format!("HeaderStyle::{variant},")),
            ("tests/layer/headers/cost.rs", format!("(HeaderStyle::{variant},")),
        ] {
            let needs_it = variant != "None" || !path.starts_with("tests/layer");
            assert!(!needs_it || read(path).contains(&word), "{path}: {word}");
        }
    }
}

#[test]
fn no_block_of_rust_passes_for_text() {
    for page in pages() {
        let text = read(format!("docs/guide/{page}"));
        for block in text.split("```").skip(1).step_by(2).filter(|block| block.starts_with("text"))
        {
            let is_rust = ["::new(", "let ", ".await"].iter().any(|word| block.contains(word));
            assert!(!is_rust, "{page}: {block}");
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
