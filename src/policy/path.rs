//! The paths that a request may mean, however it spells them.

use std::borrow::Cow;

/// The bytes that a path may hold as they are. Every other one is percent-encoded.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"%?#{}\\".contains(&byte)
}

/// What servers may read in one path, each in the spelling of [`spelled`].
///
/// Some decode `%2F` before they split a path, some afterwards, and some never. Some take out empty
/// segments, or `.` and `..`. So one path can mean several.
pub(super) struct Readings<'a>(Vec<Cow<'a, str>>);

impl<'a> Readings<'a> {
    pub(super) fn of(path: &'a str) -> Self {
        if !may_be_respelled(path) {
            return Self(vec![path.into()]);
        }
        let mut readings: Vec<Cow<'a, str>> = Vec::new();
        for separators in [Separators::Written, Separators::Decoded] {
            let path = spelled(path, separators);
            for reading in [resolved(&path, Empty::First), resolved(&path, Empty::Last), path] {
                if !readings.iter().any(|known| *known == reading) {
                    readings.push(reading.into());
                }
            }
        }
        Self(readings)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|reading| &**reading)
    }
}

/// One path for all spellings: no two keys for one resource.
pub(super) fn canonical(path: &str) -> Cow<'_, str> {
    match may_be_respelled(path) {
        true => resolved(&spelled(path, Separators::Decoded), Empty::First).into(),
        false => path.into(),
    }
}

/// Whether a path may have other readings than itself.
fn may_be_respelled(path: &str) -> bool {
    let is_absolute = path.starts_with('/');
    is_absolute && (!path.bytes().all(is_plain) || path.contains("//") || path.contains("/."))
}

/// Which characters separate segments.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Separators {
    /// A slash.
    Written,
    /// A slash and a backslash, also where they are percent-encoded.
    Decoded,
}

/// The path with each byte in one spelling: itself, or percent-encoded in upper case.
pub(super) fn spelled(path: &str, separators: Separators) -> String {
    let mut result = String::with_capacity(path.len());
    let mut bytes = path.as_bytes();
    while let [first, rest @ ..] = bytes {
        let escaped = if *first == b'%' { decoded(rest) } else { None };
        let byte = escaped.unwrap_or(*first);
        bytes = if escaped.is_some() { &rest[2..] } else { rest };
        match (byte, separators) {
            (b'/' | b'\\', Separators::Decoded) => result.push('/'),
            (b'/', _) if escaped.is_some() => result.push_str("%2F"),
            _ if is_plain(byte) => result.push(byte.into()),
            _ => result.push_str(&format!("%{byte:02X}")),
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
            assert_eq!(Readings::of(path).iter().collect::<Vec<_>>(), [path]);
        }
    }

    #[test]
    fn a_path_is_read_as_each_server_reads_it() {
        let readings = |path| Readings::of(path).iter().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(readings("/a/b%2fc"), ["/a/b%2Fc", "/a/b/c"]);
        assert_eq!(readings("/a//../b"), ["/b", "/a/b", "/a//../b"]);
        assert_eq!(readings("/.hidden"), ["/.hidden"]);
        assert_eq!(readings("/a%2F../b"), ["/a%2F../b", "/b", "/a/../b"]);
    }

    /// Not fewer and not longer than a path of the largest request allows.
    #[test]
    fn no_path_has_more_than_six_readings() {
        for path in ["/%2F".repeat(4_000), "/a%2f/..\\%5c/.%2e//.".repeat(500), "/%".repeat(9_000)]
        {
            let readings = Readings::of(&path);
            assert!((1..=6).contains(&readings.0.len()));
            assert!(readings.iter().all(|reading| reading.len() <= 3 * path.len()));
        }
    }
}
