//! The paths that a request may mean, however it spells them.

use std::borrow::Cow;

/// The longest path whose every reading is looked at.
const MAX_AMBIGUOUS: usize = 4_096;

/// The bytes that a path may hold as they are. Every other one is percent-encoded.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"%?#{}\\".contains(&byte)
}

/// What servers may read in one path, each in the spelling of [`literal`].
///
/// Some decode `%2F` before they split a path, some afterwards, and some never. Some take out empty
/// segments, or `.` and `..`, and some do so twice. So one path can mean several. `None`: it is too
/// long to tell.
pub(super) struct Readings<'a>(Option<Vec<Cow<'a, str>>>);

impl<'a> Readings<'a> {
    pub(super) fn of(path: &'a str) -> Self {
        if !may_be_respelled(path) {
            return Self(Some(vec![path.into()]));
        }
        let written = spelled(path);
        if !is_ambiguous(&written) {
            return Self(Some(vec![written.into()]));
        }
        if path.len() > MAX_AMBIGUOUS {
            return Self(None);
        }
        let mut once = Vec::new();
        for dots in [written.clone(), written.replace("%2E", ".")] {
            let slashes = dots.replace('\\', "/");
            add_resolved(&mut once, dots);
            add_resolved(&mut once, slashes);
        }
        let mut readings = Vec::new();
        for path in once {
            let path = path.replace("%2E", ".").replace('\\', "%5C");
            let slashes = path.replace("%2F", "/");
            add_resolved(&mut readings, slashes.replace("%5C", "/"));
            add_resolved(&mut readings, slashes);
            add_resolved(&mut readings, path);
        }
        Self(Some(readings.into_iter().map(Cow::Owned).collect()))
    }

    /// Each of them; `None` if they are too many.
    pub(super) fn each(&self) -> Option<impl Iterator<Item = &str>> {
        let readings = self.0.as_ref()?;
        Some(readings.iter().map(|reading| &**reading))
    }
}

/// Adds a path as it is, and without segments that servers take out.
fn add_resolved(readings: &mut Vec<String>, path: String) {
    for reading in [resolved(&path, Empty::First), resolved(&path, Empty::Last), path] {
        if !readings.contains(&reading) {
            readings.push(reading);
        }
    }
}

/// One path for all spellings: no two keys for one resource.
pub(super) fn canonical(path: &str) -> Cow<'_, str> {
    match may_be_respelled(path) {
        true => resolved(&literal(path), Empty::First).into(),
        false => path.into(),
    }
}

/// Whether a path may have other readings than itself.
fn may_be_respelled(path: &str) -> bool {
    let is_absolute = path.starts_with('/');
    is_absolute && (!path.bytes().all(is_plain) || path.contains("//") || path.contains("/."))
}

/// Whether a path that was spelled has other readings than itself.
fn is_ambiguous(path: &str) -> bool {
    ["//", "/.", "%2E", "%2F", "%5C", "\\"].iter().any(|odd| path.contains(odd))
}

/// The path with every byte decoded, and both kinds of slashes as one.
pub(super) fn literal(path: &str) -> String {
    spelled(path).replace("%2E", ".").replace("%2F", "/").replace("%5C", "/").replace('\\', "/")
}

/// The path with each byte in one spelling: itself, or percent-encoded in upper case. What makes
/// segments stays as it was written: slashes, backslashes and dots.
fn spelled(path: &str) -> String {
    let mut result = String::with_capacity(path.len());
    let mut bytes = path.as_bytes();
    while let [first, rest @ ..] = bytes {
        let escaped = if *first == b'%' { decoded(rest) } else { None };
        bytes = if escaped.is_some() { &rest[2..] } else { rest };
        match (escaped, *first) {
            (None, b'\\') => result.push('\\'),
            (Some(byte @ (b'/' | b'.')), _) => result.push_str(&format!("%{byte:02X}")),
            (Some(byte), _) | (None, byte) if is_plain(byte) => result.push(byte.into()),
            (Some(byte), _) | (None, byte) => result.push_str(&format!("%{byte:02X}")),
        }
    }
    result
}

/// The byte that two hexadecimal digits stand for.
fn decoded(digits: &[u8]) -> Option<u8> {
    let digits = digits.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

/// When empty segments are taken out: before `..` takes out the segment before it, or afterwards.
#[derive(Clone, Copy, PartialEq)]
enum Empty {
    First,
    Last,
}

/// The path without empty segments, `.` and `..`.
fn resolved(path: &str, empty: Empty) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "" if empty == Empty::First => {}
            "." => {}
            ".." => _ = segments.pop(),
            segment => segments.push(segment),
        }
    }
    let mut result = String::with_capacity(path.len());
    for segment in segments.iter().filter(|segment| !segment.is_empty()) {
        result.extend(["/", segment]);
    }
    let ends_open = ["/", "/.", "/.."].iter().any(|end| path.ends_with(end));
    if result.is_empty() || ends_open {
        result.push('/');
    }
    result
}

#[cfg(test)]
mod servers;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_path_has_one_form() {
        for (path, form) in [
            ("/%61pi/x", "/api/x"),
            ("/api//x", "/api/x"),
            ("//api/x", "/api/x"),
            ("/a/../api/./x", "/api/x"),
            ("/%2e%2E/api/x", "/api/x"),
            ("/api/x/..", "/api/"),
            ("/..", "/"),
            ("/a%2fb", "/a/b"),
            ("/a%5Cb\\c", "/a/b/c"),
            ("/x%2f..%2Fapi", "/api"),
            ("/a%c3%a4", "/a%C3%A4"),
            ("/a\u{e4}", "/a%C3%A4"),
            ("/a%3Ab", "/a:b"),
            ("/a%252Fb", "/a%252Fb"),
            ("/100%/x//", "/100%25/x/"),
            ("/{a}", "/%7Ba%7D"),
            ("/a%00%20b%FF", "/a%00%20b%FF"),
            ("/%", "/%25"),
            ("/%4", "/%254"),
            ("/%+1", "/%25+1"),
        ] {
            assert_eq!(canonical(path), form, "{path}");
            assert_eq!(canonical(form), form, "{form}");
        }
        for path in ["/", "/api/x", "/api/", "/a:b@c;d=e", "*", ""] {
            assert_eq!(canonical(path), path);
            assert_eq!(readings(path), [path]);
        }
    }

    fn readings(path: &str) -> Vec<String> {
        Readings::of(path).each().expect("a short path").map(str::to_owned).collect()
    }

    #[test]
    fn a_path_is_read_as_each_server_reads_it() {
        for (path, read) in [
            ("/a/b%2fc", &["/a/b%2Fc", "/a/b/c"][..]),
            ("/a//../b", &["/b", "/a/b", "/a//../b"]),
            ("/.hidden", &["/.hidden"]),
            ("/a%20b", &["/a%20b"]),
            ("/a%2F../b", &["/a%2F../b", "/b", "/a/../b"]),
            // A server that takes out dots before it decodes any.
            ("/api/%2e/../x", &["/api/x", "/x", "/api/./../x"]),
        ] {
            let found = readings(path);
            assert!(read.iter().all(|one| found.iter().any(|other| one == other)), "{found:?}");
            assert!(found.len() == read.len() || path.contains("%2e"), "{found:?}");
        }
    }

    /// A caller cannot make the work large.
    #[test]
    fn readings_are_few_and_paths_too_long_have_none() {
        for odd in ["/%2F", "/a%2f/..\\%5c/.%2e//.", "/%5c%2E%2e/a/%2e/../%2f", "\\..//%2e%2e%5c"] {
            let path = format!("/{}", odd.repeat(100));
            let readings = readings(&path);
            assert!((1..=40).contains(&readings.len()), "{}", readings.len());
            assert!(readings.iter().all(|reading| reading.len() <= 3 * path.len()));
            assert!(Readings::of(&format!("/{}", odd.repeat(4_000))).each().is_none());
        }
        assert_eq!(readings(&"/%20".repeat(9_000)).len(), 1);
    }
}
